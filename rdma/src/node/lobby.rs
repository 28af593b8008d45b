//! The thread that accepts connections and keeps those that have not sent a connect request.
//!
//! ```text
//! listener -> silent -> its connect request has arrived -> an executor
//!               '-- evicted, silent for too long, or closed by the peer
//! ```
//!
//! A silent connection costs an entry and a descriptor: no task, no buffer and no turn of an
//! executor. So a flood of them delays neither clients that are served nor, on another core, those
//! that arrive.
//!
//! - I1: at most `silent_max` connections are kept; see [`Places`] for which is evicted.
//! - I2: a connection leaves as soon as its whole request has arrived, and its request is still
//!   unread then.
//! - I3: `kept` has the number of every connection that holds a place.
//!
//! Source: epoll(7), edge-triggered.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::net::RecvFlags;
use tracing::{debug, warn};

use super::places::{Network, Places};
use super::service::Service;
use super::start::StartError;
use crate::node::metrics::Why;
use crate::tcp::wire::CONNECT_REQUEST_BYTES;
use crate::tcp::{Accepted, TcpAddress};

/// The number of the listener among the events.
const LISTENER: u64 = u64::MAX;
/// Events of one wait.
const EVENTS: usize = 256;
/// Connections accepted before other events are processed.
const ACCEPTS: usize = 256;
/// Interval at which the thread checks whether it must stop.
const STOP_CHECK: Duration = Duration::from_millis(20);
/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection that has not sent its request.
#[derive(Debug)]
struct Silent(TcpStream);

/// What is known of a connection's progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    Silent,
    Requested,
    Gone,
}

impl Silent {
    fn progress(&self) -> Progress {
        let mut bytes = [0; CONNECT_REQUEST_BYTES];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(&self.0, &mut bytes, flags) {
            Ok((_, 0)) => Progress::Gone,
            Ok((_, CONNECT_REQUEST_BYTES)) => Progress::Requested,
            Ok(_) | Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Progress::Silent,
            Err(_) => Progress::Gone,
        }
    }
}

/// When a connection has been silent for too long.
#[derive(Debug)]
struct Deadline {
    at: Instant,
    number: u64,
}

#[derive(Debug)]
struct Lobby {
    node: Arc<Service>,
    listener: TcpListener,
    epoll: OwnedFd,
    silent: Places<Silent>,
    /// The networks of the connections in `silent`.
    kept: HashMap<u64, Network>,
    /// In order; those of connections that have left are passed over.
    deadlines: VecDeque<Deadline>,
    next: u64,
    executors: Vec<async_channel::Sender<Accepted>>,
}

impl Lobby {
    fn new(
        node: &Arc<Service>,
        address: TcpAddress,
        executors: Vec<async_channel::Sender<Accepted>>,
    ) -> io::Result<Self> {
        let listener = address.into_listener();
        listener.set_nonblocking(true)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let data = EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, data, EventFlags::IN)?;
        Ok(Self {
            node: Arc::clone(node),
            listener,
            epoll,
            silent: Places::new(node.options().silent_max),
            kept: HashMap::new(),
            deadlines: VecDeque::new(),
            next: 0,
            executors,
        })
    }

    fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        let wait = Timespec {
            tv_sec: 0,
            tv_nsec: i64::from(STOP_CHECK.subsec_nanos()),
        };
        while !self.node.is_stopping() {
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            // An interrupted wait is one without events.
            let _ = epoll::wait(&self.epoll, spare, Some(&wait));
            for &Event { flags, data } in &events {
                let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
                match data.u64() {
                    LISTENER => self.accept(),
                    number => self.look(number, flags.intersects(ends)),
                }
            }
            self.expire(Instant::now());
        }
    }

    /// Accepts what waits, up to a limit.
    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            match self.listener.accept() {
                Ok((stream, peer)) => self.admit(Silent(stream), Network::of(peer.ip())),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return,
                    io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted => {}
                    _ => {
                        // For example out of descriptors. Open connections go on.
                        warn!(%error, "cannot accept a connection");
                        thread::sleep(ACCEPT_PAUSE);
                        return;
                    }
                },
            }
        }
    }

    fn admit(&mut self, silent: Silent, network: Network) {
        // The request often arrives with the connection.
        match silent.progress() {
            Progress::Silent => {}
            Progress::Requested => return self.forward(silent),
            Progress::Gone => return self.gone(),
        }
        let number = self.next;
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(number);
        if let Err(error) = epoll::add(&self.epoll, &silent.0, data, flags) {
            warn!(%error, "cannot wait for a connection's request");
            return;
        }
        self.next += 1;
        let at = Instant::now() + self.node.options().handshake_limit;
        self.deadlines.push_back(Deadline { at, number });
        self.kept.insert(number, network);
        // Dropping a connection closes it, and takes it off the events.
        if let Some((evicted, connection)) = self.silent.take(network, number, silent) {
            self.kept.remove(&evicted);
            self.node.metrics().refused(Why::Evicted);
            debug!(?connection, "evicted a silent connection to make room");
        }
    }

    /// Looks at a connection that has sent something, or will send nothing more.
    fn look(&mut self, number: u64, ends: bool) {
        let Some(&network) = self.kept.get(&number) else {
            return;
        };
        let progress = self.silent.get(network, number).map(Silent::progress);
        if progress == Some(Progress::Silent) && !ends {
            return;
        }
        self.kept.remove(&number);
        let Some(silent) = self.silent.free(network, number) else {
            return;
        };
        match progress {
            Some(Progress::Requested) => {
                // It is in the set, so this cannot fail.
                let _ = epoll::delete(&self.epoll, &silent.0);
                self.forward(silent);
            }
            _ => self.gone(),
        }
    }

    fn gone(&self) {
        self.node.metrics().refused(Why::Request);
        debug!("received no connect request");
    }

    /// Passes a connection to the next executor that has room, or waits for one.
    fn forward(&mut self, Silent(stream): Silent) {
        let mut accepted = Accepted::from(stream);
        for _ in 0..self.executors.len() {
            self.executors.rotate_left(1);
            match self.executors[0].try_send(accepted) {
                Ok(()) => return,
                Err(refused) => accepted = refused.into_inner(),
            }
        }
        // Fails if that executor has ended.
        let _ = self.executors[0].send_blocking(accepted);
    }

    /// Closes connections that have been silent for too long.
    fn expire(&mut self, now: Instant) {
        while let Some(first) = self.deadlines.front()
            && (first.at <= now || !self.kept.contains_key(&first.number))
        {
            let number = first.number;
            self.deadlines.pop_front();
            if let Some(network) = self.kept.remove(&number) {
                self.silent.free(network, number);
                self.node.metrics().refused(Why::Silent);
            }
        }
    }
}

/// Starts the thread that accepts connections for all executors.
pub(super) fn start(
    node: &Arc<Service>,
    address: TcpAddress,
    executors: Vec<async_channel::Sender<Accepted>>,
) -> Result<JoinHandle<()>, StartError> {
    let failed = |error: io::Error| StartError::Thread {
        index: 0,
        reason: error.to_string(),
    };
    let lobby = Lobby::new(node, address, executors).map_err(failed)?;
    thread::Builder::new()
        .name("memnode-accept".to_owned())
        .spawn(move || lobby.run())
        .map_err(failed)
}
