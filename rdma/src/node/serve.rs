//! The memory node's threads: one executor each for connections, and one thread for maintenance.
//!
//! ```text
//! lobby:          accept -> connect request
//! executor 0..n:            connect request -> control: handshake, then requests of a session
//!                                           -> memory:  join, wait for the predecessor's end,
//!                                           serve
//! maintenance:    end leases -> when the last line has ended -> reclaim -> mend, at intervals
//! ```
//!
//! - I1: a peer that has not authenticated itself has [`NodeOptions::handshake_limit`] for each
//!   step. The lobby limits those that have sent nothing, and each executor has its share of places
//!   for the others.
//! - I2: a line's end is reported only when no request of its peer can be performed any more.
//! - I3: only the maintenance thread reclaims a session's extents, after the session is over.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use crate::executor::{self, Semaphore, Timer, spawn};
use futures_lite::future::or;
use tracing::{Instrument, debug, info, info_span, warn};

#[cfg(feature = "verbs")]
use super::device::NodeDevice;
use super::heap::Heap;
use super::service::{MaintenanceState, Service};
use super::session::{Admission, NodeLine};
use super::sessions::{Speaker, Ticket};
use super::start::StartError;
use crate::control::{Join, NodeGreeted, Opening, Refused, Reply};
use crate::node::metrics::{Place, Why};
use crate::node::unauthenticated::{Unauthenticated, UnauthenticatedPeer};
use crate::tcp::{Accepted, Arrival, Incoming, MessageChannel, Purpose, Refusal};
use crate::wake_timer::WakeTimer;

/// Interval at which an executor checks whether it must stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// The same while no request arrives: each check costs some processor time.
const QUIET_INTERVAL: Duration = Duration::from_millis(20);
/// Interval at which a line checks whether its predecessor has ended.
const PREDECESSOR_INTERVAL: Duration = Duration::from_millis(1);
/// How long a stopping executor waits for its connections.
const STOP_LIMIT: Duration = Duration::from_secs(2);
/// Interval at which the maintenance thread checks for ended leases.
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(100);
/// Pause before a request that must be retried.
const RETRY_PAUSE: Duration = Duration::from_millis(1);
/// Connections that wait for an executor; further ones wait in the kernel.
const BACKLOG: usize = 64;

/// The connections that wait for an executor.
pub(super) type Backlog = async_channel::Receiver<Accepted>;

pub(super) fn backlog() -> (async_channel::Sender<Accepted>, Backlog) {
    async_channel::bounded(BACKLOG)
}

/// Reports the end of a line when it is dropped, however the line's task ends.
pub(super) struct Ended<'a> {
    pub(super) node: &'a Service,
    pub(super) maintenance: &'a Thread,
    pub(super) ticket: Ticket,
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.node.sessions().ended(self.ticket);
        self.maintenance.unpark();
    }
}

/// What the tasks of one executor share.
#[derive(Clone)]
struct Worker {
    node: Arc<Service>,
    maintenance: Thread,
    unauthenticated: Rc<Unauthenticated>,
}

/// An authenticated connection, and the place that it takes.
enum AuthenticatedPeer<'a> {
    Control(Place<'a>, Speaker, MessageChannel),
    Memory(Place<'a>, Ticket, Incoming),
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let late = async {
        Timer::new(limit).await;
        Err(io::ErrorKind::TimedOut.into())
    };
    or(work, late).await
}

impl Worker {
    async fn receive(self, arrival: Arrival) {
        let peer = arrival.peer();
        let pending = self.unauthenticated.admit(peer.ip());
        let late = async {
            pending.evicted().await;
            self.node.metrics().refused(Why::Evicted);
            debug!(%peer, "evicted an unauthenticated connection to make room");
            None
        };
        let authenticated = or(self.probe(arrival, &pending), late).await;
        drop(pending);
        match authenticated {
            Some(AuthenticatedPeer::Control(_place, speaker, channel)) => {
                let span = info_span!(
                    "session",
                    session.id = speaker.session.get(),
                    client.address = %peer.ip(),
                    client.port = peer.port()
                );
                async {
                    let ended = self.control(speaker, channel).await;
                    debug!(?ended, "control connection ended");
                }
                .instrument(span)
                .await;
            }
            Some(AuthenticatedPeer::Memory(_place, ticket, incoming)) => {
                let ended = self.memory(incoming, ticket).await;
                debug!(%peer, session = ticket.session.get(), ?ended, "memory connection ended");
            }
            None => {}
        }
    }

    /// Authenticates a peer. An evicted peer is never half-admitted: nothing is awaited between its
    /// proof and the end of its probation.
    async fn probe(
        &self,
        arrival: Arrival,
        pending: &UnauthenticatedPeer,
    ) -> Option<AuthenticatedPeer<'_>> {
        let peer = arrival.peer();
        let node = &*self.node;
        let options = node.options();
        let incoming = match within(options.handshake_limit, arrival.request()).await {
            Ok(incoming) => incoming,
            Err(error) => {
                let silent = error.kind() == io::ErrorKind::TimedOut;
                let why = if silent { Why::Silent } else { Why::Request };
                // The operator must act on these: the client is of another release, or not a client
                // at all.
                if error.kind() != io::ErrorKind::InvalidData {
                    node.metrics().refused(why);
                    debug!(%peer, %error, "received no connect request");
                } else if node.refused(why) {
                    warn!(%peer, %error, "connection refused");
                }
                return None;
            }
        };
        let refusal = match incoming.request().purpose {
            Purpose::Control => match node.metrics().controls.take(options.connections_max) {
                Some(place) => {
                    let shaken = self.shake(incoming, pending);
                    return match within(options.handshake_limit, shaken).await {
                        Ok(shaken) => shaken.map(|(speaker, channel)| {
                            AuthenticatedPeer::Control(place, speaker, channel)
                        }),
                        Err(error) => {
                            if error.kind() == io::ErrorKind::TimedOut {
                                node.metrics().refused(Why::Silent);
                            }
                            debug!(%peer, %error, "the handshake failed");
                            None
                        }
                    };
                }
                None => Refusal::Busy,
            },
            Purpose::Memory {
                session,
                slot,
                counter,
                proof,
                carrier,
            } if Some(carrier) == node.carrier() => {
                let join = Join {
                    session,
                    slot,
                    counter,
                };
                match node.join(&join, &proof) {
                    Ok((place, ticket)) => {
                        return Some(AuthenticatedPeer::Memory(place, ticket, incoming));
                    }
                    Err(refusal) => refusal,
                }
            }
            Purpose::Memory { .. } | Purpose::Peer => Refusal::Purpose,
        };
        pending.decided();
        self.refuse(incoming, refusal).await;
        None
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

    async fn shake(
        &self,
        incoming: Incoming,
        pending: &UnauthenticatedPeer,
    ) -> io::Result<Option<(Speaker, MessageChannel)>> {
        let peer = incoming.peer();
        let mut channel = incoming.accept_control().await?;
        let needs_token = self.node.options().token.is_some();
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
        pending.decided();
        match opened {
            Ok((speaker, welcome)) => {
                channel.send(&welcome).await?;
                Ok(Some((speaker, channel)))
            }
            Err(refused) => {
                if self.node.refused(refused) {
                    warn!(%peer, %refused, "client refused");
                }
                channel.send(&Reply::Refused(refused).encode()).await?;
                Ok(None)
            }
        }
    }

    async fn control(&self, speaker: Speaker, mut channel: MessageChannel) -> io::Result<()> {
        let options = self.node.options();
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
            let performed = async {
                loop {
                    match self.node.perform(speaker, &message) {
                        Ok(None) => drop(Timer::new(RETRY_PAUSE).await),
                        Ok(Some(reply)) => return Ok(Ok(reply)),
                        Err(refused) => return Ok(Err(refused)),
                    }
                }
            };
            let performed = within(options.handshake_limit, performed).await?;
            let (reply, last) = match performed {
                Ok(Reply::Farewell) => {
                    self.maintenance.unpark();
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
        }
    }

    async fn memory(&self, incoming: Incoming, ticket: Ticket) -> io::Result<()> {
        let node = &*self.node;
        // Dropped last: the end is reported when nothing can be performed any more.
        let _ended = Ended {
            node,
            maintenance: &self.maintenance,
            ticket,
        };
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
    while let Ok(accepted) = backlog.recv().await {
        let arrival = match accepted.arrive() {
            Ok(arrival) => arrival,
            Err(error) => {
                debug!(%error, "a connection was closed before it was served");
                continue;
            }
        };
        let (worker, end, here) = (worker.clone(), Rc::clone(&end), Rc::clone(&open));
        open.set(open.get() + 1);
        spawn(async move {
            let _departure = Departure(here);
            let ended = async {
                // No permit is ever added: this ends when the semaphore is closed.
                let _ = end.acquire(1).await;
            };
            or(worker.receive(arrival), ended).await;
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
                let options = node.options();
                let share = options.unauthenticated_max.div_ceil(options.threads);
                let unauthenticated = Unauthenticated::new(share);
                let worker = Worker {
                    node,
                    maintenance,
                    unauthenticated,
                };
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
                node.free_strangers(&memory);
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
