//! What the look-ahead of a batch must know when its requests are served: which keys were inserted
//! since, and whether pages have moved.

use crate::message::hash::IndexHash;

/// The keys inserted while a batch is served, as far as their hashes show. A key that look-ahead
/// found absent is still absent unless it is one of them.
///
/// A bit for each of 512 values of some hash bits. With a batch of 64, one absent key in seventeen
/// is examined again in vain.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::shard) struct NewKeys([u64; 8]);

impl NewKeys {
    /// The word of a hash, and its bit there.
    #[inline]
    fn place(hash: IndexHash) -> (usize, u64) {
        let word = (hash.0 >> 32) as usize % 8;
        (word, 1 << (hash.0 >> 26 & 63))
    }

    #[inline]
    pub(in crate::shard) fn note(&mut self, hash: IndexHash) {
        let (word, bit) = Self::place(hash);
        self.0[word] |= bit;
    }

    #[inline]
    pub(in crate::shard) fn may_hold(&self, hash: IndexHash) -> bool {
        let (word, bit) = Self::place(hash);
        self.0[word] & bit != 0
    }
}

/// State of the look-ahead of the batch that is being served.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::shard) struct LookAheadState {
    pub(in crate::shard) inserted: NewKeys,
    /// The count of page moves when the batch began.
    pub(in crate::shard) moves: u64,
}
