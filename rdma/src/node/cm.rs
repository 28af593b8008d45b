//! Clients whose queue pairs are connected by RDMA-CM: one thread that accepts, and ends what is
//! over.
//!
//! ```text
//! arrival (what for, with its proof) -> joined to its session -> its predecessor has ended -> queue pair, accepted
//!                                                                       disconnected, or torn down by its session -> ended
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

/// How long the thread sleeps where nothing happens.
const QUIET: Duration = Duration::from_millis(20);
/// The same while somebody waits for its predecessor's end.
const PACE: Duration = Duration::from_millis(1);

/// Events taken in one turn.
const EVENTS: u32 = 64;

/// Tears a connection down from any thread: the thread of RDMA-CM looks at it at least every
/// [`QUIET`].
#[derive(Clone, Debug, Default)]
pub(super) struct CmCloser(Arc<AtomicBool>);

impl CmCloser {
    pub(super) fn close(&self) {
        // ORDERING: nothing else is handed over.
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

struct Waiting<'a> {
    arrival: CmArrival,
    ticket: Ticket,
    place: Place<'a>,
    ended: Ended<'a>,
}

struct Guest<'a> {
    // Dropped in this order: the queue pair first, and only then its end is told.
    _connection: CmConnection,
    closer: CmCloser,
    _ended: Ended<'a>,
    _place: Place<'a>,
}

struct Hall<'a> {
    node: &'a Service,
    maintenance: &'a Thread,
    device: &'a NodeDevice,
    waiting: Vec<Waiting<'a>>,
    guests: HashMap<CmName, Guest<'a>>,
}

impl<'a> Hall<'a> {
    fn arrive(&mut self, arrival: CmArrival) {
        let peer = arrival.peer();
        match self.admit(&arrival) {
            Ok((ticket, place)) => self.waiting.push(Waiting {
                arrival,
                ticket,
                place,
                ended: Ended {
                    node: self.node,
                    maintenance: self.maintenance,
                    ticket,
                },
            }),
            Err(refusal) => {
                self.node.metrics().refused(refusal);
                warn!(%peer, %refusal, "connection refused");
                arrival.reject(refusal);
            }
        }
    }

    fn admit(&self, arrival: &CmArrival) -> Result<(Ticket, Place<'a>), Refusal> {
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
        let most = self.node.options().connections_max;
        let place = self.node.metrics().memories.take(most);
        let place = place.ok_or(Refusal::Busy)?;
        let join = Join {
            session,
            slot,
            counter,
        };
        let now_ns = self.node.now_ns();
        let ticket = self.node.sessions().join(&join, &proof, now_ns)?;
        Ok((ticket, place))
    }

    /// Lets in who need not wait any more.
    fn usher(&mut self) {
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
                    if let Err(error) = self.seat(one) {
                        warn!(%peer, %error, "a queue pair could not be connected");
                    }
                }
            }
        }
    }

    fn seat(&mut self, one: Waiting<'a>) -> io::Result<()> {
        let closer = CmCloser::default();
        self.node
            .sessions()
            .served(one.ticket, NodeLine::Cm(closer.clone()));
        let queue_pair = self.device.queue_pair()?;
        let (context, options) = (self.device.context(), self.device.options());
        let connection = one
            .arrival
            .accept(queue_pair, context, Access::Remote, options)?;
        self.guests.insert(
            connection.name(),
            Guest {
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
        let mut hall = Hall {
            node: &node,
            maintenance: &maintenance,
            device,
            waiting: Vec::new(),
            guests: HashMap::new(),
        };
        while !node.is_stopping() {
            let pace = if hall.waiting.is_empty() { QUIET } else { PACE };
            wait(listener.as_raw_fd(), pace);
            // A bounded number: whoever floods it with requests must not hold up the rest.
            for _ in 0..EVENTS {
                match listener.take() {
                    Ok(Some(CmEvent::Arrival(arrival))) => hall.arrive(arrival),
                    Ok(Some(CmEvent::Over(name))) => drop(hall.guests.remove(&name)),
                    Ok(Some(CmEvent::Established(name))) => debug!(?name, "queue pair connected"),
                    Ok(None) => break,
                    Err(error) => {
                        warn!(%error, "an event of RDMA-CM could not be read");
                        thread::sleep(QUIET);
                        break;
                    }
                }
            }
            hall.guests.retain(|_, guest| !guest.closer.is_closed());
            hall.usher();
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

#[allow(unsafe_code)] // asks the kernel about a descriptor
fn wait(descriptor: i32, limit: Duration) {
    let mut asked = libc::pollfd {
        fd: descriptor,
        events: libc::POLLIN,
        revents: 0,
    };
    let limit = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one descriptor, in a local variable.
    unsafe { libc::poll(&raw mut asked, 1, limit) };
}
