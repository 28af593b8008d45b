//! The whole engine against a map, through every form of call.

#![expect(clippy::cast_possible_truncation, reason = "test data wraps")]
#![allow(unsafe_code)] // far memory is damaged on purpose

mod changes;
mod clients;
mod clients_in_jobs;
mod closing;
mod collections;
mod expiry;
mod faults;
mod feeds;
mod idle_cores;
mod job_endings;
mod jobs;
mod liveness;
mod long;
mod long_values;
mod programs;
mod scan;
mod sections;
mod signal;
mod support;
mod transactions;

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use farcore::{Answer, CasOutcome, Config, Engine, Error, Operation, Refused};

use crate::support::{answer_to, cores, every_encryption, key, tiny, value};

#[test]
fn blocking_calls_answer_as_a_map_does() {
    let engine = Engine::open(tiny()).unwrap();
    let mut handle = engine.handle().unwrap();
    assert_eq!(handle.get(b"a").wait().unwrap(), None);
    let first = handle.put(b"a", b"one").wait().unwrap();
    let read = handle.get(b"a").wait().unwrap().unwrap();
    assert_eq!((&*read, read.version()), (&b"one"[..], first));
    let swap = handle
        .compare_and_swap(b"a", first + 1, b"x")
        .wait()
        .unwrap();
    assert_eq!(swap, CasOutcome::Mismatch(first));
    let CasOutcome::Stored(second) = handle.compare_and_swap(b"a", first, b"two").wait().unwrap()
    else {
        panic!("the version was right");
    };
    assert!(second > first);
    assert!(matches!(
        handle.compare_and_swap(b"b", 0, b"").wait().unwrap(),
        CasOutcome::Stored(_)
    ));
    assert_eq!(&*handle.get(b"b").wait().unwrap().unwrap(), b"");
    assert!(handle.delete(b"a").wait().unwrap());
    assert!(!handle.delete(b"a").wait().unwrap());
    assert_eq!(engine.stats().local_cap_bytes, 16 << 20);
}

#[test]
fn much_more_than_fits_locally_reads_back() {
    for config in every_encryption(tiny()) {
        let engine = Engine::open(config).unwrap();
        let mut handle = engine.handle().unwrap();
        let count = 60_000;
        for round in 0..2 {
            let pairs: Vec<_> = (0..count).map(|n| (key(n), value(n, round))).collect();
            let pairs: Vec<_> = pairs.iter().map(|(k, v)| (&k[..], &v[..])).collect();
            let stored = |_, answer: Answer<'_>| {
                assert!(matches!(answer, Answer::Stored { .. }), "{answer:?}");
            };
            handle.put_many(&pairs, stored).unwrap();
            let keys: Vec<_> = pairs.iter().map(|(k, _)| *k).collect();
            let mut seen = 0;
            handle
                .get_many(&keys, |place, answer| {
                    seen += 1;
                    let Answer::Value { value, .. } = answer else {
                        panic!("{place}: {answer:?}")
                    };
                    assert_eq!(value, pairs[place].1);
                })
                .unwrap();
            assert_eq!(seen, count);
        }
        assert!(engine.stats().far_latency.count() > 100);
        let stats = engine.stats().total;
        assert!(
            stats.far_reads > 1_000 && stats.pages_evicted > 10,
            "{stats:?}"
        );
        let keys: Vec<_> = (0..count).map(key).collect();
        let keys: Vec<_> = keys.iter().map(|k| &k[..]).collect();
        handle
            .delete_many(&keys, |_, answer| assert_eq!(answer, Answer::Deleted))
            .unwrap();
        engine.compact().unwrap();
        assert_eq!(handle.get(keys[5]).wait().unwrap(), None);
    }
}

#[test]
fn long_values_pass_through_the_lanes() {
    let config = Config {
        local_bytes: 256 << 20,
        far_bytes: 256 << 20,
        page_bytes: None,
        ..tiny()
    };
    let engine = Engine::open(config).unwrap();
    let most = engine.value_bytes_max();
    let mut handle = engine.handle().unwrap();
    for round in 0..40u8 {
        handle
            .put(&[round], &vec![round; most - usize::from(round)])
            .wait()
            .unwrap();
    }
    engine.flush().unwrap();
    for round in 0..40u8 {
        let read = handle.get(&[round]).wait().unwrap().unwrap();
        assert!(read.len() == most - usize::from(round) && read.iter().all(|&byte| byte == round));
    }
    let error = handle.put(b"k", &vec![0; most + 1]).wait().unwrap_err();
    assert_eq!(
        error,
        Error::ValueTooLong {
            bytes: most + 1,
            max: most
        }
    );
}

#[test]
fn callers_mistakes_are_typed_errors() {
    let engine = Engine::open(tiny()).unwrap();
    let mut handle = engine.handle().unwrap();
    assert_eq!(
        handle.get(b"").wait().unwrap_err(),
        Error::KeyEmpty { max: 1024 }
    );
    let long = vec![1; 1025];
    let error = handle.put(&long, b"").wait().unwrap_err();
    assert_eq!(
        error,
        Error::KeyTooLong {
            bytes: 1025,
            max: 1024
        }
    );
    let refused = handle.submit(Operation::Get { key: b"" }, 1).unwrap_err();
    assert_eq!(refused, Refused::Error(Error::KeyEmpty { max: 1024 }));
    handle.put(&long[..1024], b"longest key").wait().unwrap();
    let others: Vec<_> = (0..5).map(|_| engine.handle().unwrap()).collect();
    assert_eq!(engine.handle().unwrap_err(), Error::Handles { limit: 6 });
    drop(others);
    engine.handle().unwrap();
    let refused = engine.run_on_core(7, |_| async {}).map(drop);
    let last = engine.shards() - 1;
    let expected = Error::Position { position: 7, last };
    assert_eq!(refused, Err(expected.clone()));
    let text = format!("there is no position 7 in `cores`: positions are 0 to {last}");
    assert_eq!(expected.to_string(), text);
}

#[test]
fn a_dropped_call_is_forgotten() {
    let engine = Engine::open(tiny()).unwrap();
    let mut handle = engine.handle().unwrap();
    handle.put(b"a", b"old").wait().unwrap();
    for round in 0..200u64 {
        let bytes = round.to_le_bytes();
        {
            let mut call = std::pin::pin!(handle.put(b"a", &bytes));
            let mut context = Context::from_waker(Waker::noop());
            let _: Poll<_> = call.as_mut().poll(&mut context);
        }
        // Its late answer is not taken for the answer of this call.
        assert!(handle.get(b"no such key").wait().unwrap().is_none());
    }
    assert_eq!(
        &*handle.get(b"a").wait().unwrap().unwrap(),
        199u64.to_le_bytes()
    );
}

#[test]
fn submitted_requests_are_answered_once_each() {
    let engine = Engine::open(tiny()).unwrap();
    let mut handle = engine.handle().unwrap();
    let (mut next, mut seen) = (0u64, HashSet::new());
    while seen.len() < 20_000 {
        while next < 20_000 {
            let name = key(next % 500);
            let bytes = value(next, 1);
            let operation = if next.is_multiple_of(3) {
                Operation::Get { key: &name }
            } else {
                Operation::Put {
                    key: &name,
                    value: &bytes,
                }
            };
            match handle.submit(operation, next) {
                Ok(()) => next += 1,
                Err(Refused::Full) => break,
                Err(Refused::Error(error)) => panic!("{error}"),
            }
        }
        handle.poll(|token, answer| {
            assert!(!matches!(answer, Answer::Failed(_)), "{answer:?}");
            assert!(seen.insert(token));
        });
    }
    assert_eq!(handle.in_flight(), 0);
}

#[test]
fn many_handles_keep_a_counter_by_compare_and_swap() {
    let engine = Arc::new(Engine::open(tiny()).unwrap());
    let count_up = |engine: Arc<Engine>| {
        let mut handle = engine.handle().unwrap();
        for _ in 0..500 {
            loop {
                let read = handle.get(b"counter").wait().unwrap();
                let (version, count) = read.map_or((0, 0), |value| {
                    let bytes: [u8; 8] = (*value).try_into().unwrap();
                    (value.version(), u64::from_le_bytes(bytes))
                });
                let next = (count + 1).to_le_bytes();
                let swap = handle.compare_and_swap(b"counter", version, &next).wait();
                if matches!(swap.unwrap(), CasOutcome::Stored(_)) {
                    break;
                }
            }
        }
    };
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let engine = Arc::clone(&engine);
            std::thread::spawn(move || count_up(engine))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let mut handle = engine.handle().unwrap();
    assert_eq!(
        &*handle.get(b"counter").wait().unwrap().unwrap(),
        2_000u64.to_le_bytes()
    );
}

#[test]
fn a_refused_configuration_names_its_reason() {
    let refused = |config: Config| Engine::open(config).unwrap_err();
    let error = refused(Config {
        cores: vec![4_000],
        ..tiny()
    });
    assert!(matches!(error, Error::Core { core: 4_000, .. }), "{error}");
    let text = error.to_string();
    let named = "`cores` names core 4000: this process may use [";
    assert!(text.starts_with(named), "{text}");
    for local_bytes in [0, 4096, 1 << 20] {
        let error = refused(Config {
            local_bytes,
            ..tiny()
        });
        let named = matches!(error, Error::LocalMemory { least, .. } if least > local_bytes);
        assert!(named, "{error}");
    }
    let error = refused(Config {
        local_bytes: 16 << 20,
        keys_expected: 1 << 30,
        ..tiny()
    });
    let known = matches!(error, Error::LocalMemory { .. } | Error::Config { .. });
    assert!(known, "{error}");
    let field = |error: &Error| match error {
        Error::Config { field, .. } => *field,
        error => panic!("{error}"),
    };
    let huge = refused(Config {
        keys_expected: u64::MAX,
        ..tiny()
    });
    assert_eq!(field(&huge), "keys_expected");
    let huge = refused(Config {
        handles_max: usize::MAX,
        ..tiny()
    });
    assert_eq!(field(&huge), "handles_max");
    let huge = refused(Config {
        far_bytes: u64::MAX,
        ..tiny()
    });
    assert_eq!(field(&huge), "far_bytes");
    let error = refused(Config {
        far_bytes: 1 << 60,
        ..tiny()
    });
    assert!(
        matches!(error, Error::Memory { .. } | Error::Config { .. }),
        "{error}"
    );
}

/// The minimum that an error names opens, serves and evicts, and so does more.
#[test]
fn the_least_local_memory_is_enough() {
    for keys_expected in [0, 150_000, 700_000, 3_200_000] {
        let config = Config {
            local_bytes: 1 << 20,
            keys_expected,
            lane_bytes: None,
            ..tiny()
        };
        let Err(Error::LocalMemory { least: named, .. }) = config.validate() else {
            panic!("1 MiB is enough");
        };
        for more in (0..6).map(|step| step * 300_000) {
            let engine = Engine::open(Config {
                local_bytes: named + more,
                ..config.clone()
            });
            let engine = engine.unwrap();
            let mut handle = engine.handle().unwrap();
            for number in 0..10_000 {
                handle.put(&key(number), &value(number, 0)).wait().unwrap();
            }
            for number in (0..10_000).step_by(7) {
                let read = answer_to(handle.get(&key(number))).unwrap().unwrap();
                assert_eq!(&*read, value(number, 0), "{number}");
            }
        }
    }
}

#[test]
fn a_client_that_does_not_poll_delays_no_other() {
    let engine = Engine::open(Config {
        cores: cores(1),
        handle_lane_bytes: 64 << 10,
        ..tiny()
    })
    .unwrap();
    let (mut one, mut other) = (engine.handle().unwrap(), engine.handle().unwrap());
    for number in 0..40_000 {
        one.put(&key(number), &value(number, 0)).wait().unwrap();
    }
    // Far keys in random order, so that nothing is read ahead. More than a shard has flights, and
    // than a lane holds answers.
    let mut sent = 0;
    while one
        .submit(
            Operation::Get {
                key: &key(sent * 7_919 % 15_000),
            },
            sent,
        )
        .is_ok()
    {
        sent += 1;
    }
    assert!(sent > 800, "{sent}");
    // Publishes the requests, and does not poll again until the shard accepts no more.
    let mut seen = one.poll(|_, _| {});
    while engine.stats().total.back_pressure == 0 {
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
    for number in (0..4_000).step_by(13) {
        let read = answer_to(other.get(&key(number))).unwrap().unwrap();
        assert_eq!(&*read, value(number, 0), "{number}");
    }
    while one.in_flight() > 0 {
        seen += one.poll(|_, _| {});
    }
    assert_eq!(seen as u64, sent);
}

#[test]
fn a_visitor_that_panics_sees_no_answer_twice() {
    let config = Config {
        local_bytes: 64 << 20,
        page_bytes: Some(256 << 10),
        cores: cores(1),
        ..tiny()
    };
    let engine = Engine::open(config).unwrap();
    let mut handle = engine.handle().unwrap();
    for number in 0..20u64 {
        handle
            .put(&key(number), &vec![number as u8; 50_000])
            .wait()
            .unwrap();
    }
    for number in 0..20u64 {
        handle
            .submit(Operation::Get { key: &key(number) }, number)
            .unwrap();
    }
    let mut seen = Vec::new();
    while handle.in_flight() > 0 {
        let look = std::panic::AssertUnwindSafe(|| {
            handle.poll(|token, answer| {
                let Answer::Value { value, .. } = answer else {
                    panic!("{answer:?}")
                };
                assert!(value.len() == 50_000 && value.iter().all(|&byte| byte == token as u8));
                seen.push(token);
                assert!(token % 5 != 4, "planted");
            })
        });
        let _ = std::panic::catch_unwind(look);
    }
    assert_eq!(seen.len(), 20, "{seen:?}");
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 20);
}

/// Keys that growth of the index cannot divide, chosen with the engine's seed.
#[test]
fn colliding_keys_are_refused_and_end_nothing() {
    const SEED: u64 = 7;
    let engine = Engine::open(Config {
        cores: cores(1),
        seed: Some(SEED),
        keys_expected: 20_000,
        ..tiny()
    })
    .unwrap();
    // One bucket of the first 32nd of the index, and tags that belong in one of three segments but
    // in both of two.
    let is_chosen = |key: &u64| {
        let hash = xxhash_rust::xxh3::xxh3_128_with_seed(&key.to_le_bytes(), SEED);
        let tag = hash >> 8 & 0x3fff;
        hash & 0xff == 5 && (5_462..10_922).contains(&tag) && (hash >> 32 & 0xffff_ffff) < 1 << 27
    };
    let mut handle = engine.handle().unwrap();
    let mut stored = Vec::new();
    let refused = loop {
        let from = stored.last().map_or(0, |&last| last + 1);
        let key = (from..).find(is_chosen).unwrap();
        match handle.put(&key.to_le_bytes(), b"value").wait() {
            Ok(_) => stored.push(key),
            Err(error) => break error,
        }
        assert!(stored.len() < 10_000, "they are no collisions");
    };
    assert!(
        matches!(refused, Error::IndexFull { shard: 0, .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("random `seed`"), "{refused}");
    for key in &stored {
        let read = handle.get(&key.to_le_bytes()).wait().unwrap();
        assert_eq!(&*read.unwrap(), b"value");
    }
    // A place that one of them leaves is free for another.
    assert!(handle.delete(&stored[0].to_le_bytes()).wait().unwrap());
    let mut others = (stored[stored.len() - 1] + 1..).filter(is_chosen);
    let same_side = |key: &u64| {
        let half = |key: u64| {
            let hash = xxhash_rust::xxh3::xxh3_128_with_seed(&key.to_le_bytes(), SEED);
            hash >> 8 & 0x3fff < 8_192
        };
        half(*key) == half(stored[0])
    };
    let other = others.find(same_side).unwrap();
    handle.put(&other.to_le_bytes(), b"value").wait().unwrap();
    // Other keys still work, except those that happen to collide too.
    let refused = (0..5_000)
        .filter(|&number| handle.put(&key(number), b"value").wait().is_err())
        .count();
    assert!(refused < 20, "{refused}");
}
