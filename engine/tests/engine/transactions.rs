//! Transactions of a whole engine: money that moves between accounts, limits, hash tags.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use farcore::constants::TRANSACTION_KEYS_MAX;
use farcore::{
    Answer, Config, Engine, Error, Expiry, Handle, Operation, TimeToLive, Transaction,
    TransactionOutcome,
};

use crate::support::{answer_to, every_encryption, tiny};

const ACCOUNTS: u64 = 64;
const BALANCE: u64 = 1_000;

fn tagged() -> Config {
    Config {
        hash_tags: true,
        ..tiny()
    }
}

fn account(number: u64) -> Vec<u8> {
    format!("{{bank}}:{number}").into_bytes()
}

fn balance(bytes: &[u8]) -> u64 {
    let text = std::str::from_utf8(bytes).expect("a balance");
    text.trim().parse().expect("a balance")
}

/// A balance in as many bytes as make records long.
fn written(balance: u64) -> Vec<u8> {
    format!("{balance:>200}").into_bytes()
}

/// Moves money between two accounts; retries until no other client comes between.
fn transfer(handle: &mut Handle, from: u64, to: u64, amount: u64) -> u64 {
    let names = [from, to].map(account);
    let mut conflicts = 0;
    loop {
        let mut read = Vec::new();
        for name in &names {
            let value = handle.get(name).wait().expect("a balance");
            let value = value.expect("a balance");
            read.push((value.version(), balance(&value)));
        }
        let amount = amount.min(read[0].1);
        let values = [written(read[0].1 - amount), written(read[1].1 + amount)];
        let transaction = Transaction::new()
            .expect(&names[0], read[0].0)
            .put(&names[0], &values[0])
            .expect(&names[1], read[1].0)
            .put(&names[1], &values[1]);
        match handle.transaction(&transaction).wait().expect("one shard") {
            TransactionOutcome::Committed { last } => {
                assert_eq!(transaction.version_of(&names[0], last), Some(last - 1));
                return conflicts;
            }
            TransactionOutcome::Conflict { place, current } => {
                assert_ne!(current, read[place].0);
                conflicts += 1;
            }
        }
    }
}

/// The sum of all accounts, as of one instant: a transaction that only checks confirms it.
fn sum(handle: &mut Handle) -> u64 {
    let names: Vec<_> = (0..ACCOUNTS).map(account).collect();
    loop {
        let (mut sum, mut all) = (0, Transaction::new());
        for name in &names {
            let value = handle.get(name).wait().expect("a balance");
            let value = value.expect("a balance");
            sum += balance(&value);
            all = all.expect(name, value.version());
        }
        let outcome = handle.transaction(&all).wait().expect("one shard");
        if outcome == (TransactionOutcome::Committed { last: 0 }) {
            return sum;
        }
    }
}

#[test]
fn money_that_threads_move_is_neither_made_nor_lost() {
    for config in every_encryption(tagged()) {
        let engine = Engine::open(config).unwrap();
        let mut handle = engine.handle().unwrap();
        for number in 0..ACCOUNTS {
            let stored = handle.put(&account(number), &written(BALANCE)).wait();
            stored.unwrap();
        }
        let conflicts = AtomicU64::new(0);
        thread::scope(|scope| {
            for thread in 0..3u64 {
                let (engine, conflicts) = (&engine, &conflicts);
                scope.spawn(move || {
                    let mut handle = engine.handle().unwrap();
                    let mut state = thread + 1;
                    let mut random = |below: u64| {
                        state = state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        (state >> 33) % below
                    };
                    for step in 0..1_500u64 {
                        let (from, apart) = (random(ACCOUNTS), 1 + random(ACCOUNTS - 1));
                        let to = (from + apart) % ACCOUNTS;
                        let met = transfer(&mut handle, from, to, random(100));
                        conflicts.fetch_add(met, Ordering::Relaxed);
                        // So that accounts become far in between.
                        for filler in 0..8 {
                            let key = (thread << 32 | step << 8 | filler).to_le_bytes();
                            handle.put(&key, &[1; 900]).wait().unwrap();
                        }
                    }
                });
            }
            for _ in 0..20 {
                assert_eq!(sum(&mut handle), ACCOUNTS * BALANCE);
            }
        });
        assert_eq!(sum(&mut handle), ACCOUNTS * BALANCE);
        let seen = engine.stats().total;
        let met = conflicts.load(Ordering::Relaxed);
        assert!(
            seen.transactions_conflicted >= met && seen.pages_evicted > 0,
            "{seen:?}"
        );
        assert_eq!(seen.transactions_failed, 0);
    }
}

#[test]
fn a_transaction_happens_as_a_whole_or_not_at_all() {
    let engine = Engine::open(tagged()).unwrap();
    let mut handle = engine.handle().unwrap();
    let [a, b, c] = [b"{t}a", b"{t}b", b"{t}c"];
    let first = Transaction::new()
        .expect(a, 0)
        .put(a, b"1")
        .put(b, b"2")
        .delete(c);
    let outcome = handle.transaction(&first).wait().unwrap();
    let TransactionOutcome::Committed { last } = outcome else {
        panic!("{outcome:?}");
    };
    let version = |key: &[u8]| first.version_of(key, last);
    let read = |handle: &mut Handle, key: &[u8]| {
        let value = handle.get(key).wait().unwrap();
        value.map(|value| (value.version(), value.to_vec()))
    };
    assert_eq!(
        read(&mut handle, a),
        Some((version(a).unwrap(), b"1".to_vec()))
    );
    assert_eq!(
        read(&mut handle, b),
        Some((version(b).unwrap(), b"2".to_vec()))
    );
    let again = handle.transaction(&first).wait().unwrap();
    let current = version(a).unwrap();
    assert_eq!(again, TransactionOutcome::Conflict { place: 0, current });
    let wrong = Transaction::new()
        .put(a, b"9")
        .expect(b, last + 7)
        .delete(c);
    let current = version(b).unwrap();
    let outcome = handle.transaction(&wrong).wait().unwrap();
    assert_eq!(outcome, TransactionOutcome::Conflict { place: 1, current });
    assert_eq!(read(&mut handle, a).unwrap().1, b"1");
    // Expiry, and a check without a write.
    let hour = Expiry::In(3_600_000);
    let third = Transaction::new()
        .put_until(a, b"3", hour)
        .delete(b)
        .expect(c, 0);
    assert!(matches!(
        handle.transaction(&third).wait().unwrap(),
        TransactionOutcome::Committed { .. }
    ));
    // The engine's clock may be some milliseconds ahead of the one that this is counted by.
    let left = handle.time_to_live(a).wait().unwrap();
    let hour = 3_500_000..=3_601_000;
    assert!(
        matches!(left, Some(TimeToLive::Milliseconds(left)) if hour.contains(&left)),
        "{left:?}"
    );
    assert_eq!(read(&mut handle, b), None);
}

#[test]
fn transactions_are_submitted_and_awaited_like_other_operations() {
    let engine = Engine::open(tagged()).unwrap();
    let [a, b] = [b"{t}a", b"{t}b"];
    let mut handle = engine.handle().unwrap();
    let both = Transaction::new().expect(a, 0).put(a, b"1").put(b, b"2");
    let transaction = &both;
    let operations = [
        Operation::Transaction { transaction },
        Operation::Get { key: b },
        Operation::Transaction { transaction },
        Operation::Delete { key: a },
    ];
    let mut answers = Vec::new();
    let visit = |place: usize, answer: Answer<'_>| answers.push((place, format!("{answer:?}")));
    handle.many(operations, visit).unwrap();
    answers.sort();
    let starts = ["Stored", "Value", "Conflict(Conflict { place: 0", "Deleted"];
    for ((_, answer), start) in answers.iter().zip(starts) {
        assert!(answer.starts_with(start), "{answers:?}");
    }
    for position in 0..engine.shards() {
        let job = engine.run_on_core(position, async move |mut core| {
            let [a, b] = [b"{t}a", b"{t}b"];
            let both = Transaction::new().put(a, b"3").put(b, b"4");
            let done = core.transaction(&both).await;
            let apart = Transaction::new().put(a, b"3").delete(a);
            (done, core.transaction(&apart).await)
        });
        let (done, twice) = job.unwrap().join().unwrap();
        assert!(matches!(done, Ok(TransactionOutcome::Committed { .. })));
        assert_eq!(twice, Err(Error::KeyTwice { place: 0 }));
    }
    let awaited = answer_to(handle.transaction(&both)).unwrap();
    assert!(matches!(
        awaited,
        TransactionOutcome::Conflict { place: 0, .. }
    ));
}

#[test]
fn keys_of_two_shards_are_refused_and_a_tag_brings_them_together() {
    for hash_tags in [false, true] {
        let engine = Engine::open(Config {
            hash_tags,
            seed: Some(3),
            ..tiny()
        })
        .unwrap();
        if engine.shards() == 1 {
            return;
        }
        let mut handle = engine.handle().unwrap();
        let names = |pattern: &str| -> Vec<String> {
            (0..40)
                .map(|n| pattern.replace('#', &n.to_string()))
                .collect()
        };
        let tagged = names("{user}#");
        assert_eq!(engine.same_shard(&tagged), hash_tags);
        // An empty tag, or one that does not end, is none.
        for pattern in ["{}#", "{#", "}{#", "#", "{}{user}#"] {
            assert!(!engine.same_shard(names(pattern)), "{pattern}");
        }
        assert_eq!(engine.same_shard(names("{{a}}#")), hash_tags);
        let all = tagged
            .iter()
            .fold(Transaction::new(), |all, key| all.put(key.as_bytes(), b""));
        let outcome = handle.transaction(&all).wait();
        if hash_tags {
            assert!(
                matches!(outcome, Ok(TransactionOutcome::Committed { .. })),
                "{outcome:?}"
            );
            // Every way to a key leads to the same shard.
            for position in 0..2 {
                let keys = tagged.clone();
                let job = engine.run_on_core(position, async move |mut core| {
                    for key in keys {
                        assert!(core.get(key.as_bytes()).await.unwrap().is_some());
                    }
                });
                job.unwrap().join().unwrap();
            }
            for key in &tagged {
                assert!(handle.get(key.as_bytes()).wait().unwrap().is_some());
            }
        } else {
            let first = engine.shard_of(tagged[0].as_bytes());
            let other = tagged
                .iter()
                .position(|key| engine.shard_of(key.as_bytes()) != first);
            let refused = Error::KeysApart {
                first: 0,
                other: other.unwrap(),
            };
            assert_eq!(outcome, Err(refused));
        }
    }
}

#[test]
fn each_limit_of_a_transaction_has_its_error() {
    let engine = Engine::open(tagged()).unwrap();
    let mut handle = engine.handle().unwrap();
    let refused = |handle: &mut Handle, transaction: &Transaction<'_>| {
        handle.transaction(transaction).wait().unwrap_err()
    };
    let empty = Transaction::new();
    assert_eq!(refused(&mut handle, &empty), Error::TransactionEmpty);
    let names: Vec<_> = (0..=TRANSACTION_KEYS_MAX)
        .map(|n| format!("{{t}}{n}"))
        .collect();
    let all = names
        .iter()
        .fold(Transaction::new(), |all, key| all.delete(key.as_bytes()));
    let (keys, max) = (TRANSACTION_KEYS_MAX + 1, TRANSACTION_KEYS_MAX);
    assert_eq!(
        refused(&mut handle, &all),
        Error::TransactionKeys { keys, max }
    );
    let max = engine.value_bytes_max();
    let value = vec![1; max - 24];
    let longest = Transaction::new().put(b"k", &value);
    assert!(handle.transaction(&longest).wait().is_ok());
    let value = vec![1; max - 23];
    let longer = Transaction::new().put(b"k", &value);
    let bytes = max + 1;
    assert_eq!(
        refused(&mut handle, &longer),
        Error::TransactionTooLong { bytes, max }
    );
}
