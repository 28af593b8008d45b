//! The regions that a connection's peer may access, and the atomics performed on them.
//!
//! Keeps the regions alive. Every access is checked against its region's bounds and key, and
//! against the peer's permissions, if there are any.

#![allow(unsafe_code)] // words of regions as atomics

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::memory::{atomic_word, pointer};
use crate::region::Region;
use crate::work::{RemoteKey, Status};

/// A range of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RemoteRange {
    pub(crate) key: RemoteKey,
    pub(crate) offset: u64,
    pub(crate) bytes: u32,
}

/// What a peer does with a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Decides what one peer may access within the exposed regions. The range was checked against the
/// regions before.
pub(crate) trait Permissions: Debug + Send + Sync {
    /// A READ or WRITE begins. After `Ok`, [`Permissions::end`] follows once: when the payload has
    /// arrived or left, or the connection is gone. Until then the range must not become another
    /// peer's.
    fn begin(&self, access: Access, range: RemoteRange) -> Result<(), Status>;

    /// The READ or WRITE of a range has ended.
    fn end(&self, range: RemoteRange);

    /// Performs an atomic if it is permitted.
    fn atomic(
        &self,
        range: RemoteRange,
        change: Change,
        word: &AtomicU64,
    ) -> Result<Attempt, Status>;
}

/// How an attempt to perform an atomic ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attempt {
    /// It is performed; the word's old value.
    Done(u64),
    /// It must wait for other requests: retry it later.
    Wait,
    /// A part of its work is done: retry it after others had their turn.
    More,
}

/// Regions by rkey. Cheap to clone; every connection holds a clone, which keeps the regions alive.
#[derive(Clone, Debug, Default)]
pub struct Exposed {
    regions: Arc<[(RemoteKey, Arc<Region>)]>,
    permissions: Option<Arc<dyn Permissions>>,
}

impl Exposed {
    /// Exposes regions to peers that know their keys.
    #[must_use]
    pub fn new(mut regions: Vec<(RemoteKey, Arc<Region>)>) -> Self {
        regions.sort_by_key(|(key, _)| key.0);
        Self {
            regions: regions.into(),
            permissions: None,
        }
    }

    /// These regions for one peer, which may access only what its permissions allow.
    pub(crate) fn limited(&self, permissions: Arc<dyn Permissions>) -> Self {
        Self {
            regions: Arc::clone(&self.regions),
            permissions: Some(permissions),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// These regions and one more; `None` if the key is taken.
    pub(super) fn with(&self, key: RemoteKey, region: Arc<Region>) -> Option<Self> {
        if self.regions.iter().any(|(other, _)| *other == key) {
            return None;
        }
        let mut regions = self.regions.to_vec();
        regions.push((key, region));
        Some(Self {
            permissions: self.permissions.clone(),
            ..Self::new(regions)
        })
    }

    /// A range of a region, or why there is none.
    fn place(&self, range: RemoteRange) -> Result<*mut u8, Status> {
        let place = self
            .regions
            .binary_search_by_key(&range.key.0, |(key, _)| key.0);
        let region = place.ok().and_then(|place| self.regions.get(place));
        let (_, region) = region.ok_or(Status::RemoteAccess)?;
        pointer(region, range.offset, range.bytes).ok_or(Status::RemoteAccess)
    }

    /// Begins a READ or WRITE of a range; [`Exposed::end`] ends it.
    pub(crate) fn begin(&self, access: Access, range: RemoteRange) -> Result<*mut u8, Status> {
        let place = self.place(range)?;
        if let Some(permissions) = &self.permissions {
            permissions.begin(access, range)?;
        }
        Ok(place)
    }

    /// Ends a READ or WRITE that [`Exposed::begin`] permitted.
    pub(crate) fn end(&self, range: RemoteRange) {
        if let Some(permissions) = &self.permissions {
            permissions.end(range);
        }
    }

    /// Applies an atomic to a word. Atomic among all connections and this process.
    pub(crate) fn atomic(
        &self,
        key: RemoteKey,
        offset: u64,
        change: Change,
    ) -> Result<Attempt, Status> {
        let range = RemoteRange {
            key,
            offset,
            bytes: 8,
        };
        let place = self.place(range)?;
        // SAFETY: inside its region, which `self` keeps.
        let word = unsafe { atomic_word(place) }.ok_or(Status::RemoteOperation)?;
        match &self.permissions {
            Some(permissions) => permissions.atomic(range, change, word),
            None => Ok(Attempt::Done(change.apply(word))),
        }
    }

    /// Visits each region's bytes, for a simulation that searches them.
    #[cfg(feature = "simulation")]
    pub(crate) fn each_region(&self, each: &mut dyn FnMut(&[u8])) {
        for (_, region) in self.regions.iter() {
            // SAFETY: a region's bytes, which it keeps. A simulation has one thread.
            each(unsafe { std::slice::from_raw_parts(region.as_ptr().as_ptr(), region.len()) });
        }
    }

    /// Flips a bit of a byte, for a simulation.
    #[cfg(feature = "simulation")]
    pub(crate) fn damage(&self, byte: RemoteRange, bit: u64) {
        if let Ok(place) = self.place(byte) {
            // SAFETY: inside its region. A simulation has one thread.
            unsafe { place.write(place.read() ^ 1 << (bit % 8)) };
        }
    }

    /// Fills a range with zeros; no effect outside the regions.
    pub(crate) fn clear(&self, range: RemoteRange) {
        if let Ok(place) = self.place(range) {
            // SAFETY: inside its region, which `self` keeps. Peers may access it meanwhile, as all
            // far memory: the fabric orders nothing.
            unsafe { place.write_bytes(0, range.bytes as usize) };
        }
    }
}

/// The operation of an atomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    Swap { expected: u64, desired: u64 },
    Add(u64),
}

impl Change {
    /// Applies it to a word and returns the old value.
    pub(crate) fn apply(self, word: &AtomicU64) -> u64 {
        match self {
            Self::Swap { expected, desired } => word
                .compare_exchange(expected, desired, Ordering::AcqRel, Ordering::Acquire)
                .unwrap_or_else(|old| old),
            Self::Add(addend) => word.fetch_add(addend, Ordering::AcqRel),
        }
    }
}
