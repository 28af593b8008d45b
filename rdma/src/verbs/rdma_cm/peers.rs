//! Equal peers that connect over RDMA-CM: accepted by one thread, used by others.
//!
//! The listener receives the events of accepted connections too. It passes the end of a peer on to
//! the thread that has the connection, by a flag and an event descriptor.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::event::{EventfdFlags, eventfd};

use super::listener::{CmArrival, CmEvent, CmListener, CmName};
use crate::fabric::VerbsOptions;
use crate::tcp::{PROTOCOL_VERSION, Purpose, Refusal};
use crate::verbs::context::Context;
use crate::verbs::slot::{Adapter, Connected};

/// Reports the end of a peer.
#[derive(Debug)]
pub(super) struct Ended {
    is_set: AtomicBool,
    event: OwnedFd,
}

impl Ended {
    fn new() -> io::Result<Self> {
        Ok(Self {
            is_set: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::SeqCst)
    }

    fn set(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        #[expect(
            clippy::host_endian_bytes,
            reason = "the kernel reads a number of this host"
        )]
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

impl AsRawFd for Ended {
    /// Readable once it is set, and for ever then: the connection ends.
    fn as_raw_fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}

/// Where peers connect over RDMA-CM, with the device that serves them.
#[derive(Debug)]
pub struct CmPeers {
    listener: CmListener,
    context: Arc<Context>,
    /// The connections whose ends are passed on.
    ended: Mutex<HashMap<CmName, Weak<Ended>>>,
}

/// A peer that requests a connection.
#[derive(Debug)]
pub struct CmPeerArrival {
    arrival: CmArrival,
    context: Arc<Context>,
    ended: Arc<Ended>,
}

impl CmPeers {
    /// Listens, and opens the device of the address.
    ///
    /// # Errors
    /// The system's error, or that no RDMA device has the address.
    pub fn bind(address: SocketAddr, options: &VerbsOptions) -> io::Result<Self> {
        let listener = CmListener::bind(address)?;
        let mut options = options.clone();
        if options.device.is_none() {
            options.device = listener.device();
        }
        let context = Context::open(&options).map_err(io::Error::other)?;
        Ok(Self {
            listener,
            context,
            ended: Mutex::default(),
        })
    }

    /// The bound address.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.listener.local_address()
    }

    /// The next peer, if there is one. Passes the ends of others on.
    ///
    /// # Errors
    /// The system's error.
    pub fn accept(&self) -> io::Result<Option<CmPeerArrival>> {
        loop {
            match self.listener.take()? {
                None => return Ok(None),
                Some(CmEvent::Established(_)) => {}
                Some(CmEvent::Over(name)) => {
                    let mut known = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(ended) = known.remove(&name).and_then(|ended| ended.upgrade()) {
                        ended.set();
                    }
                }
                Some(CmEvent::Arrival(arrival)) => match arrival.request() {
                    Ok(request) if request.version != PROTOCOL_VERSION => {
                        arrival.reject(Refusal::Version(PROTOCOL_VERSION));
                    }
                    Ok(request) if request.purpose == Purpose::Peer => {
                        let ended = Arc::new(Ended::new()?);
                        let mut known = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
                        known.retain(|_, ended| ended.strong_count() > 0);
                        known.insert(arrival.name(), Arc::downgrade(&ended));
                        return Ok(Some(CmPeerArrival {
                            arrival,
                            context: Arc::clone(&self.context),
                            ended,
                        }));
                    }
                    _ => arrival.reject(Refusal::Purpose),
                },
            }
        }
    }
}

impl AsFd for CmPeers {
    /// Readable when an event is available.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl CmPeerArrival {
    /// The peer's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.arrival.peer()
    }

    /// The device that serves it.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Accepts it for an endpoint's connection slot.
    ///
    /// # Errors
    /// As [`CmArrival::accept`].
    pub fn accept(self, adapter: &Arc<Adapter>) -> io::Result<Connected> {
        self.arrival.accept_with(adapter, Some(self.ended))
    }
}
