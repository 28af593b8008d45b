//! What reaches a shard and how its answers leave it.

use crate::operation::{Answer, Operation};
use crate::routing::IndexHash;

/// A lane of one shard: where a request came from and where its answer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LaneId(pub(crate) u16);

impl LaneId {
    /// The lane, without the client on it.
    #[inline]
    pub(crate) fn number(self) -> usize {
        usize::from(self.0 & 0xFF)
    }
}

/// One request, borrowed from a lane or from a client on the shard's own core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The index half of the key's hash.
    pub(crate) hash: IndexHash,
    /// The client's mark, handed back with the answer.
    pub(crate) token: u64,
    /// What is asked.
    pub(crate) operation: Operation<'a>,
}

/// Where answers go. A shard asks for room before it acts, so an answer is never refused.
pub(crate) trait Answers {
    /// True if an answer carrying a value of this many bytes can be delivered to the lane now.
    fn has_room(&self, lane: LaneId, value_bytes: usize) -> bool;
    /// Delivers the answer to one request. The value is copied or visited before this returns.
    fn answer(&mut self, lane: LaneId, token: u64, answer: Answer<'_>);
}
