//! The thread that accepts connections, and keeps them until they have authenticated themselves.
//!
//! ```text
//! listener -> silent -> requested -> challenged -> authenticated -> an executor
//!               '----------'------------'-- evicted, silent for too long, or closed by the peer
//! ```
//!
//! A connection here costs an entry and a descriptor: no task, no buffer and no turn of an
//! executor. So a flood delays neither clients that are served nor, on another core, those that
//! arrive.
//!
//! - I1: each stage has places of its own, so those that have gone less far evict none that have
//!   gone further, and a flood at any stage leaves the others theirs. At most `silent_max`
//!   connections are silent, and at most `unauthenticated_max` in both other stages together; see
//!   [`Places`] for which is evicted.
//! - I2: a connection whose next message has arrived is not evicted: it proceeds.
//! - I3: `kept` has the number of every connection that holds a place.
//! - I4: the thread waits for no executor.
//!
//! Source: epoll(7), edge-triggered.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use tracing::{debug, warn};

use super::service::Service;
use super::start::StartError;
use super::unauthenticated::{Arrived, AuthenticatedPeer, Proceeded, STAGES, UnauthenticatedPeer};
use crate::node::metrics::Why;
use crate::places::{Network, Places};
use crate::tcp::TcpAddress;

/// The number of the listener among the events.
const LISTENER: u64 = u64::MAX;
/// Events of one wait.
const EVENTS: usize = 256;
/// Connections accepted before other events are processed.
const ACCEPTS: usize = 256;
/// Interval at which the thread checks whether it must stop.
const STOP_CHECK: Duration = Duration::from_millis(20);
/// Interval at which it tries executors that had no room.
const ROOM_CHECK: Duration = Duration::from_millis(1);
/// Fewer deadlines are not worth a pass over them.
const DEADLINES_MIN: usize = 64;
/// Pause after an accept that failed although no connection is kept that could make room.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A kept connection.
#[derive(Debug)]
struct Kept {
    /// Its number among the events.
    connection: u64,
    /// Whether its events arrive.
    watched: bool,
    peer: UnauthenticatedPeer,
}

/// Where a connection is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Spot {
    stage: usize,
    network: Network,
    /// Its number among the places of its stage.
    number: u64,
}

/// When a connection has stayed in a stage for too long.
#[derive(Debug)]
struct Deadline {
    at: Instant,
    connection: u64,
    spot: Spot,
}

#[derive(Debug)]
struct Lobby {
    node: Arc<Service>,
    maintenance: Thread,
    listener: TcpListener,
    epoll: OwnedFd,
    /// By stage.
    stages: [Places<Kept>; STAGES],
    kept: HashMap<u64, Spot>,
    /// In order; some are of connections that have left their spot.
    deadlines: VecDeque<Deadline>,
    /// The next number, of a connection or a place.
    next: u64,
    executors: Vec<async_channel::Sender<AuthenticatedPeer>>,
    /// Connections for which no executor had room, in order. Each has a place of its kind, so they
    /// are not too many.
    waiting: VecDeque<AuthenticatedPeer>,
}

impl Lobby {
    fn new(
        node: &Arc<Service>,
        maintenance: &Thread,
        address: TcpAddress,
        executors: Vec<async_channel::Sender<AuthenticatedPeer>>,
    ) -> io::Result<Self> {
        let listener = address.into_listener();
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let data = EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, data, EventFlags::IN)?;
        let options = node.options();
        let both = options.unauthenticated_max;
        let limits = [options.silent_max, both / 2, both - both / 2];
        Ok(Self {
            node: Arc::clone(node),
            maintenance: maintenance.clone(),
            listener,
            epoll,
            stages: limits.map(Places::new),
            kept: HashMap::new(),
            deadlines: VecDeque::new(),
            next: 0,
            executors,
            waiting: VecDeque::new(),
        })
    }

    fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        while !self.node.is_stopping() {
            self.turn(&mut events);
        }
    }

    /// Waits for events, for a limited time, and processes them.
    fn turn(&mut self, events: &mut Vec<Event>) {
        events.clear();
        let pace = if self.waiting.is_empty() {
            STOP_CHECK
        } else {
            ROOM_CHECK
        };
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(pace.subsec_nanos()),
        };
        // An interrupted wait is one without events.
        let spare = rustix::buffer::spare_capacity(events);
        let _ = epoll::wait(&self.epoll, spare, Some(&wait));
        for &Event { flags, data } in &*events {
            let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
            match data.u64() {
                LISTENER => self.accept(),
                connection => self.look(connection, flags.intersects(ends)),
            }
        }
        self.pass_on();
        self.expire(Instant::now());
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Accepts what waits, up to a limit.
    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            let error = match self.listener.accept() {
                Ok((stream, address)) => {
                    let kept = Kept {
                        connection: self.number(),
                        watched: false,
                        peer: UnauthenticatedPeer::new(stream, address),
                    };
                    // The request often arrives with the connection.
                    let arrived = kept.peer.arrived();
                    self.proceed(kept, arrived, false);
                    continue;
                }
                Err(error) => error,
            };
            match Errno::from_io_error(&error) {
                Some(Errno::AGAIN) => return,
                Some(Errno::INTR | Errno::CONNABORTED) => {}
                // Out of descriptors: one that has proved nothing makes room.
                Some(Errno::MFILE | Errno::NFILE) if self.evict_any() => {}
                _ => {
                    // Open connections go on.
                    if self.node.refused(Why::System) {
                        warn!(%error, "cannot accept a connection");
                    }
                    thread::sleep(ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    /// Processes what has arrived from a connection, and keeps it, passes it on or closes it. A
    /// connection that `ends` sends nothing more.
    fn proceed(&mut self, mut kept: Kept, mut arrived: Arrived, ends: bool) {
        loop {
            let length = match arrived {
                Arrived::Message(length) => length,
                Arrived::Nothing if !ends => return self.keep(kept),
                Arrived::Nothing | Arrived::End => {
                    kept.peer.gone(&self.node);
                    return;
                }
            };
            let proceeded = kept.peer.proceed(length, &self.node, &self.maintenance);
            kept.peer = match proceeded {
                Proceeded::Further(peer) => {
                    arrived = peer.arrived();
                    peer
                }
                Proceeded::Refused => return,
                Proceeded::Authenticated(peer) => {
                    if kept.watched {
                        // It is in the set, so this cannot fail.
                        let _ = epoll::delete(&self.epoll, peer.stream());
                    }
                    self.waiting.push_back(peer);
                    return self.pass_on();
                }
            };
        }
    }

    /// Keeps a connection until more arrives from it.
    fn keep(&mut self, mut kept: Kept) {
        let connection = kept.connection;
        if !kept.watched {
            // Also reports what has arrived since it was looked for.
            let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
            let data = EventData::new_u64(connection);
            if let Err(error) = epoll::add(&self.epoll, kept.peer.stream(), data, flags) {
                if self.node.refused(Why::System) {
                    warn!(%error, "cannot wait for a connection's next message");
                }
                return;
            }
            kept.watched = true;
        }
        let spot = Spot {
            stage: kept.peer.stage(),
            network: Network::of(kept.peer.address().ip()),
            number: self.number(),
        };
        while self.stages[spot.stage].is_full() {
            self.evict(spot.stage);
        }
        self.kept.insert(connection, spot);
        self.note_deadline(connection, spot);
        self.stages[spot.stage].take(spot.network, spot.number, kept);
    }

    /// Notes when a connection will have stayed in its spot for too long. Those that have left
    /// theirs are removed once they are most of all, so that a flood makes no long list.
    fn note_deadline(&mut self, connection: u64, spot: Spot) {
        if self.deadlines.len() > DEADLINES_MIN + 2 * self.kept.len() {
            let kept = &self.kept;
            self.deadlines
                .retain(|one| kept.get(&one.connection) == Some(&one.spot));
        }
        let at = Instant::now() + self.node.options().handshake_limit;
        self.deadlines.push_back(Deadline {
            at,
            connection,
            spot,
        });
    }

    /// Takes a connection out of its spot.
    fn take(&mut self, spot: Spot) -> Option<Kept> {
        let kept = self.stages[spot.stage].free(spot.network, spot.number)?;
        self.kept.remove(&kept.connection);
        Some(kept)
    }

    /// Makes room in a stage: lets the next connection to be evicted proceed if its next message
    /// has arrived, or evicts it. True if one was evicted.
    fn evict(&mut self, stage: usize) -> bool {
        let Some((network, number)) = self.stages[stage].next_evicted() else {
            return false;
        };
        let spot = Spot {
            stage,
            network,
            number,
        };
        let Some(kept) = self.take(spot) else {
            return false;
        };
        let arrived = kept.peer.arrived();
        if matches!(arrived, Arrived::Message(_)) {
            // Into a later stage only, so this ends.
            self.proceed(kept, arrived, false);
            return false;
        }
        self.node.metrics().refused(Why::Evicted);
        debug!(peer = %kept.peer.address(), stage, "evicted an unauthenticated connection to make room");
        kept.peer.reset();
        true
    }

    /// Evicts a connection of the earliest stage that has any, to free its descriptor.
    fn evict_any(&mut self) -> bool {
        (0..STAGES).any(|stage| {
            while self.stages[stage].next_evicted().is_some() {
                if self.evict(stage) {
                    return true;
                }
            }
            false
        })
    }

    /// Looks at a connection that has sent something, or will send nothing more.
    fn look(&mut self, connection: u64, ends: bool) {
        let Some(&spot) = self.kept.get(&connection) else {
            return;
        };
        let stage = &self.stages[spot.stage];
        let Some(kept) = stage.get(spot.network, spot.number) else {
            return;
        };
        let arrived = kept.peer.arrived();
        if arrived == Arrived::Nothing && !ends {
            return;
        }
        if let Some(kept) = self.take(spot) {
            self.proceed(kept, arrived, ends);
        }
    }

    /// Passes waiting connections to the executors with the fewest that wait there. An executor
    /// that is stuck keeps what it has, and gets no more than the others have.
    fn pass_on(&mut self) {
        while let Some(peer) = self.waiting.pop_front() {
            self.executors.rotate_left(1);
            let open = self.executors.iter().filter(|one| !one.is_closed());
            let Some(fewest) = open.min_by_key(|one| one.len()) else {
                // All executors have ended.
                return;
            };
            if let Err(refused) = fewest.try_send(peer) {
                self.waiting.push_front(refused.into_inner());
                return;
            }
        }
    }

    /// Closes connections that have stayed in a stage for too long.
    fn expire(&mut self, now: Instant) {
        while let Some(Deadline {
            at,
            connection,
            spot,
        }) = self.deadlines.front()
        {
            let (here, spot) = (self.kept.get(connection) == Some(spot), *spot);
            if here && *at > now {
                return;
            }
            self.deadlines.pop_front();
            if here {
                // Counted before it is closed.
                self.node.metrics().refused(Why::Silent);
                if let Some(kept) = self.take(spot) {
                    kept.peer.reset();
                }
            }
        }
    }
}

/// Starts the thread that accepts connections for all executors.
pub(super) fn start(
    node: &Arc<Service>,
    maintenance: &Thread,
    address: TcpAddress,
    executors: Vec<async_channel::Sender<AuthenticatedPeer>>,
) -> Result<JoinHandle<()>, StartError> {
    let failed = |error: io::Error| StartError::Thread {
        index: 0,
        reason: error.to_string(),
    };
    let lobby = Lobby::new(node, maintenance, address, executors).map_err(failed)?;
    thread::Builder::new()
        .name("memnode-accept".to_owned())
        .spawn(move || lobby.run())
        .map_err(failed)
}

#[cfg(test)]
mod tests;
