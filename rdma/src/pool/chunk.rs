//! The client's side of the pool by request: chunks of a node, divided locally into pieces.
//!
//! Owns the chunks that its source granted. Each is a buddy tree over pieces of 64 B: a node of the
//! tree holds the order of the longest free piece below it, plus one; 0 if there is none.
//!
//! ```text
//!   tree[1]            the whole chunk          order 14 (1 MiB)
//!   tree[2]  tree[3]   its halves               order 13
//!   ...
//!   tree[leaves..]     pieces of 64 B           order 0
//! ```
//!
//! - I1: a piece starts at a multiple of its length, which is a power of two; pieces never overlap.
//! - I2: a chunk without pieces returns to the source, except one that is kept.
//! - I3: a chunk requested from the source belongs to the source until it arrives. If the call is
//!   dropped meanwhile, the source must keep or free the chunk.
//!
//! Cost: one step per order to allocate or free, and three bytes of local memory for each 64 B of a
//! chunk.

use std::cell::RefCell;
use std::collections::BTreeSet;

use crate::work::RemoteSlice;

const PIECE_BITS: u32 = 6;
/// The shortest piece, in bytes.
const PIECE_BYTES: u64 = 1 << PIECE_BITS;
const CHUNK_BYTES_MIN: u64 = 4 << 10;
const CHUNK_BYTES_MAX: u64 = 1 << 30;
/// The default length of a chunk, in bytes.
pub const CHUNK_BYTES: u64 = 1 << 20;

/// A run of far memory that a node granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// The node's queue pair in the initiator.
    pub queue: usize,
    /// The first byte.
    pub slice: RemoteSlice,
    /// The length in bytes.
    pub bytes: u64,
    /// A value for the source's own use.
    pub mark: u64,
}

/// A source of chunks, for example a node's control connection.
pub trait ChunkSource {
    /// The error of a failed request.
    type Error: std::error::Error;
    /// A chunk of at least `bytes`, aligned to `bytes` if that is a power of two; `None` if the
    /// source is exhausted.
    fn allocate(&self, bytes: u64) -> impl Future<Output = Result<Option<Chunk>, Self::Error>>;
    /// Frees a chunk. If it fails, the source retries on its own.
    fn free(&self, chunk: Chunk) -> impl Future<Output = Result<(), Self::Error>>;
}

/// A piece of a chunk. [`Chunks::free`] frees it.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a dropped piece leaks until its owner's memory is reclaimed"]
pub struct Piece {
    chunk: usize,
    leaf: usize,
    queue: usize,
    slice: RemoteSlice,
    bytes: u64,
}

impl Piece {
    /// The node's queue pair in the initiator.
    #[must_use]
    pub fn queue(&self) -> usize {
        self.queue
    }

    /// The first byte.
    #[must_use]
    pub fn slice(&self) -> RemoteSlice {
        self.slice
    }

    /// The length in bytes: the requested one, rounded up to a power of two of at least 64.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Why a piece could not be allocated or freed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChunksError<E: std::error::Error> {
    /// The length exceeds a chunk's.
    #[error(
        "{bytes} bytes exceed the chunk length of {limit}: claim extents, or set longer chunks"
    )]
    TooLong {
        /// The requested bytes.
        bytes: u64,
        /// The length of a chunk.
        limit: u64,
    },
    /// The source granted a chunk that is too short.
    #[error("the node granted a chunk of {bytes} bytes, {wanted} were requested")]
    ShortChunk {
        /// The chunk's length.
        bytes: u64,
        /// The requested bytes.
        wanted: u64,
    },
    /// The source failed.
    #[error("the node granted no chunk: {0}")]
    Source(E),
}

#[derive(Debug)]
struct Buddy {
    chunk: Chunk,
    /// As drawn in the module's header.
    tree: Vec<u8>,
    /// For each leaf that begins a piece in use: the piece's order plus one.
    given: Vec<u8>,
    pieces: usize,
}

impl Buddy {
    fn new(chunk: Chunk, orders: u32) -> Self {
        let leaves = 1usize << orders;
        let mut tree = vec![0; 2 * leaves];
        for (index, free) in tree.iter_mut().enumerate().skip(1) {
            *free = u8::try_from(orders + 1 - index.ilog2()).unwrap_or(0);
        }
        Self {
            chunk,
            tree,
            given: vec![0; leaves],
            pieces: 0,
        }
    }

    fn longest(&self) -> u8 {
        self.tree[1]
    }

    /// Allocates a piece; `order` is one more than its order. Returns its first leaf.
    fn take(&mut self, order: u8) -> Option<usize> {
        if self.tree[1] < order {
            return None;
        }
        let top = self.given.len().ilog2() + 1;
        let mut index = 1;
        for _ in u32::from(order)..top {
            // Prefer the half that fits more tightly, so that long pieces stay whole.
            let (left, right) = (self.tree[2 * index], self.tree[2 * index + 1]);
            let go_right = left < order || (right >= order && right < left);
            index = 2 * index + usize::from(go_right);
        }
        self.tree[index] = 0;
        self.settle(index);
        let leaf = (index << (order - 1)) - self.given.len();
        self.given[leaf] = order;
        self.pieces += 1;
        Some(leaf)
    }

    /// Frees a piece; false if none begins there.
    fn give(&mut self, leaf: usize) -> bool {
        let Some(order) = self.given.get(leaf).copied().filter(|&order| order > 0) else {
            return false;
        };
        self.given[leaf] = 0;
        self.pieces -= 1;
        let index = (leaf + self.given.len()) >> (order - 1);
        self.tree[index] = order;
        self.settle(index);
        true
    }

    /// Updates the nodes above.
    fn settle(&mut self, mut index: usize) {
        let top = self.given.len().ilog2() + 1;
        while index > 1 {
            index /= 2;
            let (left, right) = (self.tree[2 * index], self.tree[2 * index + 1]);
            let half = u8::try_from(top - index.ilog2() - 1).unwrap_or(0);
            let both = left == half && right == half;
            self.tree[index] = if both { half + 1 } else { left.max(right) };
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    chunks: Vec<Option<Buddy>>,
    vacant: Vec<usize>,
    /// Chunks by their longest free piece.
    by_longest: BTreeSet<(u8, usize)>,
    /// The number of these chunks without pieces.
    empty: usize,
    /// Chunks that are being returned to the source.
    leaving: Vec<Chunk>,
}

/// Far memory allocated in chunks and divided locally.
#[derive(Debug)]
pub struct Chunks<S> {
    source: S,
    orders: u32,
    inner: RefCell<Inner>,
}

impl<S: ChunkSource> Chunks<S> {
    /// Far memory in chunks of `chunk_bytes`, rounded to a power of two from 4 KiB to 1 GiB; the
    /// usual length is [`CHUNK_BYTES`].
    pub fn new(source: S, chunk_bytes: u64) -> Self {
        let bytes = chunk_bytes.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES_MAX);
        Self {
            source,
            orders: bytes.next_power_of_two().ilog2() - PIECE_BITS,
            inner: RefCell::default(),
        }
    }

    /// The length of a chunk.
    #[must_use]
    pub fn chunk_bytes(&self) -> u64 {
        PIECE_BYTES << self.orders
    }

    /// Chunks held, with or without pieces.
    #[must_use]
    pub fn chunk_count(&self) -> usize {
        let inner = self.inner.borrow();
        inner.chunks.len() - inner.vacant.len()
    }

    /// Allocates a piece of at least `bytes`; `None` if the source is exhausted. Cost: no round
    /// trip, unless a chunk is requested.
    ///
    /// # Errors
    /// [`ChunksError`] if `bytes` exceeds a chunk, or the source failed.
    pub async fn allocate(&self, bytes: u64) -> Result<Option<Piece>, ChunksError<S::Error>> {
        let limit = self.chunk_bytes();
        if bytes > limit {
            return Err(ChunksError::TooLong { bytes, limit });
        }
        let bytes = bytes.max(PIECE_BYTES).next_power_of_two();
        let order = u8::try_from(bytes.ilog2() - PIECE_BITS + 1).unwrap_or(u8::MAX);
        if let Some(piece) = self.inner.borrow_mut().take(order) {
            return Ok(Some(piece));
        }
        let leaving = self.inner.borrow_mut().leaving.pop();
        let chunk = match leaving {
            Some(chunk) => Some(chunk),
            None => {
                let chunk = self.source.allocate(limit).await;
                chunk.map_err(ChunksError::Source)?
            }
        };
        let Some(chunk) = chunk else {
            return Ok(None);
        };
        if chunk.bytes < limit {
            let (bytes, wanted) = (chunk.bytes, limit);
            self.source.free(chunk).await.map_err(ChunksError::Source)?;
            return Err(ChunksError::ShortChunk { bytes, wanted });
        }
        let mut inner = self.inner.borrow_mut();
        inner.add(Buddy::new(chunk, self.orders));
        Ok(inner.take(order))
    }

    /// Frees a piece, at once, even if the future is never polled. Cost: no round trip, unless a
    /// chunk returns to the source.
    ///
    /// # Errors
    /// [`ChunksError::Source`] if the source failed to free the chunk. The piece is free
    /// nevertheless.
    pub fn free(
        &self,
        piece: Piece,
    ) -> impl Future<Output = Result<(), ChunksError<S::Error>>> + use<'_, S> {
        {
            let inner = &mut *self.inner.borrow_mut();
            let emptied = inner.give(&piece);
            inner.leaving.extend(emptied);
        }
        async move {
            loop {
                let Some(chunk) = self.inner.borrow_mut().leaving.pop() else {
                    return Ok(());
                };
                let freed = self.source.free(chunk).await;
                freed.map_err(ChunksError::Source)?;
            }
        }
    }
}

impl Inner {
    fn add(&mut self, buddy: Buddy) {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.chunks.push(None);
            self.chunks.len() - 1
        });
        self.by_longest.insert((buddy.longest(), index));
        self.chunks[index] = Some(buddy);
        self.empty += 1;
    }

    /// Allocates a piece from the chunk that fits most tightly.
    fn take(&mut self, order: u8) -> Option<Piece> {
        let &(longest, index) = self.by_longest.range((order, 0)..).next()?;
        let buddy = self.chunks[index].as_mut()?;
        let leaf = buddy.take(order)?;
        self.empty -= usize::from(buddy.pieces == 1);
        self.by_longest.remove(&(longest, index));
        self.by_longest.insert((buddy.longest(), index));
        let Chunk { queue, slice, .. } = buddy.chunk;
        Some(Piece {
            chunk: index,
            leaf,
            queue,
            slice: RemoteSlice {
                offset: slice.offset + ((leaf as u64) << PIECE_BITS),
                ..slice
            },
            bytes: PIECE_BYTES << (order - 1),
        })
    }

    /// Frees a piece. Returns its chunk if it is now empty and another empty one is kept.
    fn give(&mut self, piece: &Piece) -> Option<Chunk> {
        let index = piece.chunk;
        let buddy = self.chunks.get_mut(index)?.as_mut()?;
        let longest = buddy.longest();
        if !buddy.give(piece.leaf) {
            return None;
        }
        self.by_longest.remove(&(longest, index));
        if buddy.pieces == 0 && self.empty > 0 {
            self.vacant.push(index);
            return self.chunks[index].take().map(|buddy| buddy.chunk);
        }
        self.empty += usize::from(buddy.pieces == 0);
        self.by_longest.insert((buddy.longest(), index));
        None
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;
    use crate::testing::block_on;
    use crate::work::RemoteKey;

    /// Grants `left` chunks, one behind the other.
    #[derive(Debug)]
    pub(crate) struct Counter {
        pub(crate) left: Cell<u64>,
        pub(crate) out: RefCell<BTreeSet<u64>>,
        pub(crate) short: u64,
    }

    impl Counter {
        pub(crate) fn new(left: u64) -> Self {
            Self {
                left: Cell::new(left),
                out: RefCell::default(),
                short: 0,
            }
        }
    }

    impl ChunkSource for &Counter {
        type Error = Infallible;

        async fn allocate(&self, bytes: u64) -> Result<Option<Chunk>, Infallible> {
            if self.left.get() == 0 {
                return Ok(None);
            }
            self.left.update(|left| left - 1);
            let mark = (0..)
                .find(|mark| !self.out.borrow().contains(mark))
                .unwrap_or(0);
            self.out.borrow_mut().insert(mark);
            let slice = RemoteSlice {
                key: RemoteKey(2),
                offset: mark * bytes,
            };
            Ok(Some(Chunk {
                queue: 0,
                slice,
                bytes: bytes - self.short,
                mark,
            }))
        }

        async fn free(&self, chunk: Chunk) -> Result<(), Infallible> {
            assert!(self.out.borrow_mut().remove(&chunk.mark), "freed twice");
            self.left.update(|left| left + 1);
            Ok(())
        }
    }

    #[test]
    fn a_chunk_holds_exactly_its_length() {
        let source = Counter::new(1);
        let chunks = Chunks::new(&source, CHUNK_BYTES);
        for bytes in [0, 64, 65, 1 << 19, CHUNK_BYTES] {
            let mut pieces = Vec::new();
            while let Some(piece) = block_on(chunks.allocate(bytes)).unwrap() {
                pieces.push(piece);
            }
            let length = bytes.next_power_of_two().max(64);
            assert_eq!(pieces.len() as u64, CHUNK_BYTES / length);
            for piece in pieces {
                block_on(chunks.free(piece)).unwrap();
            }
        }
        // The last empty chunk is kept.
        assert_eq!((chunks.chunk_count(), source.left.get()), (1, 0));
        let error = block_on(chunks.allocate(CHUNK_BYTES + 1)).unwrap_err();
        let (bytes, limit) = (CHUNK_BYTES + 1, CHUNK_BYTES);
        assert_eq!(error, ChunksError::TooLong { bytes, limit });
        assert_eq!(Chunks::new(&source, 0).chunk_bytes(), CHUNK_BYTES_MIN);
        assert_eq!(
            Chunks::new(&source, u64::MAX).chunk_bytes(),
            CHUNK_BYTES_MAX
        );
    }

    #[test]
    fn a_free_that_is_not_awaited_loses_nothing() {
        let source = Counter::new(2);
        let chunks = Chunks::new(&source, 4096);
        let take = || block_on(chunks.allocate(4096)).unwrap();
        let (first, second) = (take().unwrap(), take().unwrap());
        drop(chunks.free(first));
        drop(chunks.free(second));
        // One is kept, one was being returned.
        let (first, _second) = (take().unwrap(), take().unwrap());
        assert_eq!((take(), source.left.get()), (None, 0));
        block_on(chunks.free(first)).unwrap();
        assert_eq!(chunks.chunk_count(), 2);
    }

    #[test]
    fn a_short_chunk_is_refused() {
        let source = Counter {
            short: 1,
            ..Counter::new(1)
        };
        let error = block_on(Chunks::new(&source, 4096).allocate(1)).unwrap_err();
        assert_eq!(
            error,
            ChunksError::ShortChunk {
                bytes: 4095,
                wanted: 4096
            }
        );
        assert_eq!(source.left.get(), 1);
    }

    proptest! {
        #[test]
        fn pieces_never_overlap_and_empty_chunks_go_back(acts in prop::collection::vec((0u8..5, 0u64..=4096, any::<prop::sample::Index>()), 1..300)) {
            let source = Counter::new(5);
            let chunks = Chunks::new(&source, 4096);
            let mut held: Vec<Piece> = Vec::new();
            for (act, bytes, which) in acts {
                if act < 3 {
                    let bytes = bytes >> (which.index(8));
                    match block_on(chunks.allocate(bytes)).unwrap() {
                        Some(piece) => {
                            let start = piece.slice().offset;
                            prop_assert!(piece.bytes() >= bytes && start % piece.bytes() == 0);
                            let apart = |other: &Piece| {
                                start + piece.bytes() <= other.slice().offset
                                    || other.slice().offset + other.bytes() <= start
                            };
                            prop_assert!(held.iter().all(apart));
                            held.push(piece);
                        }
                        None => {
                            // No chunk has a free piece of this length, checked by an oracle over
                            // the space between pieces.
                            let length = bytes.max(64).next_power_of_two();
                            let free = |start: u64| held.iter().all(|other| {
                                start + length <= other.slice().offset || other.slice().offset + other.bytes() <= start
                            });
                            prop_assert!((0..5 * 4096 / length).all(|step| !free(step * length)));
                        }
                    }
                } else if !held.is_empty() {
                    block_on(chunks.free(held.swap_remove(which.index(held.len())))).unwrap();
                }
                let used: BTreeSet<u64> = held.iter().map(|piece| piece.slice().offset / 4096).collect();
                let out = source.out.borrow();
                prop_assert!(used.is_subset(&out) && out.len() <= used.len() + 1);
                prop_assert_eq!(chunks.chunk_count(), out.len());
            }
        }
    }
}
