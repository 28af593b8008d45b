//! The model test of a shard: seeded, single-threaded, in simulated time, against a `HashMap`.
//!
//! Tiny limits force growth, flush, eviction, caching, read-ahead and compaction; the fabric delays, reorders and
//! fails. `FARCORE_SEED=<n>` replays one seed.

#![expect(
    clippy::cast_possible_truncation,
    clippy::type_complexity,
    reason = "test data is small"
)]

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use farcore_rdma::{
    Completion, EmbeddedEndpoint, EmbeddedNode, Endpoint, FaultPlan, LinkModel, LocalKey, Lock,
    PostError, QueuePairState, Region, RegionOptions, RemoteSlice, WorkRequest,
};
use farcore_tuning::ShardCounters;

use super::pages::{PageKind, PageState};
use super::{Answers, Extents, LaneId, NodeId, QUEUES_PER_NODE, Request, Shard, ShardOptions};
use crate::cipher::{EncryptionKey, PageCipher};
use crate::error::Error;
use crate::index::{Position, Slot};
use crate::log::record::LocalRecord;
use crate::operation::{Answer, Operation};
use crate::routing::Hasher128;

const LANE: LaneId = LaneId(1);

/// A small generator with good bits, so that a seed says everything.
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
    Failed(Error),
}

#[derive(Default)]
struct Inbox {
    answers: RefCell<Vec<(u64, Owned)>>,
    full: RefCell<bool>,
}

impl Answers for &Inbox {
    fn has_room(&self, _: LaneId, _: usize) -> bool {
        !*self.full.borrow()
    }
    fn answer(&mut self, _: LaneId, token: u64, answer: Answer<'_>) {
        let owned = match answer {
            Answer::Value { version, value } => Owned::Value(version, value.to_vec()),
            Answer::Absent => Owned::Absent,
            Answer::Stored { version } => Owned::Stored(version),
            Answer::Deleted => Owned::Deleted,
            Answer::Mismatch { current } => Owned::Mismatch(current),
            Answer::Failed(error) => Owned::Failed(error),
        };
        self.answers.borrow_mut().push((token, owned));
    }
}

/// An endpoint whose queue pairs cannot be renewed while they are cut, as those to another host are.
#[derive(Debug)]
struct Wire {
    inner: EmbeddedEndpoint,
    /// A bit for each queue pair.
    cut: Rc<Cell<u128>>,
}

impl Endpoint for Wire {
    fn register(&mut self, region: Arc<Region>) -> LocalKey {
        self.inner.register(region)
    }
    fn queues(&self) -> usize {
        self.inner.queues()
    }
    fn post(&mut self, queue: usize, request: WorkRequest) -> Result<(), PostError> {
        self.inner.post(queue, request)
    }
    fn ring_doorbell(&mut self, queue: usize, now_ns: u64) {
        self.inner.ring_doorbell(queue, now_ns);
    }
    fn room(&self, queue: usize) -> usize {
        self.inner.room(queue)
    }
    fn state(&self, queue: usize) -> QueuePairState {
        self.inner.state(queue)
    }
    fn poll(&mut self, now_ns: u64, completions: &mut [Completion]) -> usize {
        self.inner.poll(now_ns, completions)
    }
    fn next_due_ns(&self) -> Option<u64> {
        self.inner.next_due_ns()
    }
    fn outstanding(&self) -> usize {
        self.inner.outstanding()
    }
    fn outstanding_on(&self, queue: usize) -> usize {
        self.inner.outstanding_on(queue)
    }
    fn renew(&mut self, queue: usize) {
        if self.cut.get() & 1 << queue == 0 {
            self.inner.renew(queue);
        }
    }
}

fn name(node: usize) -> String {
    format!("node-{node}")
}

struct House {
    shard: Shard<Wire>,
    nodes: Vec<Arc<EmbeddedNode>>,
    cut: Rc<Cell<u128>>,
    hasher: Hasher128,
    inbox: Inbox,
    now_ns: u64,
}

#[derive(Clone)]
struct Setting {
    local_bytes: usize,
    far_bytes: usize,
    /// Memory nodes that share `far_bytes`.
    nodes: usize,
    link: LinkModel,
    cipher: bool,
    keys_expected: u64,
    /// A fault planted half-way, which the model must notice.
    sabotage: Option<fn(&mut House)>,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            local_bytes: 3 << 20,
            far_bytes: 16 << 20,
            nodes: 1,
            link: LinkModel::default(),
            cipher: false,
            keys_expected: 1_000,
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

impl House {
    fn new(setting: &Setting) -> Self {
        let page_bytes = 64 << 10;
        let node_bytes = setting.far_bytes / setting.nodes;
        let node = |_| Arc::new(EmbeddedNode::new(region(node_bytes), setting.link.clone()));
        let nodes: Vec<_> = (0..setting.nodes).map(node).collect();
        let names = (0..setting.nodes).map(|node| name(node).into());
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
        };
        let cut = Rc::clone(&endpoint.cut);
        let key = EncryptionKey::Aes128([7; 16]);
        let shard = Shard::new(ShardOptions {
            shard: 3,
            local_bytes: setting.local_bytes as u64,
            page_bytes,
            keys_expected: setting.keys_expected,
            cipher: setting.cipher.then(|| PageCipher::new(&key, 9, 3)),
            epoch: 9,
            endpoint,
            arena: region(setting.local_bytes),
            extents,
            counters: Arc::new(ShardCounters::default()),
            far_latency: Arc::default(),
            read_ahead: true,
        })
        .unwrap();
        Self {
            shard,
            nodes,
            cut,
            hasher: Hasher128::new(1),
            inbox: Inbox::default(),
            now_ns: 0,
        }
    }

    fn offer(&mut self, token: u64, operation: Operation<'_>) -> bool {
        let hash = self.hasher.hash(operation.key()).index;
        self.shard.serve(
            LANE,
            &[Request {
                hash,
                token,
                operation,
            }],
            false,
            &mut &self.inbox,
        ) == 1
    }

    fn advance(&mut self) {
        self.now_ns += 700;
        self.shard.advance(self.now_ns, &mut &self.inbox);
    }

    /// One operation, to its end.
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
        panic!("{operation:?} was never taken");
    }

    /// The invariants that hold between any two steps.
    fn check(&self) {
        let shard = &self.shard;
        let mut live: HashMap<u32, u64> = HashMap::new();
        shard.index.for_each(|slot| {
            let address = slot.address();
            let page = address.page(shard.shape);
            let entry = shard.pages.get(page);
            assert_ne!(
                entry.state,
                PageState::Free,
                "a slot points into a freed page"
            );
            let Some(units) = slot.class().units() else {
                return;
            };
            *live.entry(page).or_default() += u64::from(units) * 16;
            if entry.kind == PageKind::Cache {
                let home = shard.home_of(address).page(shard.shape);
                assert_eq!(shard.pages.get(home).kind, PageKind::Log);
                *live.entry(home).or_default() += u64::from(units) * 16;
            }
        });
        let far: Vec<_> = shard
            .pages
            .iter()
            .map(|(_, page)| page)
            .filter(|page| page.kind == PageKind::Log)
            .filter(|page| matches!(page.state, PageState::Clean | PageState::Far))
            .collect();
        let sums = (
            far.len() as u64,
            far.iter().map(|page| page.live_bytes).sum(),
            far.iter().map(|page| page.record_bytes).sum(),
        );
        let mut sequences: Vec<u64> = far.iter().map(|page| page.sequence).collect();
        sequences.sort_unstable();
        let count = sequences.len();
        sequences.dedup();
        assert_eq!(
            sequences.len(),
            count,
            "two far pages share their keystream"
        );
        assert!(sequences.last().is_none_or(|&last| last <= shard.sequence));
        self.check_extents();
        let kept = &shard.victims;
        assert_eq!((kept.pages, kept.live_bytes, kept.record_bytes), sums);
        for (number, page) in shard.pages.iter() {
            let sum = live.get(&number).copied().unwrap_or(0);
            assert!(
                page.live_bytes >= sum,
                "page {number}: {} < {sum}",
                page.live_bytes
            );
        }
    }

    /// Every extent is held by one page or free on its own node, and no two pages share a place.
    fn check_extents(&self) {
        let extents = &self.shard.extents;
        let mut places = HashSet::new();
        let mut held = vec![0; self.nodes.len()];
        for (number, page) in self.shard.pages.iter() {
            let flushed = matches!(
                page.state,
                PageState::Flushing | PageState::Clean | PageState::Far
            );
            let has_place = page.kind == PageKind::Log && flushed;
            assert_eq!(page.extent.is_some(), has_place, "page {number}");
            if let Some(extent) = page.extent {
                let node = extent.node().position();
                held[node] += 1;
                let place = extents.remote(extent, 0).unwrap().offset;
                assert!(places.insert((node, place)), "two pages share a place");
            }
        }
        for node in extents.nodes() {
            let known = extents.free_on(node) + held[node.position()];
            assert_eq!(known, extents.count_on(node), "extents of {node:?}");
        }
        let counters = self.shard.counters.snapshot();
        let bytes = (extents.used_bytes(), extents.total_bytes());
        assert_eq!((counters.far_used_bytes, counters.far_total_bytes), bytes);
    }

    /// As [`House::check`], when no record is too long for a size class: the accounts are exact.
    fn check_accounts(&self) {
        self.check();
        let shard = &self.shard;
        let accounts: u64 = shard
            .pages
            .iter()
            .filter(|(_, p)| p.kind == PageKind::Log)
            .map(|(_, p)| p.live_bytes)
            .sum();
        let mut slots = 0;
        shard
            .index
            .for_each(|slot| slots += u64::from(slot.class().units().unwrap()) * 16);
        assert_eq!(accounts, slots);
    }
}

fn value(random: &mut Random, bytes: usize) -> Vec<u8> {
    let word = random.next().to_le_bytes();
    (0..bytes).map(|at| word[at % 8] ^ (at / 8) as u8).collect()
}

/// Runs random operations, several in flight, against the model; each answer must be one that order allows.
fn run(seed: u64, setting: &Setting, steps: u64, keys: u64, faulty: bool) -> House {
    let mut house = House::new(setting);
    let mut random = Random(seed);
    // The states a key may be in: one when all its operations were answered with success.
    let mut model: HashMap<u64, Vec<Option<(u64, Vec<u8>)>>> = HashMap::new();
    let mut waiting: HashMap<u64, (u64, Call)> = HashMap::new();
    let mut busy: HashMap<u64, u64> = HashMap::new();
    let mut backlog: VecDeque<(u64, u64, Call)> = VecDeque::new();
    #[derive(Clone, Debug)]
    enum Call {
        Get,
        Put(Vec<u8>),
        Delete,
        Swap(u64, Vec<u8>),
    }
    let walk_every = 64;
    let mut walk = 0;
    for step in 0..steps {
        if step == steps / 2
            && let Some(sabotage) = setting.sabotage
        {
            sabotage(&mut house);
        }
        *house.inbox.full.borrow_mut() = random.below(20) == 0;
        let key = if step % walk_every < 24 {
            walk += 1;
            walk % keys
        } else {
            random.below(keys)
        };
        // One operation a key at a time where versions are needed; otherwise orders would not be known.
        if !busy.contains_key(&key) && waiting.len() + backlog.len() < 48 {
            let long = random.below(200) == 0;
            let bytes = if long {
                random.below(30_000)
            } else {
                random.below(700)
            };
            let known = model
                .get(&key)
                .and_then(|states| states.last().cloned().flatten());
            let call = match random.below(100) {
                0..45 => Call::Get,
                45..75 => Call::Put(value(&mut random, bytes as usize)),
                75..90 => Call::Delete,
                _ => {
                    let version = known.map_or(0, |(version, _)| version);
                    let expected = if random.below(4) == 0 {
                        version + 1
                    } else {
                        version
                    };
                    Call::Swap(expected, value(&mut random, bytes as usize))
                }
            };
            busy.insert(key, step);
            backlog.push_back((step, key, call));
        }
        while let Some((token, key, call)) = backlog.front().cloned() {
            let name = format!("key-{key:05}").repeat(1 + (key % 5) as usize);
            let key_bytes = name.as_bytes();
            let operation = match &call {
                Call::Get => Operation::Get { key: key_bytes },
                Call::Put(value) => Operation::Put {
                    key: key_bytes,
                    value,
                },
                Call::Delete => Operation::Delete { key: key_bytes },
                Call::Swap(expected, value) => Operation::CompareAndSwap {
                    key: key_bytes,
                    expected: *expected,
                    value,
                },
            };
            if !house.offer(token, operation) {
                break;
            }
            waiting.insert(token, (key, call));
            backlog.pop_front();
        }
        if random.below(3) == 0 {
            house.advance();
        }
        if step % 4096 == 4095 {
            house.shard.start_compaction();
        }
        let answers: Vec<_> = house.inbox.answers.borrow_mut().drain(..).collect();
        for (token, answer) in answers {
            let (key, call) = waiting.remove(&token).expect("answered once");
            busy.remove(&key);
            let states = model.entry(key).or_insert_with(|| vec![None]);
            let state = states.last().cloned().unwrap();
            let context = || format!("seed {seed} step {step} key {key} {call:?} {state:?}");
            match (&call, answer) {
                (_, Owned::Failed(error)) => {
                    assert!(
                        faulty || matches!(error, Error::FarFull { .. }),
                        "{} {error}",
                        context()
                    );
                }
                (Call::Get, Owned::Value(version, bytes)) => {
                    assert_eq!(Some((version, bytes)), state, "{}", context());
                }
                (Call::Get | Call::Delete, Owned::Absent) => {
                    assert_eq!(None, state, "{}", context());
                }
                (Call::Put(bytes), Owned::Stored(version)) => {
                    assert!(state.is_none_or(|(old, _)| old < version), "{call:?}");
                    *states = vec![Some((version, bytes.clone()))];
                }
                (Call::Delete, Owned::Deleted) => {
                    assert!(state.is_some(), "{}", context());
                    *states = vec![None];
                }
                (Call::Swap(expected, bytes), Owned::Stored(version)) => {
                    assert_eq!(*expected, state.map_or(0, |(version, _)| version));
                    *states = vec![Some((version, bytes.clone()))];
                }
                (Call::Swap(expected, _), Owned::Mismatch(current)) => {
                    assert_ne!(*expected, current);
                    assert_eq!(
                        current,
                        state.as_ref().map_or(0, |(version, _)| *version),
                        "{}",
                        context()
                    );
                }
                (call, answer) => panic!("seed {seed}: {call:?} was answered {answer:?}"),
            }
        }
        if step % 512 == 0 {
            house.check();
        }
    }
    *house.inbox.full.borrow_mut() = false;
    for _ in 0..100_000 {
        if house.shard.is_quiet() && waiting.is_empty() {
            break;
        }
        house.advance();
        for (token, _) in house.inbox.answers.borrow_mut().drain(..) {
            let (key, _) = waiting.remove(&token).expect("answered once");
            // Its outcome is not looked at any more: the key leaves the model.
            model.remove(&key);
        }
    }
    assert!(
        waiting.is_empty(),
        "seed {seed}: {} requests were never answered",
        waiting.len()
    );
    house.check();
    for (key, states) in &model {
        let name = format!("key-{key:05}").repeat(1 + (key % 5) as usize);
        if busy.contains_key(key) {
            continue;
        }
        let mut answer = house.call(Operation::Get {
            key: name.as_bytes(),
        });
        for _ in 0..50 {
            if !matches!(answer, Owned::Failed(_)) || !faulty {
                break;
            }
            answer = house.call(Operation::Get {
                key: name.as_bytes(),
            });
        }
        match (answer, states.last().unwrap()) {
            (Owned::Absent, None) => {}
            (Owned::Value(version, bytes), Some(state)) => assert_eq!(&(version, bytes), state),
            (answer, state) => panic!("seed {seed} key {key}: {answer:?}, not {state:?}"),
        }
    }
    house
}

fn seeds() -> Vec<u64> {
    match std::env::var("FARCORE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
    {
        Some(seed) => vec![seed],
        None => (1..=3).collect(),
    }
}

#[test]
fn model_at_zero_latency() {
    for seed in seeds() {
        let house = run(seed, &Setting::default(), 40_000, 6_000, false);
        let seen = house.shard.counters.snapshot();
        assert!(seen.pages_evicted > 0, "nothing was evicted: {seen:?}");
        assert!(seen.far_reads > 0 && seen.cache_copies > 0, "{seen:?}");
        assert!(seen.compaction_pages > 0, "{seen:?}");
    }
}

#[test]
fn model_with_delay_and_reordering() {
    let link = LinkModel {
        latency_ns: 3_000,
        jitter_ns: 9_000,
        ..LinkModel::default()
    };
    for seed in seeds() {
        let setting = Setting {
            link: link.clone(),
            ..Setting::default()
        };
        let house = run(seed, &setting, 40_000, 6_000, false);
        let seen = house.shard.counters.snapshot();
        assert!(seen.reads_shared > 0 || seen.far_reads > 0, "{seen:?}");
    }
}

#[test]
fn model_with_encryption() {
    for seed in seeds() {
        run(
            seed,
            &Setting {
                cipher: true,
                ..Setting::default()
            },
            30_000,
            6_000,
            false,
        );
    }
}

#[test]
fn model_with_failing_requests() {
    let faults = FaultPlan {
        seed: 11,
        failed_completions_per_million: 20_000,
        ..FaultPlan::default()
    };
    for seed in seeds() {
        let link = LinkModel {
            latency_ns: 2_000,
            faults: faults.clone(),
            ..LinkModel::default()
        };
        let house = run(
            seed,
            &Setting {
                link,
                ..Setting::default()
            },
            30_000,
            6_000,
            true,
        );
        assert!(house.shard.counters.snapshot().fabric_errors > 0);
    }
}

#[test]
fn model_with_sticky_faults() {
    let faults = FaultPlan {
        seed: 5,
        failed_completions_per_million: 10_000,
        sticky: true,
        ..FaultPlan::default()
    };
    for seed in seeds() {
        let link = LinkModel {
            latency_ns: 2_000,
            faults: faults.clone(),
            ..LinkModel::default()
        };
        run(
            seed,
            &Setting {
                link,
                ..Setting::default()
            },
            30_000,
            6_000,
            true,
        );
    }
}

#[test]
fn model_with_far_memory_that_fills_up() {
    for seed in seeds() {
        let setting = Setting {
            far_bytes: 1 << 20,
            ..Setting::default()
        };
        run(seed, &setting, 40_000, 12_000, false);
    }
}

#[test]
fn accounts_are_exact() {
    let mut house = House::new(&Setting::default());
    for round in 0..4u64 {
        for key in 0..8_000u64 {
            let value = vec![round as u8; 200 + (key % 300) as usize];
            let name = key.to_le_bytes();
            assert!(matches!(
                house.call(Operation::Put {
                    key: &name,
                    value: &value
                }),
                Owned::Stored(_)
            ));
        }
        house.check_accounts();
        for key in (0..8_000u64).step_by(3) {
            assert_eq!(
                house.call(Operation::Delete {
                    key: &key.to_le_bytes()
                }),
                Owned::Deleted
            );
        }
        house.check_accounts();
    }
    assert!(house.shard.counters.snapshot().compaction_pages > 0);
}

#[test]
fn far_memory_holds_no_plaintext() {
    let mut house = House::new(&Setting {
        cipher: true,
        ..Setting::default()
    });
    let secret = b"PLAINTEXT-THAT-MUST-NOT-BE-SEEN!";
    for key in 0..8_000u64 {
        let value = secret.repeat(8);
        house.call(Operation::Put {
            key: &key.to_le_bytes(),
            value: &value,
        });
    }
    house.shard.start_flush();
    while house.shard.flush_done().is_none() {
        house.advance();
    }
    assert!(house.shard.counters.snapshot().pages_flushed > 10);
    // SAFETY: nothing is under way.
    let far = unsafe { house.nodes[0].copy_for_inspection() };
    assert!(far.iter().any(|&byte| byte != 0), "far memory was written");
    assert!(!far.windows(secret.len()).any(|window| window == secret));
    // The same look finds it when nothing encrypts: the test can fail.
    let mut open = House::new(&Setting::default());
    for key in 0..8_000u64 {
        let value = secret.repeat(8);
        open.call(Operation::Put {
            key: &key.to_le_bytes(),
            value: &value,
        });
    }
    open.shard.start_flush();
    while open.shard.flush_done().is_none() {
        open.advance();
    }
    // SAFETY: nothing is under way.
    let far = unsafe { open.nodes[0].copy_for_inspection() };
    assert!(far.windows(secret.len()).any(|window| window == secret));
}

#[test]
fn a_log_order_scan_reads_ahead() {
    let mut house = House::new(&Setting {
        far_bytes: 32 << 20,
        ..Setting::default()
    });
    let keys = 40_000u64;
    for key in 0..keys {
        house.call(Operation::Put {
            key: &key.to_le_bytes(),
            value: &[7; 200],
        });
    }
    let before = house.shard.counters.snapshot();
    for key in 0..keys / 2 {
        let answer = house.call(Operation::Get {
            key: &key.to_le_bytes(),
        });
        assert!(matches!(answer, Owned::Value(_, bytes) if bytes == [7; 200]));
    }
    let after = house.shard.counters.snapshot();
    let reads = after.far_reads - before.far_reads;
    assert!(
        reads * 16 <= keys / 2,
        "{reads} READs for {} records",
        keys / 2
    );
}

#[test]
fn random_reads_move_little_more_than_the_records() {
    let mut house = House::new(&Setting {
        far_bytes: 32 << 20,
        ..Setting::default()
    });
    let keys = 40_000u64;
    let mut random = Random(3);
    for key in 0..keys {
        let bytes = 80 + random.below(400) as usize;
        house.call(Operation::Put {
            key: &key.to_le_bytes(),
            value: &vec![7; bytes],
        });
    }
    let before = house.shard.counters.snapshot();
    for _ in 0..20_000 {
        let key = random.below(keys);
        house.call(Operation::Get {
            key: &key.to_le_bytes(),
        });
    }
    let after = house.shard.counters.snapshot();
    let moved = after.far_read_bytes - before.far_read_bytes;
    let wanted = after.far_wanted_bytes - before.far_wanted_bytes;
    assert!(
        moved > 0 && moved * 10 <= wanted * 12,
        "{moved} bytes moved for {wanted}"
    );
}

#[test]
fn deleting_most_gives_far_memory_back() {
    // Pages that are mostly dead, and pages that are mostly alive: neither may add up to much.
    for kept_of_ten in [2, 6] {
        deleting_gives_far_memory_back(kept_of_ten);
    }
}

fn deleting_gives_far_memory_back(kept_of_ten: u64) {
    let mut house = House::new(&Setting {
        far_bytes: 32 << 20,
        ..Setting::default()
    });
    let keys = 60_000u64;
    for key in 0..keys {
        house.call(Operation::Put {
            key: &key.to_le_bytes(),
            value: &[7; 200],
        });
    }
    for key in (0..keys).filter(|key| key % 10 >= kept_of_ten) {
        assert_eq!(
            house.call(Operation::Delete {
                key: &key.to_le_bytes()
            }),
            Owned::Deleted
        );
    }
    for _ in 0..100_000 {
        house.advance();
        if house.shard.is_quiet() {
            break;
        }
    }
    let live: u64 = house
        .shard
        .pages
        .iter()
        .filter(|(_, page)| page.extent.is_some())
        .map(|(_, page)| page.live_bytes)
        .sum();
    let used = house.shard.extents.used_bytes();
    assert!(
        used * 10 <= live * 13 && live > 20 * (64 << 10),
        "{used} bytes in use for {live} alive"
    );
    for key in (0..keys).filter(|key| key % 10 < kept_of_ten) {
        let answer = house.call(Operation::Get {
            key: &key.to_le_bytes(),
        });
        assert!(matches!(answer, Owned::Value(..)), "{key}: {answer:?}");
    }
}

/// Everything that a local key's slot leads to.
fn local(house: &House, key: u64) -> Option<(Position, Slot, LocalRecord)> {
    let name = format!("key-{key:05}").repeat(1 + (key % 5) as usize);
    let hash = house.hasher.hash(name.as_bytes()).index;
    let shard = &house.shard;
    shard.index.candidates(hash).find_map(|(position, slot)| {
        let pointer = shard.local_pointer(slot.address());
        // SAFETY: a slot's address names a whole record in its page's frame.
        let record = (!pointer.is_null()).then(|| unsafe { LocalRecord::at(pointer) })?;
        (record.key() == name.as_bytes()).then_some((position, slot, record))
    })
}

#[test]
#[should_panic(expected = "seed 1")]
fn the_model_notices_slots_that_were_mixed_up() {
    let sabotage = |house: &mut House| {
        let found: Vec<_> = (0..6_000).filter_map(|key| local(house, key)).collect();
        for pair in found.chunks_exact(2) {
            let (one, other) = (pair[0], pair[1]);
            let index = &mut house.shard.index;
            index.replace(one.0, other.1.class(), other.1.address());
            index.replace(other.0, one.1.class(), one.1.address());
        }
    };
    let setting = Setting {
        sabotage: Some(sabotage),
        ..Setting::default()
    };
    run(1, &setting, 40_000, 6_000, false);
}

#[test]
#[should_panic(expected = "seed 1")]
fn the_model_notices_a_value_that_was_changed() {
    let sabotage = |house: &mut House| {
        for (_, _, record) in (0..6_000).filter_map(|key| local(house, key)) {
            if !record.value().is_empty() {
                let first = record.value().as_ptr().cast_mut();
                // SAFETY: inside a whole record; nothing refers to it now.
                unsafe { *first ^= 1 };
            }
        }
    };
    let setting = Setting {
        sabotage: Some(sabotage),
        ..Setting::default()
    };
    run(1, &setting, 40_000, 6_000, false);
}

#[test]
fn operations_on_one_key_keep_their_order() {
    for seed in seeds() {
        let link = LinkModel {
            latency_ns: 2_000,
            jitter_ns: 6_000,
            ..LinkModel::default()
        };
        let mut house = House::new(&Setting {
            link,
            ..Setting::default()
        });
        let mut random = Random(seed);
        for key in 0..20_000u64 {
            let stored = house.call(Operation::Put {
                key: &key.to_le_bytes(),
                value: &[1; 400],
            });
            assert!(matches!(stored, Owned::Stored(_)));
        }
        // What each key holds once all that was handed in before is done, and what each answer must therefore be.
        let mut model: HashMap<u64, Option<Vec<u8>>> = HashMap::new();
        let mut expected: HashMap<u64, Option<Vec<u8>>> = HashMap::new();
        for step in 0..30_000u64 {
            // A few keys at a time, which are far when their turn comes.
            let key = step / 100 * 61 % 20_000 + random.below(3);
            let name = key.to_le_bytes();
            let held = model.entry(key).or_insert_with(|| Some(vec![1; 400]));
            let before = held.clone();
            let put = value(&mut random, (step % 300) as usize);
            let operation = match random.below(4) {
                0 => Operation::Put {
                    key: &name,
                    value: &put,
                },
                1 if step % 3 == 0 => Operation::Delete { key: &name },
                _ => Operation::Get { key: &name },
            };
            match operation {
                Operation::Put { .. } => *held = Some(put.clone()),
                Operation::Delete { .. } => *held = None,
                _ => {
                    expected.insert(step, before);
                }
            }
            while !house.offer(step, operation) {
                house.advance();
            }
            if random.below(8) == 0 || step % 100 == 99 {
                house.advance();
            }
            for (token, answer) in house.inbox.answers.borrow_mut().drain(..) {
                match (expected.remove(&token), answer) {
                    (Some(Some(held)), Owned::Value(_, read)) => {
                        assert_eq!(held, read, "seed {seed} step {step} token {token}");
                    }
                    (Some(None), Owned::Absent)
                    | (None, Owned::Stored(_) | Owned::Deleted | Owned::Absent) => {}
                    (held, answer) => panic!("seed {seed} step {step}: {answer:?}, not {held:?}"),
                }
            }
        }
        let seen = house.shard.counters.snapshot();
        assert!(seen.far_reads > 100 && seen.reads_shared > 100, "{seen:?}");
    }
}
