//! An opened device and its objects: protection domains, memory regions, completion queues.
//!
//! ```text
//! Context <- Domain <- MemoryRegion (-> Region), QueuePair
//!         <- CompletionQueue <- QueuePair            (arrows: "is kept alive by"; dropped from the right)
//! ```
//!
//! - I1: no object is released while another that names it lives: each holds the objects it was
//!   created from.
//! - I2: memory is unregistered before it is unmapped: a [`MemoryRegion`] owns its [`Region`].
//!
//! Memory is registered from address 0 on: places in requests are offsets, and peers learn no
//! addresses of this process. Source: the manual page of `ibv_open_device` and those that it refers
//! to; libibverbs may be called from any thread.

#![allow(unsafe_code)] // calls libibverbs

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::error::VerbsError;
use super::ffi;
use super::handle::{Kind, Named};
use crate::devices::{self, GidEntry};
use crate::fabric::VerbsOptions;
use crate::region::Region;

/// A device's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceLimits {
    /// Requests per queue of a queue pair.
    pub queue_depth: u32,
    /// Completions per completion queue.
    pub completions: u32,
    /// READs and atomics that a queue pair may have in flight.
    pub initiator_depth: u8,
    /// READs and atomics of a peer that a queue pair serves at once.
    pub responder_resources: u8,
    /// Bytes per memory region.
    pub region_bytes: u64,
    /// Whether the device's atomics are atomic with this machine's processors.
    pub global_atomics: bool,
    /// Whether the device supports atomics.
    pub atomics: bool,
}

/// The port in use, and its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// The port's number, from 1.
    pub number: u8,
    /// The local identifier; 0 on RoCE.
    pub lid: u16,
    /// The MTU, as the specification's code.
    pub mtu_code: u8,
    /// The index in the GID table.
    pub gid_index: u8,
    /// The GID at that index.
    pub gid: [u8; 16],
    /// True on Ethernet: packets need a global route.
    pub ethernet: bool,
}

/// An event of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceEvent {
    /// A port carries traffic again.
    PortUp(u8),
    /// A port carries no traffic.
    PortDown(u8),
    /// A queue pair, given by number, has failed.
    QueuePairFatal(u32),
    /// A completion queue has failed.
    CompletionQueueFatal,
    /// The device has failed.
    DeviceFatal,
    /// Another event, by the specification's number.
    Other(u32),
}

/// An opened device.
#[derive(Debug)]
pub struct Context {
    raw: NonNull<ffi::ibv_context>,
    name: String,
    limits: DeviceLimits,
    port: Port,
}

// SAFETY: libibverbs may be called from any thread, and no field changes after construction.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

fn small(value: i32) -> u8 {
    u8::try_from(value.max(0)).unwrap_or(u8::MAX)
}

fn count(value: i32) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

/// The error of a failed verb.
pub(super) fn refusal(code: i32) -> io::Error {
    match code {
        // Some verbs return -1 and set `errno`.
        ..=0 => io::Error::last_os_error(),
        code => io::Error::from_raw_os_error(code),
    }
}

/// Opens the device that the options name, or the first with an active port. Returns its name too.
fn open_device(options: &VerbsOptions) -> Result<(NonNull<ffi::ibv_context>, String), VerbsError> {
    let mut found = 0;
    // SAFETY: sets the count and returns a list that ends with null, or null.
    let list = unsafe { ffi::__ibv_get_device_list(&raw mut found) };
    if list.is_null() {
        return Err(VerbsError::NoDevice {
            asked: options.device.clone(),
            found: "none".to_owned(),
        });
    }
    let mut names = Vec::new();
    let mut opened = None;
    for index in 0..usize::try_from(found).unwrap_or(0) {
        // SAFETY: the list has that many entries; a device's name is a string that ends with 0.
        let (device, name) = unsafe {
            let device = *list.add(index);
            (device, CStr::from_ptr(ffi::ibv_get_device_name(device)))
        };
        let name = name.to_string_lossy().into_owned();
        let active = || {
            devices::ports(&name)
                .iter()
                .any(devices::PortFacts::is_active)
        };
        let wanted = match &options.device {
            Some(chosen) => *chosen == name,
            None => active(),
        };
        if wanted && opened.is_none() {
            // SAFETY: an entry of the list, which has not been freed.
            opened = NonNull::new(unsafe { ffi::ibv_open_device(device) })
                .map(|raw| (raw, name.clone()))
                .or_else(|| Some((NonNull::dangling(), String::new())));
        }
        names.push(name);
    }
    let refused = io::Error::last_os_error();
    // SAFETY: the list as it was returned; an opened device outlives it.
    unsafe { ffi::ibv_free_device_list(list) };
    let found = if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    };
    match opened {
        None => Err(VerbsError::NoDevice {
            asked: options.device.clone(),
            found,
        }),
        Some((_, name)) if name.is_empty() => Err(VerbsError::Refused {
            what: "cannot open the device",
            device: found,
            source: refused,
        }),
        Some(opened) => Ok(opened),
    }
}

impl Context {
    /// Opens the device and port that the options name, or the best available.
    ///
    /// # Errors
    /// [`VerbsError`] names what is missing.
    pub fn open(options: &VerbsOptions) -> Result<Arc<Self>, VerbsError> {
        options.validate()?;
        let (raw, name) = open_device(options)?;
        // From here on, dropping closes the device.
        let mut context = Self {
            raw,
            name,
            limits: DeviceLimits {
                queue_depth: 0,
                completions: 0,
                initiator_depth: 0,
                responder_resources: 0,
                region_bytes: 0,
                global_atomics: false,
                atomics: false,
            },
            port: Port {
                number: 0,
                lid: 0,
                mtu_code: 0,
                gid_index: 0,
                gid: [0; 16],
                ethernet: false,
            },
        };
        context.limits = context.query_limits()?;
        context.port = context.choose_port(options)?;
        context.set_events_nonblocking()?;
        Ok(Arc::new(context))
    }

    /// The device's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device's limits.
    #[must_use]
    pub fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    /// The port in use.
    #[must_use]
    pub fn port(&self) -> &Port {
        &self.port
    }

    pub(super) fn raw(&self) -> *mut ffi::ibv_context {
        self.raw.as_ptr()
    }

    pub(crate) fn refused(&self, what: &'static str, source: io::Error) -> VerbsError {
        VerbsError::Refused {
            what,
            device: self.name.clone(),
            source,
        }
    }

    fn query_limits(&self) -> Result<DeviceLimits, VerbsError> {
        let mut facts = MaybeUninit::<ffi::ibv_device_attr>::zeroed();
        // SAFETY: fills a struct of plain numbers.
        let code = unsafe { ffi::ibv_query_device(self.raw(), facts.as_mut_ptr()) };
        if code != 0 {
            return Err(self.refused("cannot read the device's limits", refusal(code)));
        }
        // SAFETY: plain numbers, all of them initialised, at least by the zeroing.
        let facts = unsafe { facts.assume_init() };
        let cap = facts.atomic_cap;
        Ok(DeviceLimits {
            queue_depth: count(facts.max_qp_wr),
            completions: count(facts.max_cqe),
            initiator_depth: small(facts.max_qp_init_rd_atom),
            responder_resources: small(facts.max_qp_rd_atom),
            region_bytes: facts.max_mr_size,
            global_atomics: cap == ffi::ibv_atomic_cap::IBV_ATOMIC_GLOB,
            atomics: cap != ffi::ibv_atomic_cap::IBV_ATOMIC_NONE,
        })
    }

    fn choose_port(&self, options: &VerbsOptions) -> Result<Port, VerbsError> {
        let known = devices::ports(&self.name);
        let chosen = match options.port {
            Some(number) => known.iter().find(|port| port.number == number),
            None => known.iter().find(|port| port.is_active()).or(known.first()),
        };
        let (number, gids) = chosen.map_or((options.port.unwrap_or(1), &[][..]), |port| {
            (port.number, &port.gids)
        });
        let mut facts = MaybeUninit::<ffi::ibv_port_attr>::zeroed();
        // SAFETY: fills a struct of plain numbers.
        let code = unsafe { ffi::___ibv_query_port(self.raw(), number, facts.as_mut_ptr()) };
        if code != 0 {
            return Err(self.refused("cannot read the port", refusal(code)));
        }
        // SAFETY: plain numbers, all of them initialised, at least by the zeroing.
        let facts = unsafe { facts.assume_init() };
        if facts.state != ffi::ibv_port_state::IBV_PORT_ACTIVE {
            return Err(VerbsError::Port {
                device: self.name.clone(),
                port: number,
                state: match facts.state {
                    ffi::ibv_port_state::IBV_PORT_DOWN => "down",
                    ffi::ibv_port_state::IBV_PORT_INIT => "initialising",
                    ffi::ibv_port_state::IBV_PORT_ARMED => "armed",
                    _ => "not active",
                },
            });
        }
        let ethernet = facts.link_layer == devices::LINK_LAYER_ETHERNET;
        let none = || VerbsError::Gid {
            device: self.name.clone(),
            port: number,
            index: options.gid_index,
        };
        let gid = match options.gid_index {
            Some(index) => gids.iter().find(|gid| gid.index == index),
            None => GidEntry::best(gids),
        };
        let gid = gid.ok_or_else(none)?;
        Ok(Port {
            number,
            lid: facts.lid,
            mtu_code: u8::try_from(facts.active_mtu).unwrap_or(1),
            gid_index: gid.index,
            gid: gid.gid,
            ethernet,
        })
    }

    fn event_descriptor(&self) -> RawFd {
        // SAFETY: the context is open.
        unsafe { (*self.raw()).async_fd }
    }

    fn set_events_nonblocking(&self) -> Result<(), VerbsError> {
        let descriptor = self.event_descriptor();
        // SAFETY: changes a flag of an open descriptor.
        let done = unsafe {
            let flags = libc::fcntl(descriptor, libc::F_GETFL);
            flags >= 0 && libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK) >= 0
        };
        if done {
            return Ok(());
        }
        Err(self.refused(
            "cannot watch the device's events",
            io::Error::last_os_error(),
        ))
    }

    /// Takes the oldest event. Cost: a system call.
    pub fn take_event(&self) -> Option<DeviceEvent> {
        let mut event = MaybeUninit::<ffi::ibv_async_event>::zeroed();
        // SAFETY: fills an event, or reports that there is none.
        if unsafe { ffi::ibv_get_async_event(self.raw(), event.as_mut_ptr()) } != 0 {
            return None;
        }
        use ffi::ibv_event_type as kind;
        // SAFETY: the event was filled in. Its type says which member of the union is set, and the
        // queue pair that it names exists until the event is acknowledged. The type is read as a
        // number: a later kernel may know more types.
        let seen = unsafe {
            let place = event.as_ptr();
            let number = ptr::read((&raw const (*place).event_type).cast::<u32>());
            let port = || small((*place).element.port_num);
            match number {
                n if n == kind::IBV_EVENT_PORT_ACTIVE as u32 => DeviceEvent::PortUp(port()),
                n if n == kind::IBV_EVENT_PORT_ERR as u32 => DeviceEvent::PortDown(port()),
                n if n == kind::IBV_EVENT_QP_FATAL as u32
                    || n == kind::IBV_EVENT_QP_REQ_ERR as u32
                    || n == kind::IBV_EVENT_QP_ACCESS_ERR as u32 =>
                {
                    DeviceEvent::QueuePairFatal((*(*place).element.qp).qp_num)
                }
                n if n == kind::IBV_EVENT_CQ_ERR as u32 => DeviceEvent::CompletionQueueFatal,
                n if n == kind::IBV_EVENT_DEVICE_FATAL as u32 => DeviceEvent::DeviceFatal,
                number => DeviceEvent::Other(number),
            }
        };
        // SAFETY: acknowledges the event just taken, once.
        unsafe { ffi::ibv_ack_async_event(event.as_mut_ptr()) };
        Some(seen)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened by this, and all objects created from it are gone (I1).
        unsafe { ffi::ibv_close_device(self.raw()) };
    }
}

/// A protection domain: the memory that its queue pairs may access.
#[derive(Debug)]
pub struct Domain {
    raw: NonNull<ffi::ibv_pd>,
    context: Arc<Context>,
}

// SAFETY: as for `Context`.
unsafe impl Send for Domain {}
// SAFETY: as for `Context`.
unsafe impl Sync for Domain {}

impl Named for Arc<Domain> {
    const KIND: Kind = Kind::Domain;
}

impl Domain {
    /// Creates a domain.
    ///
    /// # Errors
    /// [`VerbsError::Refused`].
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, VerbsError> {
        // SAFETY: the context is open.
        let raw = NonNull::new(unsafe { ffi::ibv_alloc_pd(context.raw()) });
        let raw = raw.ok_or_else(|| {
            context.refused(
                "cannot create a protection domain",
                io::Error::last_os_error(),
            )
        })?;
        Ok(Arc::new(Self {
            raw,
            context: Arc::clone(context),
        }))
    }

    /// The device.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(super) fn raw(&self) -> *mut ffi::ibv_pd {
        self.raw.as_ptr()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: created by this, and all objects created from it are gone (I1).
        unsafe { ffi::ibv_dealloc_pd(self.raw()) };
    }
}

/// Who may access a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// This side's own requests.
    Local,
    /// Peers too: READ, WRITE and atomics.
    Remote,
}

/// Registered memory, kept for as long as this lives.
#[derive(Debug)]
pub struct MemoryRegion {
    raw: NonNull<ffi::ibv_mr>,
    region: Arc<Region>,
    _domain: Arc<Domain>,
}

// SAFETY: as for `Context`.
unsafe impl Send for MemoryRegion {}
// SAFETY: as for `Context`.
unsafe impl Sync for MemoryRegion {}

impl Named for MemoryRegion {
    const KIND: Kind = Kind::Region;
}

impl MemoryRegion {
    /// Registers a region. Cost: the kernel pins and maps every page.
    ///
    /// # Errors
    /// [`VerbsError::Limit`], [`VerbsError::Register`].
    pub fn register(
        domain: &Arc<Domain>,
        region: Arc<Region>,
        access: Access,
    ) -> Result<Self, VerbsError> {
        let context = domain.context();
        let bytes = region.len() as u64;
        if bytes > context.limits.region_bytes {
            return Err(VerbsError::Limit {
                what: "the length of a memory region",
                asked: bytes,
                limit: context.limits.region_bytes,
                device: context.name.clone(),
            });
        }
        let mut flags = ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
        if access == Access::Remote {
            flags |= ffi::ibv_access_flags::IBV_ACCESS_REMOTE_READ.0
                | ffi::ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
            if context.limits.atomics {
                flags |= ffi::ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;
            }
        }
        let start = region.as_ptr().as_ptr().cast();
        // SAFETY: the region is mapped for as long as the registration lives, which owns it.
        let raw = unsafe { ffi::ibv_reg_mr_iova2(domain.raw(), start, region.len(), 0, flags) };
        let raw = NonNull::new(raw).ok_or_else(|| VerbsError::Register {
            bytes,
            device: context.name.clone(),
            source: io::Error::last_os_error(),
        })?;
        Ok(Self {
            raw,
            region,
            _domain: Arc::clone(domain),
        })
    }

    /// The key in this side's requests.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        // SAFETY: the registration is alive.
        unsafe { self.raw.as_ref().lkey }
    }

    /// The key in a peer's requests.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        // SAFETY: the registration is alive.
        unsafe { self.raw.as_ref().rkey }
    }

    /// The memory.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.region
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: registered by this; queue pairs that could name it are gone, or the device
        // refuses requests that name it.
        unsafe { ffi::ibv_dereg_mr(self.raw.as_ptr()) };
    }
}

/// The queue that requests complete in.
#[derive(Debug)]
pub struct CompletionQueue {
    raw: NonNull<ffi::ibv_cq>,
    /// Reports completions to a thread that waits; destroyed after the queue.
    channel: Option<NonNull<ffi::ibv_comp_channel>>,
    context: Arc<Context>,
}

// SAFETY: as for `Context`.
unsafe impl Send for CompletionQueue {}
// SAFETY: as for `Context`.
unsafe impl Sync for CompletionQueue {}

impl Named for Arc<CompletionQueue> {
    const KIND: Kind = Kind::CompletionQueue;
}

impl CompletionQueue {
    /// A queue for `entries` completions.
    ///
    /// # Errors
    /// [`VerbsError::Limit`], [`VerbsError::Refused`].
    pub fn new(context: &Arc<Context>, entries: u32) -> Result<Arc<Self>, VerbsError> {
        Self::create(context, entries, None)
    }

    /// A queue for `entries` completions with a completion channel, whose descriptor is readable
    /// after a completion that was armed for.
    ///
    /// # Errors
    /// As [`CompletionQueue::new`].
    pub fn with_events(context: &Arc<Context>, entries: u32) -> Result<Arc<Self>, VerbsError> {
        let failed =
            |error: io::Error| context.refused("cannot create a completion channel", error);
        // SAFETY: the context is open.
        let raw = NonNull::new(unsafe { ffi::ibv_create_comp_channel(context.raw()) });
        let raw = raw.ok_or_else(|| failed(io::Error::last_os_error()))?;
        // SAFETY: the channel is open; this changes a flag of its descriptor.
        let changed = unsafe {
            let descriptor = raw.as_ref().fd;
            let flags = libc::fcntl(descriptor, libc::F_GETFL);
            flags < 0 || libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0
        };
        if changed {
            let error = failed(io::Error::last_os_error());
            // SAFETY: created above, and no queue uses it.
            unsafe { ffi::ibv_destroy_comp_channel(raw.as_ptr()) };
            return Err(error);
        }
        Self::create(context, entries, Some(raw))
    }

    /// Creates the queue, and destroys the channel if that fails.
    fn create(
        context: &Arc<Context>,
        entries: u32,
        channel: Option<NonNull<ffi::ibv_comp_channel>>,
    ) -> Result<Arc<Self>, VerbsError> {
        let created = Self::create_raw(context, entries, channel);
        if let (Err(_), Some(channel)) = (&created, channel) {
            // SAFETY: no queue uses it.
            unsafe { ffi::ibv_destroy_comp_channel(channel.as_ptr()) };
        }
        created
    }

    fn create_raw(
        context: &Arc<Context>,
        entries: u32,
        channel: Option<NonNull<ffi::ibv_comp_channel>>,
    ) -> Result<Arc<Self>, VerbsError> {
        let limit = context.limits.completions;
        let Some(entries) = i32::try_from(entries).ok().filter(|_| entries <= limit) else {
            return Err(VerbsError::Limit {
                what: "the depth of a completion queue",
                asked: entries.into(),
                limit: limit.into(),
                device: context.name.clone(),
            });
        };
        // SAFETY: the context is open, and so is the channel, if there is one.
        let raw = unsafe {
            ffi::ibv_create_cq(
                context.raw(),
                entries.max(1),
                ptr::null_mut(),
                channel.map_or(ptr::null_mut(), NonNull::as_ptr),
                0,
            )
        };
        let raw = NonNull::new(raw).ok_or_else(|| {
            context.refused(
                "cannot create a completion queue",
                io::Error::last_os_error(),
            )
        })?;
        Ok(Arc::new(Self {
            raw,
            channel,
            context: Arc::clone(context),
        }))
    }

    /// The descriptor of the completion channel.
    pub(super) fn descriptor(&self) -> Option<RawFd> {
        // SAFETY: the channel is open.
        self.channel.map(|channel| unsafe { channel.as_ref().fd })
    }

    /// Has the channel report the next completion. Poll after this: an earlier one is not reported.
    pub(super) fn arm(&self) {
        // SAFETY: the queue is alive.
        let code = unsafe { ffi::ibv_req_notify_cq(self.raw(), 0) };
        if code != 0 {
            tracing::warn!(
                device = self.context.name(),
                error = %refusal(code),
                "the device does not report completions"
            );
        }
    }

    /// Takes what the channel has reported. Cost: a system call for each report, and one more.
    pub(super) fn take_events(&self) {
        let Some(channel) = self.channel else {
            return;
        };
        let (mut queue, mut place) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is open and does not block; it reports this queue alone.
        while unsafe { ffi::ibv_get_cq_event(channel.as_ptr(), &raw mut queue, &raw mut place) }
            == 0
        {
            // SAFETY: one event of this queue was taken.
            unsafe { ffi::ibv_ack_cq_events(queue, 1) };
        }
    }

    pub(super) fn raw(&self) -> *mut ffi::ibv_cq {
        self.raw.as_ptr()
    }

    /// Polls completions into `room`; `None` if the queue is broken. Cost: no system call.
    pub(super) fn poll<'a>(
        &self,
        room: &'a mut [MaybeUninit<ffi::ibv_wc>],
    ) -> Option<&'a [ffi::ibv_wc]> {
        let most = i32::try_from(room.len()).unwrap_or(i32::MAX);
        // SAFETY: fills at most as many as there is room for.
        let taken = unsafe { ffi::ibv_poll_cq(self.raw(), most, room.as_mut_ptr().cast()) };
        let taken = room.get(..usize::try_from(taken).ok()?)?;
        // SAFETY: that many were filled in.
        Some(unsafe { &*(ptr::from_ref(taken) as *const [ffi::ibv_wc]) })
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: created by this, and the queue pairs that used it are gone (I1).
        unsafe { ffi::ibv_destroy_cq(self.raw()) };
        if let Some(channel) = self.channel {
            // SAFETY: created by this, and its only queue is gone.
            unsafe { ffi::ibv_destroy_comp_channel(channel.as_ptr()) };
        }
    }
}
