//! A sketch of which records were read since they were written: a tag and a count for each hash.
//!
//! ```text
//! entry: | tag:6 | reads:2 |      bit 7 .. 0; hash bits 63..58 | 0 to 3
//! place: the low bits of the hash
//! ```
//!
//! - A read counts, up to 3. A read of another tag takes one from the entry, or takes the entry
//!   over where it is at 0, so an entry follows the hash that is read most.
//! - A write of the same tag begins at 0: what was read before is another record, or none. So a
//!   get that misses and the put that follows leave no count.
//! - A false match needs equal places and tags. It keeps a record for one more pass.
//!
//! Measured against counters without tags: docs/decisions/0030-eviction.md.

use farcore_rdma::prefetch;

use crate::message::hash::IndexHash;

const READS_BITS: u32 = 2;
/// The greatest count.
const READS_MAX: u8 = (1 << READS_BITS) - 1;

/// Counts of recent reads, one byte an entry. Empty: no read is noted.
#[derive(Debug, Default)]
pub(in crate::shard) struct Sketch(Vec<u8>);

impl Sketch {
    /// A sketch with this many entries, a power of two.
    pub(in crate::shard) fn new(entries: usize) -> Self {
        debug_assert!(entries.is_power_of_two());
        Self(vec![0; entries])
    }

    /// True if it has no entries.
    #[cfg(any(test, feature = "simulation"))]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "the low bits of the hash, and six others"
    )]
    #[inline]
    fn place(&self, hash: IndexHash) -> (usize, u8) {
        let place = hash.0 as usize & (self.0.len() - 1);
        let tag = (hash.0 >> 58) as u8;
        (place, tag)
    }

    /// Prefetches the entry of a hash.
    #[inline]
    pub(in crate::shard) fn prefetch(&self, hash: IndexHash) {
        let (place, _) = self.place(hash);
        prefetch(self.0.as_ptr().wrapping_add(place));
    }

    /// Notes a read.
    #[inline]
    pub(in crate::shard) fn note_read(&mut self, hash: IndexHash) {
        let (place, tag) = self.place(hash);
        let (known, reads) = (self.0[place] >> READS_BITS, self.0[place] & READS_MAX);
        self.0[place] = match (known == tag, reads) {
            (true, READS_MAX) => return,
            (true, reads) => tag << READS_BITS | (reads + 1),
            (false, 0) => tag << READS_BITS | 1,
            (false, reads) => known << READS_BITS | (reads - 1),
        };
    }

    /// Notes that a record was written.
    #[inline]
    pub(in crate::shard) fn note_written(&mut self, hash: IndexHash) {
        self.set(hash, |_| 0);
    }

    /// Changes the count of a hash, if the entry is its own.
    #[inline]
    fn set(&mut self, hash: IndexHash, change: impl FnOnce(u8) -> u8) {
        let (place, tag) = self.place(hash);
        let entry = self.0[place];
        if entry >> READS_BITS == tag {
            self.0[place] = tag << READS_BITS | change(entry & READS_MAX);
        }
    }

    /// Notes that a record was moved because it had been read. The first time it begins at 0
    /// again, later one read is taken away.
    pub(in crate::shard) fn note_moved(&mut self, hash: IndexHash, is_first: bool) {
        self.set(
            hash,
            |reads| {
                if is_first { 0 } else { reads.saturating_sub(1) }
            },
        );
    }

    /// True if a record was read since it was written or moved last, as far as is known.
    pub(in crate::shard) fn was_read(&self, hash: IndexHash) -> bool {
        let (place, tag) = self.place(hash);
        self.0
            .get(place)
            .is_some_and(|entry| entry >> READS_BITS == tag && entry & READS_MAX > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash with a place and a tag.
    fn hash(place: u64, tag: u64) -> IndexHash {
        IndexHash(tag << 58 | place)
    }

    #[test]
    fn reads_count_until_the_record_is_written_or_moved() {
        let mut sketch = Sketch::new(16);
        let (one, other) = (hash(3, 9), hash(4, 9));
        assert!(!sketch.was_read(one));
        sketch.note_read(one);
        assert!(sketch.was_read(one) && !sketch.was_read(other));
        sketch.note_written(one);
        assert!(!sketch.was_read(one));
        for _ in 0..10 {
            sketch.note_read(one);
        }
        for _ in 0..3 {
            assert!(sketch.was_read(one));
            sketch.note_moved(one, false);
        }
        assert!(!sketch.was_read(one));
        sketch.note_read(one);
        sketch.note_read(one);
        sketch.note_moved(one, true);
        assert!(!sketch.was_read(one));
    }

    #[test]
    fn an_entry_follows_the_hash_that_is_read_most() {
        let mut sketch = Sketch::new(16);
        let (often, once) = (hash(3, 1), hash(3, 2));
        for _ in 0..3 {
            sketch.note_read(often);
        }
        sketch.note_read(once);
        assert!(sketch.was_read(often) && !sketch.was_read(once));
        // What another hash's write says is not of this one.
        sketch.note_written(once);
        assert!(sketch.was_read(often));
        for _ in 0..4 {
            sketch.note_read(once);
        }
        assert!(!sketch.was_read(often) && sketch.was_read(once));
    }
}
