//! Keeps each session to its own extents, if the node was started so.
//!
//! Without it, every client that knows the token reaches all of the node's memory, and the table
//! only says which extents a client should use. With it, the node checks each one-sided request
//! against the owner words, and clears an extent before it becomes free.
//!
//! | place | READ | WRITE | atomic |
//! |---|---|---|---|
//! | an extent | by its owner and those who share it | by its owner and those who share it to write | as a WRITE |
//! | a bitmap word | yes | no | a swap of bits that have an extent |
//! | an owner word | yes | no | a swap from 0 to the session, and back |
//!
//! Bitmap words may be swapped by every session: they only narrow the search for free extents, and
//! wrong bits are mended.
//!
//! - I1: an extent changes its owner only while it has no pins. A READ pins its extents until the
//!   answer has left, a WRITE until its payload has arrived.
//! - I2: an extent that has no owner holds zeros.
//! - I3: one try to free clears at most [`CLEAR_BYTES`], and then others have their turn. Only what
//!   was written is cleared: see [`Written`].
//!
//! An RDMA device checks a key and bounds, and nothing else: there is no isolation over verbs.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::memory::NodeMemory;
use super::service::Service;
use super::written::{PIECE_BYTES, Written};
use crate::pool::{ExtentRun, NodeMap, OwnerId};
use crate::tcp::{Access, Attempt, Change, Permissions, RemoteRange};
use crate::work::{RemoteKey, Status};

/// The bit of a pin word that is set while its extent becomes free.
const FREEING: u32 = 1 << 31;
/// Memory that is cleared at once, in bytes: some 20 us.
pub(super) const CLEAR_BYTES: u64 = 256 << 10;
const _: () = assert!(CLEAR_BYTES >= PIECE_BYTES);

/// The pins of a node's extents, and their places.
#[derive(Debug)]
pub(super) struct Isolation {
    table: RemoteKey,
    bitmap_words: u32,
    extent_bytes: u64,
    /// The first extent of each region, in the order of the keys.
    regions: Box<[(RemoteKey, u64)]>,
    /// For each extent, READs and WRITEs in progress, and [`FREEING`].
    pins: Box<[AtomicU32]>,
    written: Written,
}

impl Isolation {
    pub(super) fn new(map: &NodeMap) -> Self {
        let mut first = 0;
        let mut regions = Vec::with_capacity(map.regions.len());
        for region in &map.regions {
            regions.push((region.key, first));
            first += region.bytes / map.extent_bytes;
        }
        regions.sort_unstable_by_key(|(key, _)| key.0);
        Self {
            table: map.table.key,
            bitmap_words: map.bitmap_words(),
            extent_bytes: map.extent_bytes,
            regions: regions.into(),
            pins: (0..map.extents()).map(|_| AtomicU32::new(0)).collect(),
            written: Written::new(first * map.extent_bytes),
        }
    }

    /// The places of a range of data, counted over all extents; `None` for the table. The range was
    /// checked against its region.
    fn places(&self, range: RemoteRange) -> Option<Range<u64>> {
        let place = self
            .regions
            .binary_search_by_key(&range.key.0, |(key, _)| key.0);
        let (_, first) = *self.regions.get(place.ok()?)?;
        let start = first * self.extent_bytes + range.offset;
        Some(start..start + u64::from(range.bytes))
    }

    /// The extents of a range of places.
    fn extents(&self, places: &Range<u64>) -> Range<u32> {
        let extent = |place: u64| u32::try_from(place / self.extent_bytes).unwrap_or(u32::MAX);
        let start = extent(places.start);
        if places.is_empty() {
            return start..start;
        }
        start..extent(places.end - 1).saturating_add(1)
    }

    /// Clears what was written of an extent, until the budget is used up; true if nothing is left.
    /// No peer has access to the extent meanwhile.
    pub(super) fn clear(&self, memory: &NodeMemory, extent: u32, budget: &mut u64) -> bool {
        let start = u64::from(extent) * self.extent_bytes;
        let places = start..start + self.extent_bytes;
        self.written.clear(places, budget, |piece| {
            memory.clear(extent, piece.start - start, PIECE_BYTES);
        })
    }

    /// Pins an extent; false if it becomes free now.
    fn pin(&self, extent: u32) -> bool {
        let Some(pins) = self.pins.get(extent as usize) else {
            return false;
        };
        // ORDERING: acquire; pairs with the release in `freed`: the owner word that is read next is
        // that of after the free.
        let fine = pins.fetch_add(1, Ordering::Acquire) & FREEING == 0;
        if !fine {
            self.unpin(extent);
        }
        fine
    }

    fn unpin(&self, extent: u32) {
        if let Some(pins) = self.pins.get(extent as usize) {
            // ORDERING: release; pairs with the acquire in `free`: the accesses are done before the
            // extent is cleared.
            pins.fetch_sub(1, Ordering::Release);
        }
    }

    /// Begins to free an extent; false while it has pins. [`Isolation::freed`] ends it.
    fn free(&self, extent: u32) -> bool {
        // ORDERING: acquire; pairs with the release in `unpin`.
        self.pins.get(extent as usize).is_some_and(|pins| {
            pins.compare_exchange(0, FREEING, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        })
    }

    fn freed(&self, extent: u32) {
        if let Some(pins) = self.pins.get(extent as usize) {
            // ORDERING: release; pairs with the acquire in `pin`.
            pins.fetch_and(!FREEING, Ordering::Release);
        }
    }

    /// Runs `work` while none of a run's extents has a pin and none can be pinned; `None` if one
    /// has.
    pub(super) fn while_unpinned<T>(&self, run: ExtentRun, work: impl FnOnce() -> T) -> Option<T> {
        let begun = run.extents().take_while(|&extent| self.free(extent));
        let begun: Vec<u32> = begun.collect();
        let done = (begun.len() == run.count() as usize).then(work);
        for extent in begun {
            self.freed(extent);
        }
        done
    }
}

/// What one session may access.
#[derive(Debug)]
pub(super) struct SessionPermissions {
    node: Arc<Service>,
    isolation: Arc<Isolation>,
    session: OwnerId,
}

impl SessionPermissions {
    pub(super) fn new(
        node: Arc<Service>,
        isolation: Arc<Isolation>,
        session: OwnerId,
    ) -> Arc<Self> {
        Arc::new(Self {
            node,
            isolation,
            session,
        })
    }

    /// Pins the extents of a range if the session owns or shares them all.
    fn pin_own(&self, extents: Range<u32>, writes: bool) -> bool {
        let table = self.node.memory().table();
        let is_own = |extent| {
            table.owner(extent) == Some(self.session)
                || self.node.permits(self.session, extent, writes)
        };
        for extent in extents.clone() {
            let mut pinned = false;
            // A pin fails while the extent is being freed: by the session itself, or still by the
            // owner before. Neither waits for anything.
            while is_own(extent) && !pinned {
                pinned = self.isolation.pin(extent);
                std::hint::spin_loop();
            }
            // The session may have freed it meanwhile.
            if pinned && is_own(extent) {
                continue;
            }
            let pinned = extents.start..extent + u32::from(pinned);
            pinned.for_each(|extent| self.isolation.unpin(extent));
            return false;
        }
        true
    }

    /// A swap of an owner word.
    fn swap_owner(&self, extent: u32, change: Change, word: &AtomicU64) -> Result<Attempt, Status> {
        let session = self.session.get();
        let claim = Change::Swap {
            expected: 0,
            desired: session,
        };
        let free = Change::Swap {
            expected: session,
            desired: 0,
        };
        if change == claim {
            return Ok(Attempt::Done(change.apply(word)));
        }
        if change != free {
            return Err(Status::RemoteAccess);
        }
        // Only its owner may keep others from an extent, and nothing is swapped for another:
        // answered as a swap that found a different word.
        let old = word.load(Ordering::Acquire);
        if old != session {
            return Ok(Attempt::Done(old));
        }
        // Its sharers keep it: the control connection passes it on.
        if self.node.is_shared(extent) {
            return Err(Status::RemoteAccess);
        }
        if !self.isolation.free(extent) {
            return Ok(Attempt::Wait);
        }
        let memory = self.node.memory();
        let mut budget = CLEAR_BYTES;
        if memory.table().owner(extent) == Some(self.session) {
            self.isolation.clear(memory, extent, &mut budget);
        }
        // Even if all is clear now: the next free would clear as much in the same turn.
        let attempt = if budget < CLEAR_BYTES {
            Attempt::More
        } else {
            Attempt::Done(change.apply(word))
        };
        self.isolation.freed(extent);
        Ok(attempt)
    }
}

impl Permissions for SessionPermissions {
    fn begin(&self, access: Access, range: RemoteRange) -> Result<(), Status> {
        let permitted = match self.isolation.places(range) {
            Some(places) => {
                self.pin_own(self.isolation.extents(&places), access == Access::Write) && {
                    if access == Access::Write {
                        self.isolation.written.mark(places);
                    }
                    true
                }
            }
            None => range.key == self.isolation.table && access == Access::Read,
        };
        permitted.then_some(()).ok_or(Status::RemoteAccess)
    }

    fn end(&self, range: RemoteRange) {
        if let Some(places) = self.isolation.places(range) {
            let extents = self.isolation.extents(&places);
            extents.for_each(|extent| self.isolation.unpin(extent));
        }
    }

    fn atomic(
        &self,
        range: RemoteRange,
        change: Change,
        word: &AtomicU64,
    ) -> Result<Attempt, Status> {
        if let Some(places) = self.isolation.places(range) {
            if !self.pin_own(self.isolation.extents(&places), true) {
                return Err(Status::RemoteAccess);
            }
            self.isolation.written.mark(places);
            let old = change.apply(word);
            self.end(range);
            return Ok(Attempt::Done(old));
        }
        let index = u32::try_from(range.offset / 8).map_err(|_| Status::RemoteAccess)?;
        if let Some(extent) = index.checked_sub(self.isolation.bitmap_words) {
            return self.swap_owner(extent, change, word);
        }
        let valid = self.node.memory().table().valid(index);
        match change {
            Change::Swap { expected, desired } if (expected ^ desired) & !valid == 0 => {
                Ok(Attempt::Done(change.apply(word)))
            }
            _ => Err(Status::RemoteAccess),
        }
    }
}
