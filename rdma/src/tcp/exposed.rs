//! The regions that a connection's peer may access, and the atomics performed on them.
//!
//! Keeps the regions alive. Every access is checked against its region's bounds and key.

#![allow(unsafe_code)] // words of regions as atomics

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::memory::{atomic_word, pointer};
use crate::region::Region;
use crate::work::{RemoteKey, Status};

/// Regions by rkey. Cheap to clone; every connection holds a clone, which keeps the regions alive.
#[derive(Clone, Debug, Default)]
pub struct Exposed(Arc<[(RemoteKey, Arc<Region>)]>);

impl Exposed {
    /// Exposes regions to peers that know their keys.
    #[must_use]
    pub fn new(mut regions: Vec<(RemoteKey, Arc<Region>)>) -> Self {
        regions.sort_by_key(|(key, _)| key.0);
        Self(regions.into())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A range of a region, or why the peer may not access it.
    pub(super) fn range(&self, key: RemoteKey, offset: u64, bytes: u32) -> Result<*mut u8, Status> {
        let place = self.0.binary_search_by_key(&key.0, |(key, _)| key.0);
        let region = place.ok().and_then(|place| self.0.get(place));
        let (_, region) = region.ok_or(Status::RemoteAccess)?;
        pointer(region, offset, bytes).ok_or(Status::RemoteAccess)
    }

    /// Applies an atomic to a word and returns its old value. Atomic among all connections and this
    /// process.
    pub(super) fn atomic(
        &self,
        key: RemoteKey,
        offset: u64,
        change: Change,
    ) -> Result<u64, Status> {
        let place = self.range(key, offset, 8)?;
        // SAFETY: inside its region, which `self` keeps.
        let word = unsafe { atomic_word(place) }.ok_or(Status::RemoteOperation)?;
        Ok(match change {
            Change::Swap { expected, desired } => word
                .compare_exchange(expected, desired, Ordering::AcqRel, Ordering::Acquire)
                .unwrap_or_else(|old| old),
            Change::Add(addend) => word.fetch_add(addend, Ordering::AcqRel),
        })
    }
}

/// The operation of an atomic.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Swap { expected: u64, desired: u64 },
    Add(u64),
}
