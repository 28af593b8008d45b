//! The side that listens.

#![allow(unsafe_code)] // calls librdmacm

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use crate::executor::Timer;

use super::address::RawAddress;
use super::events::Channel;
use super::identifier::{Identifier, check, parameters};
use super::{PACE, PRIVATE_BYTES};
use crate::fabric::VerbsOptions;
use crate::tcp::{ConnectRequest, Refusal, wire};
use crate::verbs::context::{Access, Context};
use crate::verbs::ffi;
use crate::verbs::queue_pair::{QueuePair, QueuePairStep};
use crate::verbs::slot::{Adapter, Connected, Line};

/// Connections that wait to be taken.
const BACKLOG: i32 = 64;

/// A listening address of RDMA-CM.
#[derive(Debug)]
pub struct CmListener {
    // Dropped in this order (I2).
    id: Identifier,
    channel: Arc<Channel>,
}

/// What happened at a listening address.
#[derive(Debug)]
pub enum CmEvent {
    /// Somebody wants to connect.
    Arrival(CmArrival),
    /// A connection that was accepted can be used.
    Established(CmName),
    /// A connection is over, or came to nothing.
    Over(CmName),
}

/// Tells the connections of one listener apart.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CmName(usize);

impl CmListener {
    /// Listens. The port is this process's alone.
    ///
    /// # Errors
    /// What the kernel says; no RDMA device has the address.
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

    /// The device whose address it is; `None` if it listens on all.
    #[must_use]
    pub fn device(&self) -> Option<String> {
        self.id.device()
    }

    /// What was bound.
    #[must_use]
    pub fn local_address(&self) -> SocketAddr {
        self.id.own_address()
    }

    /// The next event, if there is one.
    ///
    /// # Errors
    /// What the kernel says.
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
    /// What the kernel says.
    pub async fn next(&self) -> io::Result<CmEvent> {
        loop {
            match self.take()? {
                Some(event) => return Ok(event),
                None => {
                    Timer::new(PACE).await;
                }
            }
        }
    }
}

impl AsRawFd for CmListener {
    /// Readable when there is an event.
    fn as_raw_fd(&self) -> RawFd {
        self.channel.as_raw_fd()
    }
}

/// Somebody who wants to connect.
#[derive(Debug)]
pub struct CmArrival {
    // Dropped in this order (I2).
    id: Identifier,
    channel: Arc<Channel>,
    peer: SocketAddr,
    bytes: [u8; wire::CONNECT_REQUEST_BYTES],
}

impl CmArrival {
    /// Who it is.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// What it is for.
    ///
    /// # Errors
    /// That these were not the bytes of a client.
    pub fn request(&self) -> io::Result<ConnectRequest> {
        wire::decode_request(&self.bytes)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }

    /// Refuses it, and tells why.
    pub fn reject(self, refusal: Refusal) {
        let bytes = wire::encode_reply(Some(refusal));
        let length = u8::try_from(bytes.len()).unwrap_or(0);
        // SAFETY: identifier and bytes are alive. Whoever has gone away need not be told.
        let _ = unsafe { ffi::rdma_reject(self.id.raw(), bytes.as_ptr().cast(), length) };
    }

    /// Accepts it with a queue pair, which is ready to send when this returns; the client is when
    /// it says so.
    ///
    /// # Errors
    /// What the kernel says; that it came over another device.
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

    /// Accepts it as an equal, for an endpoint's berth.
    ///
    /// # Errors
    /// As [`CmArrival::accept`].
    pub fn accept_peer(self, adapter: &Rc<Adapter>) -> io::Result<Connected> {
        let queue_pair = adapter.queue_pair().map_err(io::Error::other)?;
        let accepted = self.accept(
            queue_pair,
            adapter.context(),
            adapter.access,
            &adapter.options,
        )?;
        Ok(Connected {
            queue_pair: accepted.queue_pair,
            line: Rc::new(Line::Accepted(AcceptedLine {
                id: accepted.id,
                _channel: accepted._channel,
            })),
        })
    }
}

/// The line of an equal that was accepted: its events are the listener's.
#[derive(Debug)]
pub(in crate::verbs) struct AcceptedLine {
    // Dropped in this order (I2).
    id: Identifier,
    _channel: Arc<Channel>,
}

impl Drop for AcceptedLine {
    fn drop(&mut self) {
        // SAFETY: the identifier is alive; the other side is told.
        unsafe { ffi::rdma_disconnect(self.id.raw()) };
    }
}

/// A connection that was accepted. It ends when this is dropped: after that its peer reaches
/// nothing.
#[derive(Debug)]
pub struct CmConnection {
    // Dropped in this order: the queue pair first, then (I2).
    queue_pair: QueuePair,
    id: Identifier,
    _channel: Arc<Channel>,
}

impl CmConnection {
    /// Its name among the events of its listener.
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
