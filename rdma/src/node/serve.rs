//! The memory node's service: threads with an executor each, and one that keeps maintenance.
//!
//! ```text
//! executor 0..n:  accept -> connect request -> control: handshake, then requests of a session
//!                                           -> memory:  join, wait for the predecessor's end, serve
//! maintenance:          end leases -> when the last line has ended -> take back -> mend, now and then
//! ```
//!
//! - I1: whoever has not proved itself has [`NodeOptions::handshake_limit`] to do so, and only so
//!   many may be at it: the oldest of them makes room for the next, so that the silent keep nobody
//!   out. Each executor has its share of places.
//! - I2: a line's end is told only when nothing of its peer can be performed any more.
//! - I3: what a session held is taken back by the maintenance alone, after the session is over.

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
use super::service::{MaintenanceState, Service};
use super::session::{Admission, NodeLine};
use super::sessions::{Speaker, Ticket};
use super::start::StartError;
use crate::control::Join;
use crate::control::NodeGreeted;
use crate::control::{Opening, Refused, Reply};
use crate::node::metrics::{Place, Why};
use crate::node::unauthenticated::{Unauthenticated, UnauthenticatedPeer};
use crate::tcp::{Accepted, Arrival, Incoming, MessageChannel, Purpose, Refusal, TcpAddress};
use crate::wake_timer::WakeTimer;

/// How often an executor looks whether it is to stop.
const HEARTBEAT: Duration = Duration::from_millis(1);
/// The same while nothing is asked: each look costs some CPU.
const QUIET: Duration = Duration::from_millis(20);
/// How often a line looks whether its predecessor has ended.
const PREDECESSOR_PACE: Duration = Duration::from_millis(1);
/// How long an executor waits for its connections when it stops.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long no connection is accepted after one could not be.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often the maintenance looks for leases that ended.
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(100);
/// Connections that wait for an executor; others wait in the kernel.
const LOBBY: usize = 64;

/// Where connections wait for the executor that serves them.
pub(super) type Lobby = async_channel::Receiver<Accepted>;
/// The address, and the doors to all lobbies.
pub(super) type Accepting = (TcpAddress, Vec<async_channel::Sender<Accepted>>);

pub(super) fn lobby() -> (async_channel::Sender<Accepted>, Lobby) {
    async_channel::bounded(LOBBY)
}

/// Says that a line has ended, however its task does.
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

/// One executor's view.
#[derive(Clone)]
struct Visit {
    node: Arc<Service>,
    maintenance: Thread,
    unauthenticated: Rc<Unauthenticated>,
}

/// A connection that has proved what it may do, and the place that it takes.
enum Guest<'a> {
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

impl Visit {
    async fn receive(self, arrival: Arrival) {
        let peer = arrival.peer();
        let pending = self.unauthenticated.admit();
        let late = async {
            pending.evicted().await;
            self.node.metrics().refused(Why::Evicted);
            debug!(%peer, "it has proved nothing, and makes room for others");
            None
        };
        let guest = or(self.probe(arrival, &pending), late).await;
        drop(pending);
        match guest {
            Some(Guest::Control(_place, speaker, channel)) => {
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
            Some(Guest::Memory(_place, ticket, incoming)) => {
                let ended = self.memory(incoming, ticket).await;
                debug!(%peer, session = ticket.session.get(), ?ended, "memory connection ended");
            }
            None => {}
        }
    }

    /// Has a stranger prove itself. No guest is lost on the way: nothing is awaited between the
    /// proof and the answer, or the stranger is judged before.
    async fn probe(&self, arrival: Arrival, pending: &UnauthenticatedPeer) -> Option<Guest<'_>> {
        let peer = arrival.peer();
        let node = &*self.node;
        let options = node.options();
        let incoming = match within(options.handshake_limit, arrival.request()).await {
            Ok(incoming) => incoming,
            Err(error) => {
                let silent = error.kind() == io::ErrorKind::TimedOut;
                let why = if silent { Why::Silent } else { Why::Request };
                node.metrics().refused(why);
                // Whoever runs the node must mend what these are told: another release, or no
                // client at all.
                if error.kind() == io::ErrorKind::InvalidData {
                    warn!(%peer, %error, "connection refused");
                } else {
                    debug!(%peer, %error, "no connect request");
                }
                return None;
            }
        };
        let refusal = match incoming.request().purpose {
            Purpose::Control => match node.metrics().controls.take(options.connections_max) {
                Some(place) => {
                    let shaken = self.shake(incoming, pending);
                    match within(options.handshake_limit, shaken).await {
                        Ok(Some((speaker, channel))) => {
                            return Some(Guest::Control(place, speaker, channel));
                        }
                        Ok(None) => {}
                        Err(error) => {
                            if error.kind() == io::ErrorKind::TimedOut {
                                node.metrics().refused(Why::Silent);
                            }
                            debug!(%peer, %error, "no handshake");
                        }
                    }
                    return None;
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
                match node.metrics().memories.take(options.connections_max) {
                    Some(place) => {
                        let join = Join {
                            session,
                            slot,
                            counter,
                        };
                        let joined = node.sessions().join(&join, &proof, node.now_ns());
                        match joined {
                            Ok(ticket) => return Some(Guest::Memory(place, ticket, incoming)),
                            Err(refusal) => refusal,
                        }
                    }
                    None => Refusal::Busy,
                }
            }
            Purpose::Memory { .. } | Purpose::Peer => Refusal::Purpose,
        };
        pending.judged();
        self.refuse(incoming, refusal).await;
        None
    }

    async fn refuse(&self, incoming: Incoming, refusal: Refusal) {
        self.node.metrics().refused(refusal);
        warn!(peer = %incoming.peer(), %refusal, "connection refused");
        let reject = async {
            incoming.reject(refusal).await;
            Ok(())
        };
        // Whoever does not listen need not be told.
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
        pending.judged();
        match opened {
            Ok((speaker, welcome)) => {
                channel.send(&welcome).await?;
                Ok(Some((speaker, channel)))
            }
            Err(refused) => {
                self.node.metrics().refused(refused);
                warn!(%peer, %refused, "client refused");
                channel.send(&Reply::Refused(refused).encode()).await?;
                Ok(None)
            }
        }
    }

    async fn control(&self, speaker: Speaker, mut channel: MessageChannel) -> io::Result<()> {
        let options = self.node.options();
        loop {
            // A client that is silent for so long has lost its session in any case.
            let limit = options.lease.saturating_add(options.handshake_limit);
            let message = match within(limit, channel.receive()).await {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.node.sessions().left(speaker);
                    return Err(error);
                }
                other => other?,
            };
            let (reply, last) = match self.node.perform(speaker, &message) {
                Ok(Reply::Farewell) => {
                    self.maintenance.unpark();
                    (Reply::Farewell, true)
                }
                Ok(reply) => (reply, false),
                Err(refused) => {
                    self.node.metrics().refused(refused);
                    warn!(session = speaker.session.get(), %refused, "request refused");
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
            maintenance: &self.maintenance,
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
        #[cfg(feature = "verbs")]
        if let Some(device) = node.memory().device() {
            return self.queue_pair(incoming, ticket, device).await;
        }
        let exposed = node.memory().exposed().clone();
        let metrics = Arc::clone(&node.metrics().served);
        let accept = incoming.accept_memory(exposed, metrics);
        let queue = within(node.options().handshake_limit, accept).await?;
        node.sessions()
            .served(ticket, NodeLine::Socket(queue.closer()));
        queue.serve().await
    }

    /// Sets a queue pair up, and keeps it for as long as the connection stays open.
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
        // Destroyed before the end of the line is told.
        let queue_pair = device.queue_pair()?;
        let access = crate::verbs::Access::Remote;
        let answer = crate::verbs::answer(&mut line, &queue_pair, access, options);
        within(limit, answer).await?;
        line.ended().await;
        drop(queue_pair);
        Ok(())
    }
}

/// Accepts for all executors, and spreads what comes over them.
async fn accept((address, doors): Accepting) {
    let acceptor = address.acceptor();
    for door in doors.iter().cycle() {
        let accepted = loop {
            match acceptor.accept().await {
                Ok(accepted) => break accepted,
                Err(error) => {
                    // Out of descriptors, for one: those that are open go on.
                    warn!(%error, "a connection could not be accepted");
                    Timer::new(ACCEPT_PAUSE).await;
                }
            }
        };
        // An executor that has ended takes none any more.
        let _ = door.send(accepted).await;
    }
}

async fn welcome(lobby: Lobby, visit: Visit, end: Rc<Semaphore>, guests: Rc<Cell<usize>>) {
    while let Ok(accepted) = lobby.recv().await {
        let arrival = match accepted.arrive() {
            Ok(arrival) => arrival,
            Err(error) => {
                debug!(%error, "a connection was gone before it was taken in");
                continue;
            }
        };
        let (visit, end, here) = (visit.clone(), Rc::clone(&end), Rc::clone(&guests));
        guests.set(guests.get() + 1);
        spawn(async move {
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

async fn live(lobby: Lobby, accepting: Option<Accepting>, visit: Visit, wake_timer: WakeTimer) {
    let node = Arc::clone(&visit.node);
    let end = Rc::new(Semaphore::new(0));
    let guests = Rc::new(Cell::new(0));
    let accepting = accepting.map(|accepting| spawn(accept(accepting)));
    let welcoming = spawn(welcome(lobby, visit, Rc::clone(&end), Rc::clone(&guests)));
    let beating = spawn(wake_timer.beat::<()>());
    let mut before = node.metrics().served.sum();
    while !node.is_stopping() {
        let now = node.metrics().served.sum();
        let pace = if now == before { QUIET } else { HEARTBEAT };
        before = now;
        Timer::new(pace).await;
    }
    if let Some(accepting) = accepting {
        accepting.cancel().await;
    }
    welcoming.cancel().await;
    end.close();
    let since = Instant::now();
    // At least once in any case: only then does the kernel hear that nothing waits for connections
    // any more. Until it does, the ring keeps the address in use, for a moment even after the
    // process.
    loop {
        Timer::new(HEARTBEAT).await;
        if guests.get() == 0 || since.elapsed() >= FAREWELL {
            break;
        }
    }
    beating.cancel().await;
}

/// Starts an executor; it says when it serves, or why it cannot. One of them accepts for all.
pub(super) fn executor(
    index: usize,
    lobby: Lobby,
    accepting: Option<Accepting>,
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
        // Whoever waits has gone only if it panicked.
        let say = |outcome| drop(ready.send(outcome));
        match executor::build(&name, None) {
            Err(error) => say(Err(error.to_string())),
            Ok(executor) => executor.run(async {
                say(Ok(()));
                let options = node.options();
                let share = options.strangers_max.div_ceil(options.threads);
                let unauthenticated = Unauthenticated::new(share);
                let visit = Visit {
                    node,
                    maintenance,
                    unauthenticated,
                };
                live(lobby, accepting, visit, wake_timer).await;
            }),
        }
    };
    let thread = thread
        .spawn(run)
        .map_err(|error| failed(error.to_string()))?;
    match is_ready.recv() {
        Ok(Ok(())) => Ok(thread),
        Ok(Err(reason)) => Err(failed(reason)),
        Err(_) => Err(failed("it panicked".to_owned())),
    }
}

/// Starts the thread that ends leases, takes back and mends.
pub(super) fn start_maintenance(node: &Arc<Service>) -> Result<JoinHandle<()>, StartError> {
    let node = Arc::clone(node);
    let mend_pace = node.options().mend_pace;
    let pace = MAINTENANCE_INTERVAL
        .min(node.options().lease)
        .min(mend_pace);
    let keep = move || {
        let (mut mended, mut memory) = (Instant::now(), MaintenanceState::default());
        while !node.is_stopping() {
            thread::park_timeout(pace);
            node.maintain(&mut memory);
            if mended.elapsed() >= mend_pace {
                node.free_stuck(&mut memory);
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
