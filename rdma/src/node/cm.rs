//! Serves clients whose queue pairs are connected by RDMA-CM: one thread that accepts connections
//! and ends them.
//!
//! Owns the connections' queue pairs. Sessions decide who may connect.
//!
//! ```text
//! arrival (purpose, proof) -> joined to its session -> its predecessor has ended -> queue pair,
//! accepted
//!                                                  -> disconnected, or closed by its session ->
//!                                                  ended
//! ```

use std::collections::HashMap;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use tracing::{debug, warn};

use super::device::NodeDevice;
use super::serve::Ended;
use super::service::Service;
use super::session::{Admission, NodeLine};
use super::sessions::Ticket;
use super::start::StartError;
use crate::control::Join;
use crate::node::metrics::Place;
use crate::tcp::{Carrier, PROTOCOL_VERSION, Purpose, Refusal};
use crate::verbs::{Access, CmArrival, CmConnection, CmEvent, CmListener, CmName};

/// How long the thread sleeps without an event.
const QUIET: Duration = Duration::from_millis(20);
/// How long the thread sleeps without an event while a connection waits for its predecessor's end.
const PREDECESSOR_INTERVAL: Duration = Duration::from_millis(1);

/// Limit on the events processed in one turn.
const EVENTS_MAX: u32 = 64;

/// Closes a connection from any thread. The RDMA-CM thread checks it at least every [`QUIET`].
#[derive(Clone, Debug, Default)]
pub(super) struct CmCloser(Arc<AtomicBool>);

impl CmCloser {
    pub(super) fn close(&self) {
        // ORDERING: relaxed; the flag publishes nothing else.
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

struct Waiting {
    arrival: CmArrival,
    ticket: Ticket,
    place: Place,
    ended: Ended,
}

struct Connected {
    // Drop order: the queue pair first, and only then its end is reported.
    _connection: CmConnection,
    closer: CmCloser,
    _ended: Ended,
    _place: Place,
}

struct Server<'a> {
    node: &'a Arc<Service>,
    maintenance: &'a Thread,
    device: &'a NodeDevice,
    waiting: Vec<Waiting>,
    connections: HashMap<CmName, Connected>,
}

impl<'a> Server<'a> {
    fn arrive(&mut self, arrival: CmArrival) {
        let peer = arrival.peer();
        match self.admit(&arrival) {
            Ok((ticket, place)) => self.waiting.push(Waiting {
                arrival,
                ticket,
                place,
                ended: Ended {
                    node: Arc::clone(self.node),
                    maintenance: self.maintenance.clone(),
                    ticket,
                },
            }),
            Err(refusal) => {
                if self.node.refused(refusal) {
                    warn!(%peer, %refusal, "connection refused");
                }
                arrival.reject(refusal.disclosed());
            }
        }
    }

    fn admit(&self, arrival: &CmArrival) -> Result<(Ticket, Place), Refusal> {
        let request = arrival.request().map_err(|_| Refusal::Purpose)?;
        if request.version != PROTOCOL_VERSION {
            return Err(Refusal::Version(PROTOCOL_VERSION));
        }
        let Purpose::Memory {
            session,
            slot,
            counter,
            proof,
            carrier: Carrier::QueuePair,
        } = request.purpose
        else {
            return Err(Refusal::Purpose);
        };
        let join = Join {
            session,
            slot,
            counter,
        };
        let (place, ticket) = self.node.join(&join, &proof)?;
        Ok((ticket, place))
    }

    /// Connects the arrivals that no longer have to wait.
    fn connect_waiting(&mut self) {
        for one in std::mem::take(&mut self.waiting) {
            let admission = self.node.sessions().admission(one.ticket);
            match admission {
                Admission::Wait => self.waiting.push(one),
                Admission::Refused(refusal) => {
                    self.node.metrics().refused(refusal);
                    one.arrival.reject(refusal);
                }
                Admission::Ready => {
                    let peer = one.arrival.peer();
                    if let Err(error) = self.connect(one) {
                        warn!(%peer, %error, "cannot connect a queue pair");
                    }
                }
            }
        }
    }

    fn connect(&mut self, one: Waiting) -> io::Result<()> {
        let closer = CmCloser::default();
        self.node
            .sessions()
            .served(one.ticket, NodeLine::Cm(closer.clone()));
        let queue_pair = self.device.queue_pair()?;
        let (context, options) = (self.device.context(), self.device.options());
        let connection = one
            .arrival
            .accept(queue_pair, context, Access::Remote, options)?;
        self.connections.insert(
            connection.name(),
            Connected {
                _connection: connection,
                closer,
                _ended: one.ended,
                _place: one.place,
            },
        );
        Ok(())
    }
}

/// Starts the thread.
pub(super) fn thread(
    listener: CmListener,
    node: &Arc<Service>,
    maintenance: &Thread,
) -> Result<JoinHandle<()>, StartError> {
    let (node, maintenance) = (Arc::clone(node), maintenance.clone());
    let run = move || {
        let Some(device) = node.memory().device() else {
            return;
        };
        let mut server = Server {
            node: &node,
            maintenance: &maintenance,
            device,
            waiting: Vec::new(),
            connections: HashMap::new(),
        };
        while !node.is_stopping() {
            let pace = if server.waiting.is_empty() {
                QUIET
            } else {
                PREDECESSOR_INTERVAL
            };
            wait(listener.as_raw_fd(), pace);
            // Bounded, so that a flood of requests does not delay the other work.
            for _ in 0..EVENTS_MAX {
                match listener.take() {
                    Ok(Some(CmEvent::Arrival(arrival))) => server.arrive(arrival),
                    Ok(Some(CmEvent::Over(name))) => drop(server.connections.remove(&name)),
                    Ok(Some(CmEvent::Established(name))) => debug!(?name, "queue pair connected"),
                    Ok(None) => break,
                    Err(error) => {
                        warn!(%error, "cannot read an RDMA-CM event");
                        thread::sleep(QUIET);
                        break;
                    }
                }
            }
            server
                .connections
                .retain(|_, connected| !connected.closer.is_closed());
            server.connect_waiting();
        }
    };
    thread::Builder::new()
        .name("memnode-cm".to_owned())
        .spawn(run)
        .map_err(|error| StartError::Thread {
            index: 0,
            reason: error.to_string(),
        })
}

#[allow(unsafe_code)] // polls a descriptor
fn wait(descriptor: i32, limit: Duration) {
    let mut poll = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    let limit = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one descriptor, in a local variable.
    unsafe { libc::poll(&raw mut poll, 1, limit) };
}
