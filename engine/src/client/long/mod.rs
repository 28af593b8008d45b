//! Long values as their clients write and read them: piece by piece, several under way.
//!
//! [`LongPut`] and [`LongGet`] are the states of one put and one read, without any input or output.
//! `calls` turns them into calls of handles and core clients. `pieces` has the calls that work with
//! the pieces of a value whatever its key holds.

mod calls;
mod get;
mod pieces;
mod put;

pub(crate) use self::get::{LongGet, NoVisitor, Sink};
pub use self::pieces::{LongDraft, LongPieces, PinKind, PinOutcome, PinnedValue};
pub(crate) use self::put::LongPut;
use crate::message::hash::{Hasher128, IndexHash};

/// Pieces under way at once.
const WINDOW: u32 = 8;

/// A caller's key: its bytes, its shard and its hash there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routed<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) shard: u16,
    pub(crate) hash: IndexHash,
}

impl<'a> Routed<'a> {
    pub(crate) fn new(key: &'a [u8], hasher: Hasher128, shards: u16) -> Self {
        let hash = hasher.hash(key);
        Self {
            key,
            shard: hasher.shard(key, hash, shards),
            hash: hash.index,
        }
    }
}
