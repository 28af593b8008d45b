//! What the look-ahead of a batch must know when its requests are served: which keys were inserted
//! since, whether pages have moved, and which requests come.

#![allow(unsafe_code)] // keeps the bounds of the batch that is being served

use crate::message::hash::IndexHash;
use crate::message::request::Request;

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
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) struct LookAheadState {
    pub(in crate::shard) inserted: NewKeys,
    /// The count of page moves when the batch began.
    pub(in crate::shard) moves: u64,
    /// The requests of the batch, from its first to behind its last.
    batch: (*const Request<'static>, *const Request<'static>),
}

impl Default for LookAheadState {
    fn default() -> Self {
        Self {
            inserted: NewKeys::default(),
            moves: 0,
            batch: (std::ptr::null(), std::ptr::null()),
        }
    }
}

impl LookAheadState {
    /// State of a batch that begins.
    ///
    /// # Safety
    /// The batch stays where it is until [`LookAheadState::end`].
    #[inline(always)]
    pub(in crate::shard) unsafe fn of(batch: &[Request<'_>], moves: u64) -> Self {
        let batch = batch.as_ptr_range();
        Self {
            inserted: NewKeys::default(),
            moves,
            batch: (batch.start.cast(), batch.end.cast()),
        }
    }

    /// The batch ends: no request comes.
    #[inline(always)]
    pub(in crate::shard) fn end(&mut self) {
        self.batch = (std::ptr::null(), std::ptr::null());
    }

    /// Where a request is in the batch that is being served; `None` if it is not of it. The batch
    /// stays for as long as a request of it is served.
    pub(in crate::shard) fn batch_of(&self, request: &Request<'_>) -> Option<BatchPlace> {
        let (start, end) = self.batch;
        let at: *const Request<'static> = std::ptr::from_ref(request).cast();
        let bytes = size_of::<Request<'_>>();
        (start..end).contains(&at).then(|| BatchPlace {
            start,
            place: (at.addr() - start.addr()) / bytes,
            len: (end.addr() - start.addr()) / bytes,
        })
    }
}

/// A place in the batch that is being served.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) struct BatchPlace {
    /// The first request.
    pub(in crate::shard) start: *const Request<'static>,
    pub(in crate::shard) place: usize,
    /// Requests of the batch.
    pub(in crate::shard) len: usize,
}
