//! Requests about sections. While a client holds the section of a shard, the shard serves the
//! requests of no other client.
//!
//! ```text
//! enter:  | second client:16 | shards:16 | number:48 |  -> stored, when the section is the client's; failed
//! join:   | second client:16 | client:16 | -> stored, if that client holds the section; failed
//! leave:                        -> deleted, if the section was the client's until now; else absent
//! ```
//!
//! Both have neither key nor hash. They travel in a lane's second queue, as do the requests under
//! the section, and keep their order there. So a client that has left is seen to have left before
//! its numbers enter again.

use std::sync::atomic::{AtomicU64, Ordering};

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
    /// How many shards the section is of, and its number: the same in all of them.
    shards: u16,
    number: u64,
}

/// The number of the next section.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

/// Which section clients enter: over how many shards, and its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SectionName {
    shards: u16,
    number: u64,
}

/// The number of the next section that a client enters: those that have begun have lesser ones.
pub(crate) fn next_section() -> u64 {
    // ORDERING: relaxed; who asks has waited for all cores before.
    NEXT_NUMBER.load(Ordering::Relaxed)
}

impl SectionName {
    /// One of its own, over these shards.
    pub(crate) fn new(shards: SectionShards) -> Self {
        Self {
            shards: u16::try_from(shards.count()).unwrap_or(u16::MAX),
            // ORDERING: relaxed; only that no two are the same counts.
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// In `RequestParts::expected`, on its way to the request.
    pub(crate) fn packed(self) -> u64 {
        self.number << 16 | u64::from(self.shards)
    }

    /// The value of a request to enter.
    pub(crate) fn encode_enter(packed: u64, second: u16) -> [u8; ENTER_BYTES] {
        let mut value = [0; ENTER_BYTES];
        value[..2].copy_from_slice(&second.to_le_bytes());
        value[2..].copy_from_slice(&packed.to_le_bytes());
        value
    }
}

/// Bytes of the value of a request to enter.
pub(crate) const ENTER_BYTES: usize = 10;

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
            shards: 1,
            number: u64::MAX,
        }
    }

    /// The number of the section, and how many shards it is of.
    pub(crate) fn named(self) -> (u64, u16) {
        (self.number, self.shards)
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
        let mut clients = Self::new(first, second.unwrap_or(first));
        if let Some(packed) = value.get(2..).and_then(<[u8]>::first_chunk) {
            let packed = u64::from_le_bytes(*packed);
            clients.shards = (packed & 0xffff) as u16;
            clients.number = packed >> 16;
        }
        clients
    }

    /// The client whose section one joins, with the value of its request; none if it enters.
    pub(crate) fn decode_joined(value: &[u8]) -> Option<u16> {
        let join: &[u8; 4] = value.as_array()?;
        Some(u16::from_le_bytes([join[2], join[3]]))
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
