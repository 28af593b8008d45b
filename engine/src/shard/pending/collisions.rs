//! Hashes that more than one key has: those whose READ brought another key's record, or nothing.
//!
//! A far record that a hint names is read without a look at the slots behind it. Were that not
//! remembered, a local record behind another key's would cost a READ each time it is asked for.

use crate::message::hash::IndexHash;

/// Places; about one key in 20,000 is such a one, and of those the ones that are asked for often
/// are to stay.
const PLACES: usize = 256;

/// The latest of them, one a place.
#[derive(Debug)]
pub(in crate::shard) struct Collisions([u64; PLACES]);

impl Default for Collisions {
    fn default() -> Self {
        Self([0; PLACES])
    }
}

impl Collisions {
    #[inline]
    fn place(hash: IndexHash) -> usize {
        (hash.0 >> 22) as usize % PLACES
    }

    pub(in crate::shard) fn note(&mut self, hash: IndexHash) {
        self.0[Self::place(hash)] = hash.0;
    }

    /// True if the hash was noted, and no other has its place since.
    #[inline]
    pub(in crate::shard) fn hold(&self, hash: IndexHash) -> bool {
        self.0[Self::place(hash)] == hash.0
    }
}
