//! The connecting side: resolves address and route, connects, and notices the peer's end.
//!
//! Owns the identifier and event channel of a connection. Invariants: see the parent module.

#![allow(unsafe_code)] // calls librdmacm

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::executor::Timer;

use super::address::RawAddress;
use super::events::{Channel, Event};
use super::identifier::{Identifier, check, parameters};
use super::{POLL_INTERVAL, PRIVATE_BYTES};
use crate::tcp::{ConnectError, ConnectRequest, Refusal, wire};
use crate::verbs::ffi;
use crate::verbs::queue_pair::QueuePairStep;
use crate::verbs::slot::{Adapter, Connected, Line};

/// Reports when the peer has gone.
#[derive(Debug)]
pub(in crate::verbs) struct CmLine {
    // Drop order: I2.
    id: Identifier,
    channel: Arc<Channel>,
    dead: AtomicBool,
}

impl CmLine {
    /// Readable when an event waits.
    pub(in crate::verbs) fn descriptor(&self) -> RawFd {
        self.channel.as_raw_fd()
    }

    pub(in crate::verbs) fn is_dead(&self) -> bool {
        while let Ok(Some(event)) = self.channel.take() {
            if matches!(
                event.kind(),
                ffi::rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED
                    | ffi::rdma_cm_event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT
                    | ffi::rdma_cm_event_type::RDMA_CM_EVENT_DEVICE_REMOVAL
            ) && event.id() == self.id.raw()
            {
                self.dead.store(true, Ordering::Relaxed);
            }
        }
        self.dead.load(Ordering::Relaxed)
    }
}

impl Drop for CmLine {
    fn drop(&mut self) {
        // SAFETY: the identifier is alive; this notifies the peer.
        unsafe { ffi::rdma_disconnect(self.id.raw()) };
    }
}

/// Waits for one kind of event; an error event of the connection ends the wait.
async fn wait_for(channel: &Channel, wanted: u32) -> io::Result<Event> {
    loop {
        let Some(event) = channel.take()? else {
            Timer::new(POLL_INTERVAL).await;
            continue;
        };
        if event.kind() == wanted {
            return Ok(event);
        }
        use ffi::rdma_cm_event_type as kind;
        let what = match event.kind() {
            kind::RDMA_CM_EVENT_ADDR_ERROR => "no RDMA device reaches the address",
            kind::RDMA_CM_EVENT_ROUTE_ERROR => "there is no route to the address",
            kind::RDMA_CM_EVENT_UNREACHABLE => "no answer from the address",
            kind::RDMA_CM_EVENT_REJECTED => {
                return Err(rejection(&event));
            }
            _ => "cannot establish the connection",
        };
        let status = event.status();
        return Err(io::Error::new(
            io::ErrorKind::ConnectionRefused,
            format!("{what} (event {}, status {status})", event.kind()),
        ));
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Rejected(Refusal);

fn rejection(event: &Event) -> io::Error {
    match wire::decode_reply(&event.private_data()) {
        Ok(Some(refusal)) => io::Error::new(io::ErrorKind::ConnectionRefused, Rejected(refusal)),
        _ => io::Error::new(
            io::ErrorKind::ConnectionRefused,
            "no RDMA-CM listener at the address",
        ),
    }
}

/// The device that the route to an address uses.
///
/// # Errors
/// [`ConnectError`].
pub async fn device_for(address: SocketAddr, limit: Duration) -> Result<String, ConnectError> {
    let work = async {
        let channel = Channel::new()?;
        let id = Identifier::new(&channel)?;
        resolve(&channel, &id, address, limit).await?;
        id.device()
            .ok_or_else(|| io::Error::other("no RDMA device reaches the address"))
    };
    bounded(address, limit, work).await
}

async fn resolve(
    channel: &Channel,
    id: &Identifier,
    address: SocketAddr,
    limit: Duration,
) -> io::Result<()> {
    let mut raw = RawAddress::new(address);
    let limit = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: identifier and address are alive; the address is complete.
    check(unsafe { ffi::rdma_resolve_addr(id.raw(), ptr::null_mut(), raw.as_mut_ptr(), limit) })?;
    wait_for(
        channel,
        ffi::rdma_cm_event_type::RDMA_CM_EVENT_ADDR_RESOLVED,
    )
    .await?;
    Ok(())
}

async fn bounded<T>(
    address: SocketAddr,
    limit: Duration,
    work: impl Future<Output = io::Result<T>>,
) -> Result<T, ConnectError> {
    let work = async {
        work.await.map_err(
            |source| match source.get_ref().and_then(|inner| inner.downcast_ref()) {
                Some(&Rejected(refusal)) => ConnectError::Refused { address, refusal },
                None => ConnectError::Io { address, source },
            },
        )
    };
    futures_lite::future::or(work, async {
        Timer::new(limit).await;
        Err(ConnectError::TimedOut { address, limit })
    })
    .await
}

/// Connects a queue pair for an endpoint's connection slot.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect(
    adapter: &Arc<Adapter>,
    address: SocketAddr,
    request: &ConnectRequest,
    limit: Duration,
) -> Result<Connected, ConnectError> {
    bounded(address, limit, begin(adapter, address, request, limit)).await
}

async fn begin(
    adapter: &Arc<Adapter>,
    address: SocketAddr,
    request: &ConnectRequest,
    limit: Duration,
) -> io::Result<Connected> {
    use ffi::rdma_cm_event_type as kind;
    let options = &adapter.options;
    if options.path_mtu.is_some() {
        let what = "path_mtu: RDMA-CM uses the route's MTU: leave it unset or use rdma+tcp://";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let channel = Arc::new(Channel::new()?);
    let id = Identifier::new(&channel)?;
    resolve(&channel, &id, address, limit).await?;
    id.check_device(adapter.context(), address)
        .map_err(io::Error::other)?;
    let limit_ms = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the identifier is alive.
    check(unsafe { ffi::rdma_resolve_route(id.raw(), limit_ms) })?;
    wait_for(&channel, kind::RDMA_CM_EVENT_ROUTE_RESOLVED).await?;
    let queue_pair = adapter.queue_pair().map_err(io::Error::other)?;
    let follow = |steps: &[QueuePairStep]| {
        queue_pair
            .follow(adapter.access, steps, options, |attributes, mask| {
                id.fill(attributes, mask)
            })
            .map_err(io::Error::other)
    };
    follow(&[QueuePairStep::Init])?;
    let message = wire::encode_request(request);
    let mut wanted = parameters(&queue_pair, options, &message[..PRIVATE_BYTES]);
    // SAFETY: identifier, parameters and private data are alive.
    check(unsafe { ffi::rdma_connect(id.raw(), &raw mut wanted) })?;
    wait_for(&channel, kind::RDMA_CM_EVENT_CONNECT_RESPONSE).await?;
    follow(&[QueuePairStep::ReadyToReceive, QueuePairStep::ReadyToSend])?;
    // SAFETY: the identifier is alive and has received a response.
    check(unsafe { ffi::rdma_establish(id.raw()) })?;
    Ok(Connected {
        queue_pair,
        line: Arc::new(Line::Cm(CmLine {
            id,
            channel,
            dead: AtomicBool::new(false),
        })),
    })
}
