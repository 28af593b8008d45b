//! Checks the invariants of a segment. Only in tests and simulations.

use super::super::slot::DISPLACEMENT_MAX;
use super::{BUCKETS, SLOTS_A_BUCKET, Segment};

impl Segment {
    /// Slots in use.
    pub(in crate::index) fn count(&self) -> usize {
        (0..BUCKETS * SLOTS_A_BUCKET)
            .filter(|&place| !self.slot(place).is_empty())
            .count()
    }

    /// True if a slot past the bucket has its mark at this place.
    fn has_past(&self, bucket: usize, mark: usize) -> bool {
        (1..=DISPLACEMENT_MAX).any(|ahead| {
            let next = (bucket + ahead) % BUCKETS;
            self.those(next, |slot| {
                slot.displacement() >= ahead
                    && Self::mark_place(bucket, slot.tag(), slot.displacement() - ahead) == mark
            }) != 0
        })
    }

    /// Checks where each slot lies and which marks there are.
    pub(in crate::index) fn check(&self) {
        for place in 0..BUCKETS * SLOTS_A_BUCKET {
            let slot = self.slot(place);
            if slot.is_empty() {
                continue;
            }
            let bucket = place / SLOTS_A_BUCKET;
            for back in 1..=slot.displacement() {
                let before = (bucket + BUCKETS - back) % BUCKETS;
                let is_full = self.empty(before) == 0;
                assert!(is_full, "index I1: {before} has room for {slot:?}");
            }
            let needed = self.has_past(bucket, place);
            assert!(slot.is_marked() || !needed, "index I2: no mark in {bucket}");
            assert!(needed || !slot.is_marked(), "segment I1: mark in {bucket}");
        }
    }
}
