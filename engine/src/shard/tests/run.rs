//! The run: random operations, several in flight, against a `HashMap`.

use std::collections::{HashMap, VecDeque};

use super::{House, LANE, Owned, Random, SLEEPER, Setting, value};
use crate::error::Error;
use crate::operation::Operation;
use crate::shard::request::LaneId;

/// Runs random operations, several in flight, against the model; each answer must be one that order allows.
pub(super) fn run(seed: u64, setting: &Setting, steps: u64, keys: u64, faulty: bool) -> House {
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
    let mut offered: HashMap<u64, u64> = HashMap::new();
    // Requests of the client that takes no answer.
    let mut slept = 0;
    if setting.sleeper {
        house.inbox.lane_bytes.set(64 << 10);
        house.inbox.asleep.set(1 << SLEEPER.number());
    }
    let walk_every = 64;
    let mut walk = 0;
    for step in 0..steps {
        if step == steps / 2
            && let Some(sabotage) = setting.sabotage
        {
            sabotage(&mut house);
        }
        if let Some(outages) = setting.outages
            && random.below(400) == 0
        {
            match house.back_ns.iter().position(Option::is_none) {
                Some(lost) => house.restore(lost),
                None => house.lose(random.below(setting.nodes as u64) as usize, outages),
            }
        }
        house.inbox.set_full(random.below(20) == 0);
        let key = if step % walk_every < 24 {
            walk += 1;
            walk % keys
        } else {
            random.below(keys)
        };
        // One operation a key at a time where versions are needed; otherwise orders would not be known.
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
        if setting.sleeper {
            let name = format!("key-{:05}", random.below(keys));
            let operation = Operation::Get {
                key: name.as_bytes(),
            };
            slept += u64::from(house.offer_on(SLEEPER, 0, operation));
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
            let lane = LaneId::new(LANE.number() as u8 + random.below(setting.lanes.into()) as u8);
            if !house.offer_on(lane, token, operation) {
                break;
            }
            offered.insert(token, house.now_ns);
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
                    let name = format!("key-{key:05}").repeat(1 + (key % 5) as usize);
                    let told = house.may_be_told(name.as_bytes(), &error, offered[&token]);
                    assert!(
                        told || faulty || matches!(error, Error::FarFull { .. }),
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
            if setting.short {
                house.check_accounts();
            } else {
                house.check();
            }
        }
    }
    for node in 0..setting.nodes {
        house.restore(node);
    }
    house.inbox.set_full(false);
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
    assert_eq!(
        house.inbox.untaken.get(),
        slept,
        "seed {seed}: the sleeper's requests"
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

pub(super) fn seeds() -> Vec<u64> {
    match std::env::var("FARCORE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
    {
        Some(seed) => vec![seed],
        None => (1..=3).collect(),
    }
}
