//! The model test of a shard: seeded, single-threaded, in simulated time, against a `HashMap`.
//!
//! This file has the harness; `run` is the run against the model, and `model` and `nodes` choose
//! settings. Tiny limits force growth, flush, eviction, caching, read-ahead and compaction. The
//! fabric delays, reorders and fails requests. `FARCORE_SEED=<n>` replays one seed.

#![allow(unsafe_code)] // damages and inspects far memory
#![expect(
    clippy::cast_possible_truncation,
    clippy::type_complexity,
    reason = "test data is small"
)]

mod ahead;
mod balancing;
mod breaches;
mod collisions;
mod copies;
mod damage;
mod draining;
mod economy;
mod evicting;
mod forgery;
mod fuzzed;
mod lanes;
mod loading;
mod long;
mod long_faults;
mod losses;
mod model;
mod needs;
mod nodes;
mod removals;
mod repairs;
mod room;
mod run;
mod scan_faults;
mod scans;
mod transaction_model;
mod transactions;
mod tree_batches;
mod tree_faults;
mod tree_model;
mod tree_scores;
mod wire;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::observe::metrics::CoreMetrics;
use farcore_rdma::{
    EmbeddedEndpoint, EmbeddedNode, LinkModel, Lock, Region, RegionOptions, RemoteSlice,
};

use self::run::{run, seeds};
use self::wire::Wire;
use super::{Extents, NodeId, QUEUES_PER_NODE, Shard, ShardOptions, ShardTuning};
use crate::cipher::{EncryptionKey, EncryptionMode, PageCipher};
use crate::config::Config;
use crate::error::Error;
use crate::message::hash::{Hasher128, IndexHash, KeyHasher};
use crate::message::operation::{Operation, RequestParts};
use crate::message::outcome::Answer;
use crate::message::request::{AnswerSink, Origin, ReplyTo};
use crate::shard::far::RETRY_NS;
use crate::shard::far::pages::NO_ROOM;
use crate::transport::queue::{RequestConsumer, RequestProducer, queue};

const LANE: ReplyTo = ReplyTo::new(1);
/// Lanes that the tests use, at most.
const LANES: usize = 8;
/// The lane of a client that never reads its answers, if there is one.
const SLEEPER: ReplyTo = ReplyTo::new(7);

/// The encryption modes of far memory, and none.
const ENCRYPTIONS: [Option<EncryptionMode>; 3] = [
    None,
    Some(EncryptionMode::SecrecyOnly),
    Some(EncryptionMode::Authenticated),
];

/// A small random generator; a seed determines a run.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Owned {
    Value(u64, Vec<u8>),
    Absent,
    Stored(u64),
    Deleted,
    Mismatch(u64),
    Conflict(usize, u64),
    Failed(Error),
}

/// Bytes that an answer with an empty value takes in a lane.
const ANSWER_BYTES: usize = 24;

/// The lanes of a shard's clients, each with this much room for answers.
struct Inbox {
    answers: RefCell<Vec<(u64, Owned)>>,
    /// By lane, bytes of answers that its client has not read, and of reserved room.
    taken: RefCell<[usize; LANES]>,
    reserved: RefCell<[usize; LANES]>,
    /// Bytes of a lane. An empty lane accepts any answer.
    lane_bytes: Cell<usize>,
    /// Clients that do not read their answers, a bit each.
    asleep: Cell<u8>,
    /// Answers in their lanes.
    untaken: Cell<u64>,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            answers: RefCell::default(),
            taken: RefCell::default(),
            reserved: RefCell::default(),
            lane_bytes: Cell::new(usize::MAX / 2),
            asleep: Cell::default(),
            untaken: Cell::default(),
        }
    }
}

impl Inbox {
    /// Fills the usual lane, except for reserved room, or empties it.
    fn set_full(&self, full: bool) {
        let left = self.lane_bytes.get() - self.reserved.borrow()[LANE.number()];
        self.taken.borrow_mut()[LANE.number()] = if full { left } else { 0 };
    }
}

impl AnswerSink for &Inbox {
    fn has_room(&self, lane: ReplyTo, value_bytes: usize) -> bool {
        let lane = lane.number();
        let used = self.taken.borrow()[lane] + self.reserved.borrow()[lane];
        used == 0 || used + ANSWER_BYTES + value_bytes <= self.lane_bytes.get()
    }
    fn reserve(&mut self, lane: ReplyTo, value_bytes: usize) -> bool {
        let has_room = self.has_room(lane, value_bytes);
        if has_room {
            self.reserved.borrow_mut()[lane.number()] += ANSWER_BYTES + value_bytes;
        }
        has_room
    }
    fn unreserve(&mut self, lane: ReplyTo, value_bytes: usize) {
        self.reserved.borrow_mut()[lane.number()] -= ANSWER_BYTES + value_bytes;
    }
    fn answer(&mut self, lane: ReplyTo, token: u64, answer: Answer<'_>) {
        assert!(self.has_room(lane, answer.value().len()));
        if self.asleep.get() >> lane.number() & 1 != 0 {
            self.taken.borrow_mut()[lane.number()] += ANSWER_BYTES + answer.value().len();
            self.untaken.set(self.untaken.get() + 1);
            return;
        }
        let owned = match answer {
            Answer::Value { version, value } => Owned::Value(version, value.to_vec()),
            Answer::Absent => Owned::Absent,
            Answer::Stored { version } => Owned::Stored(version),
            Answer::Deleted => Owned::Deleted,
            Answer::Mismatch { current } => Owned::Mismatch(current),
            Answer::Conflict(conflict) => Owned::Conflict(conflict.place(), conflict.current()),
            Answer::Failed(error) => Owned::Failed(error.clone()),
        };
        self.answers.borrow_mut().push((token, owned));
    }
}

fn node_name(node: usize) -> String {
    format!("node-{node}")
}

/// Keys that share another key's hash.
type Collisions = Rc<RefCell<HashMap<Vec<u8>, Vec<u8>>>>;

fn hash_of(hasher: Hasher128, collisions: &Collisions, key: &[u8]) -> IndexHash {
    let collisions = collisions.borrow();
    let key = collisions.get(key).map_or(key, Vec::as_slice);
    hasher.hash(key).index
}

struct Reactor {
    shard: Shard<Wire>,
    nodes: Vec<Arc<EmbeddedNode>>,
    cut: Rc<Cell<u128>>,
    /// The shard is lent.
    lent: Rc<Cell<bool>>,
    /// A quiet shard is lent for every other batch, as it is to callers.
    lends: bool,
    /// When each node was last restored; `None` while it is lost.
    back_ns: Vec<Option<u64>>,
    hasher: Hasher128,
    collisions: Collisions,
    /// Produces the requests.
    producer: RequestProducer,
    consumer: RequestConsumer,
    inbox: Inbox,
    now_ns: u64,
}

/// How the loss of a node shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outages {
    /// Its queue pairs can be renewed, but every request on them fails.
    Mute,
    /// Its queue pairs cannot be renewed until it is restored.
    Cut,
}

#[derive(Clone)]
struct Setting {
    local_bytes: usize,
    far_bytes: usize,
    /// Memory nodes that share `far_bytes`.
    nodes: usize,
    link: LinkModel,
    encryption: Option<EncryptionMode>,
    keys_expected: u64,
    tuning: ShardTuning,
    /// The shard is a cache.
    evicts: bool,
    forgets_lost: bool,
    /// Lanes that requests use at random.
    lanes: u8,
    /// One more lane, whose client sends requests and never reads an answer.
    sleeper: bool,
    /// Nodes are lost and restored at random.
    outages: Option<Outages>,
    /// The second node leaves and joins, at random.
    drains: bool,
    /// Nodes lose all that they hold, and lost keys are forgotten, at random.
    losses: bool,
    /// Bits of far memory are flipped at random.
    damage: bool,
    /// All keys are removed at once, at random.
    clears: bool,
    page_bytes: u32,
    /// No record is too long for a size class: live bytes are exact.
    short: bool,
    /// All invariants are checked after this many steps; those that cost little after each.
    check_steps: u64,
    /// A fault injected half-way, which the model must detect.
    sabotage: Option<fn(&mut Reactor)>,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            local_bytes: 3 << 20,
            far_bytes: 16 << 20,
            nodes: 1,
            link: LinkModel::default(),
            encryption: None,
            keys_expected: 1_000,
            tuning: Config::default().tuning(),
            evicts: false,
            forgets_lost: false,
            lanes: 1,
            sleeper: false,
            outages: None,
            drains: false,
            losses: false,
            damage: false,
            clears: false,
            page_bytes: 64 << 10,
            short: false,
            check_steps: 512,
            sabotage: None,
        }
    }
}

fn region(bytes: usize) -> Arc<Region> {
    let options = RegionOptions {
        bytes,
        huge_pages: false,
        lock: Lock::Off,
        prefault: false,
    };
    Arc::new(Region::map(&options).unwrap())
}

impl Reactor {
    fn new(setting: &Setting) -> Self {
        let page_bytes = setting.page_bytes;
        let node_bytes = setting.far_bytes / setting.nodes;
        let node = |_| Arc::new(EmbeddedNode::new(region(node_bytes), setting.link.clone()));
        let nodes: Vec<_> = (0..setting.nodes).map(node).collect();
        let names = (0..setting.nodes).map(|node| node_name(node).into());
        let pages = node_bytes / page_bytes as usize;
        let mut extents = Extents::new(names, page_bytes, pages * setting.nodes);
        for (number, node) in nodes.iter().enumerate() {
            for page in 0..pages as u64 {
                let piece = RemoteSlice {
                    key: node.remote_key(),
                    offset: page * u64::from(page_bytes),
                };
                extents.add(NodeId::new(number), piece).unwrap();
            }
        }
        let endpoint = Wire {
            inner: EmbeddedEndpoint::new(&nodes, QUEUES_PER_NODE, 64, 5),
            cut: Rc::default(),
            lent: Rc::default(),
        };
        let cut = Rc::clone(&endpoint.cut);
        let lent = Rc::clone(&endpoint.lent);
        let key = EncryptionKey::Aes128([7; 16]);
        let (hasher, collisions) = (Hasher128::new(1), Collisions::default());
        let others = Rc::clone(&collisions);
        let shard = Shard::new(ShardOptions {
            shard: 3,
            local_bytes: setting.local_bytes as u64,
            page_bytes,
            keys_expected: setting.keys_expected,
            cipher: (setting.encryption).map(|mode| PageCipher::new(&key, mode, &[5; 16], 9, 3)),
            epoch: 9,
            endpoint,
            arena: region(setting.local_bytes),
            extents,
            metrics: Arc::new(CoreMetrics::new(setting.nodes)),
            tuning: setting.tuning,
            evicts: setting.evicts,
            forgets_lost: setting.forgets_lost,
            key_hasher: KeyHasher::new(move |key| hash_of(hasher, &others, key)),
            loads: false,
        })
        .unwrap();
        let (producer, consumer) = queue(2 << 20);
        Self {
            shard,
            producer,
            consumer,
            back_ns: vec![Some(0); nodes.len()],
            nodes,
            cut,
            lent,
            lends: true,
            hasher,
            collisions,
            inbox: Inbox::default(),
            now_ns: 0,
        }
    }

    fn hash(&self, key: &[u8]) -> IndexHash {
        hash_of(self.hasher, &self.collisions, key)
    }

    fn offer(&mut self, token: u64, operation: Operation<'_>) -> bool {
        self.offer_on(LANE, token, operation)
    }

    /// Offers one request over a lane; false if it is not consumed, and then it is forgotten.
    fn offer_on(&mut self, lane: ReplyTo, token: u64, operation: Operation<'_>) -> bool {
        self.push(token, operation);
        self.serve_pushed_on(lane) == 1
    }

    /// Adds a request to the next batch.
    fn push(&mut self, token: u64, operation: Operation<'_>) {
        let hash = self.hash(operation.key());
        let mut scratch = Vec::new();
        let parts = RequestParts::of(&operation, &mut scratch);
        let taken = self.producer.push(hash, token, Origin::default(), &parts);
        assert!(taken, "the batch does not fit its queue");
    }

    /// Serves the batch; requests that are not consumed are forgotten. Returns how many were.
    fn serve_pushed(&mut self) -> usize {
        self.serve_pushed_on(LANE)
    }

    fn serve_pushed_on(&mut self, lane: ReplyTo) -> usize {
        self.producer.publish();
        self.consumer.refresh();
        self.lends = !self.lends;
        let mut served = 0;
        if self.lends && self.shard.is_quiet() {
            served = self.serve_lent(lane);
        }
        let batch = self.consumer.waiting(usize::MAX);
        let count = batch.len();
        served += self.shard.serve(lane, batch, &mut &self.inbox);
        self.consumer.release(count);
        self.producer.rewind(&mut self.consumer);
        served
    }

    /// Serves the batch as a borrower does; returns how many requests are answered. The others must
    /// be as if they had not been offered.
    fn serve_lent(&mut self, lane: ReplyTo) -> usize {
        let answers = self.inbox.answers.borrow().len();
        self.lent.set(true);
        self.shard.lend(true);
        let batch = self.consumer.waiting(usize::MAX);
        let served = self.shard.serve(lane, batch, &mut &self.inbox);
        self.shard.lend(false);
        self.lent.set(false);
        self.consumer.release(served);
        let sleeps = self.inbox.asleep.get() >> lane.number() & 1 != 0;
        let answered = self.inbox.answers.borrow().len() - answers;
        assert!(sleeps || answered == served, "a borrower parks no request");
        assert_eq!(self.shard.flights.count(), 0);
        served
    }

    /// Shows the shard that no lane has a request that was refused before.
    fn visit_lanes(&mut self) {
        for lane in 0..LANES as u8 {
            self.shard.serve(ReplyTo::new(lane), &[], &mut &self.inbox);
        }
    }

    fn lose(&mut self, node: usize, outages: Outages) {
        self.nodes[node].lose();
        self.back_ns[node] = None;
        if outages == Outages::Cut {
            self.cut.set(self.cut.get() | 0b11 << (2 * node));
        }
    }

    fn restore(&mut self, node: usize) {
        self.nodes[node].restore();
        self.back_ns[node] = Some(self.now_ns);
        self.cut.set(self.cut.get() & !(0b11 << (2 * node)));
    }

    /// The nodes that hold a far record that may be a key's.
    fn far_nodes(&self, key: &[u8]) -> Vec<usize> {
        let shard = &self.shard;
        let candidates = shard.index.candidates(self.hash(key));
        let pages = candidates.map(|(_, slot)| slot.address().page(shard.shape));
        pages
            .filter(|&page| shard.local.pages.pointer(page).is_null())
            .filter_map(|page| shard.far.pages.node_of(page).map(NodeId::position))
            .collect()
    }

    /// True if a request that was offered at a time may be answered with this error: the named node
    /// was lost since and holds its key, or all nodes were lost since and have no room.
    fn may_fail_with(&self, key: &[u8], error: &Error, offered_ns: u64) -> bool {
        let Error::Unavailable { node, reason } = error else {
            return false;
        };
        let lost = |place: usize| self.back_ns[place].is_none_or(|back_ns| back_ns >= offered_ns);
        // A node that is back counts as silent until it is tried again.
        let silent = |place: usize| {
            self.back_ns[place].is_none_or(|back_ns| back_ns + RETRY_NS >= offered_ns)
        };
        if *reason == NO_ROOM && self.shard.far.pages.plan().least() > 1 {
            // Too few take pages as long as one is silent.
            return (0..self.nodes.len()).any(silent);
        }
        if *reason == NO_ROOM {
            let extents = self.shard.far.pages.extents();
            let stays = |&place: &usize| {
                let node = NodeId::new(place);
                extents.is_present(node) && !extents.is_leaving(node)
            };
            let named: Vec<_> = node.split(", ").collect();
            let is_named = |place: usize| named.contains(&&*node_name(place));
            let mut staying = (0..self.nodes.len()).filter(stays);
            return staying.all(|place| is_named(place) && silent(place));
        }
        let place = (0..self.nodes.len()).find(|&place| **node == *node_name(place));
        place.is_some_and(|place| lost(place) && self.far_nodes(key).contains(&place))
    }

    fn advance(&mut self) {
        self.now_ns += 700;
        self.shard.advance(self.now_ns, &mut &self.inbox);
    }

    /// Runs one operation to its end.
    fn call(&mut self, operation: Operation<'_>) -> Owned {
        for _ in 0..200_000 {
            if self.offer(u64::MAX, operation) {
                for _ in 0..200_000 {
                    let found = self.inbox.answers.borrow_mut().pop();
                    if let Some((token, answer)) = found {
                        assert_eq!(token, u64::MAX);
                        return answer;
                    }
                    self.advance();
                }
                panic!("{operation:?} was never answered");
            }
            self.advance();
        }
        panic!("{operation:?} was never accepted");
    }

    /// Checks the invariants that hold between any two steps.
    fn check(&self) {
        self.shard.check();
        self.check_waiting();
    }

    /// Checks those that cost little to check.
    fn check_small(&self) {
        self.shard.check_small();
        self.check_waiting();
    }

    /// Every parked request has room for its answer.
    fn check_waiting(&self) {
        for (lane, &bytes) in self.inbox.reserved.borrow().iter().enumerate() {
            let parked = self.shard.flights.reserved_of(lane);
            let parked: usize = parked.map(|value_bytes| ANSWER_BYTES + value_bytes).sum();
            assert_eq!(bytes, parked, "flight I5: room reserved at lane {lane}");
        }
    }
}

fn value(random: &mut Random, bytes: usize) -> Vec<u8> {
    let word = random.next().to_le_bytes();
    (0..bytes).map(|at| word[at % 8] ^ (at / 8) as u8).collect()
}
