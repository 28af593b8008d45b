//! The model test of transactions: several lanes, each with keys of its own, against a `HashMap` in
//! which a transaction happens at once or not at all. With far keys, faults, encryption, expiry and
//! keys of one hash.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use farcore_rdma::{FaultPlan, LinkModel};

use super::transactions::delayed;
use super::{ENCRYPTIONS, LANE, Owned, Random, Reactor, Setting, seeds, value};
use crate::constants::TRANSACTION_KEYS_MAX;
use crate::error::Error;
use crate::message::expiry::Expiry;
use crate::message::operation::Operation;
use crate::message::request::ReplyTo;
use crate::message::transaction::Transaction;

/// A version that the answer to the write will report; 0 until then.
type Later = Rc<Cell<u64>>;

#[derive(Clone, Debug)]
struct Held {
    version: Later,
    value: Vec<u8>,
    expiry_ms: Option<u64>,
}

/// What a transaction does to one key.
#[derive(Clone, Debug)]
struct Part {
    key: u64,
    expected: Option<u64>,
    /// Put with an expiry, or delete.
    write: Option<Option<(Vec<u8>, Expiry)>>,
}

#[derive(Clone, Debug)]
enum Call {
    Get(u64),
    Put(u64, Vec<u8>),
    Delete(u64),
    Transaction(Vec<Part>),
}

/// What must be answered.
#[derive(Clone, Debug)]
enum Expected {
    Value(Later, Vec<u8>),
    Absent,
    /// The versions of the writes, in their order.
    Stored(Vec<Later>),
    Deleted,
    Conflict(usize, Later),
    /// Anything: another lane's get.
    Any,
}

/// The keys of one lane, and its requests.
#[derive(Default)]
struct Client {
    held: HashMap<u64, Held>,
    /// Requests that were not accepted yet, in order.
    backlog: VecDeque<(u64, Call)>,
    waiting: HashMap<u64, (Call, Expected)>,
    /// What the keys of a request held before, should it fail.
    before: HashMap<u64, Vec<(u64, Option<Held>)>>,
}

fn name(key: u64) -> Vec<u8> {
    format!("account-{key:05}")
        .repeat(1 + (key % 4) as usize)
        .into_bytes()
}

impl Client {
    fn put(&mut self, key: u64, value: &[u8], expiry_ms: Option<u64>) -> Later {
        let version = Later::default();
        let held = Held {
            version: Rc::clone(&version),
            value: value.to_vec(),
            expiry_ms,
        };
        self.held.insert(key, held);
        version
    }

    fn expire(&mut self, now_ms: u64) {
        let stays = |held: &Held| held.expiry_ms.is_none_or(|at_ms| at_ms > now_ms);
        self.held.retain(|_, held| stays(held));
    }

    /// What a call must be answered; it happens in the model.
    fn apply(&mut self, call: &Call, now_ms: u64) -> Expected {
        match call {
            Call::Get(key) => self.held.get(key).map_or(Expected::Absent, |held| {
                Expected::Value(Rc::clone(&held.version), held.value.clone())
            }),
            Call::Put(key, value) => Expected::Stored(vec![self.put(*key, value, None)]),
            Call::Delete(key) => match self.held.remove(key) {
                Some(_) => Expected::Deleted,
                None => Expected::Absent,
            },
            Call::Transaction(parts) => {
                for (place, part) in (0..).zip(parts) {
                    let version = self
                        .held
                        .get(&part.key)
                        .map(|held| Rc::clone(&held.version));
                    let version = version.unwrap_or_default();
                    if part
                        .expected
                        .is_some_and(|expected| expected != version.get())
                    {
                        return Expected::Conflict(place, version);
                    }
                }
                let mut versions = Vec::new();
                for part in parts {
                    match &part.write {
                        None => {}
                        Some(None) => {
                            self.held.remove(&part.key);
                            versions.push(Later::default());
                        }
                        Some(Some((value, expiry))) => {
                            let before_ms = self.held.get(&part.key);
                            let before_ms = before_ms.and_then(|held| held.expiry_ms);
                            let expiry_ms = expiry.resolve(before_ms, now_ms);
                            versions.push(self.put(part.key, value, expiry_ms));
                            self.expire(now_ms);
                        }
                    }
                }
                Expected::Stored(versions)
            }
        }
    }

    /// True if the version of a key is known.
    fn knows(&self, key: u64) -> bool {
        self.held
            .get(&key)
            .is_none_or(|held| held.version.get() > 0)
    }

    fn random_transaction(&self, random: &mut Random, keys: &[u64], now_ms: u64) -> Call {
        let most = if random.below(30) == 0 {
            TRANSACTION_KEYS_MAX as u64
        } else {
            12
        };
        let count = 1 + random.below(most.min(keys.len() as u64 / 4));
        let mut named = Vec::new();
        let first = random.below(keys.len() as u64);
        for place in 0..count {
            // Neighbours, which lie together in far memory, or any.
            let key = if first.is_multiple_of(2) {
                first + place
            } else {
                random.next()
            };
            let key = keys[(key % keys.len() as u64) as usize];
            if !named.contains(&key) {
                named.push(key);
            }
        }
        let part = |key: u64| {
            let known = self.held.get(&key).map_or(0, |held| held.version.get());
            let expected = match random.below(40) {
                0 => Some(known + 1),
                1..20 if self.knows(key) => Some(known),
                _ => None,
            };
            let bytes = random.below(if count > 12 { 60 } else { 600 }) as usize;
            let expiry = match random.below(8) {
                0 => Expiry::At((now_ms + random.below(60)).saturating_sub(4)),
                1 => Expiry::In(random.below(50)),
                2 => Expiry::Keep,
                _ => Expiry::Never,
            };
            let write = match random.below(6) {
                0 if expected.is_some() => None,
                1 => Some(None),
                _ => Some(Some((value(random, bytes), expiry))),
            };
            Part {
                key,
                expected,
                write,
            }
        };
        Call::Transaction(named.into_iter().map(part).collect())
    }
}

impl Reactor {
    fn offer_call(&mut self, lane: ReplyTo, token: u64, call: &Call) -> bool {
        match call {
            Call::Get(key) => self.offer_on(lane, token, Operation::Get { key: &name(*key) }),
            Call::Put(key, value) => {
                let key = &name(*key);
                self.offer_on(lane, token, Operation::Put { key, value })
            }
            Call::Delete(key) => self.offer_on(lane, token, Operation::Delete { key: &name(*key) }),
            Call::Transaction(parts) => {
                let names: Vec<_> = parts.iter().map(|part| name(part.key)).collect();
                let mut transaction = Transaction::new();
                for (part, name) in parts.iter().zip(&names) {
                    transaction = match &part.write {
                        None => transaction.expect(name, part.expected.unwrap_or(0)),
                        Some(None) => transaction.delete(name),
                        Some(Some((value, expiry))) => transaction.put_until(name, value, *expiry),
                    };
                    if let Some(expected) = part.expected {
                        transaction = transaction.expect(name, expected);
                    }
                }
                assert_eq!(transaction.check(32 << 10, |_| 0), Ok(()));
                let transaction = &transaction;
                self.offer_on(lane, token, Operation::Transaction { transaction })
            }
        }
    }
}

fn check(client: &Client, call: &Call, expected: &Expected, answer: &Owned, context: &str) {
    let context = || format!("{context}: {call:?} was answered {answer:?}, not {expected:?}");
    match (expected, answer) {
        (Expected::Any, _)
        | (Expected::Absent, Owned::Absent)
        | (Expected::Deleted, Owned::Deleted) => {}
        (Expected::Value(version, value), Owned::Value(is, read)) => {
            assert_eq!((version.get(), value), (*is, read), "{}", context());
        }
        (Expected::Stored(versions), Owned::Stored(last)) => {
            for (after, version) in versions.iter().rev().enumerate() {
                version.set(last - after as u64);
            }
            assert_eq!(*last == 0, versions.is_empty(), "{}", context());
            let latest = client.held.values().map(|held| held.version.get()).max();
            assert!(versions.is_empty() || latest <= Some(*last) || *last > 0);
        }
        (Expected::Conflict(place, version), Owned::Conflict(is, current)) => {
            assert_eq!((*place, version.get()), (*is, *current), "{}", context());
        }
        _ => panic!("{}", context()),
    }
}

/// Runs transactions and other operations of several lanes, each on keys of its own, with gets of
/// the others' keys between. `window` requests of a lane are in flight; with faults one, because
/// what comes after depends on whether it failed.
#[expect(clippy::too_many_lines, reason = "one arm per step of the model")]
fn run(seed: u64, setting: &Setting, steps: u64, window: usize, faulty: bool) -> Reactor {
    const ALL: u64 = 6_000;
    let mut reactor = Reactor::new(setting);
    let mut random = Random(seed);
    let lanes = u64::from(setting.lanes);
    // Some keys have the hash of another one, of the same lane or of another.
    for key in (0..ALL).step_by(17) {
        let other = name(key + 1 + key % 3);
        reactor.collisions.borrow_mut().insert(name(key), other);
    }
    let keys_of = |lane: u64| {
        (0..ALL)
            .filter(move |key| key % lanes == lane)
            .collect::<Vec<_>>()
    };
    let keys: Vec<_> = (0..lanes).map(keys_of).collect();
    let mut clients: Vec<_> = (0..lanes).map(|_| Client::default()).collect();
    let lane_of = |place: usize| ReplyTo::new(LANE.number() as u8 + place as u8);
    let mut now_ms = 1_000;
    reactor.shard.note_unix_ms(now_ms);
    let mut token = 0;
    for step in 0..steps {
        let context = format!("seed {seed} step {step}");
        reactor.inbox.set_full(random.below(20) == 0);
        let place = random.below(lanes) as usize;
        let idle = |client: &Client| client.waiting.is_empty() && client.backlog.is_empty();
        if random.below(50) == 0 && clients.iter().all(idle) {
            now_ms += random.below(20);
            reactor.shard.note_unix_ms(now_ms);
            clients.iter_mut().for_each(|client| client.expire(now_ms));
        }
        let client = &mut clients[place];
        let flying = client.waiting.len() + client.backlog.len();
        let rests = step % 400 > 350;
        if flying < window && !rests {
            token += 1;
            let own = keys[place][random.below(keys[place].len() as u64) as usize];
            let call = match random.below(100) {
                0..30 => Call::Get(own),
                30..45 => {
                    let bytes = random.below(700) as usize;
                    Call::Put(own, value(&mut random, bytes))
                }
                45..52 => Call::Delete(own),
                52..60 => Call::Get(random.below(ALL)),
                _ => client.random_transaction(&mut random, &keys[place], now_ms),
            };
            let touched = match &call {
                Call::Get(key) | Call::Put(key, _) | Call::Delete(key) => vec![*key],
                Call::Transaction(parts) => parts.iter().map(|part| part.key).collect(),
            };
            let before = touched
                .iter()
                .map(|key| (*key, client.held.get(key).cloned()));
            client.before.insert(token, before.collect());
            let foreign = touched[0] % lanes != place as u64;
            let expected = if foreign {
                Expected::Any
            } else {
                client.apply(&call, now_ms)
            };
            client.waiting.insert(token, (call.clone(), expected));
            client.backlog.push_back((token, call));
        }
        for (place, client) in clients.iter_mut().enumerate() {
            while let Some((token, call)) = client.backlog.front() {
                if !reactor.offer_call(lane_of(place), *token, call) {
                    break;
                }
                client.backlog.pop_front();
            }
        }
        if random.below(3) == 0 {
            reactor.advance();
        }
        if step % 4096 == 4095 {
            reactor.shard.start_compaction();
        }
        let answers: Vec<_> = reactor.inbox.answers.borrow_mut().drain(..).collect();
        for (token, answer) in answers {
            let of = |client: &&mut Client| client.waiting.contains_key(&token);
            let client = clients.iter_mut().find(of).expect("answered once");
            let (call, expected) = client.waiting.remove(&token).expect("it waits");
            let before = client.before.remove(&token).expect("it waits");
            if let Owned::Failed(error) = &answer {
                let full = matches!(error, Error::FarFull { .. });
                assert!(faulty || full && window == 1, "{context} {call:?} {error}");
                // A foreign get has changed nothing.
                if !matches!(expected, Expected::Any) {
                    for (key, held) in before {
                        client.held.remove(&key);
                        client.held.extend(held.map(|held| (key, held)));
                    }
                }
                continue;
            }
            check(client, &call, &expected, &answer, &context);
        }
        if step % 512 == 0 {
            reactor.check();
        }
    }
    reactor.inbox.set_full(false);
    let mut rounds = 0;
    while clients.iter().any(|client| !client.waiting.is_empty()) || !reactor.shard.is_quiet() {
        rounds += 1;
        assert!(rounds < 100_000, "seed {seed}: never answered");
        for (place, client) in clients.iter_mut().enumerate() {
            while let Some((token, call)) = client.backlog.front() {
                if !reactor.offer_call(lane_of(place), *token, call) {
                    break;
                }
                client.backlog.pop_front();
            }
        }
        reactor.advance();
        let answers: Vec<_> = reactor.inbox.answers.borrow_mut().drain(..).collect();
        for (token, answer) in answers {
            let of = |client: &&mut Client| client.waiting.contains_key(&token);
            let client = clients.iter_mut().find(of).expect("answered once");
            let (call, expected) = client.waiting.remove(&token).expect("it waits");
            if matches!(answer, Owned::Failed(_)) {
                let keys: Vec<_> = client.before.remove(&token).expect("it waits");
                for (key, held) in keys {
                    client.held.remove(&key);
                    client.held.extend(held.map(|held| (key, held)));
                }
            } else {
                check(
                    client,
                    &call,
                    &expected,
                    &answer,
                    &format!("seed {seed} end"),
                );
            }
        }
    }
    reactor.check();
    for (place, client) in clients.iter().enumerate() {
        for &key in &keys[place] {
            let mut answer = reactor.call(Operation::Get { key: &name(key) });
            for _ in 0..50 {
                if !faulty || !matches!(answer, Owned::Failed(_)) {
                    break;
                }
                answer = reactor.call(Operation::Get { key: &name(key) });
            }
            let held = client.held.get(&key).map_or(Owned::Absent, |held| {
                Owned::Value(held.version.get(), held.value.clone())
            });
            assert_eq!(answer, held, "seed {seed} key {key}");
        }
    }
    reactor
}

fn several_lanes() -> Setting {
    Setting {
        lanes: 3,
        link: delayed(),
        ..Setting::default()
    }
}

#[test]
fn model_of_transactions() {
    for seed in seeds() {
        let at_once = Setting {
            lanes: 2,
            ..Setting::default()
        };
        run(seed, &at_once, 20_000, 16, false);
        let reactor = run(seed, &several_lanes(), 40_000, 16, false);
        let seen = reactor.shard.metrics.counters.snapshot();
        assert!(
            seen.pages_evicted > 0 && seen.compaction_pages > 0,
            "{seen:?}"
        );
        assert!(seen.far_reads > 1_000 && seen.expired > 0, "{seen:?}");
        let conflicts = seen.transactions_conflicted;
        assert!(
            conflicts > 500 && seen.transactions > 2 * conflicts,
            "{seen:?}"
        );
        assert!(seen.tag_false_matches > 0, "keys of one hash: {seen:?}");
    }
}

#[test]
fn model_of_transactions_with_encryption() {
    for (seed, encryption) in seeds()
        .into_iter()
        .flat_map(|seed| ENCRYPTIONS[1..].iter().map(move |&mode| (seed, mode)))
    {
        let setting = Setting {
            encryption,
            ..several_lanes()
        };
        run(seed, &setting, 20_000, 16, false);
    }
}

#[test]
fn model_of_transactions_with_faults() {
    for (seed, sticky) in seeds()
        .into_iter()
        .flat_map(|seed| [(seed, false), (seed, true)])
    {
        let link = LinkModel {
            latency_ns: 2_000,
            faults: FaultPlan {
                seed: 11,
                failed_completions_per_million: 20_000,
                sticky,
                ..FaultPlan::default()
            },
            ..LinkModel::default()
        };
        let setting = Setting {
            link,
            ..several_lanes()
        };
        let reactor = run(seed, &setting, 40_000, 1, true);
        let seen = reactor.shard.metrics.counters.snapshot();
        assert!(
            seen.transactions_failed > 0 && seen.transactions > 1_000,
            "{seen:?}"
        );
    }
}

#[test]
fn model_of_transactions_without_room() {
    for seed in seeds() {
        let mut setting = Setting {
            far_bytes: 512 << 10,
            ..several_lanes()
        };
        setting.tuning.cache_percent = 0;
        setting.tuning.read_ahead_chunks = 0;
        run(seed, &setting, 40_000, 1, false);
    }
}
