//! The slots that may stand for a hash: those with its tag, from its home bucket on.

use super::segment::{BUCKETS, SLOTS_A_BUCKET, Segment};
use super::slot::{DISPLACEMENT_MAX, Slot, tag_of};
use super::{Index, Position};
use crate::log::{Address, SizeClass};
use crate::message::hash::IndexHash;

/// The first slot that may stand for a hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FirstCandidate {
    /// No slot may stand for the hash.
    Nowhere,
    At(Position, Slot),
    /// None in the home bucket or the next, but one may lie further.
    Further,
}

impl Index {
    /// The slots that may stand for a hash, in probing order. Cost: usually one cache line.
    #[inline]
    pub(crate) fn candidates(&self, hash: IndexHash) -> Candidates<'_> {
        Candidates::new(self.segment_of(hash), hash)
    }

    /// Finds the first slot that may stand for a hash in its home bucket and the next; prefetches
    /// the third if it may be there. Adds the buckets it examined to `probes`.
    #[inline]
    pub(crate) fn first(&self, hash: IndexHash, probes: &mut u64) -> FirstCandidate {
        let segment = self.segment_of(hash);
        let (home, tag) = (Self::home_of(hash), tag_of(hash));
        *probes += 1;
        let found = segment.having(home, Slot::pattern(tag, 0));
        if found != 0 {
            let (position, slot) = segment.first_of(home, found);
            if slot.is_empty() {
                // Tag 0 at displacement 0: empty slots have the same bits.
                let (first, buckets) = self.first_anywhere(hash);
                *probes += buckets - 1;
                return first;
            }
            return FirstCandidate::At(position, slot);
        }
        if !segment.may_be_past(home, tag, 0) {
            return FirstCandidate::Nowhere;
        }
        *probes += 1;
        let next = (home + 1) % BUCKETS;
        let found = segment.having(next, Slot::pattern(tag, 1));
        if found != 0 {
            let (position, slot) = segment.first_of(next, found);
            return FirstCandidate::At(position, slot);
        }
        farcore_rdma::prefetch(segment.bucket_pointer((home + 2) % BUCKETS));
        FirstCandidate::Further
    }

    /// The first slot that may stand for a hash in its home or after it, and how many buckets were
    /// examined.
    #[inline(never)]
    pub(crate) fn first_anywhere(&self, hash: IndexHash) -> (FirstCandidate, u64) {
        let segment = self.segment_of(hash);
        let (home, tag) = (Self::home_of(hash), tag_of(hash));
        let mut displacement = 0;
        let first = loop {
            let bucket = (home + displacement) % BUCKETS;
            let found = segment.matching(bucket, Slot::pattern(tag, displacement));
            if found != 0 {
                let (position, slot) = segment.first_of(bucket, found);
                break FirstCandidate::At(position, slot);
            }
            if displacement == DISPLACEMENT_MAX || !segment.may_be_past(bucket, tag, displacement) {
                break FirstCandidate::Nowhere;
            }
            displacement += 1;
        };
        (first, displacement as u64 + 1)
    }

    /// True if no other slot of its bucket may stand for the same hash. Cost: a cache line that was
    /// examined before.
    #[inline]
    pub(crate) fn is_alone(&self, hash: IndexHash, slot: Slot) -> bool {
        let segment = self.segment_of(hash);
        let bucket = (Self::home_of(hash) + slot.displacement()) % BUCKETS;
        let pattern = Slot::pattern(tag_of(hash), slot.displacement());
        segment.having(bucket, pattern).is_power_of_two()
    }

    /// The position of the slot of a hash that holds an address.
    #[inline]
    pub(crate) fn find_address(&self, hash: IndexHash, address: Address) -> Option<Position> {
        self.candidates(hash)
            .find(|(_, slot)| slot.address() == address)
            .map(|(position, _)| position)
    }

    /// Redirects every slot that may stand for a hash to the place that `place_of` returns, if any.
    /// Returns how many.
    pub(crate) fn replace_each(
        &mut self,
        hash: IndexHash,
        mut place_of: impl FnMut(Slot) -> Option<(SizeClass, Address)>,
    ) -> usize {
        // A copy of the handle: the walk changes slots, but neither tags nor displacements.
        let segment = *self.segment_of(hash);
        let mut replaced = 0;
        for (position, slot) in Candidates::new(&segment, hash) {
            if let Some((class, address)) = place_of(slot) {
                self.replace(position, class, address);
                replaced += 1;
            }
        }
        replaced
    }
}

/// Iterates over the slots that may stand for a hash.
#[derive(Debug)]
pub(crate) struct Candidates<'a> {
    segment: &'a Segment,
    home: usize,
    displacement: usize,
    tag: u16,
    /// Matching slots of the bucket that were not returned yet, a bit each.
    found: u32,
    /// No later bucket can hold a match.
    last: bool,
}

impl<'a> Candidates<'a> {
    #[inline]
    fn new(segment: &'a Segment, hash: IndexHash) -> Self {
        let mut candidates = Self {
            segment,
            home: Index::home_of(hash),
            displacement: 0,
            tag: tag_of(hash),
            found: 0,
            last: false,
        };
        candidates.look();
        candidates
    }

    /// Buckets examined so far.
    #[inline]
    pub(crate) fn buckets(&self) -> u64 {
        self.displacement as u64 + 1
    }

    #[inline]
    fn look(&mut self) {
        let bucket = (self.home + self.displacement) % BUCKETS;
        let pattern = Slot::pattern(self.tag, self.displacement);
        self.found = self.segment.matching(bucket, pattern);
        self.last = self.displacement == DISPLACEMENT_MAX
            || !self
                .segment
                .may_be_past(bucket, self.tag, self.displacement);
    }
}

impl Iterator for Candidates<'_> {
    type Item = (Position, Slot);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.found == 0 {
            if self.last {
                return None;
            }
            self.displacement += 1;
            self.look();
        }
        let within = self.found.trailing_zeros();
        self.found &= self.found - 1;
        let bucket = (self.home + self.displacement) % BUCKETS;
        let place = bucket * SLOTS_A_BUCKET + within as usize;
        Some((
            Position(self.segment.position(place)),
            self.segment.slot(place).unmarked(),
        ))
    }
}
