//! Bytes of a node's memory, as its host's process accesses them: without requests.
//!
//! - I1: they are a session's own, which is held until this is dropped, so that it cannot be over.
//!   If the node isolates sessions, they are pinned as those of a READ or WRITE, too.

#![allow(unsafe_code)] // copies into and out of registered memory

use std::fmt::Debug;
use std::sync::Arc;

use crate::pool::OwnerId;
use crate::tcp::{Access, Exposed, RemoteRange};

/// Bytes of a node's memory, for the process that hosts it.
#[derive(Debug)]
pub(super) struct NodeBytes {
    held: Held,
    exposed: Exposed,
    range: RemoteRange,
    place: *mut u8,
}

// SAFETY: the place lies in a region that `exposed` keeps, which any thread may access.
unsafe impl Send for NodeBytes {}
// SAFETY: as for `Send`; clients access it at the same time, too.
unsafe impl Sync for NodeBytes {}

/// The node, which keeps sessions and says what they own.
pub(super) trait Keeper: Debug + Send + Sync {
    /// Keeps a session from being over until [`Keeper::release`]; false if it is over.
    fn hold(&self, session: OwnerId) -> bool;

    fn release(&self, session: OwnerId);

    /// What a session may access.
    fn exposed_to(self: Arc<Self>, session: OwnerId) -> Exposed;

    /// Whether a range is a session's own.
    fn owns(&self, session: OwnerId, range: RemoteRange) -> bool;

    fn is_stopping(&self) -> bool;
}

/// A session that is held.
#[derive(Debug)]
struct Held {
    keeper: Arc<dyn Keeper>,
    session: OwnerId,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.keeper.release(self.session);
    }
}

impl Drop for NodeBytes {
    fn drop(&mut self) {
        self.exposed.end(self.range);
    }
}

/// An access outside the bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{bytes} bytes at {offset} exceed a target of {limit} bytes")]
pub(super) struct OutsideBytes {
    offset: usize,
    bytes: usize,
    limit: usize,
}

impl OutsideBytes {
    pub(super) fn new(offset: usize, bytes: usize, limit: usize) -> Self {
        Self {
            offset,
            bytes,
            limit,
        }
    }
}

impl NodeBytes {
    /// Bytes that are a session's own; `None` if they are not, or the session is over.
    pub(super) fn new(
        keeper: Arc<dyn Keeper>,
        session: OwnerId,
        access: Access,
        range: RemoteRange,
    ) -> Option<Self> {
        if !keeper.hold(session) {
            return None;
        }
        let held = Held { keeper, session };
        let exposed = Arc::clone(&held.keeper).exposed_to(session);
        let place = exposed.begin(access, range).ok()?;
        // Pinned before it is looked at.
        let bytes = Self {
            held,
            exposed,
            range,
            place,
        };
        let owns = bytes.held.keeper.owns(session, range);
        owns.then_some(bytes)
    }

    /// How many there are.
    pub(super) fn length(&self) -> usize {
        self.range.bytes as usize
    }

    fn place(&self, offset: usize, bytes: usize) -> Result<*mut u8, OutsideBytes> {
        let limit = self.length();
        match offset.checked_add(bytes) {
            Some(end) if end <= limit => Ok(self.place.wrapping_add(offset)),
            _ => Err(OutsideBytes::new(offset, bytes, limit)),
        }
    }

    /// Reads bytes from an offset on. Not atomic: clients may write them meanwhile.
    ///
    /// # Errors
    /// They are outside.
    pub(super) fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), OutsideBytes> {
        let place = self.place(offset, into.len())?;
        // SAFETY: the range lies in a region that `self` keeps; `into` is this process's and not
        // registered. Peers may write the range meanwhile, as all far memory.
        unsafe { std::ptr::copy_nonoverlapping(place, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Writes bytes from an offset on, which were begun for that. Not atomic: clients may read them
    /// meanwhile.
    ///
    /// # Errors
    /// They are outside.
    pub(super) fn write(&self, offset: usize, from: &[u8]) -> Result<(), OutsideBytes> {
        let place = self.place(offset, from.len())?;
        // SAFETY: as for `read`.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), place, from.len()) };
        Ok(())
    }
}
