//! Facts: what READs have shown about the far records that a waiting transaction names.
//!
//! A transaction waits in its lane, not in a flight, because a flight is of one key. For each key
//! whose record is far, the shard parks a request of its own, which reads the record as an
//! inspection does and leaves a fact here instead of an answer. The transaction is tried again
//! until it knows all of its keys.
//!
//! - I1: a lane has the facts of one transaction, the one that it serves first. They end with it,
//!   or when the lane serves another one first.
//! - I2: a fact about a far record holds as long as its page is far and has the same sequence
//!   number, because far pages do not change.
//! - I3: a request that learns for an earlier transaction of the lane has no effect.

use crate::constants::TRANSACTION_KEYS_MAX;
use crate::error::Error;
use crate::log::Address;
use crate::log::record::RecordHeader;
use crate::message::request::{Origin, ReplyTo, Request};

/// What is known about one key.
#[derive(Debug, Default)]
pub(in crate::shard) enum Fact {
    /// Nothing more than the index and the frames say.
    #[default]
    Unknown,
    /// A request is parked that will say.
    Requested,
    /// The record at this address, of a page with this sequence number, is the key's.
    Found {
        address: Address,
        sequence: u64,
        header: RecordHeader,
        expiry_ms: Option<u64>,
    },
    /// The key is absent: the records at these addresses, with the sequence numbers of their
    /// pages, are other keys'.
    Others(Box<[(Address, u64)]>),
    /// The record cannot be read.
    Failed(Box<Error>),
}

/// The facts of one lane's transaction.
#[derive(Debug, Default)]
struct LaneFacts {
    /// Which request of the lane it is.
    origin: Origin,
    token: u64,
    /// Numbers the transactions of the lane.
    generation: u32,
    /// By the key's place; none before the first request for a fact.
    facts: Vec<Fact>,
    /// Requests for facts that are parked, and how many there were when the transaction was last
    /// tried.
    requested: usize,
    requested_before: usize,
}

impl LaneFacts {
    fn is_of(&self, request: &Request<'_>) -> bool {
        !self.facts.is_empty() && self.token == request.token && self.origin == request.origin
    }

    fn end(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.facts.clear();
        (self.requested, self.requested_before) = (0, 0);
    }
}

/// The facts of all lanes.
#[derive(Debug, Default)]
pub(in crate::shard) struct Facts {
    /// By lane, as far as one had a transaction that waited.
    lanes: Vec<LaneFacts>,
}

impl Facts {
    /// Bytes that the facts of this many lanes take at most.
    pub(in crate::shard) fn bytes_for(lanes: usize) -> usize {
        lanes * (size_of::<LaneFacts>() + TRANSACTION_KEYS_MAX * size_of::<Fact>())
    }

    fn of(&self, lane: ReplyTo, request: &Request<'_>) -> Option<&LaneFacts> {
        let lane = self.lanes.get(lane.number())?;
        lane.is_of(request).then_some(lane)
    }

    /// What is known about the key at a place of a transaction.
    pub(in crate::shard) fn get(
        &self,
        lane: ReplyTo,
        request: &Request<'_>,
        place: usize,
    ) -> &Fact {
        let facts = self.of(lane, request).map(|lane| &lane.facts);
        facts
            .and_then(|facts| facts.get(place))
            .unwrap_or(&Fact::Unknown)
    }

    /// True if a transaction need not be tried yet: more than half of what it lacked at the last
    /// try has not arrived. So a try, which looks at each key, is made a few times only.
    pub(in crate::shard) fn are_awaited(&self, lane: ReplyTo, request: &Request<'_>) -> bool {
        let lane = self.of(lane, request);
        lane.is_some_and(|lane| lane.requested > lane.requested_before / 2)
    }

    /// Notes that a transaction was tried and waits.
    pub(in crate::shard) fn note_try(&mut self, lane: ReplyTo) {
        if let Some(lane) = self.lanes.get_mut(lane.number()) {
            lane.requested_before = lane.requested;
        }
    }

    /// Notes that a request is about to be parked for the key at a place of a transaction with
    /// `keys` keys. Returns that request's token.
    pub(in crate::shard) fn request(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        (place, keys): (usize, usize),
    ) -> u64 {
        let number = lane.number();
        if self.lanes.len() <= number {
            self.lanes.resize_with(number + 1, LaneFacts::default);
        }
        let lane = &mut self.lanes[number];
        if !lane.is_of(request) {
            lane.end();
            (lane.token, lane.origin) = (request.token, request.origin);
            lane.facts.resize_with(keys, Fact::default);
        }
        lane.facts[place] = Fact::Requested;
        lane.requested += 1;
        u64::from(lane.generation) << 32 | place as u64
    }

    /// Takes what a request with a token of [`Facts::request`] has learnt.
    pub(in crate::shard) fn learn(&mut self, lane: ReplyTo, token: u64, learnt: Fact) {
        let Some(lane) = self.lanes.get_mut(lane.number()) else {
            return;
        };
        let place = usize::try_from(token & u64::from(u32::MAX)).unwrap_or(usize::MAX);
        if token >> 32 == u64::from(lane.generation)
            && let Some(fact) = lane.facts.get_mut(place)
        {
            debug_assert!(matches!(fact, Fact::Requested));
            *fact = learnt;
            lane.requested -= 1;
        }
    }

    /// Ends the facts of a lane's transaction, which was answered.
    pub(in crate::shard) fn end(&mut self, lane: ReplyTo) {
        if let Some(lane) = self.lanes.get_mut(lane.number()) {
            lane.end();
        }
    }
}
