//! The memory node's threads: one executor each for connections, and one thread for maintenance.
//!
//! ```text
//! lobby:          accept -> handshake -> authenticated
//! executor 0..n:            authenticated -> control: welcome, then requests of a session
//!                                         -> memory:  wait for the predecessor's end, serve
//! maintenance:    end leases -> when the last line has ended -> reclaim -> mend, at intervals
//! ```
//!
//! - I1: an executor gets authenticated peers only. Each has [`NodeOptions::handshake_limit`] to
//!   take an answer.
//! - I2: a line's end is reported only when no request of its peer can be performed any more.
//! - I3: only the maintenance thread reclaims a session's extents, after the session is over.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use crate::executor::{self, BusyTask, Semaphore, Timer, spawn};
use futures_lite::future::or;
use tracing::{Instrument, debug, info_span, warn};

#[cfg(feature = "verbs")]
use super::device::NodeDevice;
use super::heap::Heap;
use super::service::{MaintenanceState, Performed, Service, nanoseconds};
use super::session::{Admission, NodeLine};
use super::sessions::{Speaker, Ticket};
use super::start::StartError;
use super::unauthenticated::AuthenticatedPeer;
use crate::control::{Call, Refused, Reply, Request};
use crate::tcp::{Accepted, Incoming, MessageChannel, Refusal};
use crate::wake_timer::WakeTimer;

/// Interval at which an executor checks whether it must stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Interval at which an executor checks whether it must stop, while no request arrives: each check
/// costs some processor time.
const QUIET_INTERVAL: Duration = Duration::from_millis(20);
/// Interval at which a line checks whether its predecessor has ended.
const PREDECESSOR_INTERVAL: Duration = Duration::from_millis(1);
/// How long a stopping executor waits for its connections.
const STOP_LIMIT: Duration = Duration::from_secs(2);
/// Interval at which the maintenance thread checks for ended leases.
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(100);
/// Pause before a request, or a look at what another thread does, is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(1);
/// Longest pause between two looks at whether a session's extents are free.
const RECLAIM_PAUSE_MAX: Duration = Duration::from_millis(20);
/// Connections that wait for an executor; further ones wait in the lobby.
const BACKLOG: usize = 64;

/// The connections that wait for an executor.
pub(super) type Backlog = async_channel::Receiver<AuthenticatedPeer>;

pub(super) fn backlog() -> (async_channel::Sender<AuthenticatedPeer>, Backlog) {
    async_channel::bounded(BACKLOG)
}

/// Reports the end of a line when it is dropped, however the line's task ends.
pub(super) struct Ended {
    pub(super) node: Arc<Service>,
    pub(super) maintenance: Thread,
    pub(super) ticket: Ticket,
}

impl fmt::Debug for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ended").field(&self.ticket).finish()
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.node.sessions().ended(self.ticket);
        self.maintenance.unpark();
    }
}

/// What the tasks of one executor share.
#[derive(Clone)]
pub(super) struct Worker {
    pub(super) node: Arc<Service>,
    pub(super) maintenance: Thread,
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = async {
        Timer::new(limit).await;
        Err(io::ErrorKind::TimedOut.into())
    };
    or(work, late).await
}

impl Worker {
    async fn serve(self, peer: AuthenticatedPeer) {
        match peer {
            AuthenticatedPeer::Control {
                stream,
                speaker,
                welcome,
                place: _place,
            } => {
                let arrival = match Accepted::from(stream).arrive() {
                    Ok(arrival) => arrival,
                    Err(error) => {
                        debug!(%error, "a connection was closed before it was served");
                        self.node.sessions().left(speaker);
                        return;
                    }
                };
                let address = arrival.peer();
                let span = info_span!(
                    "session",
                    session.id = speaker.session.get(),
                    client.address = %address.ip(),
                    client.port = address.port()
                );
                async {
                    let ended = self
                        .control(speaker, arrival.into_channel(), &welcome)
                        .await;
                    debug!(?ended, "control connection ended");
                }
                .instrument(span)
                .await;
            }
            AuthenticatedPeer::Memory {
                stream,
                request,
                place: _place,
                ended: line,
            } => {
                let session = line.ticket.session.get();
                let ended = match Accepted::from(stream).arrive() {
                    Ok(arrival) => self.memory(arrival.requested(request), line.ticket).await,
                    Err(error) => Err(error),
                };
                debug!(session, ?ended, "memory connection ended");
            }
        }
    }

    async fn refuse(&self, incoming: Incoming, refusal: Refusal) {
        if self.node.refused(refusal) {
            warn!(peer = %incoming.peer(), %refusal, "connection refused");
        }
        let reject = async {
            incoming.reject(refusal.disclosed()).await;
            Ok(())
        };
        // A peer that does not read misses the refusal.
        let _ = within(self.node.options().handshake_limit, reject).await;
    }

    pub(super) async fn control(
        &self,
        speaker: Speaker,
        mut channel: MessageChannel,
        welcome: &[u8],
    ) -> io::Result<()> {
        let options = self.node.options();
        let mut turns = BusyTask::new();
        within(options.handshake_limit, channel.send(welcome)).await?;
        loop {
            // A client silent for that long has lost its session anyway.
            let limit = options.lease.saturating_add(options.handshake_limit);
            let message = match within(limit, channel.receive()).await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.node.sessions().left(speaker);
                    return Err(error);
                }
                other => other?,
            };
            let performed = self.perform(speaker, &message, &mut turns).await?;
            let (reply, last) = match performed {
                Ok(Reply::Farewell) => {
                    self.maintenance.unpark();
                    self.reclaimed(speaker).await;
                    (Reply::Farewell, true)
                }
                Ok(reply) => (reply, false),
                Err(refused) => {
                    if self.node.refused(refused) {
                        warn!(session = speaker.session.get(), %refused, "request refused");
                    }
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
            // A client that sends requests ahead never makes this wait for its socket.
            turns.yield_now().await;
        }
    }

    /// Waits until the extents of a session that its client has ended are free: the client, or the
    /// next one, may claim them at once. Clearing much memory takes longer than a client waits: it
    /// goes on after this has ended.
    async fn reclaimed(&self, speaker: Speaker) {
        let since_ns = self.node.now_ns();
        let limit_ns = nanoseconds(self.node.options().handshake_limit);
        let mut pause = RETRY_PAUSE;
        while self.node.sessions().holds(speaker.session)
            && self.node.now_ns() - since_ns < limit_ns
        {
            Timer::new(pause).await;
            pause = (2 * pause).min(RECLAIM_PAUSE_MAX);
        }
    }

    /// Performs a request, in parts if it is long. A part that makes no progress has a time limit.
    async fn perform(
        &self,
        speaker: Speaker,
        message: &[u8],
        turns: &mut BusyTask,
    ) -> io::Result<Result<Reply, Refused>> {
        if let Ok(Request::Call(call)) = Request::decode(message) {
            return Ok(self.call(speaker, call).await);
        }
        let limit_ns = nanoseconds(self.node.options().handshake_limit);
        let mut since_ns = self.node.now_ns();
        loop {
            match self.node.perform(speaker, message) {
                Ok(Performed::Whole(reply)) => return Ok(Ok(*reply)),
                Err(refused) => return Ok(Err(refused)),
                Ok(Performed::InPart) => {
                    since_ns = self.node.now_ns();
                    turns.yield_now().await;
                }
                Ok(Performed::Waits) if self.node.now_ns() - since_ns >= limit_ns => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Ok(Performed::Waits) => {
                    Timer::new(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Has a procedure run on a thread of its own, and answers at the latest at its limit.
    async fn call(&self, speaker: Speaker, call: Call) -> Result<Reply, Refused> {
        let job = self.node.accept(speaker, call)?;
        let limit = job.limit;
        let (answer, answered) = async_channel::bounded(1);
        let run = move || {
            let _ = answer.try_send(job.run());
        };
        let thread = std::thread::Builder::new().name("farcore-call".to_owned());
        thread.spawn(run).map_err(|_| Refused::Stopping)?;
        let late = async {
            Timer::new(limit).await;
            Err(Refused::LateCall {
                limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            })
        };
        let done = async {
            let answered = answered.recv().await;
            Ok(answered.unwrap_or_else(|_| Err("the procedure has gone".to_owned())))
        };
        Ok(match or(done, late).await? {
            Ok(answer) => Reply::Called(answer),
            Err(reason) => Reply::Failed(reason),
        })
    }

    async fn memory(&self, incoming: Incoming, ticket: Ticket) -> io::Result<()> {
        let node = &*self.node;
        loop {
            let admission = node.sessions().admission(ticket);
            match admission {
                Admission::Ready => break,
                Admission::Wait => Timer::new(PREDECESSOR_INTERVAL).await,
                Admission::Refused(refusal) => {
                    self.refuse(incoming, refusal).await;
                    return Ok(());
                }
            };
        }
        #[cfg(feature = "verbs")]
        if let Some(device) = node.memory().device() {
            return self.queue_pair(incoming, ticket, device).await;
        }
        let exposed = self.node.exposed(ticket.session);
        let metrics = Arc::clone(&node.metrics().served);
        let accept = incoming.accept_memory(exposed, metrics);
        let queue = within(node.options().handshake_limit, accept).await?;
        node.sessions()
            .served(ticket, NodeLine::Socket(queue.closer()));
        queue.serve().await
    }

    /// Creates a queue pair and keeps it for as long as the connection stays open.
    #[cfg(feature = "verbs")]
    async fn queue_pair(
        &self,
        incoming: Incoming,
        ticket: Ticket,
        device: &NodeDevice,
    ) -> io::Result<()> {
        let (limit, options) = (self.node.options().handshake_limit, device.options());
        let (mut line, closer) = within(limit, incoming.accept_line()).await?;
        self.node
            .sessions()
            .served(ticket, NodeLine::Socket(closer));
        // Destroyed before the line's end is reported.
        let queue_pair = device.queue_pair()?;
        let access = crate::verbs::Access::Remote;
        let answer = crate::verbs::answer(&mut line, &queue_pair, access, options);
        within(limit, answer).await?;
        line.ended().await;
        drop(queue_pair);
        Ok(())
    }
}

async fn serve_arrivals(
    backlog: Backlog,
    worker: Worker,
    end: Rc<Semaphore>,
    open: Rc<Cell<usize>>,
) {
    while let Ok(peer) = backlog.recv().await {
        let (worker, end, here) = (worker.clone(), Rc::clone(&end), Rc::clone(&open));
        open.set(open.get() + 1);
        spawn(async move {
            let _departure = Departure(here);
            let ended = async {
                // No permit is ever added: this ends when the semaphore is closed.
                let _ = end.acquire(1).await;
            };
            or(worker.serve(peer), ended).await;
        })
        .detach();
    }
}

/// Decrements the number of connections when it is dropped.
struct Departure(Rc<Cell<usize>>);

impl Drop for Departure {
    fn drop(&mut self) {
        self.0.set(self.0.get().saturating_sub(1));
    }
}

async fn serve_until_stopped(backlog: Backlog, worker: Worker, wake_timer: WakeTimer) {
    let node = Arc::clone(&worker.node);
    let end = Rc::new(Semaphore::new(0));
    let open = Rc::new(Cell::new(0));
    let serving = spawn(serve_arrivals(
        backlog,
        worker,
        Rc::clone(&end),
        Rc::clone(&open),
    ));
    let beating = spawn(wake_timer.beat::<()>());
    let mut before = node.metrics().served.sum();
    while !node.is_stopping() {
        let now = node.metrics().served.sum();
        let pace = if now == before {
            QUIET_INTERVAL
        } else {
            STOP_CHECK_INTERVAL
        };
        before = now;
        Timer::new(pace).await;
    }
    serving.cancel().await;
    end.close();
    let since = Instant::now();
    // At least once in any case: the kernel learns only then that nothing waits for connections any
    // more. Until it does, the ring keeps the address in use, even for a moment after the process
    // has ended.
    loop {
        Timer::new(STOP_CHECK_INTERVAL).await;
        if open.get() == 0 || since.elapsed() >= STOP_LIMIT {
            break;
        }
    }
    beating.cancel().await;
}

/// Starts an executor's thread and waits until it serves or has failed.
pub(super) fn executor(
    index: usize,
    backlog: Backlog,
    node: &Arc<Service>,
    maintenance: &Thread,
) -> Result<JoinHandle<()>, StartError> {
    let failed = |reason: String| StartError::Thread { index, reason };
    let wake_timer = WakeTimer::new().map_err(|error| failed(error.to_string()))?;
    let (ready, is_ready) = mpsc::channel();
    let (node, maintenance) = (Arc::clone(node), maintenance.clone());
    let name = format!("memnode-{index}");
    let thread = thread::Builder::new().name(name.clone());
    let run = move || {
        // The receiver is gone only if its thread panicked.
        let say = |outcome| drop(ready.send(outcome));
        match executor::build(&name, None) {
            Err(error) => say(Err(error.to_string())),
            Ok(executor) => executor.run(async {
                say(Ok(()));
                let worker = Worker { node, maintenance };
                serve_until_stopped(backlog, worker, wake_timer).await;
            }),
        }
    };
    let thread = thread
        .spawn(run)
        .map_err(|error| failed(error.to_string()))?;
    match is_ready.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(reason)) => Err(failed(reason)),
        Err(_) => Err(failed("the thread panicked".to_owned())),
    }
}

/// Starts the thread that ends leases, reclaims extents and mends the table.
pub(super) fn start_maintenance(node: &Arc<Service>) -> Result<JoinHandle<()>, StartError> {
    let node = Arc::clone(node);
    let mend_pace = node.options().mend_pace;
    let pace = MAINTENANCE_INTERVAL
        .min(node.options().lease)
        .min(mend_pace);
    let keep = move || {
        let (mut mended, mut memory) = (Instant::now(), MaintenanceState::default());
        let mut heap = Heap::default();
        while !node.is_stopping() {
            thread::park_timeout(pace);
            node.maintain(&mut memory);
            heap.note(node.metrics().controls.taken() + node.metrics().memories.taken());
            if mended.elapsed() >= mend_pace {
                node.free_stuck(&mut memory);
                node.free_unknown_owners(&memory);
                node.memory().table().mend();
                mended = Instant::now();
            }
        }
    };
    thread::Builder::new()
        .name("memnode-maint".to_owned())
        .spawn(keep)
        .map_err(|error| StartError::Thread {
            index: 0,
            reason: error.to_string(),
        })
}
