//! A segment: 256 buckets of 8 slots, probed linearly by bucket.

#![allow(unsafe_code)] // the slots lie in the shard's arena

use std::ptr::{self, NonNull};

use super::slot::{DISPLACEMENT_MAX, Slot};
use crate::constants::{LINE_BYTES, SEGMENT_BYTES};
use crate::log::{Address, SizeClass};

/// Slots of a bucket: one cache line.
pub(super) const SLOTS_A_BUCKET: usize = LINE_BYTES / size_of::<Slot>();
/// Buckets of a segment.
pub(super) const BUCKETS: usize = SEGMENT_BYTES / LINE_BYTES;

/// The slots of one segment, which it alone refers to.
#[derive(Debug)]
pub(super) struct Segment(NonNull<Slot>);

impl Segment {
    /// An empty segment.
    ///
    /// # Safety
    /// `memory` is [`SEGMENT_BYTES`] long, aligned to a cache line, outlives the segment and belongs to it alone.
    pub(super) unsafe fn new(memory: NonNull<u8>) -> Self {
        // SAFETY: by this function's contract.
        unsafe { ptr::write_bytes(memory.as_ptr(), 0, SEGMENT_BYTES) };
        Self(memory.cast())
    }

    #[inline]
    pub(super) fn slot(&self, place: usize) -> Slot {
        debug_assert!(place < BUCKETS * SLOTS_A_BUCKET);
        // SAFETY: `new` was promised memory for every place.
        unsafe { self.0.add(place).read() }
    }

    #[inline]
    pub(super) fn set(&mut self, place: usize, slot: Slot) {
        debug_assert!(place < BUCKETS * SLOTS_A_BUCKET);
        // SAFETY: as in `slot`; only the one thread that owns the shard gets here.
        unsafe { self.0.add(place).write(slot) };
    }

    #[inline]
    pub(super) fn bucket_pointer(&self, bucket: usize) -> *const u8 {
        self.0.as_ptr().wrapping_add(bucket * SLOTS_A_BUCKET).cast()
    }

    /// The slots of a bucket that match, a bit each, and whether the bucket is full.
    #[inline]
    pub(super) fn search(&self, bucket: usize, pattern: u64) -> (u32, bool) {
        let (mut found, mut full) = (0, true);
        for within in 0..SLOTS_A_BUCKET {
            let slot = self.slot(bucket * SLOTS_A_BUCKET + within);
            found |= u32::from(slot.matches(pattern)) << within;
            full &= !slot.is_empty();
        }
        (found, full)
    }

    /// Puts a slot into the first bucket from its home on that has room; false if none within reach has.
    pub(super) fn insert(
        &mut self,
        home: usize,
        tag: u16,
        class: SizeClass,
        address: Address,
    ) -> bool {
        for displacement in 0..=DISPLACEMENT_MAX {
            let start = (home + displacement) % BUCKETS * SLOTS_A_BUCKET;
            let empty = (start..start + SLOTS_A_BUCKET).find(|&place| self.slot(place).is_empty());
            if let Some(place) = empty {
                self.set(place, Slot::new(tag, displacement, class, address));
                return true;
            }
        }
        false
    }

    /// Empties a slot; while that opens a full bucket, pulls back a slot that had to go past it.
    pub(super) fn remove(&mut self, place: usize) {
        let mut hole = place;
        loop {
            let bucket = hole / SLOTS_A_BUCKET;
            let start = bucket * SLOTS_A_BUCKET;
            let was_full = (start..start + SLOTS_A_BUCKET).all(|at| !self.slot(at).is_empty());
            self.set(hole, Slot::EMPTY);
            if !was_full {
                return;
            }
            match self.beyond(bucket) {
                Some((from, slot, back)) => {
                    self.set(hole, slot.with_displacement(slot.displacement() - back));
                    hole = from;
                }
                None => return,
            }
        }
    }

    /// The nearest slot past a bucket whose home is this bucket or one before it.
    fn beyond(&self, bucket: usize) -> Option<(usize, Slot, usize)> {
        for ahead in 1..=DISPLACEMENT_MAX {
            let start = (bucket + ahead) % BUCKETS * SLOTS_A_BUCKET;
            let mut full = true;
            for place in start..start + SLOTS_A_BUCKET {
                let slot = self.slot(place);
                full &= !slot.is_empty();
                if !slot.is_empty() && slot.displacement() >= ahead {
                    return Some((place, slot, ahead));
                }
            }
            if !full {
                return None;
            }
        }
        None
    }

    /// The home bucket of the slot at a place.
    pub(super) fn home_of(place: usize, slot: Slot) -> usize {
        (place / SLOTS_A_BUCKET + BUCKETS - slot.displacement()) % BUCKETS
    }

    /// Where the slot with this home, tag and address lies.
    pub(super) fn place_of(&self, home: usize, tag: u16, address: Address) -> Option<usize> {
        (0..=DISPLACEMENT_MAX).find_map(|displacement| {
            let start = (home + displacement) % BUCKETS * SLOTS_A_BUCKET;
            let pattern = Slot::pattern(tag, displacement);
            (start..start + SLOTS_A_BUCKET).find(|&place| {
                let slot = self.slot(place);
                slot.matches(pattern) && slot.address() == address
            })
        })
    }

    /// Slots in use.
    pub(super) fn count(&self) -> usize {
        (0..BUCKETS * SLOTS_A_BUCKET)
            .filter(|&place| !self.slot(place).is_empty())
            .count()
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        for place in 0..BUCKETS * SLOTS_A_BUCKET {
            let slot = self.slot(place);
            if slot.is_empty() {
                continue;
            }
            for back in 1..=slot.displacement() {
                let bucket = (place / SLOTS_A_BUCKET + BUCKETS - back) % BUCKETS;
                assert!(
                    self.search(bucket, 0).1,
                    "a bucket on the way to {slot:?} has room"
                );
            }
        }
    }
}
