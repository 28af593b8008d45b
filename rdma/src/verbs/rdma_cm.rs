//! Connecting by RDMA-CM: names are IP addresses and ports, and the connect request travels as private data.
//!
//! ```text
//! client                                        server (a listening identifier, one event channel)
//!   resolve address, resolve route
//!   make a queue pair, initialise it
//!   connect (private data: what for)      ->    connect request
//!                                               queue pair ready to send
//!   connect response (taken, or why not)  <-    accept, or reject
//!   queue pair ready to send
//!   establish                             ->    established
//! ```
//!
//! Queue pairs are made and moved by `queue_pair`, with the attributes that RDMA-CM hands out, so that both ways to connect
//! share protection domain, completion queue and regions.
//!
//! - I1: an event is acknowledged before the identifier it names is destroyed.
//! - I2: an identifier is destroyed before its event channel.
//!
//! Source: the manual pages of `rdma_cm` and those that it leads to. Private data of a request: 56 bytes over IP.

#![allow(unsafe_code)] // calls librdmacm

use std::cell::Cell;
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use glommio::timer::Timer;

use super::berth::{Adapter, Connected, Line};
use super::context::{Access, Context};
use super::error::VerbsError;
use super::ffi;
use super::queue_pair::{QueuePair, QueuePairStep};
use crate::tcp::{ConnectError, ConnectRequest, Refusal, wire};
use crate::verbs_options::VerbsOptions;

/// How often an event is looked for.
const PACE: Duration = Duration::from_millis(1);
/// What a connect request has room for.
const PRIVATE_BYTES: usize = 56;
const BACKLOG: i32 = 64;

fn check(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A socket address as the kernel takes it.
struct RawAddress(libc::sockaddr_storage);

impl RawAddress {
    fn new(address: SocketAddr) -> Self {
        // SAFETY: plain numbers, for which zero is a value.
        let mut raw: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
        let place = (&raw mut raw).cast::<u8>();
        match address {
            SocketAddr::V4(four) => {
                let set = libc::sockaddr_in {
                    sin_family: libc::sa_family_t::try_from(libc::AF_INET).unwrap_or(0),
                    sin_port: four.port().to_be(),
                    sin_addr: libc::in_addr {
                        s_addr: u32::from(*four.ip()).to_be(),
                    },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage is long and aligned enough for every kind of address.
                unsafe { place.cast::<libc::sockaddr_in>().write(set) };
            }
            SocketAddr::V6(six) => {
                let set = libc::sockaddr_in6 {
                    sin6_family: libc::sa_family_t::try_from(libc::AF_INET6).unwrap_or(0),
                    sin6_port: six.port().to_be(),
                    sin6_flowinfo: six.flowinfo(),
                    sin6_addr: libc::in6_addr {
                        s6_addr: six.ip().octets(),
                    },
                    sin6_scope_id: six.scope_id(),
                };
                // SAFETY: as above.
                unsafe { place.cast::<libc::sockaddr_in6>().write(set) };
            }
        }
        Self(raw)
    }

    fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.0).cast()
    }
}

/// Reads the address that an identifier's peer has.
fn peer_address(id: *mut ffi::rdma_cm_id) -> SocketAddr {
    // SAFETY: the identifier is alive; its route holds complete addresses.
    unsafe { address_at((&raw const (*id).route.addr.dst_addr_union).cast()) }
}

/// # Safety
/// A complete address is there, in the kernel's form.
unsafe fn address_at(place: *const libc::sockaddr_storage) -> SocketAddr {
    // SAFETY: by this function's contract; the family says which kind it is.
    unsafe {
        match i32::from((*place.cast::<libc::sockaddr>()).sa_family) {
            libc::AF_INET6 => {
                let six = *place.cast::<libc::sockaddr_in6>();
                let ip = Ipv6Addr::from(six.sin6_addr.s6_addr);
                SocketAddr::new(IpAddr::V6(ip), u16::from_be(six.sin6_port))
            }
            _ => {
                let four = *place.cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(u32::from_be(four.sin_addr.s_addr));
                SocketAddr::new(IpAddr::V4(ip), u16::from_be(four.sin_port))
            }
        }
    }
}

/// Reads the address that an identifier is bound to.
fn own_address(id: *mut ffi::rdma_cm_id) -> SocketAddr {
    // SAFETY: as for a peer's.
    unsafe { address_at((&raw const (*id).route.addr.src_addr_union).cast()) }
}

/// A channel of events, read without waiting.
#[derive(Debug)]
struct Channel(NonNull<ffi::rdma_event_channel>);

// SAFETY: librdmacm is safe to call from any thread.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    fn new() -> io::Result<Self> {
        // SAFETY: answers a channel or null.
        let raw = NonNull::new(unsafe { ffi::rdma_create_event_channel() });
        let channel = Self(raw.ok_or_else(io::Error::last_os_error)?);
        let descriptor = channel.as_raw_fd();
        // SAFETY: changes a flag of a descriptor that is open.
        unsafe {
            let flags = libc::fcntl(descriptor, libc::F_GETFL);
            if flags < 0 || libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(channel)
    }

    fn take(&self) -> io::Result<Option<Event>> {
        let mut event = ptr::null_mut();
        // SAFETY: fills in an event, or answers that there is none.
        match unsafe { ffi::rdma_get_cm_event(self.0.as_ptr(), &raw mut event) } {
            0 => Ok(NonNull::new(event).map(Event)),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                error => Err(error),
            },
        }
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        // SAFETY: the channel is open.
        unsafe { self.0.as_ref().fd }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: made by this, and its identifiers have gone (I2).
        unsafe { ffi::rdma_destroy_event_channel(self.0.as_ptr()) };
    }
}

/// An event, acknowledged when dropped.
#[derive(Debug)]
struct Event(NonNull<ffi::rdma_cm_event>);

impl Event {
    fn kind(&self) -> u32 {
        // SAFETY: the event is not yet acknowledged.
        unsafe { self.0.as_ref().event }
    }

    fn status(&self) -> i32 {
        // SAFETY: as above.
        unsafe { self.0.as_ref().status }
    }

    fn id(&self) -> *mut ffi::rdma_cm_id {
        // SAFETY: as above.
        unsafe { self.0.as_ref().id }
    }

    /// The other side's private data, padded with zeros to what is asked for.
    fn private_data<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        // SAFETY: this event's kind carries the parameters of a connection; the data is as long as it says.
        unsafe {
            let parameters = &self.0.as_ref().param.conn;
            let length = usize::from(parameters.private_data_len).min(N);
            if !parameters.private_data.is_null() {
                ptr::copy_nonoverlapping(
                    parameters.private_data.cast(),
                    bytes.as_mut_ptr(),
                    length,
                );
            }
        }
        bytes
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: taken once, and acknowledged here once.
        unsafe { ffi::rdma_ack_cm_event(self.0.as_ptr()) };
    }
}

/// An identifier: one end of a connection, or of none yet.
#[derive(Debug)]
struct Identifier(NonNull<ffi::rdma_cm_id>);

// SAFETY: librdmacm is safe to call from any thread.
unsafe impl Send for Identifier {}
// SAFETY: as above.
unsafe impl Sync for Identifier {}

impl Identifier {
    fn new(channel: &Channel) -> io::Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is open.
        check(unsafe {
            ffi::rdma_create_id(
                channel.0.as_ptr(),
                &raw mut raw,
                ptr::null_mut(),
                ffi::rdma_port_space::RDMA_PS_TCP,
            )
        })?;
        NonNull::new(raw)
            .map(Self)
            .ok_or_else(io::Error::last_os_error)
    }

    fn raw(&self) -> *mut ffi::rdma_cm_id {
        self.0.as_ptr()
    }

    /// The device that its route leads over.
    fn device(&self) -> Option<String> {
        // SAFETY: the identifier is alive; a resolved one names an open device.
        unsafe {
            let context = self.0.as_ref().verbs;
            if context.is_null() {
                return None;
            }
            let name = ffi::ibv_get_device_name((*context).device);
            Some(CStr::from_ptr(name).to_string_lossy().into_owned())
        }
    }

    fn check_device(&self, context: &Context, address: SocketAddr) -> Result<(), VerbsError> {
        let reached = self.device().unwrap_or_default();
        if reached == context.name() {
            return Ok(());
        }
        Err(VerbsError::Route {
            address,
            reached,
            opened: context.name().to_owned(),
        })
    }

    fn fill(&self, attributes: &mut ffi::ibv_qp_attr, mask: &mut i32) -> io::Result<()> {
        // SAFETY: the identifier is alive; fills in plain numbers.
        check(unsafe { ffi::rdma_init_qp_attr(self.raw(), attributes, mask) })
    }
}

impl Drop for Identifier {
    fn drop(&mut self) {
        // SAFETY: made by librdmacm for this; no event of it is held (I1).
        unsafe { ffi::rdma_destroy_id(self.raw()) };
    }
}

fn parameters(
    queue_pair: &QueuePair,
    options: &VerbsOptions,
    private_data: &[u8],
) -> ffi::rdma_conn_param {
    // SAFETY: plain numbers and a pointer, for which zero is a value.
    let mut wanted: ffi::rdma_conn_param = unsafe { MaybeUninit::zeroed().assume_init() };
    wanted.private_data = private_data.as_ptr().cast();
    wanted.private_data_len = u8::try_from(private_data.len()).unwrap_or(u8::MAX);
    wanted.responder_resources = queue_pair.facts(options).responder_resources;
    wanted.initiator_depth = queue_pair.initiator_depth(options);
    wanted.retry_count = options.retry_count;
    wanted.rnr_retry_count = options.rnr_retry;
    wanted.qp_num = queue_pair.number();
    wanted
}

/// Tells when the other side has gone.
#[derive(Debug)]
pub(super) struct CmLine {
    // Dropped in this order (I2).
    id: Identifier,
    channel: Rc<Channel>,
    dead: Cell<bool>,
}

impl CmLine {
    pub(super) fn is_dead(&self) -> bool {
        while let Ok(Some(event)) = self.channel.take() {
            if matches!(
                event.kind(),
                ffi::rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED
                    | ffi::rdma_cm_event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT
                    | ffi::rdma_cm_event_type::RDMA_CM_EVENT_DEVICE_REMOVAL
            ) && event.id() == self.id.raw()
            {
                self.dead.set(true);
            }
        }
        self.dead.get()
    }
}

impl Drop for CmLine {
    fn drop(&mut self) {
        // SAFETY: the identifier is alive; the other side is told.
        unsafe { ffi::rdma_disconnect(self.id.raw()) };
    }
}

/// Waits for one kind of event; others of a connection that is being made end it.
async fn wait_for(channel: &Channel, wanted: u32) -> io::Result<Event> {
    loop {
        let Some(event) = channel.take()? else {
            Timer::new(PACE).await;
            continue;
        };
        if event.kind() == wanted {
            return Ok(event);
        }
        use ffi::rdma_cm_event_type as kind;
        let what = match event.kind() {
            kind::RDMA_CM_EVENT_ADDR_ERROR => "no RDMA device leads to the address",
            kind::RDMA_CM_EVENT_ROUTE_ERROR => "there is no route to the address",
            kind::RDMA_CM_EVENT_UNREACHABLE => "nobody answers at the address",
            kind::RDMA_CM_EVENT_REJECTED => {
                return Err(rejection(&event));
            }
            _ => "the connection could not be made",
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
            "nobody listens there by RDMA-CM",
        ),
    }
}

/// The device that the route to an address leads over.
///
/// # Errors
/// [`ConnectError`].
pub async fn device_for(address: SocketAddr, limit: Duration) -> Result<String, ConnectError> {
    let work = async {
        let channel = Channel::new()?;
        let id = Identifier::new(&channel)?;
        resolve(&channel, &id, address, limit).await?;
        id.device()
            .ok_or_else(|| io::Error::other("no RDMA device leads to the address"))
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

/// Connects a queue pair for an endpoint's berth.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect(
    adapter: &Rc<Adapter>,
    address: SocketAddr,
    request: &ConnectRequest,
    limit: Duration,
) -> Result<Connected, ConnectError> {
    bounded(address, limit, begin(adapter, address, request, limit)).await
}

async fn begin(
    adapter: &Rc<Adapter>,
    address: SocketAddr,
    request: &ConnectRequest,
    limit: Duration,
) -> io::Result<Connected> {
    use ffi::rdma_cm_event_type as kind;
    let options = &adapter.options;
    if options.path_mtu.is_some() {
        let what = "path_mtu: RDMA-CM takes the route's; set none, or use rdma+tcp://";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let channel = Rc::new(Channel::new()?);
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
    // SAFETY: the identifier is alive and got a response.
    check(unsafe { ffi::rdma_establish(id.raw()) })?;
    Ok(Connected {
        queue_pair,
        line: Rc::new(Line::Cm(CmLine {
            id,
            channel,
            dead: Cell::new(false),
        })),
    })
}

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
        own_address(self.id.raw())
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
                    let peer = peer_address(raw.as_ptr());
                    drop(event);
                    return Ok(Some(CmEvent::Arrival(CmArrival {
                        id: Identifier(raw),
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

    /// Waits for the next event, on a glommio executor.
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

    /// Accepts it with a queue pair, which is ready to send when this returns; the client is when it says so.
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
}

impl CmArrival {
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
pub(super) struct AcceptedLine {
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

/// A connection that was accepted. It ends when this is dropped: after that its peer reaches nothing.
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
