//! RDMA-CM events and their channel, read without waiting.
//!
//! Owns the channel; an event is acknowledged when it is dropped (I1 of the parent module).

#![allow(unsafe_code)] // calls librdmacm

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::{self, NonNull};

use crate::verbs::ffi;

/// An event channel, read without waiting.
#[derive(Debug)]
pub(super) struct Channel(NonNull<ffi::rdma_event_channel>);

// SAFETY: librdmacm may be called from any thread.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Channel {
    pub(super) fn new() -> io::Result<Self> {
        // SAFETY: returns a channel or null.
        let raw = NonNull::new(unsafe { ffi::rdma_create_event_channel() });
        let channel = Self(raw.ok_or_else(io::Error::last_os_error)?);
        let descriptor = channel.as_raw_fd();
        // SAFETY: changes a flag of an open descriptor.
        unsafe {
            let flags = libc::fcntl(descriptor, libc::F_GETFL);
            if flags < 0 || libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(channel)
    }

    pub(super) fn take(&self) -> io::Result<Option<Event>> {
        let mut event = ptr::null_mut();
        // SAFETY: returns an event, or reports that there is none.
        match unsafe { ffi::rdma_get_cm_event(self.0.as_ptr(), &raw mut event) } {
            0 => Ok(NonNull::new(event).map(Event)),
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                error => Err(error),
            },
        }
    }

    pub(super) fn raw(&self) -> *mut ffi::rdma_event_channel {
        self.0.as_ptr()
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
        // SAFETY: created by this, and its identifiers are gone (I2).
        unsafe { ffi::rdma_destroy_event_channel(self.0.as_ptr()) };
    }
}

/// An event, acknowledged when dropped.
#[derive(Debug)]
pub(super) struct Event(NonNull<ffi::rdma_cm_event>);

impl Event {
    pub(super) fn kind(&self) -> u32 {
        // SAFETY: the event is not yet acknowledged.
        unsafe { self.0.as_ref().event }
    }

    pub(super) fn status(&self) -> i32 {
        // SAFETY: as above.
        unsafe { self.0.as_ref().status }
    }

    pub(super) fn id(&self) -> *mut ffi::rdma_cm_id {
        // SAFETY: as above.
        unsafe { self.0.as_ref().id }
    }

    /// The peer's private data, cut or padded with zeros to `N` bytes.
    pub(super) fn private_data<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        // SAFETY: this event's kind carries the parameters of a connection; the data is as long as
        // they say.
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
