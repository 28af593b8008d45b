//! The index: maps a key's hash to the places where its record may lie.
//!
//! Open addressing in segments of 256 cache-line buckets of 8 slots: linear probing by bucket
//! inside a segment, exact backward shift on removal. The directory leads from hash to segment in
//! one load. The index owns its segments and tables; memory for segments comes from a
//! [`SegmentSource`].
//!
//! Growth never needs the keys, which may be far: the 14 tag bits in each slot say where it moves.
//! A *group* of 2 segments divides its share of the tags by 2, then by 3, then by 4; a group of 4
//! becomes two groups of 2. So memory grows by half and by a third, never by doubling. One step
//! touches at most four segments, and the directory when it becomes wider.
//!
//! ```text
//! root = hash bits 63..32 x roots >> 32      cell = tag x cells >> 14
//! directory[root x cells + cell] = segment
//!
//! cells: 2 while no group has grown, which keeps the directory in the first cache; then 12 << depth, for 12 is divisible by
//! 2, 3 and 4
//! ```
//!
//! - I1: a slot lies at most 63 buckets past its home, and no bucket from its home to the one
//!   before its own has an empty slot.
//! - I2: each bucket that a slot lies past has a mark for it; in its home, the mark of its tag.
//!   Only a full bucket has marks.
//! - I3: the segment of a slot is the one that the directory names for its root and tag.
//! - I4: the directory has `cells` cells for each root, in both of its tables. Segments are changed
//!   only through the index.

#![allow(unsafe_code)] // segments lie in the shard's arena

mod candidates;
#[cfg(any(test, feature = "simulation"))]
mod check;
mod growth;
mod near;
mod passes;
pub(crate) mod scan;
mod segment;
mod slot;

use std::hint::select_unpredictable;
use std::ptr::NonNull;

use self::segment::{BUCKETS, SLOTS_A_BUCKET, Segment};
use self::slot::{TAG_BITS, tag_of};
use crate::constants::{LINE_BYTES, SEGMENT_BYTES};
use crate::log::{Address, SizeClass};
use crate::message::hash::IndexHash;

pub(crate) use self::candidates::FirstCandidate;
pub(crate) use self::slot::Slot;

/// Slots of a segment.
const SLOTS: usize = BUCKETS * SLOTS_A_BUCKET;
/// Keys of a segment in an index that is sized for its keys.
const KEYS_A_SEGMENT: u64 = SLOTS as u64 * 82 / 100;
/// Average keys of a group's segments at which the group grows.
#[expect(clippy::cast_possible_truncation, reason = "a segment has 2048 slots")]
const GROWS_AT: u16 = (SLOTS * 90 / 100) as u16;
/// Average keys of a segment from which the bucket after a home is prefetched with it: one home in
/// ten is full then.
const CLOSE_AT: usize = SLOTS * 60 / 100;
/// Directory cells of a root while every group has its first two segments.
const CELLS_AT_FIRST: usize = 2;
/// Directory cells of a group that has a root alone, from the first growth on.
const CELLS: usize = 12;
/// Times that a group can be split.
const DEPTH_MAX: u32 = 8;

/// Roots of an index, at most: 256 GiB of segments, so that a place in the order of a scan is
/// short. Beyond that groups grow.
const ROOTS_MAX: u64 = 1 << 23;

const _: () = assert!(SLOTS * 8 == SEGMENT_BYTES);
const _: () = assert!(ROOTS_MAX.is_power_of_two());
const _: () = assert!(CELLS << DEPTH_MAX <= 1 << TAG_BITS);

/// Provides memory for segments.
pub(crate) trait SegmentSource {
    /// A piece of [`SEGMENT_BYTES`], aligned to a cache line, that outlives the index; `None` if
    /// there is none now.
    fn allocate(&mut self) -> Option<NonNull<u8>>;
}

/// The index needs a segment for another slot, and there is no memory for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoSegment;

/// Where a slot lies. Insertions and removals move slots, so the holder of a position checks
/// whether its slot is still there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position(NonNull<Slot>);

#[derive(Clone, Debug)]
struct Group {
    root: u32,
    /// Splits that led to this group, and the tag bits that they used.
    depth: u32,
    prefix: u32,
    segments: [u32; 4],
    count: usize,
    /// The last attempt to add a segment found no place for some slot.
    cannot_divide: bool,
}

/// Bytes of the tables for a segment.
const ENTRY_BYTES: usize = size_of::<Segment>() + size_of::<u16>() + size_of::<u32>();
/// Bytes of the directory for a cell.
const CELL_BYTES: usize = size_of::<u32>() + size_of::<Segment>();

/// Maps a hash to candidates for its record.
#[derive(Debug)]
pub(crate) struct Index {
    segments: Vec<Segment>,
    /// Keys, by segment.
    keys_in: Vec<u16>,
    /// Groups, by segment.
    group_of: Vec<u32>,
    groups: Vec<Group>,
    directory: Vec<u32>,
    /// The segments of the directory's cells, in its order; saves lookups one load.
    named: Vec<Segment>,
    roots: u32,
    /// Cells of a root: [`CELLS_AT_FIRST`], or [`CELLS`] `<< depth` of the deepest group.
    cells: usize,
    keys: usize,
    /// Keys from which the bucket after a home is prefetched with it.
    close_at: usize,
    /// Keys beyond which it takes no other one.
    #[cfg(feature = "simulation")]
    keys_max: usize,
    growth_steps: u64,
    /// A group did not grow because there was no memory for another segment.
    refused: bool,
    /// Memory of a segment whose addition failed, for the next one.
    spare: Option<NonNull<u8>>,
}

impl Index {
    /// Keys that an index of this many bytes is sized for.
    pub(crate) fn keys_within(bytes: u64) -> u64 {
        bytes / SEGMENT_BYTES as u64 * KEYS_A_SEGMENT
    }

    /// Segments of an index that is sized for this many keys.
    pub(crate) fn segments_for(keys: u64) -> u64 {
        2 * Self::roots_for(keys)
    }

    /// Bytes of the tables of an index that takes at most half of the local memory.
    pub(crate) fn table_bytes_for(local_bytes: u64) -> u64 {
        let segments = local_bytes / 2 / SEGMENT_BYTES as u64;
        // A group has at least two segments and twelve cells; twice as many cells where another
        // root is a level deeper, as happens with evenly spread hashes.
        segments * (ENTRY_BYTES + CELLS * CELL_BYTES + size_of::<Group>() / 2) as u64
    }

    fn roots_for(keys: u64) -> u64 {
        keys.div_ceil(2 * KEYS_A_SEGMENT).max(1)
    }

    /// An empty index sized for `keys_expected`.
    ///
    /// # Errors
    /// [`NoSegment`] if the source runs out of memory.
    pub(crate) fn new(
        keys_expected: u64,
        source: &mut impl SegmentSource,
    ) -> Result<Self, NoSegment> {
        let roots = Self::roots_for(keys_expected).min(ROOTS_MAX);
        let roots = u32::try_from(roots).map_err(|_| NoSegment)?;
        let mut index = Self {
            segments: Vec::new(),
            keys_in: Vec::new(),
            group_of: Vec::new(),
            groups: Vec::new(),
            directory: Vec::with_capacity(roots as usize * CELLS_AT_FIRST),
            named: Vec::with_capacity(roots as usize * CELLS_AT_FIRST),
            roots,
            cells: CELLS_AT_FIRST,
            keys: 0,
            close_at: 0,
            #[cfg(feature = "simulation")]
            keys_max: usize::MAX,
            growth_steps: 0,
            refused: false,
            spare: None,
        };
        for root in 0..roots {
            let segments = [
                index.add_segment(root, source)?,
                index.add_segment(root, source)?,
                0,
                0,
            ];
            let first = segments[0];
            index.directory.extend([first; CELLS_AT_FIRST]);
            index
                .named
                .extend([index.segments[first as usize]; CELLS_AT_FIRST]);
            index.groups.push(Group {
                root,
                depth: 0,
                prefix: 0,
                segments,
                count: 2,
                cannot_divide: false,
            });
            index.publish(root as usize);
        }
        Ok(index)
    }

    fn add_segment(
        &mut self,
        group: u32,
        source: &mut impl SegmentSource,
    ) -> Result<u32, NoSegment> {
        let number = u32::try_from(self.segments.len()).map_err(|_| NoSegment)?;
        let memory = self.spare.take().or_else(|| source.allocate());
        let memory = memory.ok_or(NoSegment)?;
        // SAFETY: the source promises memory that outlives the index and that nothing else uses.
        self.segments.push(unsafe { Segment::new(memory) });
        self.keys_in.push(0);
        self.group_of.push(group);
        self.close_at += CLOSE_AT;
        Ok(number)
    }

    /// Removes the latest segment, which the directory no longer names, and keeps its memory.
    fn remove_last_segment(&mut self) {
        self.spare = self
            .segments
            .pop()
            .map(|segment| segment.position(0).cast());
        self.keys_in.pop();
        self.group_of.pop();
        self.close_at -= CLOSE_AT;
    }

    /// Writes a group's segments into the directory.
    fn publish(&mut self, group: usize) {
        let group = &self.groups[group];
        let cells = self.cells >> group.depth;
        let first = group.root as usize * self.cells + group.prefix as usize * cells;
        for cell in 0..cells {
            let number = group.segments[cell * group.count / cells];
            self.directory[first + cell] = number;
            self.named[first + cell] = self.segments[number as usize];
        }
    }

    /// The directory cell of a hash.
    #[inline]
    fn place_of(&self, hash: IndexHash) -> usize {
        let root = ((hash.0 >> 32) * u64::from(self.roots)) >> 32;
        let cell = (usize::from(tag_of(hash)) * self.cells) >> TAG_BITS;
        root as usize * self.cells + cell
    }

    /// The number of the segment of a hash.
    #[inline]
    fn number_of(&self, hash: IndexHash) -> usize {
        self.directory[self.place_of(hash)] as usize
    }

    #[inline]
    fn segment_of(&self, hash: IndexHash) -> &Segment {
        let place = self.place_of(hash);
        debug_assert!(place < self.named.len());
        // SAFETY: each root has `cells` cells, and the tag's share of them is less than all.
        unsafe { self.named.get_unchecked(place) }
    }

    #[inline]
    fn home_of(hash: IndexHash) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "masked to the buckets of a segment"
        )]
        let home = hash.0 as usize & (BUCKETS - 1);
        home
    }

    /// The address of a hash's home bucket.
    #[inline]
    fn bucket_of(&self, hash: IndexHash) -> *const u8 {
        self.segment_of(hash).bucket_pointer(Self::home_of(hash))
    }

    /// True if the bucket after a home is needed so often that it is prefetched too. It holds most
    /// of the slots that lie past their home, the slot that a removal pulls back, and room for an
    /// insertion. To decide this for each hash would cost more.
    #[inline]
    fn is_close(&self) -> bool {
        self.keys > self.close_at
    }

    /// Prefetches the home bucket of a hash, and the next in an index that is full enough. Cost:
    /// two instructions after the address, or four.
    #[inline]
    pub(crate) fn prefetch(&self, hash: IndexHash) {
        let bucket = self.bucket_of(hash);
        farcore_rdma::prefetch(bucket);
        if self.is_close() {
            farcore_rdma::prefetch(bucket.wrapping_add(LINE_BYTES));
        }
    }

    /// As [`Index::prefetch`], for one of many hashes in a burst.
    #[inline]
    pub(crate) fn prefetch_burst(&self, hash: IndexHash) {
        let bucket = self.bucket_of(hash);
        farcore_rdma::prefetch_burst(bucket);
        if self.is_close() {
            farcore_rdma::prefetch_burst(bucket.wrapping_add(LINE_BYTES));
        }
    }

    /// As [`Index::prefetch`] if `wanted`, without a branch; else it prefetches a line that is in
    /// the cache.
    #[inline]
    pub(crate) fn prefetch_if(&self, wanted: bool, hash: IndexHash) {
        let bucket = self.bucket_of(hash);
        let at_hand = std::ptr::from_ref(self).cast();
        let bucket = select_unpredictable(wanted, bucket, at_hand);
        farcore_rdma::prefetch(bucket);
        if self.is_close() {
            farcore_rdma::prefetch(bucket.wrapping_add(LINE_BYTES));
        }
    }

    /// The slot at a position.
    #[inline]
    pub(crate) fn slot(&self, position: Position) -> Slot {
        // SAFETY: a position is a place in a segment, which lives as long as the index. Only the
        // shard's thread reads and writes it.
        unsafe { position.0.read() }.unmarked()
    }

    /// Redirects a slot to another record.
    #[inline]
    pub(crate) fn replace(&mut self, position: Position, class: SizeClass, address: Address) {
        // SAFETY: as in `slot`. The mark stays.
        let slot = unsafe { position.0.read() };
        debug_assert!(!slot.is_empty());
        // SAFETY: as in `slot`.
        unsafe { position.0.write(slot.with_place(class, address)) };
    }

    /// Adds a slot; grows the index if needed.
    ///
    /// # Errors
    /// [`NoSegment`] if there is no place for it and no memory for a segment, or if too many slots
    /// share one home. All other slots are found as before.
    pub(crate) fn insert(
        &mut self,
        hash: IndexHash,
        class: SizeClass,
        address: Address,
        source: &mut impl SegmentSource,
    ) -> Result<(), NoSegment> {
        #[cfg(feature = "simulation")]
        if self.keys >= self.keys_max {
            return Err(NoSegment);
        }
        let (tag, home) = (tag_of(hash), Self::home_of(hash));
        loop {
            let place = self.place_of(hash);
            let number = self.directory[place] as usize;
            let full = self.keys_in[number] >= GROWS_AT;
            // A full group grows if it can. If it cannot, a place within reach suffices, and the
            // directory is unchanged.
            if full && self.should_grow(number) && self.grow(number, source).is_ok() {
                continue;
            }
            if self.named[place].insert(home, tag, class, address) {
                self.keys_in[number] += 1;
                self.keys += 1;
                return Ok(());
            }
            self.grow(number, source)?;
        }
    }

    /// Has the index take no more keys than this: for simulations.
    #[cfg(feature = "simulation")]
    pub(crate) fn set_keys_max(&mut self, keys: usize) {
        self.keys_max = keys;
    }

    /// True if no amount of memory could make room for another slot of this hash.
    pub(crate) fn is_at_its_limit(&self, hash: IndexHash) -> bool {
        #[cfg(feature = "simulation")]
        if self.keys_max < usize::MAX {
            return true;
        }
        let group = &self.groups[self.group_of[self.number_of(hash)] as usize];
        group.cannot_divide || group.count == 4 && group.depth == DEPTH_MAX
    }

    /// Removes a slot of a hash and shifts back those that may move.
    #[inline]
    pub(crate) fn remove(&mut self, hash: IndexHash, position: Position) {
        let place = self.place_of(hash);
        let segment = &mut self.named[place];
        segment.remove(segment.place_at(position.0));
        self.keys_in[self.directory[place] as usize] -= 1;
        self.keys -= 1;
    }

    /// Keys in the index.
    pub(crate) fn len(&self) -> usize {
        self.keys
    }

    /// Bytes of the index: segments, directory and tables.
    pub(crate) fn bytes(&self) -> usize {
        let spare = usize::from(self.spare.is_some()) * SEGMENT_BYTES;
        spare
            + self.segments.len() * (SEGMENT_BYTES + ENTRY_BYTES)
            + self.directory.len() * CELL_BYTES
            + self.groups.len() * size_of::<Group>()
    }

    /// Empties the index. It keeps its segments. Cost: its slots are zeroed.
    pub(crate) fn clear(&mut self) {
        for segment in &mut self.segments {
            segment.clear();
        }
        self.keys_in.fill(0);
        for group in &mut self.groups {
            group.cannot_divide = false;
        }
        self.keys = 0;
    }

    /// True if a group did not grow for lack of memory since the last call.
    pub(crate) fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }

    /// True if a group did not grow for lack of memory since [`Index::take_refused`] was called.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused
    }

    /// Steps of growth so far.
    pub(crate) fn growth_steps(&self) -> u64 {
        self.growth_steps
    }
}

#[cfg(test)]
mod tests;
