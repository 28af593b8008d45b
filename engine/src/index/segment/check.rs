//! Checks the invariants of a segment. Only in tests and simulations.

use super::super::SLOTS;
use super::{BUCKETS, SLOTS_A_BUCKET, Segment};

impl Segment {
    /// Slots in use.
    pub(in crate::index) fn count(&self) -> usize {
        (0..SLOTS)
            .filter(|&place| !self.slot(place).is_empty())
            .count()
    }

    /// The places that have a mark because a slot lies past their buckets.
    fn needed_marks(&self) -> [bool; SLOTS] {
        let mut needed = [false; SLOTS];
        for place in 0..SLOTS {
            let slot = self.slot(place);
            if slot.is_empty() {
                continue;
            }
            for ahead in 1..=slot.displacement() {
                let bucket = (place / SLOTS_A_BUCKET + BUCKETS - ahead) % BUCKETS;
                needed[Self::mark_place(bucket, slot.tag(), slot.displacement() - ahead)] = true;
            }
        }
        needed
    }

    /// Checks where each slot lies and which marks there are.
    pub(in crate::index) fn check(&self) {
        let needed = self.needed_marks();
        for (place, &needed) in needed.iter().enumerate() {
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
            assert!(slot.is_marked() || !needed, "index I2: no mark in {bucket}");
            assert!(needed || !slot.is_marked(), "segment I1: mark in {bucket}");
        }
    }
}
