//! RDMA-CM identifiers: one end of a connection each.
//!
//! Owns the identifier and destroys it on drop, after its events were acknowledged (I1).

#![allow(unsafe_code)] // calls librdmacm

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::ptr::{self, NonNull};

use super::address::address_at;
use super::events::Channel;
use crate::fabric::VerbsOptions;
use crate::verbs::context::Context;
use crate::verbs::error::VerbsError;
use crate::verbs::ffi;
use crate::verbs::queue_pair::QueuePair;

pub(super) fn check(code: i32) -> io::Result<()> {
    match code {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// An identifier: one end of a connection, established or not.
#[derive(Debug)]
pub(super) struct Identifier(NonNull<ffi::rdma_cm_id>);

// SAFETY: librdmacm may be called from any thread.
unsafe impl Send for Identifier {}
// SAFETY: as above.
unsafe impl Sync for Identifier {}

impl Identifier {
    pub(super) fn new(channel: &Channel) -> io::Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the channel is open.
        check(unsafe {
            ffi::rdma_create_id(
                channel.raw(),
                &raw mut raw,
                ptr::null_mut(),
                ffi::rdma_port_space::RDMA_PS_TCP,
            )
        })?;
        NonNull::new(raw)
            .map(Self)
            .ok_or_else(io::Error::last_os_error)
    }

    pub(super) fn raw(&self) -> *mut ffi::rdma_cm_id {
        self.0.as_ptr()
    }

    /// Takes ownership of an identifier that came with an event.
    pub(super) fn of_event(raw: NonNull<ffi::rdma_cm_id>) -> Self {
        Self(raw)
    }

    /// The peer's address.
    pub(super) fn peer_address(&self) -> SocketAddr {
        // SAFETY: the identifier is alive; its route holds complete addresses.
        unsafe { address_at((&raw const self.0.as_ref().route.addr.dst_addr_union).cast()) }
    }

    /// The local address.
    pub(super) fn own_address(&self) -> SocketAddr {
        // SAFETY: as for a peer's.
        unsafe { address_at((&raw const self.0.as_ref().route.addr.src_addr_union).cast()) }
    }

    /// The device that its route uses.
    pub(super) fn device(&self) -> Option<String> {
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

    pub(super) fn check_device(
        &self,
        context: &Context,
        address: SocketAddr,
    ) -> Result<(), VerbsError> {
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

    pub(super) fn fill(&self, attributes: &mut ffi::ibv_qp_attr, mask: &mut i32) -> io::Result<()> {
        // SAFETY: the identifier is alive; this fills plain numbers.
        check(unsafe { ffi::rdma_init_qp_attr(self.raw(), attributes, mask) })
    }
}

impl Drop for Identifier {
    fn drop(&mut self) {
        // SAFETY: created by librdmacm for this; no event of it is held (I1).
        unsafe { ffi::rdma_destroy_id(self.raw()) };
    }
}

/// The parameters of a connect request or an accept.
pub(super) fn parameters(
    queue_pair: &QueuePair,
    options: &VerbsOptions,
    private_data: &[u8],
) -> ffi::rdma_conn_param {
    // SAFETY: plain numbers and a pointer, for which zero is a valid value.
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
