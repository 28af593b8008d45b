//! The model test of trees: several lanes, each with collections of its own, against `BTreeMap`,
//! `VecDeque` and a map of scores. With nodes of four elements, far nodes, faults, encryption,
//! eviction, loss, damage, expiry, and keys that are deleted and overwritten while they hold a
//! collection.

use std::collections::{BTreeMap, VecDeque};

use farcore_rdma::{FaultPlan, LinkModel};

use super::transactions::delayed;
use super::tree_scores::{ScoredCall, Scores, is_kind, scored_call};
use super::{ENCRYPTIONS, LANE, Owned, Random, Reactor, Setting, seeds, value};
use crate::cipher::EncryptionMode;
use crate::error::{Error, LOST};
use crate::message::change::Change;
use crate::message::expiry::{Expiry, ExpiryCondition};
use crate::message::operation::Operation;
use crate::message::request::ReplyTo;
use crate::tree::{
    TreeBound, TreeCondition, TreeGuard, TreeKind, TreeOp, TreeValues, page_elements, page_has_more,
};

/// What a key holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Held {
    #[default]
    Nothing,
    Map(BTreeMap<Vec<u8>, Vec<u8>>),
    List(VecDeque<Vec<u8>>),
    Scored(Scores),
    Plain(Vec<u8>),
}

/// A request, which owns its parts.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Insert(Vec<u8>, Vec<u8>),
    Remove(Vec<u8>),
    Get(Vec<u8>),
    Rank(Vec<u8>),
    Range(Vec<u8>, bool),
    Push(bool, Vec<Vec<u8>>),
    SetAt(u64, Vec<u8>),
    Scored(ScoredCall),
    Ranks(u64, u64, bool),
    Pop(bool, u32),
    Trim(u64, u64),
    Len,
    Delete,
    Put(Vec<u8>),
    Expire(u64),
    Plain,
}

pub(super) struct Request {
    pub(super) token: u64,
    pub(super) key: usize,
    pub(super) call: Call,
    pub(super) consumed: bool,
}

struct Client {
    lane: ReplyTo,
    keys: Vec<(Vec<u8>, Held, Option<u64>)>,
    request: Option<Request>,
}

fn name(number: u64) -> Vec<u8> {
    format!("element-{number}").into_bytes()
}

fn element(random: &mut Random) -> Vec<u8> {
    name(random.below(300))
}

fn random_scored(random: &mut Random) -> Call {
    let content = |number: u64| content(&mut Random(number | 1));
    Call::Scored(scored_call(|limit| random.below(limit), name, content))
}

fn content(random: &mut Random) -> Vec<u8> {
    let bytes = match random.below(40) {
        0 => random.below(9_000),
        _ => random.below(60),
    };
    value(random, bytes as usize)
}

fn random_call(random: &mut Random, held: &Held) -> Call {
    let rank = random.below(200);
    match (held, random.below(100)) {
        (_, 0..2) => Call::Delete,
        (_, 2) => Call::Put(content(random)),
        (_, 3) => Call::Expire(random.below(200)),
        (_, 4) => Call::Plain,
        (_, 5) => Call::Len,
        (Held::Plain(_), _) => Call::Delete,
        (Held::List(_), 6..40) => {
            let count = 1 + random.below(6);
            let values = (0..count).map(|_| content(random)).collect();
            Call::Push(random.below(2) == 0, values)
        }
        (Held::List(_), 40..60) => Call::SetAt(rank, content(random)),
        (Held::Scored(_), 6..82) | (Held::Nothing, 6..25) => random_scored(random),
        (_, 6) => random_scored(random),
        (Held::Scored(_), 82) => Call::Get(element(random)),
        (Held::Nothing, 25..45) => Call::Push(true, vec![content(random)]),
        (Held::Map(_) | Held::Nothing, 6..55) => Call::Insert(element(random), content(random)),
        (Held::Map(_) | Held::Nothing, 55..65) => Call::Remove(element(random)),
        (Held::Map(_) | Held::Nothing, 65..75) => Call::Get(element(random)),
        (Held::Map(_) | Held::Nothing, 75..80) => Call::Rank(element(random)),
        (Held::Map(_) | Held::Nothing, 80..88) => {
            Call::Range(element(random), random.below(2) == 0)
        }
        (_, 88..92) => Call::Pop(random.below(2) == 0, random.below(9) as u32),
        (_, 92..94) => Call::Trim(rank, rank + random.below(30)),
        _ => Call::Ranks(rank, rank + random.below(60), random.below(2) == 0),
    }
}

#[expect(clippy::too_many_lines, reason = "one arm per call")]
pub(super) fn offer(reactor: &mut Reactor, lane: ReplyTo, request: &Request, key: &[u8]) -> bool {
    let mut slices: Vec<&[u8]> = Vec::new();
    let parts = match &request.call {
        Call::Scored(call) => call.parts(),
        _ => Default::default(),
    };
    let op = match &request.call {
        Call::Insert(element, value) => TreeOp::Insert {
            key: element,
            value,
            condition: TreeCondition::Always,
        },
        Call::Remove(element) => TreeOp::Remove { key: element },
        Call::Get(element) => TreeOp::Get { key: element },
        Call::Rank(element) => TreeOp::Rank { key: element },
        Call::Range(from, reverse) => TreeOp::Range {
            from: TreeBound::Included(from),
            to: TreeBound::Unbounded,
            reverse: *reverse,
            limit: 50,
        },
        Call::Push(front, values) => {
            slices.extend(values.iter().map(Vec::as_slice));
            TreeOp::Push {
                front: *front,
                exists: false,
                replaces: false,
                values: TreeValues::Slices(&slices),
            }
        }
        Call::SetAt(rank, value) => TreeOp::SetAt {
            rank: i64::try_from(*rank).unwrap(),
            value,
        },
        Call::Scored(call) => call.op(&parts),
        Call::Ranks(start, end, reverse) => TreeOp::RangeByRank {
            start: *start,
            end: *end,
            reverse: *reverse,
            limit: 100,
        },
        Call::Pop(last, limit) => TreeOp::Pop {
            last: *last,
            limit: *limit,
        },
        Call::Trim(start, end) => TreeOp::RemoveByRank {
            start: *start,
            end: *end,
        },
        Call::Len => TreeOp::Len,
        Call::Delete => return reactor.offer_on(lane, request.token, Operation::Delete { key }),
        Call::Put(value) => {
            return reactor.offer_on(lane, request.token, Operation::Put { key, value });
        }
        Call::Expire(at_ms) => {
            let change = Change::SetExpiry {
                expiry: Expiry::At(*at_ms),
                condition: ExpiryCondition::Always,
                value: false,
            };
            return reactor.offer_on(lane, request.token, Operation::Change { key, change });
        }
        Call::Plain => return reactor.offer_on(lane, request.token, Operation::Get { key }),
    };
    reactor.offer_on(
        lane,
        request.token,
        Operation::Tree {
            key,
            op,
            guard: TreeGuard::default(),
        },
    )
}

/// Elements of a page.
fn page(bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    page_elements(bytes)
        .map(|(key, value)| (key.to_vec(), value.to_vec()))
        .collect()
}

impl Held {
    fn elements(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        match self {
            Self::Map(map) => map.iter().map(|(k, v)| (k.clone(), v.clone())).collect(),
            Self::List(list) => list.iter().map(|v| (Vec::new(), v.clone())).collect(),
            Self::Scored(scores) => scores.elements(),
            Self::Nothing | Self::Plain(_) => Vec::new(),
        }
    }

    fn remove_at(&mut self, rank: usize) -> Option<(Vec<u8>, Vec<u8>)> {
        match self {
            Self::Map(map) => {
                let key = map.keys().nth(rank)?.clone();
                map.remove_entry(&key)
            }
            Self::List(list) => Some((Vec::new(), list.remove(rank)?)),
            Self::Scored(scores) => scores.remove_at(rank),
            Self::Nothing | Self::Plain(_) => None,
        }
    }

    /// A collection without elements is none.
    fn settled(self) -> Self {
        match self {
            Self::Map(map) if map.is_empty() => Self::Nothing,
            Self::List(list) if list.is_empty() => Self::Nothing,
            Self::Scored(scores) if scores.is_empty() => Self::Nothing,
            held => held,
        }
    }

    /// A page holds the first elements of these, and says whether there are more.
    fn is_page(elements: &[(Vec<u8>, Vec<u8>)], limit: usize, bytes: &[u8]) -> bool {
        let found = page(bytes);
        let some = elements.is_empty() || limit == 0 || !found.is_empty();
        let is_all = found.len() == elements.len();
        some && found.len() <= limit
            && elements.starts_with(&found)
            && (is_all != page_has_more(bytes) || limit == 0)
    }

    /// What a key holds after a call that was answered so; `None` if it cannot be answered so.
    #[expect(clippy::too_many_lines, reason = "one arm per call")]
    pub(super) fn after(&self, call: &Call, answer: &Owned) -> Option<Self> {
        let same = || Some(self.clone());
        let plain = matches!(self, Self::Plain(_));
        match (call, answer) {
            (Call::Delete, Owned::Deleted) => (*self != Self::Nothing).then_some(Self::Nothing),
            (Call::Delete, Owned::Absent) => (*self == Self::Nothing).then_some(Self::Nothing),
            (Call::Put(value), Owned::Stored(_)) => Some(Self::Plain(value.clone())),
            (Call::Expire(_), Owned::Stored(_) | Owned::Deleted | Owned::Value(..)) => {
                (*self != Self::Nothing).then(|| self.clone())
            }
            (Call::Expire(_), Owned::Absent) => (*self == Self::Nothing).then_some(Self::Nothing),
            (Call::Plain, Owned::Absent) => (*self == Self::Nothing).then_some(Self::Nothing),
            (Call::Plain, Owned::Value(_, found)) => {
                (*self == Self::Plain(found.clone())).then(|| self.clone())
            }
            (Call::Plain, Owned::Failed(Error::Collection)) => {
                (!plain && *self != Self::Nothing).then(|| self.clone())
            }
            (_, Owned::Failed(Error::NoCollection)) => plain.then(|| self.clone()),
            (_, _) if plain => None,
            (Call::Len, Owned::Value(_, found)) => {
                let elements = self.elements();
                let bytes = elements.iter().map(|(k, v)| k.len() + v.len());
                let (bytes, kind) = match self {
                    Self::Scored(scores) => (scores.bytes(), TreeKind::Scored as u8),
                    Self::List(_) => (bytes.sum(), TreeKind::List as u8),
                    _ => (bytes.sum(), TreeKind::Map as u8),
                };
                let (count, bytes) = (elements.len() as u64, bytes as u64);
                let expected = [count.to_le_bytes(), bytes.to_le_bytes()].concat();
                (*found == [&expected[..], &[kind, 0]].concat()).then(|| self.clone())
            }
            (Call::Ranks(start, end, reverse), Owned::Value(_, found)) => {
                let (start, end) = (*start as usize, *end as usize);
                let wanted = self.elements().into_iter().skip(start).take(end - start);
                let mut wanted: Vec<_> = wanted.collect();
                if *reverse {
                    wanted.reverse();
                }
                Self::is_page(&wanted, 100, found).then(|| self.clone())
            }
            (Call::Pop(last, limit), Owned::Value(_, found)) => {
                let mut after = self.clone();
                let popped = page(found);
                let some = *limit == 0 || *self == Self::Nothing || !popped.is_empty();
                for element in &popped {
                    let rank = if *last { after.elements().len() - 1 } else { 0 };
                    if after.remove_at(rank).as_ref() != Some(element) {
                        return None;
                    }
                }
                let fits = popped.len() <= *limit as usize && some;
                fits.then(|| after.settled())
            }
            (Call::Trim(start, end), Owned::Value(_, found)) => {
                let mut after = self.clone();
                let removed = u64::from_le_bytes(*found.first_chunk()?);
                let count = self.elements().len() as u64;
                let wanted = count.min(*end).saturating_sub(*start);
                if (removed == wanted) != (found[8] == 0) || removed > wanted {
                    return None;
                }
                for _ in 0..removed {
                    after.remove_at(*start as usize)?;
                }
                Some(after.settled())
            }
            _ => match self {
                Self::List(list) => Self::after_list(list.clone(), call, answer),
                Self::Map(map) => Self::after_map(map.clone(), call, answer),
                Self::Scored(scores) => Self::after_scored(scores.clone(), call, answer),
                Self::Nothing => match call {
                    Call::Scored(_) => Self::after_scored(Scores::default(), call, answer),
                    Call::Push(..) | Call::SetAt(..) => {
                        Self::after_list(VecDeque::new(), call, answer)
                    }
                    _ => Self::after_map(BTreeMap::new(), call, answer),
                },
                Self::Plain(_) => same(),
            },
        }
    }

    fn after_map(mut map: BTreeMap<Vec<u8>, Vec<u8>>, call: &Call, answer: &Owned) -> Option<Self> {
        let fits = match (call, answer) {
            (Call::Insert(key, value), Owned::Value(_, found)) => {
                let before = map.insert(key.clone(), value.clone());
                let is_there = u8::from(before.is_some());
                *found == [&[is_there][..], &before.unwrap_or_default()].concat()
            }
            (Call::Remove(key), Owned::Value(_, found)) => map.remove(key).as_ref() == Some(found),
            (Call::Get(key), Owned::Value(_, found)) => map.get(key) == Some(found),
            (Call::Remove(key) | Call::Get(key) | Call::Rank(key), Owned::Absent) => {
                !map.contains_key(key)
            }
            (Call::Rank(key), Owned::Value(_, found)) => {
                let rank = map.range(..key.clone()).count() as u64;
                map.contains_key(key) && *found == rank.to_le_bytes()
            }
            (Call::Range(from, reverse), Owned::Value(_, found)) => {
                let range = map.range(from.clone()..);
                let mut wanted: Vec<_> = range.map(|(k, v)| (k.clone(), v.clone())).collect();
                if *reverse {
                    wanted.reverse();
                }
                Self::is_page(&wanted, 50, found)
            }
            (Call::Push(..) | Call::SetAt(..) | Call::Scored(_), _) => {
                is_kind(answer, TreeKind::Map)
            }
            _ => false,
        };
        fits.then(|| Self::Map(map).settled())
    }

    fn after_list(mut list: VecDeque<Vec<u8>>, call: &Call, answer: &Owned) -> Option<Self> {
        let fits = match (call, answer) {
            (Call::Push(front, values), Owned::Value(_, found)) => {
                for value in values {
                    if *front {
                        list.push_front(value.clone());
                    } else {
                        list.push_back(value.clone());
                    }
                }
                *found == (list.len() as u64).to_le_bytes()
            }
            (Call::SetAt(rank, value), Owned::Value(_, found)) => {
                let old = list.get_mut(*rank as usize);
                old.is_some_and(|old| std::mem::replace(old, value.clone()) == *found)
            }
            (Call::SetAt(rank, _), Owned::Absent) => *rank as usize >= list.len(),
            _ => is_kind(answer, TreeKind::List),
        };
        fits.then(|| Self::List(list).settled())
    }

    fn after_scored(mut scores: Scores, call: &Call, answer: &Owned) -> Option<Self> {
        let fits = match call {
            Call::Scored(call) => scores.follows(call, answer, Self::is_page),
            _ => is_kind(answer, TreeKind::Scored),
        };
        fits.then(|| Self::Scored(scores).settled())
    }
}

/// Runs random calls against the model. Returns the reactor with all keys deleted.
#[expect(
    clippy::too_many_lines,
    reason = "one loop over the steps of the model"
)]
fn run(seed: u64, setting: &Setting, steps: u64, faulty: bool) -> Reactor {
    let mut reactor = Reactor::new(setting);
    let mut random = Random(seed);
    reactor.shard.trees.set_entries_max(4);
    // Collections move between their heads and trees, or are trees from the first element on.
    let inline_bytes = [0, 80, 400][random.below(3) as usize];
    reactor.shard.trees.set_inline_bytes(inline_bytes);
    let mut now_ms = 100_000;
    reactor.shard.note_unix_ms(now_ms);
    let mut clients: Vec<Client> = (0..3u8)
        .map(|lane| Client {
            lane: ReplyTo::new(LANE.number() as u8 + lane),
            keys: (0..4)
                .map(|key| {
                    let name = format!("collection-{lane}-{key}").into_bytes();
                    (name, Held::Nothing, None)
                })
                .collect(),
            request: None,
        })
        .collect();
    let unsure = setting.losses || setting.damage;
    // More than there is room for, where far memory is small.
    let others = if setting.far_bytes > 2 << 20 {
        3_000
    } else {
        12_000
    };
    let mut next = 1 << 32;
    for step in 0..steps {
        if setting.losses && random.below(900) == 0 {
            reactor.lose_for_good(random.below(setting.nodes as u64) as usize);
        }
        if setting.damage && random.below(60) == 0 {
            reactor.flip_far_bit(&mut random);
        }
        if random.below(40) == 0 {
            now_ms += 1;
            reactor.shard.note_unix_ms(now_ms);
        }
        // Other records push nodes out to far memory.
        if random.below(3) == 0 {
            let key = format!("other-{}", random.below(others));
            let bytes = random.below(900) as usize;
            let value = value(&mut random, bytes);
            let operation = Operation::Put {
                key: key.as_bytes(),
                value: &value,
            };
            reactor.offer_on(ReplyTo::new(6), 0, operation);
        }
        for client in &mut clients {
            let request = client.request.get_or_insert_with(|| {
                next += 1;
                let key = random.below(4) as usize;
                let mut call = random_call(&mut random, &client.keys[key].1);
                if let Call::Expire(after_ms) = &mut call {
                    *after_ms += now_ms;
                }
                Request {
                    token: next,
                    key,
                    call,
                    consumed: false,
                }
            });
            if !request.consumed {
                let name = &client.keys[request.key].0;
                request.consumed = offer(&mut reactor, client.lane, request, name);
            }
        }
        if random.below(2) == 0 {
            reactor.advance();
        }
        if step % 4096 == 4095 {
            reactor.shard.start_compaction();
        }
        let answers: Vec<_> = reactor.inbox.answers.borrow_mut().drain(..).collect();
        for (token, answer) in answers {
            let is_its = |client: &&mut Client| {
                (client.request.as_ref()).is_some_and(|request| request.token == token)
            };
            let Some(client) = clients.iter_mut().find(is_its) else {
                assert_eq!(token, 0, "answered once");
                continue;
            };
            let request = client.request.take().unwrap();
            let (_, held, expiry_ms) = &mut client.keys[request.key];
            let context = || format!("seed {seed} step {step} {:?} {answer:?}", request.call);
            if expiry_ms.is_some_and(|at_ms| at_ms <= now_ms) {
                (*held, *expiry_ms) = (Held::Nothing, None);
            }
            match &answer {
                Owned::Failed(Error::Unavailable { reason, .. }) if unsure && reason == LOST => {
                    continue;
                }
                Owned::Failed(Error::Damaged { .. }) if setting.damage => continue,
                Owned::Failed(Error::FarFull { .. }) if !setting.evicts => continue,
                Owned::Failed(Error::Fabric { .. } | Error::Unavailable { .. }) if faulty => {
                    continue;
                }
                Owned::Deleted if unsure && matches!(request.call, Call::Delete) => {
                    (*held, *expiry_ms) = (Held::Nothing, None);
                    continue;
                }
                _ => {}
            }
            let mut after = held.after(&request.call, &answer);
            // It may have been evicted, or its time may have come meanwhile.
            if after.is_none() && (setting.evicts || unsure || expiry_ms.is_some()) {
                after = Held::Nothing.after(&request.call, &answer);
                *expiry_ms = None;
            }
            *held = after.unwrap_or_else(|| panic!("{}: held {held:?}", context()));
            match request.call {
                Call::Put(_) | Call::Delete => *expiry_ms = None,
                Call::Expire(at_ms) if *held != Held::Nothing => *expiry_ms = Some(at_ms),
                _ if *held == Held::Nothing => *expiry_ms = None,
                _ => {}
            }
        }
        if step % 256 == 0 {
            reactor.check();
        }
    }
    finish(reactor, &mut clients)
}

/// Waits for what is under way and deletes all keys: no node stays.
fn finish(mut reactor: Reactor, clients: &mut [Client]) -> Reactor {
    for node in 0..reactor.nodes.len() {
        reactor.restore(node);
    }
    let mut rounds = 0;
    while clients.iter().any(|client| client.request.is_some()) {
        for client in &mut *clients {
            if let Some(request) = client.request.as_mut().filter(|request| !request.consumed) {
                let name = &client.keys[request.key].0;
                request.consumed = offer(&mut reactor, client.lane, request, name);
            }
        }
        reactor.advance();
        for (token, _) in reactor.inbox.answers.borrow_mut().drain(..) {
            for client in &mut *clients {
                let is_its = |request: &mut Request| request.token == token;
                client.request.take_if(is_its);
            }
        }
        rounds += 1;
        assert!(rounds < 100_000, "a request is never answered");
    }
    for client in &mut *clients {
        for (name, ..) in &client.keys {
            reactor.call(Operation::Delete { key: name });
        }
    }
    for _ in 0..100_000 {
        if reactor.shard.is_quiet() {
            break;
        }
        reactor.advance();
        reactor.visit_lanes();
        reactor.inbox.answers.borrow_mut().clear();
    }
    assert!(reactor.shard.trees.is_empty(), "a node is left");
    assert_eq!(reactor.shard.trees.count(), 0);
    reactor.check();
    reactor
}

pub(super) fn small() -> Setting {
    Setting {
        local_bytes: 2 << 20,
        far_bytes: 16 << 20,
        ..Setting::default()
    }
}

#[test]
fn trees_are_as_their_model_with_far_nodes_and_encryption() {
    for seed in seeds() {
        for encryption in ENCRYPTIONS {
            let setting = Setting {
                encryption,
                link: delayed(),
                ..small()
            };
            let reactor = run(seed, &setting, 12_000, false);
            let seen = reactor.shard.metrics.counters.snapshot();
            assert!(seen.far_reads > 0 && seen.pages_evicted > 0, "{seen:?}");
        }
    }
}

#[test]
fn trees_are_as_their_model_with_faults() {
    for seed in seeds() {
        let setting = Setting {
            link: LinkModel {
                faults: FaultPlan {
                    seed,
                    failed_completions_per_million: 20_000,
                    ..FaultPlan::default()
                },
                ..delayed()
            },
            ..small()
        };
        run(seed, &setting, 12_000, true);
    }
}

#[test]
fn trees_are_as_their_model_in_a_cache() {
    for seed in seeds() {
        let setting = Setting {
            far_bytes: 2 << 20,
            evicts: true,
            ..small()
        };
        let reactor = run(seed, &setting, 30_000, false);
        let seen = reactor.shard.metrics.counters.snapshot();
        assert!(seen.evicted > 0, "{seen:?}");
    }
}

#[test]
fn trees_are_as_their_model_where_far_memory_is_full() {
    for seed in seeds() {
        let setting = Setting {
            far_bytes: 1 << 20,
            ..small()
        };
        let reactor = run(seed, &setting, 40_000, false);
        let seen = reactor.shard.metrics.counters.snapshot();
        assert!(seen.puts_failed > 0, "{seen:?}");
    }
}

#[test]
fn trees_are_as_their_model_with_losses_and_damage() {
    for seed in seeds() {
        for (losses, damage, encryption) in [
            (true, false, None),
            (false, true, None),
            (false, true, Some(EncryptionMode::Authenticated)),
        ] {
            let setting = Setting {
                nodes: 3,
                far_bytes: 18 << 20,
                losses,
                damage,
                encryption,
                ..small()
            };
            run(seed, &setting, 15_000, damage);
        }
    }
}

/// A tree of a million elements dies in one step, and its nodes go in slices, unread.
#[test]
fn a_large_tree_is_freed_in_slices_without_a_read() {
    let mut reactor = Reactor::new(&Setting {
        local_bytes: 4 << 20,
        far_bytes: 32 << 20,
        ..Setting::default()
    });
    let values: Vec<[u8; 8]> = (0..500u64).map(u64::to_le_bytes).collect();
    let slices: Vec<&[u8]> = values.iter().map(|value| &value[..]).collect();
    let op = TreeOp::Push {
        front: false,
        exists: false,
        replaces: false,
        values: TreeValues::Slices(&slices),
    };
    for _ in 0..1_000 {
        let answer = reactor.call(Operation::Tree {
            key: b"queue",
            op,
            guard: TreeGuard::default(),
        });
        assert!(matches!(answer, Owned::Value(..)), "{answer:?}");
    }
    assert_eq!(reactor.shard.keys(), 1);
    let reads = reactor.shard.metrics.counters.far_reads.get();
    assert_eq!(
        reactor.call(Operation::Delete { key: b"queue" }),
        Owned::Deleted
    );
    assert!(reactor.shard.trees.has_dying());
    let mut slices = 0;
    while reactor.shard.trees.has_dying() {
        reactor.advance();
        slices += 1;
        assert!(slices < 100_000);
    }
    assert!(slices > 20);
    // Compaction reads directories.
    let seen = reactor.shard.metrics.counters.far_reads.get() - reads;
    assert!(seen < 100, "{seen}");
    reactor.check();
}
