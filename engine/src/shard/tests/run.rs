//! The run: random operations, several in flight, against a `HashMap`.
//!
//! The model holds the set of states that a key may be in: more than one after a failure or a loss.

use std::collections::{HashMap, HashSet, VecDeque};

use super::scans::{SCAN, Scanning};
use super::{LANE, Owned, Random, Reactor, SLEEPER, Setting, value};
use crate::error::Error;
use crate::error::LOST;
use crate::message::change::{Change, Circumstances, Condition, Current, Effect, Metadata, Reply};
use crate::message::expiry::{Expiry, ExpiryCondition};
use crate::message::operation::Operation;
use crate::message::request::ReplyTo;

/// The token of a request that removes all keys.
const CLEAR: u64 = u64::MAX >> 1;

/// A key's version and value; `None` if it is absent.
type State = Option<(u64, Vec<u8>)>;

/// A change, encoded. It does not answer the value before a put, because the model would not learn
/// the new version.
fn random_change(
    random: &mut Random,
    known: Option<&(u64, Vec<u8>)>,
    bytes: usize,
    now_ms: u64,
) -> Vec<u8> {
    let (value, other) = (value(random, bytes), value(random, 9));
    let condition = match random.below(6) {
        0 => Condition::Always,
        1 => Condition::Absent,
        2 => Condition::Present,
        3 => Condition::Version(known.map_or(0, |known| known.0)),
        4 => Condition::Equals(known.map_or(&other, |known| &known.1)),
        _ => Condition::Equals(&other),
    };
    let expiry = match random.below(5) {
        0 => Expiry::Never,
        1 => Expiry::Keep,
        // Some of them past.
        _ => Expiry::At((now_ms + random.below(60)).saturating_sub(4)),
    };
    let change = match random.below(10) {
        0..=2 => Change::Put {
            value: &value,
            expiry,
            condition,
            previous: false,
        },
        3 | 4 => Change::SetExpiry {
            expiry,
            condition: match random.below(6) {
                0 => ExpiryCondition::Unset,
                1 => ExpiryCondition::Set,
                2 => ExpiryCondition::Later,
                3 => ExpiryCondition::Earlier,
                _ => ExpiryCondition::Always,
            },
            value: random.below(2) == 0,
        },
        5 => Change::Delete {
            condition,
            previous: random.below(2) == 0,
        },
        6 => Change::Increment {
            by: random.below(9) as i64 - 4,
        },
        7 => Change::IncrementFloat { by: 0.5 },
        // Short, because far memory must hold all values without one node.
        8 => Change::Append { tail: &other },
        _ => Change::SetRange {
            offset: random.below(600),
            bytes: &other,
        },
    };
    let mut encoded = Vec::new();
    change.encode(&mut encoded);
    encoded
}

/// The expiries of the versions that have one, by key.
type Expiries = HashMap<(u64, u64), u64>;

/// A state and its expiry.
type Expiring = (State, Option<u64>);

/// The state after a change of a key in some state, if that could be answered so at that time.
fn after_change(
    encoded: &[u8],
    (state, expiry_ms): Expiring,
    now_ms: u64,
    answer: &Owned,
) -> Option<Expiring> {
    let change = Change::decode(encoded).expect("it was encoded");
    let is_past = expiry_ms.is_some_and(|at_ms| at_ms <= now_ms);
    let state = state.filter(|_| !is_past);
    let expiry_ms = expiry_ms.filter(|_| !is_past);
    let current = state.as_ref().map(|(version, value)| Current {
        version: *version,
        value,
        expiry_ms,
    });
    let before = state.as_ref().map_or(0, |state| state.0);
    let mut scratch = Vec::new();
    let circumstances = Circumstances {
        value_bytes_max: 32 << 10,
        now_ms,
    };
    let decision = match change.decide(current.as_ref(), circumstances, &mut scratch) {
        Ok(decision) => decision,
        Err(error) => {
            return (*answer == Owned::Failed(error)).then(|| (state.clone(), expiry_ms));
        }
    };
    let same = || (state.clone(), expiry_ms);
    let gone = (None, None);
    let length = Metadata::encode(decision.value.len(), decision.expiry_ms);
    let after_ms = decision.expiry_ms;
    let stored = |now: u64| {
        let state = Some((now, decision.value.to_vec()));
        (now > before).then_some((state, after_ms))
    };
    match (decision.effect, decision.reply, answer) {
        (Effect::Store, Reply::Stored, Owned::Stored(now)) => stored(*now),
        (Effect::Store, Reply::New, Owned::Value(now, sum)) if sum == decision.value => {
            stored(*now)
        }
        (Effect::Store, Reply::Length, Owned::Value(now, bytes)) if *bytes == length => {
            stored(*now)
        }
        (Effect::Delete, Reply::Deleted, Owned::Deleted) => Some(gone),
        (Effect::Delete, Reply::Previous, Owned::Value(version, value)) => {
            (state == Some((*version, value.clone()))).then_some(gone)
        }
        (Effect::None, Reply::Absent, Owned::Absent) => Some(gone),
        (Effect::None, Reply::Mismatch, Owned::Mismatch(version)) => {
            (*version == before).then(same)
        }
        (Effect::None, Reply::Length, Owned::Value(version, bytes)) => {
            (*version == before && *bytes == length).then(same)
        }
        _ => None,
    }
}

/// Runs random operations, several in flight, against the model. Each answer must be one that some
/// order allows.
#[expect(clippy::too_many_lines, reason = "one arm per step of the model")]
pub(super) fn run(seed: u64, setting: &Setting, steps: u64, keys: u64, faulty: bool) -> Reactor {
    let name = |key: u64| format!("key-{key:05}").repeat(1 + (key % 5) as usize);
    let mut reactor = Reactor::new(setting);
    let mut random = Random(seed);
    // The possible states of each key: several if the outcome of an operation is unknown.
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
        /// As it is sent.
        Change(Vec<u8>),
        Inspect,
        GetRange(u32, u32),
    }
    let mut offered: HashMap<u64, u64> = HashMap::new();
    // The time of the expiries, and that at which each request was offered.
    let mut now_ms = 1_000;
    reactor.shard.note_unix_ms(now_ms);
    let mut offered_ms: HashMap<u64, u64> = HashMap::new();
    let mut expiries = Expiries::new();
    // Requests of the client that never polls.
    let mut slept = 0;
    if setting.sleeper {
        reactor.inbox.lane_bytes.set(64 << 10);
        reactor.inbox.asleep.set(1 << SLEEPER.number());
    }
    // Keys that may have been lost since they were written, deleted or forgotten, and the step of
    // the last forgetting.
    let mut doubtful: HashSet<u64> = HashSet::new();
    let mut forgot = 0;
    let mut scanning: Option<Scanning> = None;
    let mut clear_due = false;
    let walk_every = 64;
    let mut walk = 0;
    for step in 0..steps {
        if step == steps / 2
            && let Some(sabotage) = setting.sabotage
        {
            sabotage(&mut reactor);
        }
        if let Some(outages) = setting.outages
            && random.below(400) == 0
        {
            match reactor.back_ns.iter().position(Option::is_none) {
                Some(lost) => reactor.restore(lost),
                None => reactor.lose(random.below(setting.nodes as u64) as usize, outages),
            }
        }
        if setting.drains && random.below(100) == 0 {
            reactor.come_or_go(1, &mut random);
        }
        if setting.losses && random.below(600) == 0 {
            reactor.lose_for_good(random.below(setting.nodes as u64) as usize);
            doubtful.extend((0..keys).filter(|&key| reactor.may_be_lost(name(key).as_bytes())));
        }
        if setting.damage && random.below(40) == 0 {
            reactor.flip_far_bit(&mut random);
        }
        let forgets = (setting.losses || setting.damage) && random.below(1_500) == 0;
        if forgets && reactor.shard.forgetting_done() {
            doubtful.extend((0..keys).filter(|&key| reactor.may_be_lost(name(key).as_bytes())));
            for key in doubtful.drain() {
                // It may have survived.
                let states = model.entry(key).or_insert_with(|| vec![None]);
                if !states.contains(&None) {
                    states.push(None);
                }
            }
            reactor.shard.start_forgetting();
            forgot = step;
        }
        reactor.inbox.set_full(random.below(20) == 0);
        if random.below(16) == 0 {
            now_ms += 1;
            reactor.shard.note_unix_ms(now_ms);
            // The system's clock may be set back.
            reactor.shard.note_unix_ms(now_ms - random.below(500));
        }
        let key = if step % walk_every < 24 {
            walk += 1;
            walk % keys
        } else {
            random.below(keys)
        };
        // One operation a key at a time where versions are needed; else the order would be unknown.
        if !busy.contains_key(&key) && waiting.len() + backlog.len() < 48 {
            let long = random.below(200) == 0 && !setting.short;
            let bytes = if long {
                random.below(30_000)
            } else {
                random.below(700)
            };
            let known = model
                .get(&key)
                .and_then(|states| states.last().cloned().flatten());
            let call = match random.below(100) {
                0..35 => Call::Get,
                35..38 => Call::Inspect,
                38..41 => Call::GetRange(random.below(800) as u32, random.below(400) as u32),
                41..70 => Call::Put(value(&mut random, bytes as usize)),
                // A counter.
                70..72 => Call::Put(random.below(1_000).to_string().into_bytes()),
                72..82 => Call::Delete,
                82..90 => Call::Change(random_change(
                    &mut random,
                    known.as_ref(),
                    bytes as usize,
                    now_ms,
                )),
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
            let reads = matches!(call, Call::Get | Call::Inspect | Call::GetRange(..));
            if let Some(scanning) = scanning.as_mut().filter(|_| !reads) {
                let name = name(key);
                match call {
                    Call::Put(_) | Call::Swap(..) => scanning.overwrite(name.as_bytes()),
                    _ => scanning.excuse(name.as_bytes()),
                }
            }
            busy.insert(key, step);
            backlog.push_back((step, key, call));
        }
        if setting.sleeper {
            let name = format!("key-{:05}", random.below(keys));
            let operation = Operation::Get {
                key: name.as_bytes(),
            };
            slept += u64::from(reactor.offer_on(SLEEPER, 0, operation));
        }
        while let Some((token, key, call)) = backlog.front().cloned() {
            let name = name(key);
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
                Call::Change(encoded) => Operation::Change {
                    key: key_bytes,
                    change: Change::decode(encoded).expect("it was encoded"),
                },
                Call::Inspect => Operation::Inspect { key: key_bytes },
                Call::GetRange(offset, bytes) => Operation::GetRange {
                    key: key_bytes,
                    offset: *offset,
                    bytes: *bytes,
                },
            };
            let lane = ReplyTo::new(LANE.number() as u8 + random.below(setting.lanes.into()) as u8);
            if !reactor.offer_on(lane, token, operation) {
                break;
            }
            offered.insert(token, reactor.now_ns);
            offered_ms.insert(token, now_ms);
            // What has expired by now is absent, whatever happens later.
            for state in model.entry(key).or_insert_with(|| vec![None]) {
                let version = state.as_ref().map_or(0, |held| held.0);
                if expiries
                    .get(&(key, version))
                    .is_some_and(|&at_ms| at_ms <= now_ms)
                {
                    *state = None;
                }
            }
            waiting.insert(token, (key, call));
            backlog.pop_front();
        }
        if random.below(3) == 0 {
            reactor.advance();
        }
        if step % 4096 == 4095 {
            reactor.shard.start_compaction();
        }
        if let Some(scanning) = &mut scanning {
            scanning.send(&mut reactor);
        }
        let answers: Vec<_> = reactor.inbox.answers.borrow_mut().drain(..).collect();
        for (token, answer) in answers {
            if token & SCAN != 0 {
                let may_fail = faulty || setting.outages.is_some() || setting.losses;
                let ends = scanning
                    .as_mut()
                    .is_some_and(|scanning| scanning.take(token, &answer, may_fail, seed));
                if ends {
                    scanning = None;
                }
                continue;
            }
            let (key, call) = waiting.remove(&token).expect("answered once");
            busy.remove(&key);
            let states = model.entry(key).or_insert_with(|| vec![None]);
            let since_ms = offered_ms.remove(&token).expect("it was offered");
            let expiry_of = |state: &State| {
                let version = state.as_ref().map_or(0, |held| held.0);
                expiries.get(&(key, version)).copied()
            };
            // What has expired since may be found or not.
            let is_past = |state: &State| expiry_of(state).is_some_and(|at_ms| at_ms <= now_ms);
            if states.iter().any(is_past) && !states.contains(&None) {
                states.push(None);
            }
            // So is what may have been evicted.
            let evicted = reactor.shard.metrics.counters.evicted.get();
            if evicted > 0 && !states.contains(&None) {
                states.push(None);
            }
            let known = states.clone();
            let context = || format!("seed {seed} step {step} key {key} {call:?} {known:?}");
            let version = |state: &Option<(u64, Vec<u8>)>| state.as_ref().map_or(0, |held| held.0);
            // An answer must be one of the possible states, and becomes the only one.
            let mut is_now = |state: Option<(u64, Vec<u8>)>| {
                assert!(known.contains(&state), "{} {state:?}", context());
                *states = vec![state];
            };
            match (&call, answer) {
                (
                    Call::Change(encoded),
                    answer @ Owned::Failed(
                        Error::NotANumber { .. }
                        | Error::CounterOverflow { .. }
                        | Error::ValueTooLong { .. },
                    ),
                ) => {
                    states.retain(|state| {
                        (since_ms..=now_ms).any(|now_ms| {
                            let expiring = (state.clone(), expiry_of(state));
                            after_change(encoded, expiring, now_ms, &answer).is_some()
                        })
                    });
                    assert!(!states.is_empty(), "{} {answer:?}", context());
                }
                (_, Owned::Failed(Error::Unavailable { reason, .. }))
                    if (setting.losses || setting.damage) && reason == LOST =>
                {
                    let name = name(key);
                    let is_lost = doubtful.contains(&key) || reactor.may_be_lost(name.as_bytes());
                    // A delete waited for a record that was lost meanwhile.
                    let is_lost = is_lost || setting.damage && matches!(call, Call::Delete);
                    assert!(is_lost || token <= forgot, "{}", context());
                }
                (_, Owned::Failed(Error::Damaged { .. })) if setting.damage => {}
                (_, Owned::Failed(Error::FarFull { .. } | Error::IndexFull { .. }))
                    if setting.evicts =>
                {
                    panic!("{}: a cache was full", context());
                }
                (_, Owned::Failed(error)) => {
                    let may_fail =
                        reactor.may_fail_with(name(key).as_bytes(), &error, offered[&token]);
                    assert!(
                        may_fail || faulty || matches!(error, Error::FarFull { .. }),
                        "{} {error}",
                        context()
                    );
                }
                (Call::Get, Owned::Value(version, bytes)) => is_now(Some((version, bytes))),
                (Call::Get | Call::Delete | Call::Inspect | Call::GetRange(..), Owned::Absent) => {
                    is_now(None);
                }
                (Call::Inspect, Owned::Value(version, bytes)) => {
                    let metadata = Metadata::decode(version, &bytes).expect("metadata");
                    // A head that was read alone does not prove itself.
                    let is_proven = !setting.damage;
                    states.retain(|state| {
                        (state.as_ref()).is_some_and(|(is, value)| {
                            !is_proven
                                || *is == version
                                    && value.len() as u64 == metadata.length
                                    && expiry_of(state) == metadata.expiry_ms
                        })
                    });
                    assert!(!states.is_empty(), "{} {metadata:?}", context());
                }
                (Call::GetRange(offset, bytes), Owned::Value(version, part)) => {
                    states.retain(|state| {
                        (state.as_ref()).is_some_and(|(is, value)| {
                            let start = value.len().min(*offset as usize);
                            let end = value.len().min((offset + bytes) as usize);
                            *is == version && value[start..end] == part
                        })
                    });
                    assert!(!states.is_empty(), "{} {part:?}", context());
                }
                (Call::Change(encoded), answer) => {
                    let mut after = Vec::new();
                    for (state, at_ms) in known
                        .iter()
                        .flat_map(|state| (since_ms..=now_ms).map(move |at_ms| (state, at_ms)))
                    {
                        let expiring = (state.clone(), expiry_of(state));
                        let one = after_change(encoded, expiring, at_ms, &answer);
                        after.extend(one.filter(|one| !after.contains(one)));
                    }
                    *states = Vec::new();
                    for (state, expiry_ms) in after {
                        if let (Some((version, _)), Some(expiry_ms)) = (&state, expiry_ms) {
                            expiries.insert((key, *version), expiry_ms);
                        }
                        states.push(state);
                    }
                    assert!(!states.is_empty(), "{} {answer:?}", context());
                    if !matches!(answer, Owned::Mismatch(_) | Owned::Absent) {
                        doubtful.remove(&key);
                    }
                }
                (Call::Put(bytes), Owned::Stored(now)) => {
                    assert!(known.iter().all(|state| version(state) < now), "{call:?}");
                    *states = vec![Some((now, bytes.clone()))];
                    doubtful.remove(&key);
                }
                (Call::Delete, Owned::Deleted) => {
                    // A lost slot may be another key's.
                    let may_be_lost = setting.losses || setting.damage;
                    let was_there = known.iter().any(Option::is_some) || may_be_lost;
                    assert!(was_there, "{}", context());
                    *states = vec![None];
                    doubtful.remove(&key);
                }
                (Call::Swap(expected, bytes), Owned::Stored(now)) => {
                    assert!(
                        known.iter().any(|state| version(state) == *expected),
                        "{}",
                        context()
                    );
                    *states = vec![Some((now, bytes.clone()))];
                    doubtful.remove(&key);
                }
                (Call::Swap(expected, _), Owned::Mismatch(current)) => {
                    assert_ne!(*expected, current);
                    states.retain(|state| version(state) == current);
                    assert!(!states.is_empty(), "{} {current}", context());
                }
                (call, answer) => panic!("seed {seed}: {call:?} was answered {answer:?}"),
            }
        }
        clear_due |= setting.clears && step % 13_000 == 12_999;
        if clear_due && reactor.inbox.answers.borrow().is_empty() {
            // What waits is carried out later.
            if reactor.clear_keys(CLEAR) {
                clear_due = false;
                reactor.inbox.answers.borrow_mut().clear();
                doubtful.clear();
                forgot = step;
                model = (0..keys).map(|key| (key, vec![None])).collect();
                assert_eq!(reactor.shard.keys(), 0, "seed {seed}");
                scanning.iter_mut().for_each(Scanning::excuse_all);
            }
        }
        if scanning.is_none() && random.below(300) == 0 {
            let lasting = |(&key, states): (&u64, &Vec<State>)| match &states[..] {
                [Some((version, held))]
                    if !busy.contains_key(&key) && !expiries.contains_key(&(key, *version)) =>
                {
                    Some((name(key).into_bytes(), (*version, held.clone())))
                }
                _ => None,
            };
            let may_go = setting.losses || setting.damage || setting.evicts;
            let is_exact = !(may_go || setting.sabotage.is_some());
            let must = model
                .iter()
                .filter(|_| is_exact)
                .filter_map(lasting)
                .collect();
            let known = (0..keys).map(|key| name(key).into_bytes()).collect();
            let batch = 1 + random.below(400) as usize;
            let (values, by_address) = (random.below(2) == 0, random.below(2) == 0);
            scanning = Some(Scanning::start(values, by_address, batch, must, known));
        }
        reactor.check_small();
        if step % setting.check_steps == 0 {
            reactor.check();
        }
    }
    for node in 0..setting.nodes {
        reactor.restore(node);
    }
    reactor.inbox.set_full(false);
    for _ in 0..100_000 {
        if let Some(scanning) = &mut scanning {
            scanning.send(&mut reactor);
        }
        if reactor.shard.is_quiet() && waiting.is_empty() && scanning.is_none() {
            break;
        }
        reactor.advance();
        reactor.visit_lanes();
        let answers: Vec<_> = reactor.inbox.answers.borrow_mut().drain(..).collect();
        for (token, answer) in answers {
            if token & SCAN != 0 {
                let ends = scanning
                    .as_mut()
                    .is_some_and(|scanning| scanning.take(token, &answer, true, seed));
                if ends {
                    scanning = None;
                }
                continue;
            }
            let (key, _) = waiting.remove(&token).expect("answered once");
            // Its outcome is not examined: the key leaves the model.
            model.remove(&key);
        }
    }
    assert!(
        scanning.is_none(),
        "seed {seed}: {scanning:?} has not ended"
    );
    assert!(
        waiting.is_empty(),
        "seed {seed}: {} requests were never answered",
        waiting.len()
    );
    assert_eq!(
        reactor.inbox.untaken.get(),
        slept,
        "seed {seed}: the sleeper's requests"
    );
    reactor.check();
    // Keys that are absent although they were neither deleted nor did they expire.
    let mut missing = 0;
    let evicted = reactor.shard.metrics.counters.evicted.get();
    for (key, states) in &model {
        let name = name(*key);
        if busy.contains_key(key) {
            continue;
        }
        let key_bytes = name.as_bytes();
        let operation = Operation::Get { key: key_bytes };
        let mut answer = reactor.call(operation);
        for _ in 0..50 {
            match answer {
                Owned::Failed(_) if faulty => {}
                _ => break,
            }
            answer = reactor.call(operation);
        }
        let mut states = states.clone();
        for state in &mut states {
            let version = state.as_ref().map_or(0, |held| held.0);
            if expiries
                .get(&(*key, version))
                .is_some_and(|&at_ms| at_ms <= now_ms)
            {
                *state = None;
            }
        }
        let found = match answer {
            Owned::Absent => None,
            Owned::Value(version, bytes) => Some((version, bytes)),
            Owned::Failed(Error::Unavailable { reason, .. })
                if reason == LOST && reactor.may_be_lost(name.as_bytes()) =>
            {
                continue;
            }
            Owned::Failed(Error::Damaged { .. }) if setting.damage => continue,
            answer => panic!("seed {seed} key {key}: {answer:?}, not {states:?}"),
        };
        let is_missing = found.is_none() && !states.contains(&None);
        missing += u64::from(is_missing);
        assert!(
            states.contains(&found) || is_missing && evicted > 0,
            "seed {seed} key {key}: {found:?}, not {states:?}"
        );
    }
    assert!(missing <= evicted, "seed {seed}: {missing} of {evicted}");
    reactor
}

pub(super) fn seeds() -> Vec<u64> {
    match std::env::var("FARCORE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
    {
        Some(seed) => vec![seed],
        None => (1..=3).collect(),
    }
}
