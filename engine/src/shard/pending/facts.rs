//! Facts: what READs have shown about the far records that a waiting transaction names, or that a
//! waiting operation on a tree needs.
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
//! - I4: the nodes that all lanes hold or have requested have at most `node_bytes_max` bytes
//!   together, and those of two lanes more. One of these is that of requests under a section. The
//!   other is the one that may go on; each other lane that finds no room gives its own up. So does
//!   a lane whose client has no room for the answer, once another lane lacks room here.

use crate::constants::TRANSACTION_KEYS_MAX;
use crate::error::Error;
use crate::log::Address;
use crate::log::record::RecordHeader;
use crate::message::request::{Origin, ReplyTo, Request};
use crate::tree::NodeNumber;

/// What is known about one key.
#[derive(Debug, Default)]
pub(in crate::shard) enum Fact {
    /// Nothing more than the index and the frames say.
    #[default]
    Unknown,
    /// A request is parked that will say: a node of this many bytes, at most, or another fact.
    Requested { bytes: usize },
    /// The record at this address, of a page with this sequence number, is the key's.
    Found {
        address: Address,
        sequence: u64,
        header: RecordHeader,
        expiry_ms: Option<u64>,
        /// The value of the head of an inline collection; empty for other records.
        value: Box<[u8]>,
    },
    /// The key is absent: the records at these addresses, with the sequence numbers of their
    /// pages, are other keys'.
    Others(Box<[(Address, u64)]>),
    /// The record cannot be read. Of a node, and of a key whose record is damaged: that at this
    /// address, in a page with this sequence number.
    Failed {
        error: Box<Error>,
        at: Option<(Address, u64)>,
    },
    /// The contents of a tree's node, whose record lies at this address of a page with this
    /// sequence number.
    Node {
        address: Address,
        sequence: u64,
        bytes: Box<[u8]>,
    },
}

impl Fact {
    /// The fact of a record of a key that cannot be read.
    pub(in crate::shard) fn failed(error: Error) -> Self {
        Self::Failed {
            error: Box::new(error),
            at: None,
        }
    }

    fn node_bytes(&self) -> usize {
        match self {
            Self::Node { bytes, .. } => bytes.len(),
            Self::Found { value, .. } => value.len(),
            Self::Requested { bytes } => *bytes,
            _ => 0,
        }
    }
}

/// Nodes of one operation of which something is known, at most. A step bounds what it reads, so
/// there are never as many.
const NODES_MAX: usize = TRANSACTION_KEYS_MAX - 1;

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
    /// Of an operation on a tree: which node the fact at the next place is about.
    nodes: Vec<NodeNumber>,
    /// Requests for facts that are parked, and how many there were when the transaction was last
    /// tried.
    requested: usize,
    requested_before: usize,
    /// All is known, but there is no room for the answer.
    is_stalled: bool,
}

impl LaneFacts {
    fn is_of(&self, request: &Request<'_>) -> bool {
        !self.facts.is_empty() && self.token == request.token && self.origin == request.origin
    }

    fn end(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.facts.clear();
        self.nodes.clear();
        (self.requested, self.requested_before) = (0, 0);
        self.is_stalled = false;
    }
}

/// Bytes of the nodes that one operation on a tree needs at once, beside a long value.
const NODES_OF_ONE_BYTES: u64 = 128 << 10;
/// The share of local memory that nodes of trees may take that operations hold.
const NODES_SHARE: u64 = 256;

/// The facts of all lanes.
#[derive(Debug, Default)]
pub(in crate::shard) struct Facts {
    /// By lane, as far as one had a transaction that waited.
    lanes: Vec<LaneFacts>,
    /// Bytes of the nodes that all lanes hold, and from how many on only one lane goes on.
    node_bytes: usize,
    node_bytes_max: usize,
    /// The lane that may go on beyond that.
    favoured: Option<usize>,
}

impl Facts {
    /// Facts of a shard with this much local memory.
    pub(in crate::shard) fn new(local_bytes: u64) -> Self {
        let share = usize::try_from(local_bytes / NODES_SHARE).unwrap_or(usize::MAX);
        Self {
            node_bytes_max: share,
            ..Self::default()
        }
    }

    /// Bytes that the facts of this many lanes take at most, with the nodes that they hold.
    pub(in crate::shard) fn bytes_for(lanes: usize, local_bytes: u64, value_bytes_max: u64) -> u64 {
        let fact = size_of::<Fact>() + size_of::<NodeNumber>();
        let facts = lanes * (size_of::<LaneFacts>() + TRANSACTION_KEYS_MAX * fact);
        // Two lanes may hold more: what an operation needs at once, and one long value.
        facts as u64 + local_bytes / NODES_SHARE + 2 * (NODES_OF_ONE_BYTES + value_bytes_max)
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
            lane.is_stalled = false;
        }
    }

    /// Notes that the transaction of a lane waits for its client, for however long.
    #[cold]
    pub(in crate::shard) fn note_stalled(&mut self, lane: ReplyTo) {
        if let Some(lane) = self.lanes.get_mut(lane.number()) {
            lane.is_stalled = true;
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
        let lane = self.begin(lane, request, keys);
        let requested = Fact::Requested { bytes: 0 };
        let before = std::mem::replace(&mut lane.facts[place], requested);
        lane.requested += 1;
        let token = u64::from(lane.generation) << 32 | place as u64;
        self.node_bytes -= before.node_bytes();
        token
    }

    /// True if an operation knows about enough nodes that it should not request more.
    pub(in crate::shard) fn are_many(&self, lane: ReplyTo, request: &Request<'_>) -> bool {
        let lane = self.of(lane, request);
        lane.is_some_and(|lane| lane.nodes.len() > NODES_MAX / 2)
    }

    /// The facts of a transaction with `keys` keys, whose lane may have had those of another one.
    fn begin(&mut self, lane: ReplyTo, request: &Request<'_>, keys: usize) -> &mut LaneFacts {
        let number = lane.number();
        if self.lanes.len() <= number {
            self.lanes.resize_with(number + 1, LaneFacts::default);
        }
        if !self.lanes[number].is_of(request) {
            self.end_of(number);
            let lane = &mut self.lanes[number];
            (lane.token, lane.origin) = (request.token, request.origin);
            lane.facts.resize_with(keys, Fact::default);
        }
        &mut self.lanes[number]
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
            debug_assert!(matches!(fact, Fact::Requested { .. }));
            self.node_bytes += learnt.node_bytes();
            self.node_bytes -= std::mem::replace(fact, learnt).node_bytes();
            lane.requested -= 1;
        }
    }

    /// Ends the facts of a lane's transaction, which was answered.
    pub(in crate::shard) fn end(&mut self, lane: ReplyTo) {
        self.end_of(lane.number());
    }

    /// Ends the facts of lanes that wait for their clients: others need the room.
    #[cold]
    fn end_stalled(&mut self) {
        for number in 0..self.lanes.len() {
            if self.lanes[number].is_stalled {
                self.end_of(number);
            }
        }
    }

    fn end_of(&mut self, number: usize) {
        let Some(lane) = self.lanes.get_mut(number) else {
            return;
        };
        let bytes: usize = lane.facts.iter().map(Fact::node_bytes).sum();
        self.node_bytes -= bytes;
        lane.end();
        if self.favoured == Some(number) {
            self.favoured = None;
        }
    }

    /// True if a lane may hold this much more of nodes.
    fn may_hold(&mut self, lane: ReplyTo, bytes: usize) -> bool {
        if self.node_bytes + bytes <= self.node_bytes_max || lane.is_under_section() {
            return true;
        }
        self.end_stalled();
        if self.node_bytes + bytes <= self.node_bytes_max {
            return true;
        }
        *self.favoured.get_or_insert(lane.number()) == lane.number()
    }

    /// What is known about a node of the tree that an operation is on.
    pub(in crate::shard) fn node(
        &self,
        lane: ReplyTo,
        request: &Request<'_>,
        node: NodeNumber,
    ) -> &Fact {
        let known = self.of(lane, request).and_then(|lane| {
            let place = lane.nodes.iter().position(|&known| known == node)?;
            lane.facts.get(place + 1)
        });
        known.unwrap_or(&Fact::Unknown)
    }

    /// Notes that a request is about to be parked for a node of this many bytes, at most. Returns
    /// that request's token; `None` if it must wait until others have given up theirs.
    pub(in crate::shard) fn request_node(
        &mut self,
        lane: ReplyTo,
        request: &Request<'_>,
        (node, bytes): (NodeNumber, usize),
    ) -> Option<u64> {
        let number = lane.number();
        // The first place is that of the head.
        // It waits for a node now, no more for its client: what it knows must stay.
        self.begin(lane, request, 1).is_stalled = false;
        if !self.may_hold(lane, bytes) {
            self.end_of(number);
            return None;
        }
        let lane = &mut self.lanes[number];
        let known = lane.nodes.iter().position(|&known| known == node);
        let place = 1 + known.unwrap_or(lane.nodes.len());
        if place > NODES_MAX {
            debug_assert!(false, "a step bounds what it reads");
            self.end_of(number);
            return None;
        }
        if known.is_none() {
            lane.nodes.push(node);
            lane.facts.push(Fact::default());
        }
        let requested = Fact::Requested { bytes };
        let before = std::mem::replace(&mut lane.facts[place], requested);
        lane.requested += 1;
        let token = u64::from(lane.generation) << 32 | place as u64;
        self.node_bytes -= before.node_bytes();
        self.node_bytes += bytes;
        Some(token)
    }
}

#[cfg(any(test, feature = "simulation"))]
impl Facts {
    /// Checks what each lane has requested, and the bytes of nodes.
    pub(in crate::shard) fn check(&self) {
        let mut bytes = 0;
        for (number, lane) in self.lanes.iter().enumerate() {
            let requested = |fact: &&Fact| matches!(fact, Fact::Requested { .. });
            let requested = lane.facts.iter().filter(requested).count();
            assert_eq!(requested, lane.requested, "facts I1: lane {number}");
            let nodes = lane.nodes.len();
            let fits = nodes == 0 || lane.facts.len() == nodes + 1;
            assert!(fits, "facts I1: nodes of lane {number}");
            bytes += lane.facts.iter().map(Fact::node_bytes).sum::<usize>();
        }
        assert_eq!(bytes, self.node_bytes, "facts I4: bytes of nodes");
    }
}

#[cfg(test)]
#[allow(unsafe_code)] // makes a request of a key
mod tests {
    use std::ptr::NonNull;

    use super::*;
    use crate::breach::assert_breaks;
    use crate::constants::SECTION_LANE;
    use crate::message::hash::IndexHash;
    use crate::message::operation::{OperationKind, RequestParts};
    use crate::message::request::{RequestFlags, RequestShape};

    /// The facts of a lane that has one node and waits for another.
    fn some() -> Facts {
        let node = Fact::Node {
            address: Address::NONE,
            sequence: 1,
            bytes: [0; 9].into(),
        };
        let lane = LaneFacts {
            facts: vec![Fact::Unknown, node, Fact::Requested { bytes: 5 }],
            nodes: vec![3, 4],
            requested: 1,
            ..LaneFacts::default()
        };
        let facts = Facts {
            lanes: vec![LaneFacts::default(), lane],
            node_bytes: 14,
            ..Facts::new(1 << 20)
        };
        facts.check();
        facts
    }

    #[test]
    fn a_planted_breach_of_facts_is_found() {
        type Breach = fn(&mut Facts);
        let breaches: [(&str, Breach); 3] = [
            ("facts I1", |facts| facts.lanes[1].requested = 0),
            ("facts I1", |facts| {
                facts.lanes[1].nodes.pop();
            }),
            ("facts I4", |facts| facts.node_bytes -= 1),
        ];
        for (invariant, plant) in breaches {
            let mut facts = some();
            plant(&mut facts);
            assert_breaks(invariant, || facts.check());
        }
    }

    /// What is requested counts before it is there: the lanes hold no more than they may, but for
    /// one.
    #[test]
    fn nodes_are_counted_from_their_request_on() {
        let mut facts = Facts::new(NODES_SHARE * 10_000);
        let parts = RequestParts {
            kind: OperationKind::Tree,
            key: b"k",
            value: &[],
            expected: 0,
        };
        let origin = Origin::new(0, RequestFlags::FACT);
        // SAFETY: its key is static.
        let request = unsafe {
            let start = NonNull::from(parts.key).cast();
            Request::at(start, RequestShape::of(&parts), IndexHash(1), 7, origin)
        };
        let lanes: Vec<_> = (0..8).map(ReplyTo::new).collect();
        let tokens: Vec<_> = lanes
            .iter()
            .map(|&lane| facts.request_node(lane, &request, (5, 4_000)))
            .collect();
        let granted: Vec<_> = tokens.iter().map(Option::is_some).collect();
        assert_eq!(
            granted,
            [true, true, true, false, false, false, false, false]
        );
        assert_eq!(facts.node_bytes, 12_000, "one lane may go on beyond");
        // What arrives is shorter, or nothing.
        let node = |bytes: usize| Fact::Node {
            address: Address::from_raw(9),
            sequence: 1,
            bytes: vec![0; bytes].into(),
        };
        facts.learn(lanes[0], tokens[0].unwrap(), node(1_000));
        facts.learn(lanes[1], tokens[1].unwrap(), Fact::Unknown);
        assert_eq!(facts.node_bytes, 5_000);
        assert!(facts.request_node(lanes[4], &request, (5, 4_000)).is_some());
        assert_eq!(facts.favoured, Some(2));
        assert!(facts.request_node(lanes[5], &request, (5, 4_000)).is_none());
        // The holder of a section waits for none of them, and takes nothing from them.
        let holder = ReplyTo::new(SECTION_LANE);
        for node in 5..8 {
            assert!(
                facts
                    .request_node(holder, &request, (node, 4_000))
                    .is_some()
            );
        }
        assert_eq!((facts.node_bytes, facts.favoured), (21_000, Some(2)));
        facts.end(holder);
        // A lane that waits for its client keeps nothing from another.
        assert!(facts.request_node(lanes[5], &request, (5, 4_000)).is_none());
        facts.note_stalled(lanes[2]);
        assert!(facts.request_node(lanes[5], &request, (5, 4_000)).is_some());
        assert_eq!((facts.node_bytes, facts.favoured), (9_000, None));
        facts.check();
        // One that was tried again is not one of those.
        facts.note_stalled(lanes[4]);
        facts.note_try(lanes[4]);
        assert!(facts.request_node(lanes[6], &request, (5, 4_000)).is_some());
        assert_eq!((facts.node_bytes, facts.favoured), (13_000, Some(6)));
        // Nor is one that needs a node after it has waited for its client.
        facts.note_stalled(lanes[6]);
        assert!(facts.request_node(lanes[6], &request, (6, 4_000)).is_some());
        assert_eq!((facts.node_bytes, facts.favoured), (17_000, Some(6)));
        facts.check();
        for &lane in &lanes {
            facts.end(lane);
        }
        assert_eq!((facts.node_bytes, facts.favoured), (0, None));
    }
}
