//! A segment: 256 buckets of 8 slots, probed linearly by bucket.
//!
//! It finds, inserts and removes slots by home bucket, tag and displacement, and keeps the marks of
//! its buckets exact. It knows neither keys nor the directory. On x86-64, buckets are compared with
//! SSE2.

#![allow(unsafe_code)] // the slots lie in the shard's arena

#[cfg(any(test, feature = "simulation"))]
mod check;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m128i, _mm_and_si128, _mm_castps_si128, _mm_castsi128_ps, _mm_cmpeq_epi32, _mm_cmpgt_epi32,
    _mm_load_si128, _mm_movemask_ps, _mm_or_si128, _mm_set1_epi32, _mm_setzero_si128,
    _mm_shuffle_ps, _mm_slli_epi32, _mm_srli_epi32,
};
use std::ptr::{self, NonNull};

use super::Position;
#[cfg(target_arch = "x86_64")]
use super::slot::MARK_SHIFT;
use super::slot::{DISPLACEMENT_MAX, DISPLACEMENT_SHIFT, Slot};
use crate::constants::{LINE_BYTES, SEGMENT_BYTES};
use crate::log::{Address, SizeClass};

/// Slots of a bucket: one cache line.
pub(super) const SLOTS_A_BUCKET: usize = LINE_BYTES / size_of::<Slot>();
/// The place of the mark for slots that lie past the bucket and came from an earlier one. The other
/// marks are for tags whose home is the bucket.
const TRANSIT: usize = SLOTS_A_BUCKET - 1;
/// The tag bits that select a mark; the last two values share one.
const TAG_MARK_BITS: u16 = 7;

const _: () = assert!(TAG_MARK_BITS as usize == TRANSIT);
/// The lowest bit of the displacement in the upper half of a slot.
#[cfg(target_arch = "x86_64")]
const HIGH_SHIFT: i32 = DISPLACEMENT_SHIFT.cast_signed() - 32;
/// Buckets of a segment.
pub(super) const BUCKETS: usize = SEGMENT_BYTES / LINE_BYTES;

/// A handle to the slots of one segment, of which the index has several; all access goes through
/// it.
///
/// - I1: a bucket's marks are exact. It has the marks of the tags of those slots whose home it is
///   and that lie past it, and one mark if any slot from an earlier bucket lies past it. So only a
///   full bucket has marks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment(NonNull<Slot>);

impl Segment {
    /// An empty segment.
    ///
    /// # Safety
    /// `memory` is [`SEGMENT_BYTES`] long, aligned to a cache line, outlives the segment and
    /// belongs to it alone.
    pub(super) unsafe fn new(memory: NonNull<u8>) -> Self {
        // SAFETY: by this function's contract.
        unsafe { ptr::write_bytes(memory.as_ptr(), 0, SEGMENT_BYTES) };
        Self(memory.cast())
    }

    #[inline]
    pub(super) fn slot(&self, place: usize) -> Slot {
        debug_assert!(place < BUCKETS * SLOTS_A_BUCKET);
        // SAFETY: the caller of `new` promised memory for every place.
        unsafe { self.0.add(place).read() }
    }

    /// Empties all slots.
    pub(super) fn clear(&mut self) {
        // SAFETY: as in `new`.
        unsafe { ptr::write_bytes(self.0.as_ptr(), 0, BUCKETS * SLOTS_A_BUCKET) };
    }

    /// The address of a slot.
    #[inline]
    pub(super) fn position(&self, place: usize) -> NonNull<Slot> {
        debug_assert!(place < BUCKETS * SLOTS_A_BUCKET);
        // SAFETY: as in `slot`.
        unsafe { self.0.add(place) }
    }

    /// The first of the slots in a bitmap of a bucket, and its position.
    #[inline]
    pub(super) fn first_of(&self, bucket: usize, those: u32) -> (Position, Slot) {
        let place = bucket * SLOTS_A_BUCKET + those.trailing_zeros() as usize;
        (Position(self.position(place)), self.slot(place).unmarked())
    }

    /// The place of the slot at a position.
    #[inline]
    pub(super) fn place_at(&self, position: NonNull<Slot>) -> usize {
        let place = (position.addr().get().wrapping_sub(self.0.addr().get())) / size_of::<Slot>();
        assert!(
            place < BUCKETS * SLOTS_A_BUCKET,
            "a slot of another segment"
        );
        place
    }

    #[inline]
    pub(super) fn set(&mut self, place: usize, slot: Slot) {
        debug_assert!(place < BUCKETS * SLOTS_A_BUCKET);
        // SAFETY: as in `slot`; only the shard's thread writes.
        unsafe { self.0.add(place).write(slot) };
    }

    #[inline]
    pub(super) fn bucket_pointer(&self, bucket: usize) -> *const u8 {
        self.0.as_ptr().wrapping_add(bucket * SLOTS_A_BUCKET).cast()
    }

    /// The place of the mark that a slot past a bucket has there.
    #[inline]
    fn mark_place(bucket: usize, tag: u16, displacement: usize) -> usize {
        let within = if displacement == 0 {
            usize::from(tag & TAG_MARK_BITS).min(TRANSIT - 1)
        } else {
            TRANSIT
        };
        bucket * SLOTS_A_BUCKET + within
    }

    /// True if a slot of this tag may lie past the bucket, which is `displacement` buckets past its
    /// home. The bucket is full then.
    #[inline]
    pub(super) fn may_be_past(&self, bucket: usize, tag: u16, displacement: usize) -> bool {
        self.slot(Self::mark_place(bucket, tag, displacement))
            .is_marked()
    }

    /// True if the bucket has any mark: some slot lies past it.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn has_marks(&self, bucket: usize) -> bool {
        let (_, first) = self.halves(bucket, false);
        let (_, last) = self.halves(bucket, true);
        // SAFETY: SSE2 is part of the target.
        unsafe {
            let both = _mm_or_si128(first, last);
            let marks = _mm_slli_epi32::<{ 63 - MARK_SHIFT.cast_signed() }>(both);
            _mm_movemask_ps(_mm_castsi128_ps(marks)) != 0
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    fn has_marks(&self, bucket: usize) -> bool {
        self.those(bucket, Slot::is_marked) != 0
    }

    /// The slots of a bucket that match, a bit each.
    #[inline]
    pub(super) fn matching(&self, bucket: usize, pattern: u64) -> u32 {
        let having = self.having(bucket, pattern);
        if pattern == Slot::pattern(0, 0) {
            // Empty slots have these bits too.
            return having & !self.empty(bucket);
        }
        having
    }

    /// The lower and the upper halves of four slots of a bucket, the first or the last four.
    ///
    /// Source: every x86-64 has SSE2, so no detection is needed. 64-bit comparisons came later, so
    /// halves are compared.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn halves(&self, bucket: usize, last: bool) -> (__m128i, __m128i) {
        debug_assert!(bucket < BUCKETS);
        let line = self.bucket_pointer(bucket).cast::<__m128i>();
        let place = if last { 2 } else { 0 };
        // SAFETY: a bucket is four aligned vectors of memory that was promised to `new`; SSE2 is
        // part of the target.
        unsafe {
            let one = _mm_castsi128_ps(_mm_load_si128(line.add(place)));
            let two = _mm_castsi128_ps(_mm_load_si128(line.add(place + 1)));
            (
                _mm_castps_si128(_mm_shuffle_ps::<0b10_00_10_00>(one, two)),
                _mm_castps_si128(_mm_shuffle_ps::<0b11_01_11_01>(one, two)),
            )
        }
    }

    /// The slots of a bucket whose upper bits match the pattern, a bit each; empty slots may match.
    #[inline(always)]
    pub(super) fn having(&self, bucket: usize, pattern: u64) -> u32 {
        self.alike(bucket, u64::from(u32::MAX), pattern)
    }

    /// The slots of a bucket that match the pattern in the upper bits of `bits`, a bit each.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn alike(&self, bucket: usize, bits: u64, pattern: u64) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "a pattern has 20 bits")]
        let (bits, pattern) = (
            (bits as u32).cast_signed(),
            ((pattern & bits) as u32).cast_signed(),
        );
        let mut having = 0;
        for last in [false, true] {
            let (_, high) = self.halves(bucket, last);
            // SAFETY: SSE2 is part of the target.
            let found = unsafe {
                let upper = _mm_and_si128(_mm_srli_epi32::<HIGH_SHIFT>(high), _mm_set1_epi32(bits));
                let equal = _mm_cmpeq_epi32(upper, _mm_set1_epi32(pattern));
                _mm_movemask_ps(_mm_castsi128_ps(equal)).cast_unsigned()
            };
            having |= found << if last { 4 } else { 0 };
        }
        having
    }

    /// The empty slots of a bucket, a bit each.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub(super) fn empty(&self, bucket: usize) -> u32 {
        let mut empty = 0;
        for last in [false, true] {
            let (low, high) = self.halves(bucket, last);
            // SAFETY: SSE2 is part of the target.
            let found = unsafe {
                let zero = _mm_cmpeq_epi32(_mm_or_si128(low, high), _mm_setzero_si128());
                _mm_movemask_ps(_mm_castsi128_ps(zero)).cast_unsigned()
            };
            empty |= found << if last { 4 } else { 0 };
        }
        empty
    }

    /// The slots of a bucket that lie at least this many buckets past their homes, and at least
    /// one, a bit each.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn displaced(&self, bucket: usize, least: usize) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            reason = "a displacement has 6 bits"
        )]
        let (most, less) = (DISPLACEMENT_MAX as i32, least as i32 - 1);
        let mut displaced = 0;
        for last in [false, true] {
            let (_, high) = self.halves(bucket, last);
            // SAFETY: SSE2 is part of the target.
            let found = unsafe {
                let all = _mm_srli_epi32::<HIGH_SHIFT>(high);
                let displacement = _mm_and_si128(all, _mm_set1_epi32(most));
                let more = _mm_cmpgt_epi32(displacement, _mm_set1_epi32(less));
                _mm_movemask_ps(_mm_castsi128_ps(more)).cast_unsigned()
            };
            displaced |= found << if last { 4 } else { 0 };
        }
        displaced
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    fn displaced(&self, bucket: usize, least: usize) -> u32 {
        self.those(bucket, |slot| slot.displacement() >= least)
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    fn alike(&self, bucket: usize, bits: u64, pattern: u64) -> u32 {
        self.those(bucket, |slot| {
            (slot.0 >> DISPLACEMENT_SHIFT ^ pattern) & bits == 0
        })
    }

    #[cfg(not(target_arch = "x86_64"))]
    #[inline]
    pub(super) fn empty(&self, bucket: usize) -> u32 {
        self.those(bucket, Slot::is_empty)
    }

    /// The slots of a bucket that satisfy a predicate, a bit each.
    #[cfg(any(test, not(target_arch = "x86_64")))]
    fn those(&self, bucket: usize, such: impl Fn(Slot) -> bool) -> u32 {
        (0..SLOTS_A_BUCKET)
            .map(|within| u32::from(such(self.slot(bucket * SLOTS_A_BUCKET + within))) << within)
            .sum()
    }

    /// Inserts a slot into the first bucket with room, from its home on; false if none within reach
    /// has room.
    pub(super) fn insert(
        &mut self,
        home: usize,
        tag: u16,
        class: SizeClass,
        address: Address,
    ) -> bool {
        for displacement in 0..=DISPLACEMENT_MAX {
            let bucket = (home + displacement) % BUCKETS;
            let empty = self.empty(bucket);
            if empty != 0 {
                let place = bucket * SLOTS_A_BUCKET + empty.trailing_zeros() as usize;
                self.set(place, Slot::new(tag, displacement, class, address));
                for passed in 0..displacement {
                    let mark = Self::mark_place((home + passed) % BUCKETS, tag, passed);
                    self.set(mark, self.slot(mark).marked());
                }
                return true;
            }
        }
        false
    }

    /// Empties a slot. While that makes room in a bucket that others lie past, pulls one of them
    /// back.
    #[inline]
    pub(super) fn remove(&mut self, place: usize) {
        if self.slot(place).displacement() == 0 && !self.has_marks(place / SLOTS_A_BUCKET) {
            return self.set(place, Slot::EMPTY);
        }
        self.remove_beside_others(place);
    }

    /// Empties a slot where others lie past the bucket, or the slot lies past another bucket.
    fn remove_beside_others(&mut self, place: usize) {
        let removed = self.slot(place);
        self.unmark(place, removed, removed.displacement());
        let mut hole = place;
        while let Some((from, slot, back)) = self.beyond(hole / SLOTS_A_BUCKET) {
            let moved = slot.with_displacement(slot.displacement() - back);
            // The mark stays: it belongs to the bucket.
            let is_marked = self.slot(hole).is_marked();
            let moved = moved.unmarked();
            self.set(hole, if is_marked { moved.marked() } else { moved });
            self.unmark(from, slot, back);
            hole = from;
        }
        // No slot lies past this bucket, so it has no marks.
        self.set(hole, Slot::EMPTY);
    }

    /// Clears the marks of a slot that leaves its place, in the last `buckets` buckets before it,
    /// unless other slots need them.
    #[inline]
    fn unmark(&mut self, place: usize, slot: Slot, buckets: usize) {
        // From the last bucket backwards: the search for others ends sooner where later marks are
        // cleared.
        for back in 1..=buckets {
            let bucket = (place / SLOTS_A_BUCKET + BUCKETS - back) % BUCKETS;
            let displacement = slot.displacement() - back;
            if !self.is_mark_needed(bucket, slot.tag(), displacement, place) {
                let mark = Self::mark_place(bucket, slot.tag(), displacement);
                self.set(mark, self.slot(mark).unmarked());
            }
        }
    }

    /// True if a slot other than the one at `place` lies past the bucket and has the same mark
    /// there as a slot of this tag for which the bucket is `displacement` past its home.
    fn is_mark_needed(&self, bucket: usize, tag: u16, displacement: usize, place: usize) -> bool {
        let shared = usize::from(tag & TAG_MARK_BITS) >= TRANSIT - 1;
        let bits = Slot::pattern(TAG_MARK_BITS - u16::from(shared), DISPLACEMENT_MAX);
        for ahead in 1..=DISPLACEMENT_MAX {
            let next = (bucket + ahead) % BUCKETS;
            let those = if displacement == 0 {
                self.alike(next, bits, Slot::pattern(tag, ahead))
            } else {
                self.displaced(next, ahead + 1)
            };
            let itself = u32::from(place / SLOTS_A_BUCKET == next) << (place % SLOTS_A_BUCKET);
            if those & !itself != 0 {
                return true;
            }
            if !self.slot(next * SLOTS_A_BUCKET + TRANSIT).is_marked() {
                return false;
            }
        }
        false
    }

    /// The nearest slot past a bucket whose home is this bucket or an earlier one.
    #[inline]
    fn beyond(&self, bucket: usize) -> Option<(usize, Slot, usize)> {
        if !self.has_marks(bucket) {
            return None;
        }
        for ahead in 1..=DISPLACEMENT_MAX {
            let next = (bucket + ahead) % BUCKETS;
            let displaced = self.displaced(next, ahead);
            if displaced != 0 {
                let place = next * SLOTS_A_BUCKET + displaced.trailing_zeros() as usize;
                return Some((place, self.slot(place), ahead));
            }
        }
        None
    }

    /// The home bucket of the slot at a place.
    pub(super) fn home_of(place: usize, slot: Slot) -> usize {
        (place / SLOTS_A_BUCKET + BUCKETS - slot.displacement()) % BUCKETS
    }

    /// The place of the slot with this home, tag and address.
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
}
