//! Changes that depend on what a key holds, through handles and core clients, with local and far
//! records.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use farcore::{
    Answer, CasOutcome, Change, Condition, DeleteOutcome, Engine, Error, Metadata, Operation,
};

use crate::support::{every_encryption, key, tiny, value};

/// Enough keys that most records are far.
const KEYS: u64 = 40_000;

fn filled(config: farcore::Config) -> Engine {
    let engine = Engine::open(farcore::Config {
        keys_expected: KEYS,
        ..config
    })
    .unwrap();
    let mut handle = engine.handle().unwrap();
    let records: Vec<_> = (0..KEYS)
        .map(|number| (key(number), value(number, 0)))
        .collect();
    let puts = records
        .iter()
        .map(|(key, value)| Operation::Put { key, value });
    handle
        .many(puts, |_, answer| {
            assert!(matches!(answer, Answer::Stored { .. }));
        })
        .unwrap();
    drop(handle);
    engine.flush().unwrap();
    engine
}

#[test]
fn conditions_hold_for_local_and_far_records() {
    for config in every_encryption(tiny()) {
        let engine = filled(config);
        let mut handle = engine.handle().unwrap();
        for number in (0..KEYS).step_by(1_997) {
            let (key, old) = (key(number), value(number, 0));
            let Metadata {
                version, length, ..
            } = handle.inspect(&key).wait().unwrap().unwrap();
            assert_eq!(length, old.len() as u64);
            let refused = handle
                .put_if(&key, b"new", Condition::Absent)
                .wait()
                .unwrap();
            assert_eq!(refused, CasOutcome::Mismatch(version));
            let refused = handle.put_if(&key, b"new", Condition::Equals(b"else"));
            assert_eq!(refused.wait().unwrap(), CasOutcome::Mismatch(version));
            let stored = handle.put_if(&key, b"new", Condition::Equals(&old));
            let CasOutcome::Stored(now) = stored.wait().unwrap() else {
                panic!("the value was right");
            };
            assert!(now > version);
            let refused = handle
                .delete_if(&key, Condition::Version(version))
                .wait()
                .unwrap();
            assert_eq!(refused, DeleteOutcome::Mismatch(now));
            let gone = handle
                .delete_if(&key, Condition::Version(now))
                .wait()
                .unwrap();
            assert_eq!(gone, DeleteOutcome::Deleted);
            assert!(!handle.exists(&key).wait().unwrap());
            let gone = handle
                .delete_if(&key, Condition::Version(0))
                .wait()
                .unwrap();
            assert_eq!(gone, DeleteOutcome::Absent);
            let refused = handle
                .put_if(&key, b"new", Condition::Present)
                .wait()
                .unwrap();
            assert_eq!(refused, CasOutcome::Mismatch(0));
        }
        engine.close();
    }
}

#[test]
fn far_values_are_taken_cut_and_extended() {
    let engine = filled(tiny());
    let mut handle = engine.handle().unwrap();
    for number in (0..KEYS).step_by(1_987) {
        let (key, mut held) = (key(number), value(number, 0));
        let part = handle.get_range(&key, 3, 20).wait().unwrap().unwrap();
        assert_eq!(*part, held[3..23]);
        let beyond = handle.get_range(&key, u32::MAX, 9).wait().unwrap().unwrap();
        assert!(beyond.is_empty());
        held.extend_from_slice(b"tail");
        let Metadata { length, .. } = handle.append(&key, b"tail").wait().unwrap();
        assert_eq!(length, held.len() as u64);
        held[1] = b'!';
        handle.set_range(&key, 1, b"!").wait().unwrap();
        let before = handle.get_and_put(&key, b"next").wait().unwrap().unwrap();
        assert_eq!(*before, held[..]);
        let last = handle.get_and_delete(&key).wait().unwrap().unwrap();
        assert_eq!(&*last, b"next");
        assert_eq!(handle.get_and_delete(&key).wait().unwrap(), None);
        assert_eq!(handle.get_and_put(&key, b"again").wait().unwrap(), None);
        assert_eq!(&*handle.get(&key).wait().unwrap().unwrap(), b"again");
    }
}

#[test]
fn counters_of_many_clients_add_up() {
    let engine = Engine::open(tiny()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            let mut handle = engine.handle().unwrap();
            scope.spawn(move || {
                for number in 0..2_000u64 {
                    handle.increment(&key(number % 7), 1).wait().unwrap();
                }
            });
        }
    });
    let counted = engine.run_on_core(0, async |mut core: farcore::Core| {
        let mut counted = 0;
        for number in 0..7 {
            counted += core.increment(&key(number), 0).await.unwrap();
        }
        let text = core.get(&key(0)).await.unwrap().unwrap().to_vec();
        (counted, text)
    });
    let (counted, text) = counted.unwrap().join().unwrap();
    assert_eq!(counted, 3 * 2_000);
    assert_eq!(text, (3 * 286).to_string().into_bytes());
}

#[test]
fn a_refused_change_says_why_and_changes_nothing() {
    let engine = Engine::open(tiny()).unwrap();
    let mut handle = engine.handle().unwrap();
    let max = i64::MAX.to_string();
    let version = handle.put(b"full", max.as_bytes()).wait().unwrap();
    let overflow = handle.increment(b"full", 1).wait().unwrap_err();
    let expected = Error::CounterOverflow {
        current: i64::MAX,
        by: 1,
    };
    assert_eq!(overflow, expected);
    assert!(
        overflow.to_string().contains("9223372036854775807 + 1"),
        "{overflow}"
    );
    assert_eq!(
        handle.inspect(b"full").wait().unwrap().unwrap().version,
        version
    );
    handle.put(b"word", b"seven").wait().unwrap();
    let no_number = handle.increment(b"word", 1).wait().unwrap_err();
    assert!(matches!(no_number, Error::NotANumber { .. }), "{no_number}");
    let longest = engine.value_bytes_max();
    let far_off = handle.set_range(b"word", longest as u64, b"x").wait();
    let too_long = Error::ValueTooLong {
        bytes: longest + 1,
        max: longest,
    };
    assert_eq!(far_off, Err(too_long));
    assert_eq!(&*handle.get(b"word").wait().unwrap().unwrap(), b"seven");
    // What a change takes beside its value counts.
    let whole = vec![1; longest];
    let refused = handle.put_if(b"word", &whole, Condition::Always).wait();
    assert!(matches!(refused, Err(Error::ValueTooLong { bytes, .. }) if bytes == longest));
}

#[test]
fn changes_are_submitted_and_batched_like_other_operations() {
    let engine = Engine::open(tiny()).unwrap();
    let keys: Vec<_> = (0..500).map(key).collect();
    let increments = |by| {
        let change = Change::Increment { by };
        keys.iter()
            .map(move |key| Operation::Change { key, change })
    };
    let mut handle = engine.handle().unwrap();
    let mut seen = 0;
    handle
        .many(increments(2), |_, answer| {
            assert_eq!(answer.value(), b"2");
            seen += 1;
        })
        .unwrap();
    assert_eq!(seen, 500);
    let owned = keys.clone();
    let job = engine.run_on_core(0, async move |mut core: farcore::Core| {
        let (mut sent, mut seen) = (0, 0);
        while seen < owned.len() {
            while let Some(key) = owned.get(sent) {
                let change = Change::Increment { by: 3 };
                if core.submit(Operation::Change { key, change }, 7).is_err() {
                    break;
                }
                sent += 1;
            }
            core.poll(|token, answer| {
                assert!(token == 7 && matches!(answer, Answer::Value { value: b"5", .. }));
                seen += 1;
            });
            core.yield_now().await;
        }
        seen
    });
    assert_eq!(job.unwrap().join().unwrap(), 500);
}
