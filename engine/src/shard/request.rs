//! What reaches a shard and how its answers leave it.

use crate::operation::{Answer, Demand};
use crate::routing::IndexHash;

/// A lane of one shard: where a request came from and where its answer goes, and how it got on meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LaneId(pub(crate) u32);

impl LaneId {
    /// The same, for a request that waits for far memory.
    #[inline]
    pub(super) fn waiting(self) -> Self {
        Self(self.0 | u32::from(Mark::WAITED.0) << 16)
    }

    /// The lane, without the client on it.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lane is the lowest byte"
    )]
    pub(crate) fn number(self) -> usize {
        usize::from(self.0 as u8)
    }
}

/// What a request carries along beside its client, and its answer back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mark(pub(crate) u8);

impl Mark {
    pub(crate) const NONE: Self = Self(0);
    /// Its client measures how long it takes.
    pub(crate) const TIMED: Self = Self(0x40);
    /// It waited for far memory.
    pub(crate) const WAITED: Self = Self(0x20);

    /// Marked if it is timed.
    #[inline]
    pub(crate) fn timed(timed: bool) -> Self {
        if timed { Self::TIMED } else { Self::NONE }
    }

    /// The same, and that it waited for far memory if it did.
    #[inline]
    pub(crate) fn waited_if(self, waited: bool) -> Self {
        Self(self.0 | if waited { Self::WAITED.0 } else { 0 })
    }

    #[inline]
    pub(crate) fn is_timed(self) -> bool {
        self.0 & Self::TIMED.0 != 0
    }

    #[inline]
    pub(crate) fn has_waited(self) -> bool {
        self.0 & Self::WAITED.0 != 0
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
    pub(crate) demand: Demand<'a>,
}

/// Where answers go. A shard asks for room before it acts, so an answer is never refused.
pub(crate) trait Answers {
    /// True if an answer carrying a value of this many bytes can be delivered to the lane now.
    fn has_room(&self, lane: LaneId, value_bytes: usize) -> bool;
    /// Delivers the answer to one request. The value is copied or visited before this returns.
    fn answer(&mut self, lane: LaneId, token: u64, answer: Answer<'_>);
    /// Both in one, for an answer that nothing was done for yet; false if there is no room, as `has_room` would say.
    #[inline]
    fn try_answer(&mut self, lane: LaneId, token: u64, answer: Answer<'_>) -> bool {
        let has_room = self.has_room(lane, answer.value().len());
        if has_room {
            self.answer(lane, token, answer);
        }
        has_room
    }
}
