//! The whole engine against what a map would say, through every form of call.

#![expect(clippy::cast_possible_truncation, reason = "test data wraps")]
#![allow(unsafe_code)] // far memory is damaged on purpose

use std::collections::HashSet;
use std::future::{Future, poll_fn};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use atomic_waker::AtomicWaker;
use farcore::{
    Answer, Config, EncryptionKey, Engine, Error, FaultPlan, Handle, LinkModel, Operation, Refused,
    Reporter, Swap,
};

fn cores(count: usize) -> Vec<usize> {
    Config::default().cores.into_iter().take(count).collect()
}

/// Tiny limits: a few megabytes local, so that most data is far.
fn tiny() -> Config {
    Config {
        cores: cores(2),
        local_bytes: 16 << 20,
        far_bytes: 64 << 20,
        page_bytes: Some(64 << 10),
        keys_expected: 2_000,
        prefault: false,
        huge_pages: false,
        handles_max: 6,
        lane_bytes: 16 << 10,
        ..Config::default()
    }
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number:08}").into_bytes()
}

fn value(number: u64, round: u64) -> Vec<u8> {
    let bytes = 40 + (number * 37 + round * 101) % 900;
    (0..bytes)
        .map(|at| (number * 31 + round * 7 + at) as u8)
        .collect()
}

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
    assert_eq!(swap, Swap::Mismatch(first));
    let Swap::Stored(second) = handle.compare_and_swap(b"a", first, b"two").wait().unwrap() else {
        panic!("the version was right");
    };
    assert!(second > first);
    assert!(matches!(
        handle.compare_and_swap(b"b", 0, b"").wait().unwrap(),
        Swap::Stored(_)
    ));
    assert_eq!(&*handle.get(b"b").wait().unwrap().unwrap(), b"");
    assert!(handle.delete(b"a").wait().unwrap());
    assert!(!handle.delete(b"a").wait().unwrap());
    assert_eq!(engine.stats().local_cap_bytes, 16 << 20);
}

#[test]
fn much_more_than_fits_locally_reads_back() {
    for encryption in [None, Some(EncryptionKey::Aes256([3; 32]))] {
        let engine = Engine::open(Config {
            encryption,
            ..tiny()
        })
        .unwrap();
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
    assert!(matches!(
        engine.run_on_core(7, |_| async {}),
        Err(Error::Core { core: 7, .. })
    ));
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
        // Its late answer is not taken for this one's.
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
fn jobs_on_cores_see_one_store() {
    let engine = Engine::open(tiny()).unwrap();
    let start = |position: usize| {
        let job = move |mut core: farcore::Core| async move {
            let (mut sent, mut done, mut wrong) = (0u64, 0u64, 0u64);
            while done < 40_000 {
                while sent < 40_000 {
                    let number = position as u64 * 1_000_000 + sent % 20_000;
                    let (name, bytes) = (key(number), value(number, 0));
                    let operation = if sent < 20_000 {
                        Operation::Put {
                            key: &name,
                            value: &bytes,
                        }
                    } else {
                        Operation::Get { key: &name }
                    };
                    if core.in_flight() >= 64 || core.submit(operation, number).is_err() {
                        break;
                    }
                    sent += 1;
                }
                core.poll(|token, answer| {
                    done += 1;
                    match answer {
                        Answer::Stored { .. } => {}
                        Answer::Value { value: read, .. } => {
                            wrong += u64::from(read != value(token, 0));
                        }
                        _ => wrong += 1,
                    }
                });
                if done.is_multiple_of(1000) {
                    core.yield_now().await;
                }
            }
            assert!(core.delete(b"nothing").await.is_ok_and(|found| !found));
            let version = core.put(b"shared", b"x").await.unwrap();
            assert!(version > 0);
            wrong
        };
        engine.run_on_core(position, job).unwrap()
    };
    let tasks: Vec<_> = (0..engine.shards()).map(start).collect();
    for task in tasks {
        assert_eq!(task.join().unwrap(), 0);
    }
    let mut handle = engine.handle().unwrap();
    assert_eq!(&*handle.get(&key(7)).wait().unwrap().unwrap(), value(7, 0));
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
                if matches!(swap.unwrap(), Swap::Stored(_)) {
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
fn a_full_far_memory_says_so_and_loses_nothing() {
    let engine = Engine::open(Config {
        far_bytes: 2 << 20,
        cores: cores(1),
        ..tiny()
    })
    .unwrap();
    let mut handle = engine.handle().unwrap();
    let mut stored = Vec::new();
    let error = loop {
        let number = stored.len() as u64;
        match handle.put(&key(number), &value(number, 0)).wait() {
            Ok(_) => stored.push(number),
            Err(error) => break error,
        }
        assert!(number < 1_000_000);
    };
    assert!(
        matches!(error, Error::FarFull { limit, .. } if limit == 2 << 20),
        "{error}"
    );
    for number in &stored {
        let read = handle.get(&key(*number)).wait().unwrap().unwrap();
        assert_eq!(&*read, value(*number, 0));
    }
    for number in stored.iter().take(stored.len() / 2) {
        assert!(handle.delete(&key(*number)).wait().unwrap());
    }
    for number in 0..500 {
        handle.put(&key(number), &value(number, 1)).wait().unwrap();
    }
}

#[test]
fn a_lost_node_is_an_error_and_comes_back() {
    let faults = FaultPlan {
        sticky: true,
        ..FaultPlan::default()
    };
    let link = LinkModel {
        faults,
        ..LinkModel::default()
    };
    let engine = Engine::open(Config { link, ..tiny() }).unwrap();
    let mut handle = engine.handle().unwrap();
    for number in 0..50_000 {
        handle.put(&key(number), &value(number, 0)).wait().unwrap();
    }
    engine.embedded_nodes()[0].lose();
    let errors = (0..2_000)
        .filter(|&n| handle.get(&key(n)).wait().is_err())
        .count();
    assert!(errors > 0, "the oldest keys are far");
    engine.embedded_nodes()[0].restore();
    for number in 0..50_000 {
        let read = handle.get(&key(number)).wait().unwrap().unwrap();
        assert_eq!(&*read, value(number, 0), "{number}");
    }
}

#[test]
fn one_lost_node_of_two_keeps_its_own_keys_and_no_others() {
    let engine = Engine::open(Config {
        embedded_nodes: 2,
        ..tiny()
    })
    .unwrap();
    let total = engine.stats().far_total_bytes;
    assert_eq!(total, 64 << 20, "both shards' shares of both nodes");
    let mut handle = engine.handle().unwrap();
    let count = 50_000;
    for number in 0..count {
        handle.put(&key(number), &value(number, 0)).wait().unwrap();
    }
    let stats = engine.stats();
    let of_shards: u64 = stats.shards.iter().map(|shard| shard.far_used_bytes).sum();
    assert!(stats.far_used_bytes == of_shards && of_shards > 8 << 20);
    // Each key is on one of them, or local.
    let mut lost_on = [HashSet::new(), HashSet::new()];
    for (place, lost) in lost_on.iter_mut().enumerate() {
        engine.embedded_nodes()[place].lose();
        for number in (0..count).step_by(7) {
            match handle.get(&key(number)).wait() {
                Ok(read) => assert_eq!(&*read.unwrap(), value(number, 0), "{number}"),
                Err(Error::Unavailable { node, .. }) => {
                    assert_eq!(*node, *format!("embedded-{place}"));
                    lost.insert(number);
                }
                Err(error) => panic!("{number}: {error}"),
            }
        }
        // The other node takes what comes, and all of it.
        for number in count..count + 2_000 {
            match handle.put(&key(number), &value(number, 0)).wait() {
                // The key's tag may be that of a lost one.
                Ok(_) | Err(Error::Unavailable { .. }) => {}
                Err(error) => panic!("{number}: {error}"),
            }
        }
        engine.flush().unwrap();
        engine.compact().unwrap();
        engine.embedded_nodes()[place].restore();
        for number in (0..count).step_by(7) {
            let read = handle.get(&key(number)).wait().unwrap().unwrap();
            assert_eq!(&*read, value(number, 0), "{number}");
        }
    }
    for lost in &lost_on {
        assert!(lost.len() > 1_000 && lost.len() < 6_000, "{}", lost.len());
    }
}

#[test]
fn closing_answers_what_is_under_way() {
    let engine = Engine::open(tiny()).unwrap();
    let mut handle = engine.handle().unwrap();
    let mut sent = 0;
    while sent < 100
        && handle
            .submit(
                Operation::Put {
                    key: &key(sent),
                    value: b"v",
                },
                sent,
            )
            .is_ok()
    {
        sent += 1;
    }
    let mut seen = handle.poll(|_, _| {}) as u64;
    engine.close();
    while handle.in_flight() > 0 {
        let stored = |_, answer: Answer<'_>| assert!(matches!(answer, Answer::Stored { .. }));
        seen += handle.poll(stored) as u64;
    }
    assert_eq!(seen, sent);
    assert_eq!(handle.get(b"a").wait().unwrap_err(), Error::Closed);
    assert_eq!(engine.handle().unwrap_err(), Error::Closed);
    engine.close();
}

#[test]
fn a_job_that_panics_ends_alone() {
    let engine = Engine::open(tiny()).unwrap();
    let job = |_core: farcore::Core| async { panic!("of its own") };
    let task = engine.run_on_core::<(), _>(0, job).unwrap();
    let reason = "of its own".to_owned();
    assert_eq!(task.join(), Err(Error::JobPanicked { reason }));
    let mut handle = engine.handle().unwrap();
    handle.put(b"a", b"still served").wait().unwrap();
    engine.close();
    let refused = engine.run_on_core(0, |_| async {}).map(drop);
    assert_eq!(refused.unwrap_err(), Error::Closed);
}

#[test]
fn closing_under_fire_answers_everything_once() {
    for _ in 0..20 {
        let engine = Engine::open(tiny()).unwrap();
        let fire = |mut handle: Handle| {
            let (mut sent, mut seen) = (0u64, HashSet::new());
            loop {
                let put = Operation::Put {
                    key: &key(sent % 100),
                    value: b"v",
                };
                match handle.submit(put, sent) {
                    Ok(()) => sent += 1,
                    Err(Refused::Full) => {}
                    Err(Refused::Error(error)) => {
                        assert_eq!(error, Error::Closed);
                        break;
                    }
                }
                handle.poll(|token, _| assert!(seen.insert(token)));
            }
            while handle.in_flight() > 0 {
                handle.poll(|token, _| assert!(seen.insert(token)));
            }
            assert_eq!(seen.len() as u64, sent);
        };
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let handle = engine.handle().unwrap();
                std::thread::spawn(move || fire(handle))
            })
            .collect();
        let task = engine.run_on_core(0, |mut core| async move {
            for number in 0..2_000 {
                core.put(&key(number), b"from a core").await.unwrap();
            }
        });
        engine.close();
        task.unwrap().join().unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
    }
}

#[test]
fn what_cannot_be_opened_says_why() {
    let refused = |config: Config| Engine::open(config).unwrap_err();
    let error = refused(Config {
        cores: vec![4_000],
        ..tiny()
    });
    assert!(matches!(error, Error::Core { core: 4_000, .. }), "{error}");
    assert!(error.to_string().contains("4000"), "{error}");
    for local_bytes in [0, 4096, 1 << 20] {
        let error = refused(Config {
            local_bytes,
            ..tiny()
        });
        let Error::Config { field, limit, .. } = &error else {
            panic!("{error}");
        };
        assert!(*field == "local_bytes" && !limit.is_empty(), "{error}");
    }
    let error = refused(Config {
        local_bytes: 16 << 20,
        keys_expected: 1 << 30,
        ..tiny()
    });
    assert!(matches!(error, Error::Config { .. }), "{error}");
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

#[test]
fn an_idle_engine_sleeps() {
    let engine = Engine::open(tiny()).unwrap();
    let mut handle = engine.handle().unwrap();
    for number in 0..100 {
        handle.put(&key(number), b"v").wait().unwrap();
    }
    let asleep = |engine: &Engine| engine.stats().shards.iter().all(|shard| shard.parks > 0);
    while !asleep(&engine) {
        std::thread::yield_now();
    }
    let parks = engine.stats().total.parks;
    std::thread::sleep(std::time::Duration::from_millis(500));
    let more = engine.stats().total.parks - parks;
    // Each core wakes by its timer a few times a second, and not otherwise.
    assert!(more <= 20, "woke {more} times");
    handle.put(b"a", b"awake at once").wait().unwrap();
}

/// What a job and the test that started it tell each other.
struct Signal {
    given: AtomicBool,
    waker: AtomicWaker,
}

impl Signal {
    const fn new() -> Self {
        Self {
            given: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        }
    }

    fn give(&self) {
        self.given.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    fn is_given(&self) -> bool {
        self.given.load(Ordering::SeqCst)
    }

    async fn wait(&self) {
        poll_fn(|context| {
            self.waker.register(context.waker());
            if self.is_given() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    fn block(&self) {
        while !self.is_given() {
            std::thread::yield_now();
        }
    }
}

#[test]
fn a_job_that_stops_polling_leaves_its_shard_to_the_service() {
    let engine = Engine::open(tiny()).unwrap();
    let mut handle = engine.handle().unwrap();
    let signals = Arc::new([const { Signal::new() }; 2]);
    let task = {
        let signals = Arc::clone(&signals);
        let job = move |mut core: farcore::Core| async move {
            for number in 0..1_000 {
                core.put(&key(number), &value(number, 0)).await.unwrap();
            }
            signals[0].give();
            signals[1].wait().await;
        };
        engine.run_on_core(0, job).unwrap()
    };
    signals[0].block();
    for number in 0..1_000 {
        let read = handle.get(&key(number)).wait().unwrap().unwrap();
        assert_eq!(&*read, value(number, 0), "{number}");
    }
    signals[1].give();
    task.join().unwrap();
}

#[test]
fn a_job_that_yields_serves_its_shard() {
    const YIELDS: u64 = 10_000;
    let engine = Engine::open(tiny()).unwrap();
    let reporter = engine.reporter();
    let job = move |mut core: farcore::Core| async move {
        let turns = || reporter.report().cores[0].counters.turns;
        core.put(b"a", b"so that the service naps").await.unwrap();
        let before = turns();
        for _ in 0..YIELDS {
            core.yield_now().await;
        }
        turns() - before
    };
    let turns = engine.run_on_core(0, job).unwrap().join().unwrap();
    assert!(turns > YIELDS / 2, "{turns}");
}

#[test]
fn a_client_that_polls_wakes_its_core() {
    let engine = Engine::open(tiny()).unwrap();
    let reporter = Arc::new(engine.reporter());
    let sleeps = move || {
        let counters = &reporter.report().cores[0].counters;
        counters.parks.wrapping_sub(counters.wakes) == 1
    };
    let mut woken = 0;
    // The core wakes by its timer as well, so that one round does not tell.
    for _ in 0..10 {
        let signals = Arc::new([const { Signal::new() }; 2]);
        let (told, asleep) = (Arc::clone(&signals), sleeps.clone());
        let job = move |mut core: farcore::Core| async move {
            told[0].give();
            told[1].wait().await;
            // Nobody else runs on this core between these two.
            let was_asleep = asleep();
            core.poll(|_, _| {});
            (was_asleep, asleep())
        };
        let task = engine.run_on_core(0, job).unwrap();
        signals[0].block();
        while !sleeps() {
            std::thread::yield_now();
        }
        signals[1].give();
        let (before, after) = task.join().unwrap();
        assert!(!after);
        woken += u32::from(before);
    }
    assert!(woken > 0);
}

#[test]
fn a_core_that_sleeps_hears_another() {
    let engine = Engine::open(tiny()).unwrap();
    for round in 0..20 {
        let parks = |engine: &Engine| -> Vec<u64> {
            engine
                .stats()
                .shards
                .iter()
                .map(|shard| shard.parks.wrapping_sub(shard.wakes))
                .collect()
        };
        while parks(&engine) != [1, 1] {
            std::thread::yield_now();
        }
        let job = move |mut core: farcore::Core| async move {
            for number in 0..10 {
                core.put(&key(number), &value(number, round)).await.unwrap();
                let (_, read) = core.get(&key(number)).await.unwrap().unwrap();
                assert_eq!(read, value(number, round));
            }
        };
        engine.run_on_core(0, job).unwrap().join().unwrap();
    }
}

#[test]
fn damaged_far_memory_is_noticed_not_believed() {
    let engine = Engine::open(Config {
        cores: cores(1),
        ..tiny()
    })
    .unwrap();
    let mut handle = engine.handle().unwrap();
    let count = 50_000;
    for number in 0..count {
        let (name, bytes) = (key(number), value(number, 0));
        handle
            .put_many(&[(&name, &bytes)], |_, answer| {
                assert!(matches!(answer, Answer::Stored { .. }));
            })
            .unwrap();
    }
    engine.flush().unwrap();
    for place in 0..2_000 {
        damage(&engine, place * 16_384 + 777);
    }
    let mut damaged = 0;
    for number in 0..count {
        match handle.get(&key(number)).wait() {
            Ok(Some(read)) => assert_eq!(&*read, value(number, 0), "{number}"),
            Ok(None) => panic!("{number} was lost without a word"),
            Err(Error::Damaged { .. }) => damaged += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(damaged > 50, "{damaged}");
}

#[test]
fn a_dropped_call_on_a_core_is_forgotten() {
    let engine = Engine::open(tiny()).unwrap();
    let job = |mut core: farcore::Core| async move {
        for number in 0..500 {
            core.put(&key(number), &value(number, 0)).await.unwrap();
        }
        for number in 0..500u64 {
            {
                let name = key(number);
                let mut call = std::pin::pin!(core.get(&name));
                let mut context = Context::from_waker(Waker::noop());
                let _: Poll<_> = call.as_mut().poll(&mut context);
            }
            // A submitted request may be in flight beside a call.
            core.submit(Operation::Get { key: &key(3) }, 77).unwrap();
            let other = (number + 1) % 500;
            let (_, read) = core.get(&key(other)).await.unwrap().unwrap();
            assert_eq!(read, value(other, 0), "{number}");
            let mut seen = 0;
            while core.in_flight() > 0 {
                core.poll(|token, answer| {
                    assert_eq!(token, 77);
                    assert!(
                        matches!(answer, Answer::Value { value: read, .. } if read == value(3, 0))
                    );
                    seen += 1;
                });
            }
            assert_eq!(seen, 1);
        }
    };
    engine.run_on_core(0, job).unwrap().join().unwrap();
}

#[test]
fn closing_does_not_wait_for_who_does_not_look() {
    let engine = Engine::open(tiny()).unwrap();
    let mut handle = engine.handle().unwrap();
    for number in 0..300 {
        handle.put(&key(number), &[7; 1500]).wait().unwrap();
    }
    let mut sent = 0;
    while handle
        .submit(Operation::Get { key: &key(sent) }, sent)
        .is_ok()
        && sent < 299
    {
        sent += 1;
    }
    // Shows what was sent; more answers are due than a lane holds.
    let mut seen = handle.poll(|_, _| {}) as u64;
    let due = handle.in_flight() as u64 + seen;
    while engine.stats().total.back_pressure == 0 {
        std::thread::yield_now();
    }
    engine.close();
    let (mut values, mut closed) = (0, 0);
    while handle.in_flight() > 0 {
        seen += handle.poll(|_, answer| match answer {
            Answer::Value { value, .. } => {
                assert_eq!(value, [7; 1500]);
                values += 1;
            }
            answer => {
                assert_eq!(answer, Answer::Failed(Error::Closed));
                closed += 1;
            }
        }) as u64;
    }
    assert_eq!(seen, due, "{values} values, {closed} refusals");
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The answer to a call. One that is never answered ends the process: what holds it up may keep the engine from closing
/// as well.
fn answer_to<T>(call: impl Future<Output = T>) -> T {
    let start = std::time::Instant::now();
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut call = std::pin::pin!(call);
    loop {
        if let Poll::Ready(answer) = call.as_mut().poll(&mut Context::from_waker(&waker)) {
            return answer;
        }
        std::thread::park_timeout(std::time::Duration::from_millis(10));
        if start.elapsed().as_secs() >= 60 {
            let _ = std::io::stderr().write_all(b"a call was never answered\n");
            std::process::abort();
        }
    }
}

#[test]
fn puts_on_a_lost_node_end_in_an_error_and_lose_nothing() {
    let engine = Engine::open(tiny()).unwrap();
    let mut handle = engine.handle().unwrap();
    let mut stored = 0;
    while stored < 30_000 {
        handle.put(&key(stored), &value(stored, 0)).wait().unwrap();
        stored += 1;
    }
    engine.embedded_nodes()[0].lose();
    // A key whose tag is that of a far one cannot be told from it, and fails alone. This is when every key fails.
    let mut in_a_row = 0;
    let mut there = stored;
    let mut holds: Vec<u64> = Vec::new();
    while in_a_row < 100 {
        match answer_to(handle.put(&key(there), &value(there, 0))) {
            Ok(_) => {
                holds.push(there);
                in_a_row = 0;
            }
            Err(Error::Unavailable { node, reason }) => {
                assert_eq!(&*node, "embedded-0", "{reason}");
                in_a_row += 1;
            }
            Err(error) => panic!("{error}"),
        }
        there += 1;
        assert!(there < 300_000, "local memory holds everything");
    }
    let error = engine.flush().unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    engine.embedded_nodes()[0].restore();
    let mut tries = 0;
    while handle.put(&key(there), &value(there, 0)).wait().is_err() {
        std::thread::sleep(std::time::Duration::from_millis(1));
        tries += 1;
        assert!(tries < 10_000, "never came back");
    }
    for number in (0..stored).chain(holds).chain([there]) {
        let read = handle.get(&key(number)).wait().unwrap().unwrap();
        assert_eq!(&*read, value(number, 0), "{number}");
    }
    engine.flush().unwrap();
    engine.embedded_nodes()[0].lose();
    let _ = handle.put(b"a", b"b").wait();
    engine.close();
}

#[test]
fn far_memory_that_two_shards_fill_says_so() {
    let engine = Engine::open(Config {
        far_bytes: 4 << 20,
        ..tiny()
    })
    .unwrap();
    let mut handle = engine.handle().unwrap();
    let mut held = std::collections::HashMap::new();
    let (mut refused, mut round) = (0, 0);
    for number in 0..120_000u64 {
        let name = number % 60_000;
        round += u64::from(name == 0);
        match handle.put(&key(name), &value(name, round)).wait() {
            Ok(_) => {
                held.insert(name, round);
            }
            Err(Error::FarFull { limit, .. }) => {
                assert_eq!(limit, (4 << 20) / engine.shards() as u64);
                refused += 1;
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 1_000, "{refused}");
    let error = engine.flush().unwrap_err();
    assert!(matches!(error, Error::FarFull { .. }), "{error}");
    let _ = engine.compact();
    for (&name, &round) in &held {
        let read = handle.get(&key(name)).wait().unwrap().unwrap();
        assert_eq!(&*read, value(name, round), "{name}");
    }
    engine.close();
}

#[test]
fn who_does_not_look_does_not_hold_up_others() {
    let engine = Engine::open(Config {
        cores: cores(1),
        lane_bytes: 64 << 10,
        ..tiny()
    })
    .unwrap();
    let (mut one, mut other) = (engine.handle().unwrap(), engine.handle().unwrap());
    for number in 0..40_000 {
        one.put(&key(number), &value(number, 0)).wait().unwrap();
    }
    // Far keys in no order, so that nothing is read ahead; more than a shard has READs, and than a lane holds answers.
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
    // Shows what was sent, and does not look again until the shard takes no more of it.
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

#[test]
fn damage_in_long_records_is_noticed_by_every_operation() {
    let config = Config {
        local_bytes: 24 << 20,
        far_bytes: 128 << 20,
        page_bytes: Some(128 << 10),
        cores: cores(1),
        ..tiny()
    };
    let engine = Engine::open(config).unwrap();
    let mut handle = engine.handle().unwrap();
    let long = |number: u64| vec![number as u8; 20_000 + (number as usize * 37) % 9_000];
    let count = 2_000;
    for number in 0..count {
        handle.put(&key(number), &long(number)).wait().unwrap();
    }
    engine.flush().unwrap();
    for place in 0..8_000 {
        damage(&engine, place * 12_001 + 5);
    }
    let (mut damaged, mut fine) = ([0; 3], 0);
    for number in 0..count {
        let outcome = match number % 3 {
            0 => handle.get(&key(number)).wait().map(|read| {
                assert_eq!(&*read.unwrap(), long(number), "{number}");
            }),
            1 => handle
                .delete(&key(number))
                .wait()
                .map(|found| assert!(found)),
            _ => handle.put(&key(number), &long(number + 1)).wait().map(drop),
        };
        match outcome {
            Ok(()) => fine += 1,
            Err(Error::Damaged { .. }) => damaged[number as usize % 3] += 1,
            Err(error) => panic!("{error}"),
        }
    }
    // Gets, deletes and puts alike.
    assert!(
        damaged.iter().all(|&damaged| damaged > 50) && fine > 100,
        "{damaged:?} damaged, {fine} fine"
    );
    engine.close();
}

fn damage(engine: &Engine, offset: usize) {
    // SAFETY: no request is under way: the calls before this one were waited for, and what was sealed is flushed.
    unsafe { engine.embedded_nodes()[0].damage(offset) };
}
