//! A memory node's description of itself: its data regions, divided into extents, and its table.
//!
//! The table lies in a registered region of its own, 64-bit words, little-endian, bit 0 least
//! significant:
//!
//! ```text
//!   0                 8 * bitmap_words            8 * (bitmap_words + extents)
//!   | bitmap word 0 | 1 | ... | owner word 0 | owner word 1 | ... |
//!     bit b of word w: extent 64 * w + b            0: free, else the id of its owner
//!     0: looks free, 1: claimed
//! ```
//!
//! Bits past the last extent are 1. Extents are numbered through the data regions in order:
//!
//! ```text
//!   region 0: | extent 0 | 1 | 2 |   region 1: | extent 3 | 4 |
//! ```
//!
//! - I1: an extent lies in one region, and a run of extents in one bitmap word: a free stretch
//!   across the end of a word counts as two runs. Every other free run is found, wherever it
//!   begins.
//! - I2: no sum here overflows for a map that passed [`NodeMap::validate`].
//!
//! Limits: extents of 64 KiB to 1 GiB, 2^24 extents and 4096 regions per node.

use std::collections::HashSet;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use crate::work::{RemoteKey, RemoteSlice};

pub(crate) const WORD_BYTES: u64 = 8;
pub(crate) const WORD_BITS: u32 = u64::BITS;

const EXTENT_BYTES_MIN: u64 = 64 << 10;
const EXTENT_BYTES_MAX: u64 = 1 << 30;
pub(crate) const EXTENTS_MAX: u64 = 1 << 24;
const REGIONS_MAX: usize = 4096;

// An extent's number fits 32 bits.
const _: () = assert!(EXTENTS_MAX <= u32::MAX as u64);

/// The owner of extents. A node never issues an id twice, or a late free could hit an extent of a
/// later owner with the same id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct OwnerId(NonZeroU64);

impl OwnerId {
    /// An owner; `None` for 0, which means free in an owner word.
    #[must_use]
    pub fn new(id: u64) -> Option<Self> {
        NonZeroU64::new(id).map(Self)
    }

    /// The value in an owner word.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

/// 1 to 64 adjacent extents within one bitmap word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExtentRun {
    first: u32,
    count: u32,
}

impl ExtentRun {
    /// The longest run.
    pub const COUNT_MAX: u32 = WORD_BITS;

    /// A run; `None` if it is empty or crosses the end of its bitmap word.
    #[must_use]
    pub fn new(first: u32, count: u32) -> Option<Self> {
        let fits = count >= 1 && count <= WORD_BITS - first % WORD_BITS;
        fits.then_some(Self { first, count })
    }

    /// The number of the first extent on its node.
    #[must_use]
    pub fn first(self) -> u32 {
        self.first
    }

    /// The number of extents.
    #[must_use]
    pub fn count(self) -> u32 {
        self.count
    }

    /// The extents' numbers.
    pub fn extents(self) -> impl Iterator<Item = u32> {
        (0..self.count).map(move |step| self.first + step)
    }

    /// The bitmap word that the run lies in.
    pub(crate) fn word(self) -> u32 {
        self.first / WORD_BITS
    }

    /// The run's bits in that word.
    pub(crate) fn mask(self) -> u64 {
        (u64::MAX >> (WORD_BITS - self.count)) << (self.first % WORD_BITS)
    }

    /// Where in a bitmap word runs of `count` extents may begin, in order of preference: first
    /// aligned to the length rounded up to a power of two, so that they do not fragment free space;
    /// and, only if no such run is free, anywhere.
    pub(crate) fn starts(count: u32) -> impl Iterator<Item = u64> {
        let aligned = match count.max(1).checked_next_power_of_two() {
            Some(align @ 1..WORD_BITS) => u64::MAX / ((1 << align) - 1),
            _ => 1,
        };
        let rest = (aligned != u64::MAX).then_some(u64::MAX);
        std::iter::once(aligned).chain(rest)
    }

    /// A free run of a bitmap word that begins at a bit of `starts`: the first one at or after bit
    /// `from`, wrapping around.
    pub(crate) fn find(
        word: u32,
        value: u64,
        mut starts: u64,
        count: u32,
        from: u32,
    ) -> Option<Self> {
        if count == 0 || count > WORD_BITS {
            return None;
        }
        // A bit stays set in `free` if it and the `have - 1` bits above it are free.
        let (mut free, mut have) = (!value, 1);
        while have < count {
            let step = have.min(count - have);
            free &= free >> step;
            have += step;
        }
        starts &= free;
        if starts == 0 {
            return None;
        }
        let from = from % WORD_BITS;
        let bit = (starts.rotate_right(from).trailing_zeros() + from) % WORD_BITS;
        Self::new(word * WORD_BITS + bit, count)
    }
}

/// A registered region of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RegionDescriptor {
    /// The region's key.
    pub key: RemoteKey,
    /// The region's start in the node's address space, for backends that use such addresses. A
    /// [`RemoteSlice`] counts from the region's start nevertheless.
    pub address: u64,
    /// The length in bytes.
    pub bytes: u64,
}

/// The memory that a node lends. It arrives over the network: call [`NodeMap::validate`] first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeMap {
    /// Length of an extent, in bytes.
    pub extent_bytes: u64,
    /// The region of the bitmap and the owner words.
    pub table: RegionDescriptor,
    /// The data regions.
    pub regions: Vec<RegionDescriptor>,
}

/// Why a node's map is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NodeMapError {
    /// The length of an extent is invalid.
    #[error(
        "extents of {bytes} bytes: must be a power of two from {EXTENT_BYTES_MIN} to {EXTENT_BYTES_MAX}: set another extent size at the memory node"
    )]
    ExtentBytes {
        /// The map's value.
        bytes: u64,
    },
    /// There is no region, or there are too many.
    #[error("{count} data regions: must be 1 to {REGIONS_MAX}: make the regions longer")]
    Regions {
        /// The number of regions.
        count: usize,
    },
    /// A region's length is not a multiple of the extent.
    #[error(
        "data region {index} has {bytes} bytes: must be a multiple of {extent_bytes}, and not 0"
    )]
    RegionBytes {
        /// The region's index.
        index: usize,
        /// The region's length, in bytes.
        bytes: u64,
        /// Length of an extent, in bytes.
        extent_bytes: u64,
    },
    /// A region exceeds the address space.
    #[error("a region of {bytes} bytes at address {address} exceeds 64-bit addresses")]
    Address {
        /// The region's address.
        address: u64,
        /// The region's length, in bytes.
        bytes: u64,
    },
    /// There are too many extents.
    #[error("{count} or more extents: at most {EXTENTS_MAX}: make the extents longer")]
    Extents {
        /// The count at which the limit was exceeded.
        count: u64,
    },
    /// The table is too short.
    #[error("the table has {bytes} bytes: {needed} are needed for the extents")]
    TableBytes {
        /// The table's length, in bytes.
        bytes: u64,
        /// The length needed, in bytes.
        needed: u64,
    },
    /// The table's words are not aligned.
    #[error("the table begins at address {address}: must be a multiple of 8")]
    TableAddress {
        /// The table's address.
        address: u64,
    },
    /// Two regions have the same key.
    #[error("two regions have the key {}", key.0)]
    SameKey {
        /// The key.
        key: RemoteKey,
    },
}

/// The number of bitmap words for some extents.
pub(crate) fn bitmap_words_for(extents: u32) -> u32 {
    extents.div_ceil(WORD_BITS)
}

/// The bytes of a table for some extents.
pub(crate) fn table_bytes_for(extents: u32) -> u64 {
    (u64::from(bitmap_words_for(extents)) + u64::from(extents)) * WORD_BYTES
}

/// The bits of a bitmap word that belong to an extent.
pub(crate) fn valid_mask(extents: u32, word: u32) -> u64 {
    match extents.saturating_sub(word.saturating_mul(WORD_BITS)) {
        0 => 0,
        bits @ 1..WORD_BITS => u64::MAX >> (WORD_BITS - bits),
        _ => u64::MAX,
    }
}

impl NodeMap {
    /// Checks everything that the other functions rely on. Call it before any of them.
    ///
    /// # Errors
    /// [`NodeMapError`] names the value and the limit.
    pub fn validate(&self) -> Result<(), NodeMapError> {
        let extent_bytes = self.extent_bytes;
        let range = EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX;
        if !extent_bytes.is_power_of_two() || !range.contains(&extent_bytes) {
            return Err(NodeMapError::ExtentBytes {
                bytes: extent_bytes,
            });
        }
        if !(1..=REGIONS_MAX).contains(&self.regions.len()) {
            return Err(NodeMapError::Regions {
                count: self.regions.len(),
            });
        }
        let mut keys = HashSet::with_capacity(self.regions.len() + 1);
        for region in self.regions.iter().chain([&self.table]) {
            let RegionDescriptor {
                key,
                address,
                bytes,
            } = *region;
            if address.checked_add(bytes).is_none() {
                return Err(NodeMapError::Address { address, bytes });
            }
            if !keys.insert(key) {
                return Err(NodeMapError::SameKey { key });
            }
        }
        let mut count = 0u64;
        for (index, &RegionDescriptor { bytes, .. }) in self.regions.iter().enumerate() {
            if bytes == 0 || !bytes.is_multiple_of(extent_bytes) {
                return Err(NodeMapError::RegionBytes {
                    index,
                    bytes,
                    extent_bytes,
                });
            }
            count += bytes / extent_bytes;
            if count > EXTENTS_MAX {
                return Err(NodeMapError::Extents { count });
            }
        }
        if !self.table.address.is_multiple_of(WORD_BYTES) {
            return Err(NodeMapError::TableAddress {
                address: self.table.address,
            });
        }
        let needed = table_bytes_for(self.extents());
        if self.table.bytes < needed {
            return Err(NodeMapError::TableBytes {
                bytes: self.table.bytes,
                needed,
            });
        }
        Ok(())
    }

    /// The number of extents. Cost: one step per region.
    #[must_use]
    pub fn extents(&self) -> u32 {
        let count: u64 = self
            .regions
            .iter()
            .map(|region| region.bytes / self.extent_bytes.max(1))
            .fold(0, u64::saturating_add);
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// The number of bitmap words.
    #[must_use]
    pub fn bitmap_words(&self) -> u32 {
        bitmap_words_for(self.extents())
    }

    /// The place of a bitmap word; later words follow it.
    #[must_use]
    pub fn bitmap_slice(&self, word: u32) -> RemoteSlice {
        RemoteSlice {
            key: self.table.key,
            offset: u64::from(word) * WORD_BYTES,
        }
    }

    /// The place of an extent's owner word.
    #[must_use]
    pub fn owner_slice(&self, extent: u32) -> RemoteSlice {
        RemoteSlice {
            key: self.table.key,
            offset: (u64::from(self.bitmap_words()) + u64::from(extent)) * WORD_BYTES,
        }
    }

    /// The place of a byte of an extent; `None` if there is no such extent or it is shorter. Cost:
    /// one step per region.
    #[must_use]
    pub fn slice(&self, extent: u32, offset: u64) -> Option<RemoteSlice> {
        if offset >= self.extent_bytes {
            return None;
        }
        let mut place = u64::from(extent).checked_mul(self.extent_bytes)?;
        for region in &self.regions {
            if place < region.bytes {
                return Some(RemoteSlice {
                    key: region.key,
                    offset: place + offset,
                });
            }
            place -= region.bytes;
        }
        None
    }

    /// The extent that holds a place, and the place's offset in it; `None` if there is none. Cost:
    /// one step per region.
    #[must_use]
    pub fn extent_of(&self, slice: RemoteSlice) -> Option<(u32, u64)> {
        let mut first = 0;
        for region in &self.regions {
            let extents = region.bytes / self.extent_bytes;
            if region.key == slice.key {
                let extent = slice.offset / self.extent_bytes;
                let number = u32::try_from(first + extent).ok()?;
                let inside = slice.offset % self.extent_bytes;
                return (extent < extents).then_some((number, inside));
            }
            first += extents;
        }
        None
    }

    /// The number of bytes of a run that lie together in one region, from its start: all, unless a
    /// region ends within it.
    #[must_use]
    pub fn contiguous_bytes(&self, run: ExtentRun) -> u64 {
        let Some(first) = self.slice(run.first(), 0) else {
            return 0;
        };
        let rest = self
            .regions
            .iter()
            .find(|region| region.key == first.key)
            .map_or(0, |region| region.bytes - first.offset);
        rest.min(u64::from(run.count()) * self.extent_bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXTENT: u64 = EXTENT_BYTES_MIN;

    fn region(key: u32, bytes: u64) -> RegionDescriptor {
        RegionDescriptor {
            key: RemoteKey(key),
            address: 0,
            bytes,
        }
    }

    fn map(extents: &[u64]) -> NodeMap {
        let regions: Vec<_> = (1..)
            .zip(extents)
            .map(|(key, count)| region(key, count * EXTENT))
            .collect();
        NodeMap {
            extent_bytes: EXTENT,
            table: region(0, 1 << 20),
            regions,
        }
    }

    #[test]
    fn extents_are_numbered_through_the_regions() {
        let map = map(&[3, 1, 62]);
        map.validate().unwrap();
        assert_eq!((map.extents(), map.bitmap_words()), (66, 2));
        let place = |key, offset| {
            Some(RemoteSlice {
                key: RemoteKey(key),
                offset,
            })
        };
        assert_eq!(map.slice(2, 5), place(1, 2 * EXTENT + 5));
        assert_eq!(map.slice(3, 0), place(2, 0));
        assert_eq!(map.slice(65, EXTENT - 1), place(3, 62 * EXTENT - 1));
        assert_eq!(map.slice(66, 0), None);
        assert_eq!(map.slice(0, EXTENT), None);
        assert_eq!(Some(map.bitmap_slice(1)), place(0, 8));
        assert_eq!(Some(map.owner_slice(2)), place(0, 32));
        let run = ExtentRun::new(1, 4).unwrap();
        assert_eq!(map.contiguous_bytes(run), 2 * EXTENT);
    }

    #[test]
    fn an_invalid_map_is_refused_by_name() {
        let good = map(&[3, 1]);
        let wrong = |change: &dyn Fn(&mut NodeMap)| {
            let mut map = good.clone();
            change(&mut map);
            map.validate().unwrap_err()
        };
        for bytes in [0, EXTENT / 2, EXTENT + 1, EXTENT_BYTES_MAX * 2, u64::MAX] {
            let error = wrong(&|map| map.extent_bytes = bytes);
            assert_eq!(error, NodeMapError::ExtentBytes { bytes });
            assert!(error.to_string().contains(&bytes.to_string()));
        }
        let error = wrong(&|map| map.regions.clear());
        assert_eq!(error, NodeMapError::Regions { count: 0 });
        let error = wrong(&|map| map.regions = (1..=5000).map(|key| region(key, EXTENT)).collect());
        assert_eq!(error, NodeMapError::Regions { count: 5000 });
        for bytes in [0, EXTENT + 8] {
            let error = wrong(&|map| map.regions[1].bytes = bytes);
            assert!(
                matches!(error, NodeMapError::RegionBytes { index: 1, bytes: b, .. } if b == bytes)
            );
        }
        let error = wrong(&|map| map.regions[0].address = u64::MAX - EXTENT);
        assert!(matches!(error, NodeMapError::Address { .. }));
        let error = wrong(&|map| map.regions[0].bytes = u64::MAX - EXTENT + 1);
        assert!(matches!(error, NodeMapError::Extents { .. }), "{error}");
        let error = wrong(&|map| map.regions[1].key = RemoteKey(1));
        assert_eq!(error, NodeMapError::SameKey { key: RemoteKey(1) });
        let error = wrong(&|map| map.table.key = RemoteKey(2));
        assert_eq!(error, NodeMapError::SameKey { key: RemoteKey(2) });
        let (bytes, needed) = (39, 40);
        let error = wrong(&|map| map.table.bytes = bytes);
        assert_eq!(error, NodeMapError::TableBytes { bytes, needed });
        let error = wrong(&|map| map.table.address = 4);
        assert_eq!(error, NodeMapError::TableAddress { address: 4 });
    }

    #[test]
    fn a_map_survives_the_wire() {
        let map = map(&[3, 1]);
        let wire = serde_json::to_string(&map).unwrap();
        assert_eq!(serde_json::from_str::<NodeMap>(&wire).unwrap(), map);
        assert!(serde_json::from_str::<OwnerId>("0").is_err());
    }

    proptest! {
        #[test]
        fn a_run_is_found_exactly_if_there_is_one(value in any::<u64>(), also in any::<u64>(), count in 1u32..=64, from in 0u32..64) {
            let value = value & also;
            let free = |first: u32| first + count <= 64 && (first..first + count).all(|bit| value >> bit & 1 == 0);
            let aligns = [count.next_power_of_two(), 1];
            for (align, starts) in aligns.into_iter().zip(ExtentRun::starts(count)) {
                let oracle: Vec<u32> = (0..64).step_by(align as usize).filter(|&first| free(first)).collect();
                let wanted = oracle.iter().find(|&&first| first >= from).or(oracle.first());
                let found = ExtentRun::find(3, value, starts, count, from);
                prop_assert_eq!(found.map(ExtentRun::first), wanted.map(|first| 3 * 64 + first));
                if let Some(run) = found {
                    prop_assert_eq!(run.mask() & value, 0);
                    prop_assert_eq!(run.mask().count_ones(), count);
                    prop_assert_eq!(run.word(), 3);
                }
            }
            prop_assert_eq!(ExtentRun::starts(count).count(), 2 - usize::from(count == 1));
        }
    }

    #[test]
    fn a_run_stays_in_its_word() {
        assert!(ExtentRun::new(0, 0).is_none());
        assert!(ExtentRun::new(64, 64).is_some());
        assert!(ExtentRun::new(65, 64).is_none());
        assert!(ExtentRun::new(u32::MAX, 2).is_none());
        assert_eq!(ExtentRun::new(u32::MAX, 1).unwrap().extents().count(), 1);
        for count in [0, 65, u32::MAX] {
            for starts in ExtentRun::starts(count) {
                assert_eq!(ExtentRun::find(0, 0, starts, count, 0), None);
            }
        }
    }

    #[test]
    fn only_bits_of_extents_are_valid() {
        let masks = [0, 1, 2].map(|word| valid_mask(67, word));
        assert_eq!(masks, [u64::MAX, 0b111, 0]);
        assert_eq!(valid_mask(64, 0), u64::MAX);
    }
}
