//! The thread that keeps sessions at memory nodes alive, whatever the cores do.
//!
//! It owns the control connections of all cores of an engine, on an executor of its own, so that a
//! core that computes for longer than a lease sends no heartbeat late. A core reaches its session
//! through a [`KeptSession`]: it reads what has changed, and sends orders.
//!
//! ```text
//! core:   KeptSession --- orders, end ----> | task: NodeSession, heartbeats, resume, open anew | --> memory node
//!                     <-- Told (a lock) --- |
//! thread: one task for each core and node
//! ```
//!
//! - I1: one task owns a control connection, so requests on it go one at a time.
//! - I2: a task ends when its handle is dropped or closed, or the thread is stopped; each time it
//!   ends its session if it can.
//! - I3: an idle thread has one entry in [`IDLE`], and takes work only after that was removed. It
//!   is kept because every executor of glommio 0.9.0 that has run leaves an eventfd and 4 KiB
//!   behind.
//! - I4: a session of a node that another handle of the same [`Siblings`] already has is ended at
//!   once and never told.
//!
//! Cost: a thread and an executor for each engine that is open; a lock that is held for a few
//! steps, twenty milliseconds apart for each core and node.

use std::convert::Infallible;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;
use std::{fmt, io};

use async_channel::{Receiver, Sender};
use farcore_tuning::Clock;
use futures_lite::future::or;
use glommio::timer::Timer;
use glommio::{LocalExecutorBuilder, Placement};

use crate::address::FabricAddress;
use crate::control::{NodeStatistics, SessionError};
use crate::pool::{ExtentRun, OwnerId};
use crate::session::{ConnectOptions, ManagerError, nanoseconds, socket_address, within};
use crate::session::{NodeSession, SessionFacts};
use crate::tcp::connect_control;
use crate::wake_timer::WakeTimer;

/// glommio's own memory.
const IO_MEMORY_BYTES: usize = 64 << 10;
/// Entries of each of the executor's rings.
const RING_DEPTH: usize = 64;
/// How long the executor runs on after its last task, so that the kernel hears of closed sockets.
const LAST_TURN: Duration = Duration::from_millis(1);

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Idle threads of this process, and of those that it was forked from, with their executors.
static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());

struct Idle {
    process: u32,
    inbox: mpsc::Sender<Assignment>,
}

/// What a thread keeps until it is stopped.
struct Assignment {
    lobby: Receiver<Wanted>,
    stopped: Receiver<Infallible>,
    wake_timer: WakeTimer,
    /// Dropped when all has ended.
    ended: mpsc::Sender<Infallible>,
}

/// The sessions of one engine, on a thread that keeps them alive. They end when this is dropped.
#[derive(Debug)]
pub struct Heartbeats {
    tasks: Sender<Wanted>,
    /// Carries nothing: closing it stops every task.
    stop: Sender<Infallible>,
    /// Carries nothing: its other end is dropped when the last task has ended.
    ended: Mutex<Option<mpsc::Receiver<Infallible>>>,
}

impl Heartbeats {
    /// Starts a thread, or takes one that is idle. Best called by a thread that is not pinned: a
    /// new one inherits where it may run.
    ///
    /// # Errors
    /// The thread or its executor cannot be had.
    pub fn start() -> io::Result<Self> {
        let (tasks, lobby) = async_channel::unbounded();
        let (stop, stopped) = async_channel::bounded(1);
        let (ended, is_ended) = mpsc::channel();
        assign(Assignment {
            lobby,
            stopped,
            wake_timer: WakeTimer::new()?,
            ended,
        })?;
        Ok(Self {
            tasks,
            stop,
            ended: Mutex::new(Some(is_ended)),
        })
    }

    /// Ends all sessions that there still are, and waits for that. May be called again. The thread
    /// stays, asleep, for whoever starts next.
    pub fn stop(&self) {
        self.tasks.close();
        self.stop.close();
        if let Some(ended) = locked(&self.ended).take() {
            let _ = ended.recv();
        }
    }

    /// Begins to open a session and keeps it from then on. A node that does not answer is tried
    /// again until the handle is dropped.
    pub(crate) fn keep(
        &self,
        address: FabricAddress,
        options: ConnectOptions,
        siblings: Siblings,
    ) -> KeptSession {
        let (orders, received) = async_channel::unbounded();
        let (end, ends) = async_channel::bounded(1);
        let told = Arc::new(Mutex::new(Told::default()));
        let wanted = Wanted {
            address,
            options,
            siblings,
            told: Arc::clone(&told),
            orders: received,
            ends,
        };
        // Of a thread that was stopped the handle hears, for the other ends of the channels are
        // dropped.
        let _ = self.tasks.try_send(wanted);
        KeptSession { told, orders, end }
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Hands an assignment to an idle thread, else to a new one.
fn assign(mut assignment: Assignment) -> io::Result<()> {
    let process = std::process::id();
    loop {
        let idle = {
            let mut idle = locked(&IDLE);
            // A forked child has none of its parent's threads.
            idle.retain(|one| one.process == process);
            idle.pop()
        };
        let Some(idle) = idle else {
            break;
        };
        match idle.inbox.send(assignment) {
            Ok(()) => return Ok(()),
            Err(mpsc::SendError(back)) => assignment = back,
        }
    }
    let (ready, is_ready) = mpsc::channel();
    thread::Builder::new()
        .name("farcore-leases".to_owned())
        .spawn(move || serve(assignment, &ready))?;
    is_ready
        .recv()
        .unwrap_or_else(|_| Err(io::Error::other("its executor panicked")))
}

/// The thread: makes the executor, then keeps one engine's sessions after the other.
fn serve(first: Assignment, ready: &mpsc::Sender<io::Result<()>>) {
    let builder = LocalExecutorBuilder::new(Placement::Unbound)
        .name("farcore-leases")
        .io_memory(IO_MEMORY_BYTES)
        .ring_depth(RING_DEPTH);
    // glommio panics where it cannot start a thread of its own.
    let made = catch_unwind(AssertUnwindSafe(|| builder.make()));
    let executor = match made {
        Ok(Ok(executor)) => executor,
        Ok(Err(error)) => return drop(ready.send(Err(io::Error::other(error.to_string())))),
        Err(_) => {
            let what = "no executor: a thread of its own cannot be started";
            return drop(ready.send(Err(io::Error::other(what))));
        }
    };
    let _abort = AbortOnPanic;
    let _ = ready.send(Ok(()));
    let mut next = Some(first);
    while let Some(Assignment {
        lobby,
        stopped,
        wake_timer,
        ended,
    }) = next.take()
    {
        executor.run(or(keep_all(lobby, stopped), wake_timer.beat()));
        drop(wake_timer);
        let (inbox, assignments) = mpsc::channel();
        let process = std::process::id();
        locked(&IDLE).push(Idle { process, inbox });
        // After that, so that whoever waits for the end and then starts anew finds this thread.
        drop(ended);
        next = assignments.recv().ok();
    }
}

/// Held while the executor runs. Should that unwind, nobody would keep any lease, and nobody would
/// say so.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("a panic on the thread of the heartbeats: aborting");
            std::process::abort();
        }
    }
}

/// The nodes that one core has sessions with, by the number of their lives.
#[derive(Clone, Debug, Default)]
pub struct Siblings(Arc<Mutex<Vec<(FabricAddress, u32)>>>);

impl Siblings {
    /// Notes that an address leads to a node, in place of what it led to before.
    ///
    /// # Errors
    /// The other address that leads to the same node.
    fn admit(&self, address: &FabricAddress, incarnation: u32) -> Result<(), FabricAddress> {
        let mut known = locked(&self.0);
        let twin = |one: &&(FabricAddress, u32)| one.1 == incarnation && one.0 != *address;
        if let Some((other, _)) = known.iter().find(twin) {
            return Err(other.clone());
        }
        known.retain(|one| one.0 != *address);
        known.push((address.clone(), incarnation));
        Ok(())
    }
}

/// What a task says of its session.
#[derive(Debug, Default)]
struct Told {
    /// The newest session; none before the first was opened.
    session: Option<SessionFacts>,
    /// Whether the node answered the last time.
    answers: bool,
    /// Why it did not; until somebody takes it.
    error: Option<ManagerError>,
}

/// What has changed for a core.
#[derive(Debug)]
pub(crate) struct News {
    /// A session that the core does not know yet.
    pub(crate) session: Option<SessionFacts>,
    /// Whether the node answers.
    pub(crate) answers: bool,
}

/// What a core wants of its session. Answers go through a channel: an order that is dropped closes
/// it.
enum Order {
    Allocate(u64, Sender<Result<ExtentRun, SessionError>>),
    Free(ExtentRun, Sender<Result<(), SessionError>>),
    Statistics(Sender<Result<NodeStatistics, SessionError>>),
    /// A memory connection of this session was refused: look whether it still exists.
    Check(OwnerId),
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allocate(..) => "Allocate",
            Self::Free(..) => "Free",
            Self::Statistics(_) => "Statistics",
            Self::Check(_) => "Check",
        })
    }
}

/// A core's end of a session that the thread keeps. Dropped, the session is ended.
#[derive(Debug)]
pub(crate) struct KeptSession {
    told: Arc<Mutex<Told>>,
    orders: Sender<Order>,
    end: Sender<Sender<Infallible>>,
}

impl KeptSession {
    /// What has changed, for a core that knows the session `known`.
    pub(crate) fn news(&self, known: Option<OwnerId>) -> News {
        let told = locked(&self.told);
        let unknown = |session: &&SessionFacts| Some(session.owner()) != known;
        News {
            session: told.session.as_ref().filter(unknown).cloned(),
            answers: told.answers && !self.orders.is_closed(),
        }
    }

    /// Takes the reason of the last failure.
    pub(crate) fn take_error(&self) -> Option<ManagerError> {
        locked(&self.told).error.take()
    }

    /// True once nobody keeps it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.orders.is_closed()
    }

    /// Has a session looked after at once whose memory connection was refused.
    pub(crate) fn check(&self, owner: OwnerId) {
        let _ = self.orders.try_send(Order::Check(owner));
    }

    async fn ask<T>(
        &self,
        order: impl FnOnce(Sender<Result<T, SessionError>>) -> Order,
    ) -> Result<T, SessionError> {
        let gone = || {
            let what = "the control connection is down";
            io::Error::new(io::ErrorKind::NotConnected, what)
        };
        let (answer, answered) = async_channel::bounded(1);
        self.orders.try_send(order(answer)).map_err(|_| gone())?;
        answered.recv().await.map_err(|_| gone())?
    }

    pub(crate) async fn allocate_chunk(&self, bytes: u64) -> Result<ExtentRun, SessionError> {
        self.ask(|answer| Order::Allocate(bytes, answer)).await
    }

    pub(crate) async fn free_chunk(&self, run: ExtentRun) -> Result<(), SessionError> {
        self.ask(|answer| Order::Free(run, answer)).await
    }

    pub(crate) async fn statistics(&self) -> Result<NodeStatistics, SessionError> {
        self.ask(Order::Statistics).await
    }

    /// Ends the session and waits for that: the node takes back at once all that it held.
    pub(crate) async fn close(self) {
        let (ended, is_ended) = async_channel::bounded(1);
        if self.end.try_send(ended).is_ok() {
            // Nothing comes: the other end is dropped when the task has ended.
            let _ = is_ended.recv().await;
        }
    }
}

/// A session that is to be opened and kept.
#[derive(Debug)]
struct Wanted {
    address: FabricAddress,
    options: ConnectOptions,
    siblings: Siblings,
    told: Arc<Mutex<Told>>,
    orders: Receiver<Order>,
    ends: Receiver<Sender<Infallible>>,
}

/// One session, as the thread keeps it.
#[derive(Debug)]
struct SessionTask {
    address: FabricAddress,
    options: ConnectOptions,
    siblings: Siblings,
    told: Arc<Mutex<Told>>,
    orders: Receiver<Order>,
    ends: Receiver<Sender<Infallible>>,
    session: Option<NodeSession>,
    /// The control connection works.
    answers: bool,
    clock: Clock,
    /// When the next heartbeat is to be sent, or the next try to be made.
    due_ns: u64,
    pause: Duration,
    /// The last try found another address's node, and that was said.
    is_twin: bool,
}

/// Keeps what comes until it is stopped, and waits until all tasks have ended.
async fn keep_all(lobby: Receiver<Wanted>, stopped: Receiver<Infallible>) {
    let (alive, gone) = async_channel::bounded::<Infallible>(1);
    while let Ok(wanted) = lobby.recv().await {
        let (stopped, alive) = (stopped.clone(), alive.clone());
        glommio::spawn_local(async move {
            SessionTask::new(wanted).run(stopped).await;
            drop(alive);
        })
        .detach();
    }
    drop(alive);
    let _ = gone.recv().await;
    Timer::new(LAST_TURN).await;
}

impl SessionTask {
    fn new(wanted: Wanted) -> Self {
        let Wanted {
            address,
            options,
            siblings,
            told,
            orders,
            ends,
        } = wanted;
        Self {
            pause: options.pause_min,
            address,
            options,
            siblings,
            told,
            orders,
            ends,
            session: None,
            answers: false,
            clock: Clock::new(),
            due_ns: 0,
            is_twin: false,
        }
    }

    async fn run(mut self, stopped: Receiver<Infallible>) {
        let ends = self.ends.clone();
        let ended = async { ends.recv().await.ok() };
        let stop = async {
            let _ = stopped.recv().await;
            None
        };
        let acknowledge = or(or(ended, stop), self.keep()).await;
        self.leave().await;
        drop(acknowledge);
    }

    /// Never ends by itself. What is under way when it is dropped leaves the session broken, and
    /// known as such.
    async fn keep<T>(&mut self) -> T {
        loop {
            let now_ns = self.clock.now_ns();
            if now_ns >= self.due_ns {
                self.tend().await;
                continue;
            }
            let left = Duration::from_nanos(self.due_ns - now_ns);
            let order = async {
                match self.orders.recv().await {
                    Ok(order) => Some(order),
                    // The handle is gone: `run` hears of that.
                    Err(_) => pending().await,
                }
            };
            let due = async {
                Timer::new(left).await;
                None
            };
            if let Some(order) = or(order, due).await {
                self.perform(order).await;
            }
        }
    }

    /// A heartbeat, or a try to have the session again.
    async fn tend(&mut self) {
        let now_ns = self.clock.now_ns();
        match self.mend().await {
            Ok(lease) => {
                self.pause = self.options.pause_min;
                self.due_ns = now_ns + nanoseconds(lease / 4);
                locked(&self.told).answers = true;
            }
            Err(error) => {
                // Sessions that lost the same node come back one after the other.
                let spread = now_ns % (nanoseconds(self.pause) / 4 + 1);
                self.due_ns = self.clock.now_ns() + nanoseconds(self.pause) + spread;
                self.pause = (self.pause * 2).min(self.options.pause_max);
                let is_twin = matches!(error, ManagerError::Twin { .. });
                if is_twin && !self.is_twin {
                    tracing::error!(%error, "a memory node cannot be used");
                }
                self.is_twin = is_twin;
                let mut told = locked(&self.told);
                told.answers = false;
                told.error = Some(error);
            }
        }
    }

    /// Renews the lease by whatever it takes; answers how long that is.
    async fn mend(&mut self) -> Result<Duration, ManagerError> {
        if self.answers
            && let Some(session) = &mut self.session
        {
            match within(&self.address, self.options.limit, session.heartbeat()).await {
                Ok(()) => return Ok(session.lease()),
                Err(error) => tracing::debug!(node = %self.address, %error, "a heartbeat failed"),
            }
            self.answers = false;
        }
        if let Some(session) = &mut self.session {
            match resume(&self.address, &self.options, session).await {
                Ok(()) => {
                    self.answers = true;
                    return Ok(session.lease());
                }
                Err(ManagerError::Session {
                    source: SessionError::Expired,
                    ..
                }) => {}
                Err(error) => return Err(error),
            }
        }
        let session = self.open().await?;
        if self.session.is_some() {
            tracing::warn!(node = %self.address, "the session is over, and all that it held is lost");
        }
        let lease = session.lease();
        self.options.keep_within(lease);
        locked(&self.told).session = Some(session.facts());
        self.session = Some(session);
        self.answers = true;
        Ok(lease)
    }

    async fn open(&self) -> Result<NodeSession, ManagerError> {
        let limit = self.options.limit;
        let place = socket_address(&self.address).await?;
        let channel = connect_control(place, limit).await?;
        let token = self.options.token.as_ref();
        let opening = NodeSession::open(channel, &self.options.client, token);
        let session = within(&self.address, limit, opening).await?;
        if let Err(other) = self.siblings.admit(&self.address, session.incarnation()) {
            let _ = within(&self.address, limit, session.bye()).await;
            return Err(ManagerError::Twin {
                address: self.address.clone(),
                other,
            });
        }
        Ok(session)
    }

    async fn perform(&mut self, order: Order) {
        let Some(session) = &mut self.session else {
            return;
        };
        let limit = self.options.limit;
        // Whoever asked may have gone.
        match order {
            Order::Allocate(bytes, answer) => {
                let done = in_time(limit, session.allocate_chunk(bytes)).await;
                let _ = answer.try_send(done);
            }
            Order::Free(run, answer) => {
                let done = in_time(limit, session.free_chunk(run)).await;
                let _ = answer.try_send(done);
            }
            Order::Statistics(answer) => {
                let done = in_time(limit, session.statistics()).await;
                let _ = answer.try_send(done);
            }
            Order::Check(owner) => {
                if owner == session.owner() {
                    self.answers = false;
                    self.due_ns = 0;
                }
            }
        }
        if session.is_broken() && self.answers {
            self.answers = false;
            self.due_ns = 0;
        }
    }

    /// Ends the session: the node takes back at once all that it held.
    async fn leave(mut self) {
        let Some(mut session) = self.session.take().filter(|_| self.answers) else {
            // Who cannot say goodbye is forgotten when the lease ends.
            return;
        };
        // A request may have been given up half-way: its answer would be taken for the farewell's.
        if session.is_broken()
            && resume(&self.address, &self.options, &mut session)
                .await
                .is_err()
        {
            return;
        }
        let _ = within(&self.address, self.options.limit, session.bye()).await;
    }
}

async fn in_time<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, SessionError>>,
) -> Result<T, SessionError> {
    or(work, async {
        Timer::new(limit).await;
        Err(io::Error::from(io::ErrorKind::TimedOut).into())
    })
    .await
}

/// Takes a session up again over a new control connection.
async fn resume(
    address: &FabricAddress,
    options: &ConnectOptions,
    session: &mut NodeSession,
) -> Result<(), ManagerError> {
    let place = socket_address(address).await?;
    let channel = connect_control(place, options.limit).await?;
    within(address, options.limit, session.resume(channel)).await
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

    use super::*;
    use crate::control::LEASE_MIN;
    use crate::node::{MemoryNode, MemoryOptions, NodeHandle, NodeOptions};
    use crate::region::Lock;
    use crate::session::{Change, NodeConnections};

    fn node(port: u16) -> NodeHandle {
        let memory = MemoryOptions {
            region_bytes: 1 << 20,
            extent_bytes: 64 << 10,
            huge_pages: false,
            lock: Lock::Off,
            ..MemoryOptions::new(1 << 20)
        };
        MemoryNode::start(NodeOptions {
            lease: LEASE_MIN,
            ..NodeOptions::new(([127, 0, 0, 1], port).into(), memory)
        })
        .expect("a node")
    }

    fn address(at: SocketAddr) -> FabricAddress {
        format!("tcp://{at}").parse().expect("an address")
    }

    #[test]
    fn a_session_lives_while_its_core_does_nothing() {
        let node = node(0);
        let heartbeats = Heartbeats::start().expect("a thread");
        let held = async {
            let options = ConnectOptions::default();
            let opened = NodeConnections::open(address(node.address()), options, &heartbeats);
            let connections = opened.await.expect("a node that listens");
            // Nothing of this executor runs meanwhile.
            let begin = node.metrics().statistics();
            let lease_ns = nanoseconds(LEASE_MIN);
            while node.metrics().statistics().uptime_ns < begin.uptime_ns + 3 * lease_ns {
                thread::yield_now();
            }
            let seen = node.metrics().statistics();
            assert_eq!((seen.sessions, seen.sessions_opened), (1, 1));
            assert_eq!((seen.sessions_kept, seen.sessions_revived), (0, 0));
            connections.close().await;
        };
        crate::run_local(held).expect("an executor");
        assert_eq!(node.metrics().statistics().sessions, 0);
        node.stop();
    }

    #[test]
    fn stopping_ends_what_was_not_closed() {
        let node = node(0);
        let heartbeats = Heartbeats::start().expect("a thread");
        let opened = async {
            let options = ConnectOptions::default();
            let opened = NodeConnections::open(address(node.address()), options, &heartbeats);
            opened.await.expect("a node that listens")
        };
        let mut connections = crate::run_local(opened).expect("an executor");
        heartbeats.stop();
        heartbeats.stop();
        assert_eq!(node.metrics().statistics().sessions, 0);
        let told = crate::run_local(async { connections.tend().await }).expect("an executor");
        assert!(
            matches!(told, Some(Change::Down(ManagerError::Stopped(_)))),
            "{told:?}"
        );
        node.stop();
    }

    /// Carries one connection after the other to another address.
    fn forward(listener: &TcpListener, to: SocketAddr) {
        while let Ok((mut near, _)) = listener.accept() {
            let Ok(mut far) = TcpStream::connect(to) else {
                return;
            };
            let (mut near_in, mut far_out) = (
                near.try_clone().expect("a socket"),
                far.try_clone().expect("a socket"),
            );
            thread::spawn(move || {
                let _ = io::copy(&mut near_in, &mut far_out);
                let _ = far_out.shutdown(Shutdown::Write);
            });
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = far.read(&mut bytes) {
                if near.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            let _ = near.shutdown(Shutdown::Both);
        }
    }

    #[test]
    fn a_session_that_comes_back_on_a_node_that_is_known_already_is_not_used() {
        let (first, second) = (node(0), node(0));
        let (one, two) = (first.address(), second.address());
        let heartbeats = Heartbeats::start().expect("a thread");
        let work = async {
            let siblings = Siblings::default();
            let begin = |at| {
                let options = ConnectOptions::default();
                NodeConnections::begin(address(at), options, &heartbeats, &siblings)
            };
            let (mut ours, mut theirs) = (begin(one), begin(two));
            while !(ours.is_open() && theirs.is_open()) {
                Timer::new(Duration::from_millis(1)).await;
            }
            second.stop();
            // The second node's address leads to the first one now.
            let listener = loop {
                match TcpListener::bind(two) {
                    Ok(listener) => break listener,
                    Err(_) => Timer::new(Duration::from_millis(1)).await,
                };
            };
            thread::spawn(move || forward(&listener, one));
            let before = theirs.session().map(SessionFacts::owner);
            let error = loop {
                let told = theirs.tend().await;
                assert!(
                    !matches!(told, Some(Change::Renewed)),
                    "it was taken for another node"
                );
                match theirs.take_error() {
                    Some(error @ ManagerError::Twin { .. }) => break error,
                    _ => Timer::new(Duration::from_millis(1)).await,
                };
            };
            let text = error.to_string();
            assert!(
                text.contains(&two.to_string()) && text.contains(&one.to_string()),
                "{text}"
            );
            assert_eq!(theirs.session().map(SessionFacts::owner), before);
            assert!(ours.tend().await.is_none());
            ours.close().await;
            theirs.close().await;
        };
        crate::run_local(work).expect("an executor");
        first.stop();
    }
}
