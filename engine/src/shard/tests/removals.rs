//! Keys that a shard removes by itself are listed for a reader that wants them.

use std::collections::HashSet;

use super::{Owned, Reactor, Setting};
use crate::message::change::{Change, Condition};
use crate::message::expiry::Expiry;
use crate::message::operation::Operation;
use crate::message::transaction::Transaction;
use crate::observe::removals::{Removal, RemovedKeys};

/// The keys that are listed for a reason; each once, and all others not.
fn listed(reactor: &Reactor, reason: Removal) -> HashSet<u64> {
    let (mut keys, mut seen) = (RemovedKeys::default(), HashSet::new());
    reactor.shard.metrics.removals.take(&mut keys);
    assert_eq!(keys.unlisted(), 0);
    for (removal, key) in keys.iter() {
        assert_eq!(removal, reason);
        let key = u64::from_le_bytes(key.try_into().unwrap());
        assert!(seen.insert(key), "{key} is listed twice");
    }
    seen
}

fn put(key: &[u8], expiry: Expiry) -> Operation<'_> {
    Operation::Change {
        key,
        change: Change::Put {
            value: &[1; 200],
            expiry,
            condition: Condition::Always,
            previous: false,
        },
    }
}

/// Has a request of some kind meet a key that has expired.
fn meet(reactor: &mut Reactor, key: &[u8]) {
    let value: &[u8] = b"new";
    let kind = u64::from_le_bytes(key.try_into().unwrap()) % 11;
    let transaction = &match kind {
        8 => Transaction::new().put(key, value),
        9 => Transaction::new().expect(key, 0).put(key, &[2; 900]),
        _ => Transaction::new().delete(key),
    };
    let operation = match kind {
        0 => Operation::Get { key },
        1 => Operation::GetRange {
            key,
            offset: 0,
            bytes: 9,
        },
        2 => Operation::Inspect { key },
        3 => Operation::Delete { key },
        4 => put(key, Expiry::Never),
        5 => Operation::Put { key, value },
        6 => Operation::CompareAndSwap {
            key,
            value,
            expected: 0,
        },
        7 => Operation::Change {
            key,
            change: Change::Increment { by: 1 },
        },
        _ => Operation::Transaction { transaction },
    };
    let answer = reactor.call(operation);
    let is_right = match kind {
        0..4 => answer == Owned::Absent,
        7 => matches!(&answer, Owned::Value(_, sum) if sum == b"1"),
        _ => matches!(answer, Owned::Stored(_)),
    };
    assert!(is_right, "{answer:?}");
}

#[test]
fn each_key_that_expires_is_listed_once_however_it_is_removed() {
    const KEYS: u64 = 9_000;
    let mut reactor = Reactor::new(&Setting {
        far_bytes: 8 << 20,
        ..Setting::default()
    });
    let removals = |reactor: &Reactor, wanted: &[Removal]| {
        reactor.shard.metrics.removals.watch(wanted, None);
    };
    reactor.shard.note_unix_ms(1_000);
    for round in [false, true] {
        // What is not wanted is not listed.
        let wanted = if round {
            &[Removal::Expired][..]
        } else {
            &[Removal::Evicted]
        };
        removals(&reactor, wanted);
        let at_ms = if round { 8_000 } else { 2_000 };
        for key in 0..KEYS {
            let key = key.to_le_bytes();
            let answer = reactor.call(put(&key, Expiry::At(at_ms)));
            assert!(matches!(answer, Owned::Stored(_)), "{answer:?}");
        }
        let seen = reactor.shard.metrics.counters.snapshot();
        assert!(seen.far_used_bytes > 0, "all of them are near");
        assert_eq!(listed(&reactor, Removal::Expired), HashSet::new());
        reactor.shard.note_unix_ms(at_ms + 1);
        let mut seen = HashSet::new();
        for key in 0..KEYS / 2 {
            let bytes = key.to_le_bytes();
            let key = &bytes[..];
            meet(&mut reactor, key);
            // By now, and so before the answer is seen.
            for key in listed(&reactor, Removal::Expired) {
                assert!(seen.insert(key), "{key} is listed twice");
            }
            assert_eq!(seen.contains(&u64::from_le_bytes(bytes)), round);
        }
        reactor.now_ns += 2_000_000_000;
        for _ in 0..40_000 {
            reactor.advance();
        }
        // Far ones that nothing meets stay until their page is compacted.
        for key in KEYS / 2..KEYS {
            reactor.call(Operation::Get {
                key: &key.to_le_bytes(),
            });
        }
        let expected = if round { KEYS } else { 0 };
        for key in listed(&reactor, Removal::Expired) {
            assert!(seen.insert(key), "{key} is listed twice");
        }
        assert_eq!(seen.len() as u64, expected);
        for key in 0..KEYS {
            reactor.call(Operation::Delete {
                key: &key.to_le_bytes(),
            });
        }
        assert_eq!(listed(&reactor, Removal::Expired), HashSet::new());
        reactor.check();
    }
}

#[test]
fn what_is_evicted_is_listed_and_nothing_else_is() {
    const KEYS: u64 = 30_000;
    let mut reactor = Reactor::new(&Setting {
        evicts: true,
        far_bytes: 1 << 20,
        ..Setting::default()
    });
    let wanted = [Removal::Evicted, Removal::Expired];
    reactor.shard.metrics.removals.watch(&wanted, None);
    let mut evicted = HashSet::new();
    for key in 0..KEYS {
        let answer = reactor.call(Operation::Put {
            key: &key.to_le_bytes(),
            value: &[1; 200],
        });
        assert!(matches!(answer, Owned::Stored(_)), "{answer:?}");
        if key % 1_000 == 0 {
            evicted.extend(listed(&reactor, Removal::Evicted));
        }
    }
    evicted.extend(listed(&reactor, Removal::Evicted));
    assert!(evicted.len() > 10_000, "{}", evicted.len());
    for key in 0..KEYS {
        let answer = reactor.call(Operation::Get {
            key: &key.to_le_bytes(),
        });
        let is_absent = answer == Owned::Absent;
        let was_evicted = evicted.contains(&key);
        // It may have been evicted right before or after the answer.
        evicted.extend(listed(&reactor, Removal::Evicted));
        let is_right = if is_absent {
            evicted.contains(&key)
        } else {
            !was_evicted
        };
        assert!(is_right, "{key}: {answer:?}");
    }
    reactor.check();
}
