//! The listening side: accepts or rejects connect requests.
//!
//! Owns the listening identifier and its event channel, which also delivers the events of accepted
//! connections. Invariants: see the parent module.

#![allow(unsafe_code)] // calls librdmacm

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::executor::Timer;

use super::address::RawAddress;
use super::events::Channel;
use super::identifier::{Identifier, check, parameters};
use super::peers::Ended;
use super::{POLL_INTERVAL, PRIVATE_BYTES};
use crate::fabric::VerbsOptions;
use crate::tcp::{ConnectRequest, Refusal, wire};
use crate::verbs::context::{Access, Context};
use crate::verbs::ffi;
use crate::verbs::queue_pair::{QueuePair, QueuePairStep};
use crate::verbs::slot::{Adapter, Connected, Line};

/// Connections that the kernel queues until they are accepted.
const BACKLOG: i32 = 64;

/// A listening address of RDMA-CM.
#[derive(Debug)]
pub struct CmListener {
    // Drop order: I2.
    id: Identifier,
    channel: Arc<Channel>,
}

/// An event of a listener.
#[derive(Debug)]
pub enum CmEvent {
    /// A client requests a connection.
    Arrival(CmArrival),
    /// An accepted connection is established.
    Established(CmName),
    /// A connection has ended, or was not established.
    Over(CmName),
}

/// Identifies a connection of one listener.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CmName(usize);

impl CmListener {
    /// Listens. The port is exclusive to this process.
    ///
    /// # Errors
    /// The system's error, or that no RDMA device has the address.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let channel = Arc::new(Channel::new()?);
        let id = Identifier::new(&channel)?;
        let mut raw = RawAddress::new(address);
        // SAFETY: identifier and address are alive; the address is complete.
        check(unsafe { ffi::rdma_bind_addr(id.raw(), raw.as_mut_ptr()) })?;
        // SAFETY: the identifier is alive and bound.
        check(unsafe { ffi::rdma_listen(id.raw(), BACKLOG) })?;
        Ok(Self { id, channel })
    }

    /// The device of the listening address; `None` if it listens on all.
    #[must_use]
    pub fn device(&self) -> Option<String> {
        self.id.device()
    }

    /// The bound address.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.id.own_address()
    }

    /// The next event, if there is one.
    ///
    /// # Errors
    /// The system's error.
    pub fn take(&self) -> io::Result<Option<CmEvent>> {
        use ffi::rdma_cm_event_type as kind;
        loop {
            let Some(event) = self.channel.take()? else {
                return Ok(None);
            };
            let name = CmName(event.id() as usize);
            match event.kind() {
                kind::RDMA_CM_EVENT_CONNECT_REQUEST => {
                    let mut bytes = [0; wire::CONNECT_REQUEST_BYTES];
                    let private: [u8; PRIVATE_BYTES] = event.private_data();
                    bytes[..PRIVATE_BYTES].copy_from_slice(&private);
                    let Some(raw) = NonNull::new(event.id()) else {
                        continue;
                    };
                    // I1.
                    drop(event);
                    let id = Identifier::of_event(raw);
                    let peer = id.peer_address();
                    return Ok(Some(CmEvent::Arrival(CmArrival {
                        id,
                        channel: Arc::clone(&self.channel),
                        peer,
                        bytes,
                    })));
                }
                kind::RDMA_CM_EVENT_ESTABLISHED => return Ok(Some(CmEvent::Established(name))),
                kind::RDMA_CM_EVENT_DISCONNECTED
                | kind::RDMA_CM_EVENT_REJECTED
                | kind::RDMA_CM_EVENT_CONNECT_ERROR
                | kind::RDMA_CM_EVENT_UNREACHABLE
                | kind::RDMA_CM_EVENT_TIMEWAIT_EXIT
                | kind::RDMA_CM_EVENT_DEVICE_REMOVAL => {
                    return Ok(Some(CmEvent::Over(name)));
                }
                _ => {}
            }
        }
    }

    /// Waits for the next event, on an executor.
    ///
    /// # Errors
    /// The system's error.
    pub async fn next(&self) -> io::Result<CmEvent> {
        loop {
            match self.take()? {
                Some(event) => return Ok(event),
                None => {
                    Timer::new(POLL_INTERVAL).await;
                }
            }
        }
    }
}

impl AsRawFd for CmListener {
    /// Readable when an event is available.
    fn as_raw_fd(&self) -> RawFd {
        self.channel.as_raw_fd()
    }
}

impl AsFd for CmListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel stays open as long as the listener.
        unsafe { BorrowedFd::borrow_raw(self.channel.as_raw_fd()) }
    }
}

/// A connect request.
#[derive(Debug)]
pub struct CmArrival {
    // Drop order: I2.
    id: Identifier,
    channel: Arc<Channel>,
    peer: SocketAddr,
    bytes: [u8; wire::CONNECT_REQUEST_BYTES],
}

impl CmArrival {
    /// The peer's address.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The name of the connection in its listener's events.
    pub(super) fn name(&self) -> CmName {
        CmName(self.id.raw() as usize)
    }

    /// The decoded request.
    ///
    /// # Errors
    /// That the bytes are not a connect request.
    pub fn request(&self) -> io::Result<ConnectRequest> {
        wire::decode_request(&self.bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Refuses the connection and sends the reason.
    pub fn reject(self, refusal: Refusal) {
        let bytes = wire::encode_reply(Some(refusal));
        let length = u8::try_from(bytes.len()).unwrap_or(0);
        // SAFETY: identifier and bytes are alive. A peer that has gone misses the reason.
        let _ = unsafe { ffi::rdma_reject(self.id.raw(), bytes.as_ptr().cast(), length) };
    }

    /// Accepts it with a queue pair, which is ready to send when this returns. The client is ready
    /// when it reports so.
    ///
    /// # Errors
    /// The system's error, or that the request arrived over another device.
    pub fn accept(
        self,
        queue_pair: QueuePair,
        context: &Context,
        access: Access,
        options: &VerbsOptions,
    ) -> io::Result<CmConnection> {
        if let Err(error) = self.id.check_device(context, self.peer) {
            self.reject(Refusal::Purpose);
            return Err(io::Error::other(error));
        }
        let steps = [
            QueuePairStep::Init,
            QueuePairStep::ReadyToReceive,
            QueuePairStep::ReadyToSend,
        ];
        queue_pair
            .follow(access, &steps, options, |attributes, mask| {
                self.id.fill(attributes, mask)
            })
            .map_err(io::Error::other)?;
        let message = wire::encode_reply(None);
        let mut wanted = parameters(&queue_pair, options, &message);
        // SAFETY: identifier, parameters and private data are alive.
        check(unsafe { ffi::rdma_accept(self.id.raw(), &raw mut wanted) })?;
        Ok(CmConnection {
            queue_pair,
            id: self.id,
            _channel: self.channel,
        })
    }

    /// Accepts an equal peer for an endpoint's connection slot.
    ///
    /// # Errors
    /// As [`CmArrival::accept`].
    pub fn accept_peer(self, adapter: &Arc<Adapter>) -> io::Result<Connected> {
        self.accept_with(adapter, None)
    }

    /// Accepts an equal peer for an endpoint's connection slot; `ended` reports the peer's end.
    pub(super) fn accept_with(
        self,
        adapter: &Arc<Adapter>,
        ended: Option<Arc<Ended>>,
    ) -> io::Result<Connected> {
        let queue_pair = adapter.queue_pair().map_err(io::Error::other)?;
        let accepted = self.accept(
            queue_pair,
            adapter.context(),
            adapter.access,
            &adapter.options,
        )?;
        Ok(Connected {
            queue_pair: accepted.queue_pair,
            line: Arc::new(Line::Accepted(AcceptedLine {
                id: accepted.id,
                _channel: accepted._channel,
                ended,
            })),
        })
    }
}

/// The line of an accepted equal peer, whose events the listener receives.
#[derive(Debug)]
pub(in crate::verbs) struct AcceptedLine {
    // Drop order: I2.
    id: Identifier,
    _channel: Arc<Channel>,
    /// Set by the thread that has the listener, if it reports the peer's end.
    ended: Option<Arc<Ended>>,
}

impl AcceptedLine {
    pub(in crate::verbs) fn is_dead(&self) -> bool {
        self.ended.as_ref().is_some_and(|ended| ended.is_set())
    }

    pub(in crate::verbs) fn descriptor(&self) -> Option<RawFd> {
        self.ended.as_ref().map(AsRawFd::as_raw_fd)
    }
}

impl Drop for AcceptedLine {
    fn drop(&mut self) {
        // SAFETY: the identifier is alive; this notifies the peer.
        unsafe { ffi::rdma_disconnect(self.id.raw()) };
    }
}

/// An accepted connection. Dropping this ends it: after that its peer accesses nothing.
#[derive(Debug)]
pub struct CmConnection {
    // Drop order: the queue pair first, then I2.
    queue_pair: QueuePair,
    id: Identifier,
    _channel: Arc<Channel>,
}

impl CmConnection {
    /// Its name in its listener's events.
    #[must_use]
    pub fn name(&self) -> CmName {
        CmName(self.id.raw() as usize)
    }

    /// Its queue pair.
    #[must_use]
    pub fn queue_pair(&self) -> &QueuePair {
        &self.queue_pair
    }
}
