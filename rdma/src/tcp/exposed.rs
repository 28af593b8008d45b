//! The regions that a connection's peer may reach, and what it does to them.

#![allow(unsafe_code)] // words of regions as atomics

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::memory::{atomic_word, pointer};
use crate::region::Region;
use crate::work::{RemoteKey, Status};

/// Regions by rkey. Cheap to clone; every connection holds one, which keeps the regions.
#[derive(Clone, Debug, Default)]
pub struct Exposed(Arc<[(RemoteKey, Arc<Region>)]>);

impl Exposed {
    /// Exposes regions to whoever knows their keys.
    #[must_use]
    pub fn new(mut regions: Vec<(RemoteKey, Arc<Region>)>) -> Self {
        regions.sort_by_key(|(key, _)| key.0);
        Self(regions.into())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A range of a region, or why the peer may not reach it.
    pub(super) fn range(&self, key: RemoteKey, offset: u64, bytes: u32) -> Result<*mut u8, Status> {
        let place = self.0.binary_search_by_key(&key.0, |(key, _)| key.0);
        let region = place.ok().and_then(|place| self.0.get(place));
        let (_, region) = region.ok_or(Status::RemoteAccess)?;
        pointer(region, offset, bytes).ok_or(Status::RemoteAccess)
    }

    /// Applies an atomic to a word and answers its old value. Atomic among all connections and the
    /// process itself.
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

/// What an atomic does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Swap { expected: u64, desired: u64 },
    Add(u64),
}
