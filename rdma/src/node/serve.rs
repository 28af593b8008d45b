//! The memory node's service: threads with a glommio executor each, and one that keeps house.
//!
//! ```text
//! executor 0..n:  accept -> connect request -> control: handshake, then requests of a session
//!                                           -> memory:  join, wait for the predecessor's end, serve
//! house:          end leases -> when the last line has ended -> take back -> mend, now and then
//! ```
//!
//! - I1: whoever has not proved itself has [`NodeOptions::handshake_limit`] to do so, and only so many may be at it.
//! - I2: the sessions are locked for a few steps only, never while anything is awaited.
//! - I3: what a session held is taken back by the house alone, after the session is over.
//!
//! The one place of the fabric that reads a clock.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use futures_lite::future::or;
use glommio::sync::Semaphore;
use glommio::timer::Timer;
use glommio::{LocalExecutorBuilder, Placement};
use tracing::{debug, info, warn};

use super::control::{NodeStatistics, Opening, Refused, Reply, Request, Welcome};
use super::figures::{Figures, Why, add, get};
use super::handshake::NodeGreeted;
use super::memory::{MemoryError, MemoryOptions, NodeMemory, Registered};
use super::session::{Admission, End};
use super::sessions::{Sessions, Speaker, Ticket};
use super::token::{self, Join, Token};
use crate::pool::ExtentRun;
use crate::tcp::{
    Arrival, Closer, Incoming, MessageChannel, Purpose, Refusal, TcpAcceptor, TcpAddress,
};

/// How often an executor looks whether it is to stop. glommio may also put a thread to sleep although a task is ready,
/// when it is preempted before the first one; only a timer ends that sleep.
const HEARTBEAT: Duration = Duration::from_millis(1);
/// How often a line looks whether its predecessor has ended.
const PREDECESSOR_PACE: Duration = Duration::from_millis(1);
/// How long an executor waits for its connections when it stops.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long no connection is accepted after one could not be.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often the house looks for leases that ended.
const HOUSE_PACE: Duration = Duration::from_millis(100);
/// How often it mends the table: long against a claim.
const MEND_PACE: Duration = Duration::from_secs(10);
/// glommio's own memory, per executor.
const IO_MEMORY_BYTES: usize = 64 << 10;
const THREADS_MAX: usize = 1024;

/// What a memory node is to be like.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What it lends.
    pub memory: MemoryOptions,
    /// What its clients must know; without one anybody who can connect may use its memory.
    pub token: Option<Token>,
    /// How long a session lives without a request, at least a millisecond.
    pub lease: Duration,
    /// Threads that serve connections.
    pub threads: usize,
    /// Sessions at a time.
    pub sessions_max: usize,
    /// Control connections at a time, and as many memory connections again.
    pub connections_max: u64,
    /// Connections that have not yet proved anything, at a time.
    pub strangers_max: u64,
    /// How long one of these may take.
    pub handshake_limit: Duration,
}

impl NodeOptions {
    /// Where nothing else is said: one thread, no token, a lease of 30 seconds.
    #[must_use]
    pub fn new(listen: SocketAddr, memory: MemoryOptions) -> Self {
        Self {
            listen,
            memory,
            token: None,
            lease: Duration::from_secs(30),
            threads: 1,
            sessions_max: 1024,
            connections_max: 4096,
            strangers_max: 64,
            handshake_limit: Duration::from_secs(5),
        }
    }
}

/// Why a memory node does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is out of bounds.
    #[error("{what} is {value}: must be {bounds}")]
    Setting {
        /// Which.
        what: &'static str,
        /// Its value.
        value: String,
        /// Its bounds.
        bounds: String,
    },
    /// It cannot listen.
    #[error("cannot listen on {address}: {source}{}", remedy(source))]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// There is no memory to lend.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A thread or its executor cannot be had.
    #[error(
        "cannot start thread {index}: {reason}; each needs io_uring (Linux 5.8) and 512 KiB of locked memory (`ulimit -l`)"
    )]
    Thread {
        /// Which.
        index: usize,
        /// Why.
        reason: String,
    },
    /// The kernel has no random numbers.
    #[error("no random numbers: {0}")]
    Random(io::Error),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; is another memory node running? Stop it or listen on another port"
        }
        io::ErrorKind::AddrNotAvailable => "; give an address of this machine",
        io::ErrorKind::PermissionDenied => "; ports below 1024 are for root: take a higher one",
        _ => "",
    }
}

/// What all threads of a node share.
#[derive(Debug)]
struct Node {
    options: NodeOptions,
    memory: NodeMemory,
    figures: Figures,
    sessions: Mutex<Sessions<Closer>>,
    started: Instant,
    stopping: AtomicBool,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Node {
    fn now_ns(&self) -> u64 {
        nanoseconds(self.started.elapsed())
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions<Closer>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopping(&self) -> bool {
        // ORDERING: pairs with the Release in `NodeHandle::end`.
        self.stopping.load(Ordering::Acquire)
    }

    fn statistics(&self) -> NodeStatistics {
        let (sessions, lines) = {
            let sessions = self.sessions();
            (sessions.len() as u64, sessions.lines() as u64)
        };
        let (figures, map) = (&self.figures, self.memory.map());
        let served = figures.served.sum();
        NodeStatistics {
            uptime_ns: self.now_ns(),
            data_bytes: u64::from(map.extents()) * map.extent_bytes,
            extent_bytes: map.extent_bytes,
            extents: u64::from(map.extents()),
            extents_free: u64::from(self.memory.table().free_count()),
            sessions,
            sessions_opened: get(&figures.sessions_opened),
            sessions_expired: get(&figures.sessions_expired),
            control_connections: figures.controls.taken(),
            memory_connections: lines,
            reads: served.reads,
            read_bytes: served.read_bytes,
            writes: served.writes,
            write_bytes: served.write_bytes,
            atomics: served.atomics,
            requests_refused: served.refused,
            chunks_allocated: get(&figures.chunks_allocated),
            chunks_freed: get(&figures.chunks_freed),
            extents_reclaimed: get(&figures.extents_reclaimed),
            refusals: figures.refusals().map(|(_, count)| count).sum(),
        }
    }

    fn open(&self, greeted: &NodeGreeted, proof: &[u8]) -> Result<(Speaker, Vec<u8>), Refused> {
        let now_ns = self.now_ns();
        let token = self.options.token.as_ref();
        let (proved, speaker, resumed) = match greeted.opening {
            Opening::New => {
                let key = token::key_of(token);
                let proved = greeted.proved(proof, key, token.is_some())?;
                let name = greeted.client.clone();
                let session = proved.session_key(key);
                let speaker = self.sessions().open(name, session, now_ns)?;
                add(&self.figures.sessions_opened, 1);
                (proved, speaker, None)
            }
            Opening::Resume {
                session,
                incarnation,
            } => {
                let key = self.sessions().key(session, incarnation, now_ns)?;
                let proved = greeted.proved(proof, key.bytes(), true)?;
                let speaker = self.sessions().resume(session, now_ns)?;
                (proved, speaker, Some(key))
            }
        };
        let welcome = Welcome {
            session: speaker.session,
            incarnation: self.sessions().incarnation(),
            lease_ms: u64::try_from(self.options.lease.as_millis()).unwrap_or(u64::MAX),
            map: self.memory.map().clone(),
        };
        let key = match &resumed {
            Some(key) => key.bytes(),
            None => token::key_of(token),
        };
        Ok((speaker, proved.welcome(key, &welcome)))
    }

    fn allocate(&self, speaker: Speaker, bytes: u64) -> Result<ExtentRun, Refused> {
        let extent_bytes = self.memory.map().extent_bytes;
        let bytes_max = u64::from(ExtentRun::COUNT_MAX) * extent_bytes;
        let count = u32::try_from(bytes.div_ceil(extent_bytes)).unwrap_or(u32::MAX);
        if !(1..=ExtentRun::COUNT_MAX).contains(&count) {
            return Err(Refused::ChunkBytes {
                asked_bytes: bytes,
                bytes_max,
            });
        }
        let table = self.memory.table();
        let run = table
            .claim(speaker.session, count)
            .ok_or_else(|| Refused::Exhausted {
                asked_bytes: u64::from(count) * extent_bytes,
                free_bytes: u64::from(table.free_count()) * extent_bytes,
            })?;
        add(&self.figures.chunks_allocated, 1);
        Ok(run)
    }

    fn perform(&self, speaker: Speaker, message: &[u8]) -> Result<Reply, Refused> {
        let request = Request::decode(message)?;
        // Held to the end: the session cannot be over, nor what it held taken back, before a claim for it is settled.
        let mut sessions = self.sessions();
        sessions.request(speaker, self.now_ns())?;
        match request {
            Request::Hello { .. } | Request::Prove { .. } => Err(Refused::OutOfTurn),
            Request::Heartbeat => Ok(Reply::Renewed),
            Request::AllocateChunk { bytes } => self
                .allocate(speaker, bytes)
                .map(|run| Reply::Chunk(run.into())),
            Request::FreeChunk(chunk) => {
                let not_owned = |count| Refused::NotOwned { count };
                let run = chunk.run().ok_or(not_owned(chunk.count))?;
                let freed = self.memory.table().free(speaker.session, run);
                freed.map_err(|error| not_owned(error.count))?;
                add(&self.figures.chunks_freed, 1);
                Ok(Reply::Freed)
            }
            Request::Statistics => {
                drop(sessions);
                Ok(Reply::Statistics(self.statistics()))
            }
            Request::Bye => {
                sessions.bye(speaker);
                Ok(Reply::Farewell)
            }
        }
    }

    /// Ends leases and takes back what those held who are over.
    fn keep_house(&self) {
        let over = self.sessions().over(self.now_ns());
        for one in over {
            let extents = self.memory.table().take_back(one.session);
            add(&self.figures.extents_reclaimed, u64::from(extents));
            let (session, name) = (one.session.get(), one.name);
            match one.end {
                End::Bye => info!(session, name, extents, "the session has ended"),
                End::Expired => {
                    add(&self.figures.sessions_expired, 1);
                    warn!(
                        session,
                        name, extents, "the lease has ended; what the session held is free again"
                    );
                }
            }
        }
    }
}

/// Says that a line has ended, however its task does.
struct Ended<'a> {
    node: &'a Node,
    house: &'a Thread,
    ticket: Ticket,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.node.sessions().ended(self.ticket);
        self.house.unpark();
    }
}

/// One executor's view.
#[derive(Clone)]
struct Visit {
    node: Arc<Node>,
    house: Thread,
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = async {
        Timer::new(limit).await;
        Err(io::ErrorKind::TimedOut.into())
    };
    or(work, late).await
}

impl Visit {
    async fn receive(self, arrival: Arrival) {
        let peer = arrival.peer();
        let node = Arc::clone(&self.node);
        let options = &node.options;
        let Some(stranger) = node.figures.strangers.take(options.strangers_max) else {
            node.figures.refused(Why::Busy);
            debug!(%peer, "too many connections that have proved nothing");
            return;
        };
        let incoming = match within(options.handshake_limit, arrival.request()).await {
            Ok(incoming) => incoming,
            Err(error) => {
                let silent = error.kind() == io::ErrorKind::TimedOut;
                let why = if silent { Why::Silent } else { Why::Request };
                node.figures.refused(why);
                debug!(%peer, %error, "no connect request");
                return;
            }
        };
        match incoming.request().purpose {
            Purpose::Control => {
                let Some(_place) = node.figures.controls.take(options.connections_max) else {
                    return self.refuse(incoming, Refusal::Busy).await;
                };
                match within(options.handshake_limit, self.shake(incoming)).await {
                    Ok(Some((speaker, channel))) => {
                        drop(stranger);
                        let ended = self.control(speaker, channel).await;
                        debug!(%peer, session = speaker.session.get(), ?ended, "control connection ended");
                    }
                    Ok(None) => {}
                    Err(error) => {
                        if error.kind() == io::ErrorKind::TimedOut {
                            node.figures.refused(Why::Silent);
                        }
                        debug!(%peer, %error, "no handshake");
                    }
                }
            }
            Purpose::Memory {
                session,
                slot,
                counter,
                proof,
            } => {
                let Some(_place) = node.figures.memories.take(options.connections_max) else {
                    return self.refuse(incoming, Refusal::Busy).await;
                };
                let join = Join {
                    session,
                    slot,
                    counter,
                };
                let joined = node.sessions().join(&join, &proof, node.now_ns());
                match joined {
                    Ok(ticket) => {
                        drop(stranger);
                        let ended = self.memory(incoming, ticket).await;
                        debug!(%peer, session, slot, ?ended, "memory connection ended");
                    }
                    Err(refusal) => self.refuse(incoming, refusal).await,
                }
            }
            Purpose::Peer => self.refuse(incoming, Refusal::Purpose).await,
        }
    }

    async fn refuse(&self, incoming: Incoming, refusal: Refusal) {
        self.node.figures.refused(refusal);
        warn!(peer = %incoming.peer(), %refusal, "connection refused");
        let reject = async {
            incoming.reject(refusal).await;
            Ok(())
        };
        // Whoever does not listen need not be told.
        let _ = within(self.node.options.handshake_limit, reject).await;
    }

    async fn shake(&self, incoming: Incoming) -> io::Result<Option<(Speaker, MessageChannel)>> {
        let peer = incoming.peer();
        let mut channel = incoming.accept_control().await?;
        let needs_token = self.node.options.token.is_some();
        let message = channel.receive().await?;
        let opened = match NodeGreeted::hello(&message, needs_token) {
            Err(refused) => Err(refused),
            Ok((greeted, challenge)) => {
                channel.send(&challenge).await?;
                let proof = channel.receive().await?;
                self.node.open(&greeted, &proof).map(|(speaker, welcome)| {
                    let (session, name) = (speaker.session.get(), &greeted.client);
                    match greeted.opening {
                        Opening::New => info!(%peer, session, name, "session opened"),
                        Opening::Resume { .. } => info!(%peer, session, name, "session resumed"),
                    }
                    (speaker, welcome)
                })
            }
        };
        match opened {
            Ok((speaker, welcome)) => {
                channel.send(&welcome).await?;
                Ok(Some((speaker, channel)))
            }
            Err(refused) => {
                self.node.figures.refused(refused);
                warn!(%peer, %refused, "client refused");
                channel.send(&Reply::Refused(refused).encode()).await?;
                Ok(None)
            }
        }
    }

    async fn control(&self, speaker: Speaker, mut channel: MessageChannel) -> io::Result<()> {
        let options = &self.node.options;
        loop {
            // A client that is silent for so long has lost its session in any case.
            let limit = options.lease.saturating_add(options.handshake_limit);
            let message = within(limit, channel.receive()).await?;
            let (reply, last) = match self.node.perform(speaker, &message) {
                Ok(Reply::Farewell) => {
                    self.house.unpark();
                    (Reply::Farewell, true)
                }
                Ok(reply) => (reply, false),
                Err(refused) => {
                    self.node.figures.refused(refused);
                    let last = matches!(
                        refused,
                        Refused::NoSession | Refused::TakenOver | Refused::Malformed
                    );
                    (Reply::Refused(refused), last)
                }
            };
            within(options.handshake_limit, channel.send(&reply.encode())).await?;
            if last {
                return Ok(());
            }
        }
    }

    async fn memory(&self, incoming: Incoming, ticket: Ticket) -> io::Result<()> {
        let node = &*self.node;
        // Dropped last, so that the end is told when nothing can be performed any more.
        let _ended = Ended {
            node,
            house: &self.house,
            ticket,
        };
        loop {
            let admission = node.sessions().admission(ticket);
            match admission {
                Admission::Ready => break,
                Admission::Wait => Timer::new(PREDECESSOR_PACE).await,
                Admission::Refused(refusal) => {
                    self.refuse(incoming, refusal).await;
                    return Ok(());
                }
            };
        }
        let exposed = node.memory.exposed().clone();
        let figures = Arc::clone(&node.figures.served);
        let accept = incoming.accept_memory(exposed, figures);
        let queue = within(node.options.handshake_limit, accept).await?;
        node.sessions().served(ticket, queue.closer());
        queue.serve().await
    }
}

async fn accept(acceptor: TcpAcceptor, visit: Visit, end: Rc<Semaphore>, guests: Rc<Cell<usize>>) {
    loop {
        let arrival = match acceptor.accept().await {
            Ok(arrival) => arrival,
            Err(error) => {
                // Out of descriptors, for one: those that are open go on.
                warn!(%error, "a connection could not be accepted");
                Timer::new(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (visit, end, here) = (visit.clone(), Rc::clone(&end), Rc::clone(&guests));
        guests.set(guests.get() + 1);
        glommio::spawn_local(async move {
            let _left = Left(here);
            let ended = async {
                // Never given out: it ends when the semaphore is closed.
                let _ = end.acquire(1).await;
            };
            or(visit.receive(arrival), ended).await;
        })
        .detach();
    }
}

/// Counts a guest out.
struct Left(Rc<Cell<usize>>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

async fn live(acceptor: TcpAcceptor, visit: Visit) {
    let node = Arc::clone(&visit.node);
    let end = Rc::new(Semaphore::new(0));
    let guests = Rc::new(Cell::new(0));
    let accepting =
        glommio::spawn_local(accept(acceptor, visit, Rc::clone(&end), Rc::clone(&guests)));
    while !node.is_stopping() {
        Timer::new(HEARTBEAT).await;
    }
    accepting.cancel().await;
    end.close();
    let since = Instant::now();
    while guests.get() > 0 && since.elapsed() < FAREWELL {
        Timer::new(HEARTBEAT).await;
    }
}

/// Starts an executor; it says when it accepts, or why it cannot.
fn executor(
    index: usize,
    address: &Arc<TcpAddress>,
    visit: Visit,
) -> Result<JoinHandle<()>, StartError> {
    let failed = |reason: String| StartError::Thread { index, reason };
    let (ready, is_ready) = mpsc::channel();
    let address = Arc::clone(address);
    let name = format!("memnode-{index}");
    let builder = LocalExecutorBuilder::new(Placement::Unbound)
        .name(&name)
        .io_memory(IO_MEMORY_BYTES);
    let run = move || {
        // Whoever waits has gone only if it panicked.
        let say = |outcome| drop(ready.send(outcome));
        match builder.make() {
            Err(error) => say(Err(error.to_string())),
            Ok(executor) => executor.run(async {
                match address.acceptor() {
                    Err(error) => say(Err(error.to_string())),
                    Ok(acceptor) => {
                        drop(address);
                        say(Ok(()));
                        live(acceptor, visit).await;
                    }
                }
            }),
        }
    };
    let thread = thread::Builder::new()
        .name(name)
        .spawn(run)
        .map_err(|error| failed(error.to_string()))?;
    match is_ready.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(reason)) => Err(failed(reason)),
        Err(_) => Err(failed("it panicked".to_owned())),
    }
}

fn house(node: &Node) {
    let mut mended = Instant::now();
    while !node.is_stopping() {
        thread::park_timeout(HOUSE_PACE.min(node.options.lease));
        node.keep_house();
        if mended.elapsed() >= MEND_PACE {
            node.memory.table().mend();
            mended = Instant::now();
        }
    }
}

/// Starts memory nodes.
#[derive(Debug)]
pub struct MemoryNode;

impl MemoryNode {
    /// Takes the address, registers the memory and serves. Answers when clients can connect.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(options: NodeOptions) -> Result<NodeHandle, StartError> {
        Self::start_with(options, &|_| {})
    }

    /// The same; `progress` is told of each region, from several threads.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_with(
        options: NodeOptions,
        progress: &(dyn Fn(Registered) + Sync),
    ) -> Result<NodeHandle, StartError> {
        let setting = |what, value: String, bounds: String| StartError::Setting {
            what,
            value,
            bounds,
        };
        if !(1..=THREADS_MAX).contains(&options.threads) {
            let bounds = format!("1 to {THREADS_MAX}");
            return Err(setting("threads", options.threads.to_string(), bounds));
        }
        if options.lease < Duration::from_millis(1) {
            let value = format!("{} ns", options.lease.as_nanos());
            return Err(setting("the lease", value, "at least 1 ms".to_owned()));
        }
        // First the address: it is cheap, and often what is wrong.
        let listen = |source| StartError::Listen {
            address: options.listen,
            source,
        };
        let address = Arc::new(TcpAddress::bind(options.listen).map_err(listen)?);
        let bound = address.local_address().map_err(listen)?;
        let incarnation = Sessions::<Closer>::random_incarnation().map_err(StartError::Random)?;
        let memory = NodeMemory::register(&options.memory, progress)?;
        let threads = options.threads;
        let sessions = Sessions::new(
            incarnation,
            nanoseconds(options.lease),
            options.sessions_max,
        );
        let node = Arc::new(Node {
            options,
            memory,
            figures: Figures::default(),
            sessions: Mutex::new(sessions),
            started: Instant::now(),
            stopping: AtomicBool::new(false),
        });
        let keeper = {
            let node = Arc::clone(&node);
            thread::Builder::new()
                .name("memnode-house".to_owned())
                .spawn(move || house(&node))
                .map_err(|error| StartError::Thread {
                    index: 0,
                    reason: error.to_string(),
                })?
        };
        let visit = Visit {
            node: Arc::clone(&node),
            house: keeper.thread().clone(),
        };
        // From here on whatever fails stops what has begun.
        let mut handle = NodeHandle {
            node,
            address: bound,
            threads: vec![keeper],
        };
        for index in 0..threads {
            let thread = executor(index, &address, visit.clone())?;
            handle.threads.push(thread);
        }
        info!(address = %bound, threads, "memory node serves");
        Ok(handle)
    }
}

/// A memory node that serves. It stops when this is dropped.
#[derive(Debug)]
pub struct NodeHandle {
    node: Arc<Node>,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl NodeHandle {
    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether all of its memory is locked.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.node.memory.is_locked()
    }

    /// What reads its figures, on any thread, also after it has stopped.
    #[must_use]
    pub fn figures(&self) -> NodeFigures {
        NodeFigures(Arc::clone(&self.node))
    }

    /// Ends listening and all connections, and waits for that.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        // ORDERING: pairs with the Acquire in `Node::is_stopping`.
        self.node.stopping.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            // Its panic has been told by the hook; the others are to be waited for all the same.
            let _ = thread.join();
        }
    }
}

impl Drop for NodeHandle {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads a memory node's figures.
#[derive(Clone, Debug)]
pub struct NodeFigures(Arc<Node>);

impl NodeFigures {
    /// All of them at this moment. Cost: reads the bitmap of the table.
    #[must_use]
    pub fn statistics(&self) -> NodeStatistics {
        self.0.statistics()
    }

    /// Refusals by reason.
    pub fn refusals(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.figures.refusals()
    }

    /// False once it is about to stop.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        !self.0.is_stopping()
    }
}
