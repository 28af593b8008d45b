//! Requests about sections. While a client holds the section of a shard, the shard serves the
//! requests of no other client.
//!
//! ```text
//! enter:  | second client:16 |  -> stored, when the section is the client's; failed
//! join:   | second client:16 | client:16 | -> stored, if that client holds the section; failed
//! leave:                        -> deleted, if the section was the client's until now; else absent
//! ```
//!
//! Both have neither key nor hash. They travel in a lane's second queue, as do the requests under
//! the section, and keep their order there. So a client that has left is seen to have left before
//! its numbers enter again.

use crate::constants::LANE_NUMBERS;
use crate::message::operation::{OperationKind, RequestParts};

/// No client.
const NONE: u16 = u16::MAX;

/// The client numbers of one lane whose requests are under one section: those of its calls and of
/// its submitted requests, and one that has joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SectionClients {
    /// The one that enters and leaves.
    pub(crate) first: u16,
    pub(crate) second: u16,
    /// Set by [`SectionClients::join`].
    joined: u16,
}

impl SectionClients {
    /// True if a request of this client is under the section.
    #[inline]
    pub(crate) fn include(self, client: u16) -> bool {
        client == self.first || client == self.second || client == self.joined
    }

    /// The clients of a section that none has joined.
    pub(crate) fn new(first: u16, second: u16) -> Self {
        let joined = NONE;
        Self {
            first,
            second,
            joined,
        }
    }

    /// Has a client join; false if another has.
    pub(crate) fn join(&mut self, client: u16) -> bool {
        let is_free = self.joined == NONE;
        if is_free {
            self.joined = client;
        }
        is_free
    }

    /// Has the client that has joined leave; false if it is another.
    pub(crate) fn part(&mut self, client: u16) -> bool {
        let is_joined = self.joined == client;
        if is_joined {
            self.joined = NONE;
        }
        is_joined
    }

    /// The client that enters, with the value of its request.
    pub(crate) fn decode(first: u16, value: &[u8]) -> Self {
        let second = value.first_chunk().map(|bytes| u16::from_le_bytes(*bytes));
        Self::new(first, second.unwrap_or(first))
    }

    /// The client whose section one joins, with the value of its request; none if it enters.
    pub(crate) fn decode_joined(value: &[u8]) -> Option<u16> {
        let (_, rest) = value.split_first_chunk::<2>()?;
        Some(u16::from_le_bytes(*rest.first_chunk()?))
    }

    /// The value of a request to join.
    pub(crate) fn encode_join(client: u16) -> [u8; 4] {
        let [low, high] = client.to_le_bytes();
        let [none_low, none_high] = NONE.to_le_bytes();
        [none_low, none_high, low, high]
    }
}

/// The parts of a request that enters or leaves.
pub(crate) fn section_parts(kind: OperationKind, value: &[u8]) -> RequestParts<'_> {
    RequestParts {
        kind,
        key: &[],
        value,
        expected: 0,
    }
}

/// The shards of a section, a bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SectionShards([u64; LANE_NUMBERS / 64]);

impl SectionShards {
    pub(crate) fn add(&mut self, shard: u16) {
        self.0[usize::from(shard) / 64 % 4] |= 1 << (shard % 64);
    }

    pub(crate) fn remove(&mut self, shard: u16) {
        self.0[usize::from(shard) / 64 % 4] &= !(1 << (shard % 64));
    }

    #[inline]
    pub(crate) fn has(self, shard: u16) -> bool {
        self.0[usize::from(shard) / 64 % 4] >> (shard % 64) & 1 != 0
    }

    pub(crate) fn count(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The shards, in ascending order: every client takes them so, and none waits for another that
    /// waits for it.
    pub(crate) fn iter(self) -> impl Iterator<Item = u16> {
        std::iter::successors(self.from(0), move |&shard| self.from(shard + 1))
    }

    /// The first of the shards from this one on.
    pub(crate) fn from(self, shard: u16) -> Option<u16> {
        (shard..=u8::MAX.into()).find(|&shard| self.has(shard))
    }
}
