//! Remembers hashes that more than one key has: a READ for them returned another key's record, or
//! none.
//!
//! A far record that a hint names is read before other slots are examined. Without this memory, a
//! key whose local record lies behind another key's far slot would cost a READ at every get.

use crate::message::hash::IndexHash;

/// Places. About one key in 20,000 collides; those that are requested often should stay.
const PLACES: usize = 256;

/// The latest colliding hash of each place.
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

    /// True if the hash was noted and none has replaced it.
    #[inline]
    pub(in crate::shard) fn hold(&self, hash: IndexHash) -> bool {
        self.0[Self::place(hash)] == hash.0
    }
}
