//! Random operations beside a map: pipelined, of lengths around every threshold, with conditions.

mod support;

use std::collections::HashMap;

use farcore_client::{
    CasOutcome, Client, Condition, Pending, PutOptions, PutOutcome, Transfer, Value, Version,
};

use crate::support::{Random, Served, pattern};

/// Lengths around every threshold of the protocol and of the engine.
const LENGTHS: [usize; 16] = [
    0, 1, 16, 100, 1000, 4047, 4095, 4096, 5000, 65_400, 65_536, 130_900, 131_072, 262_000,
    400_000, 1_048_576,
];
const KEYS: usize = 24;
const STEPS: usize = 600;

/// An operation that was sent, and what it must give. Those on one key are waited for in order.
enum Sent {
    Get(Pending<Option<Value>>),
    Put(Pending<Version>, Vec<u8>),
    PutIf(Pending<PutOutcome>, Vec<u8>, Condition),
    Swap(Pending<CasOutcome>, Vec<u8>, Version),
    Delete(Pending<bool>),
    Exists(Pending<bool>),
}

type Model = HashMap<usize, (Vec<u8>, Version)>;

fn key(place: usize) -> Vec<u8> {
    format!("key-{place}-{}", "x".repeat(place * 37 % 900)).into_bytes()
}

fn send(client: &Client, random: &mut Random, model: &Model, place: usize) -> Sent {
    let key = key(place);
    let length = LENGTHS[random.below(LENGTHS.len())];
    // Long ones are rare: they take most of the time.
    let length = if length > 200_000 && random.below(4) > 0 {
        77
    } else {
        length
    };
    let known = model.get(&place).map_or(0, |one| one.1);
    let version = if random.below(3) == 0 {
        known + 1
    } else {
        known
    };
    match random.below(10) {
        0..=3 => Sent::Get(client.get(&key)),
        4 | 5 => {
            let value = pattern(length, random.next());
            Sent::Put(client.put(&key, &value), value)
        }
        6 => {
            let value = pattern(length, random.next());
            let condition = [
                Condition::Absent,
                Condition::Present,
                Condition::Version(version),
            ][random.below(3)];
            let options = PutOptions {
                condition,
                ..PutOptions::default()
            };
            Sent::PutIf(client.put_with(&key, &value, options), value, condition)
        }
        7 => {
            let value = pattern(length, random.next());
            Sent::Swap(
                client.compare_and_swap(&key, &value, version),
                value,
                version,
            )
        }
        8 => Sent::Delete(client.delete(&key)),
        _ => Sent::Exists(client.exists(&key)),
    }
}

fn check(model: &mut Model, place: usize, sent: Sent) {
    let known = model.get(&place).map_or(0, |one| one.1);
    match sent {
        Sent::Get(pending) => {
            let found = pending.wait().expect("read");
            let expected = model.get(&place);
            let is_same = match (&found, expected) {
                (Some(found), Some((value, version))) => {
                    found.bytes == *value && found.version == *version
                }
                (None, None) => true,
                _ => false,
            };
            assert!(
                is_same,
                "key {place}: {:?} beside {:?}",
                found.map(|one| (one.version, one.bytes.len())),
                expected.map(|one| (one.1, one.0.len()))
            );
        }
        Sent::Put(pending, value) => {
            let version = pending.wait().expect("stored");
            assert!(version > known);
            model.insert(place, (value, version));
        }
        Sent::PutIf(pending, value, condition) => {
            let holds = match condition {
                Condition::Absent => known == 0,
                Condition::Present => known != 0,
                Condition::Version(version) => known == version,
                Condition::Always => true,
            };
            match pending.wait().expect("an outcome") {
                PutOutcome::Stored(version) => {
                    assert!(holds && version > known, "{condition:?} beside {known}");
                    model.insert(place, (value, version));
                }
                PutOutcome::Unmet(current) => {
                    assert!(!holds && current == known, "{condition:?} beside {known}");
                }
            }
        }
        Sent::Swap(pending, value, expected) => match pending.wait().expect("an outcome") {
            CasOutcome::Stored(version) => {
                assert!(expected == known && version > known);
                model.insert(place, (value, version));
            }
            CasOutcome::Mismatch(current) => assert!(current == known && expected != known),
        },
        Sent::Delete(pending) => {
            let removed = pending.wait().expect("an outcome");
            assert_eq!(removed, model.remove(&place).is_some());
        }
        Sent::Exists(pending) => {
            assert_eq!(pending.wait(), Ok(model.contains_key(&place)));
        }
    }
}

fn run(transfer: Transfer, small_bytes: usize, slot_bytes: usize) {
    let served = Served::with(2, |options| {
        options.small_bytes = small_bytes;
        options.slot_bytes = slot_bytes;
        options.credits = 8;
    });
    let client = served.client_with(|options| {
        options.transfer = transfer;
        options.credits = 8;
    });
    let mut random = Random::new();
    let mut model = Model::new();
    let mut step = 0;
    while step < STEPS {
        // Keys of one round differ, so that their operations may be served in any order.
        let mut round = Vec::new();
        for place in 0..KEYS {
            if random.below(2) == 0 {
                round.push((place, send(&client, &mut random, &model, place)));
            }
        }
        step += round.len();
        for (place, sent) in round {
            check(&mut model, place, sent);
        }
    }
    drop(client);
    support::wait_until("every slot is back", || {
        let figures = served.figures();
        (
            figures.connections,
            figures.slots_in_use,
            figures.slot_bytes,
            figures.credits,
        ) == (0, 0, 0, 0)
    });
    assert_eq!(served.figures().violations, 0);
}

#[test]
fn operations_agree_with_a_map_when_values_are_read() {
    run(Transfer::Read, 4096, 64 << 20);
}

#[test]
fn operations_agree_with_a_map_when_values_land() {
    run(Transfer::Landing, 4096, 64 << 20);
}

#[test]
fn operations_agree_with_a_map_with_a_low_threshold_and_little_memory() {
    run(Transfer::Read, 512, 6 << 20);
    run(Transfer::Landing, 512, 6 << 20);
}
