//! Jobs on cores, and which task serves a shard while they run.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use atomic_waker::AtomicWaker;
use farcore::{
    Answer, Config, Core, Engine, Error, LinkModel, Operation, Refused, Reporter, Result,
};
use glommio::timer::sleep;

use crate::support::{answer_to, cores, key, tiny, value};

#[test]
fn many_operations_of_a_job_are_answered_with_their_places() {
    let engine = Engine::open(tiny()).unwrap();
    let job = |mut core: farcore::Core| async move {
        let count = 5000u64;
        let names: Vec<_> = (0..count).map(key).collect();
        let values: Vec<_> = (0..count).map(|number| value(number, 0)).collect();
        let keys: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let bytes = values.iter().map(Vec::as_slice);
        let pairs: Vec<_> = keys.iter().copied().zip(bytes).collect();
        let mut stored = vec![0; pairs.len()];
        let count_stored = |place: usize, answer: Answer<'_>| {
            stored[place] += usize::from(matches!(answer, Answer::Stored { .. }));
        };
        core.put_many(&pairs, count_stored).await.unwrap();
        assert!(stored.iter().all(|&times| times == 1));
        // Removes every second key, and reads one key more than was stored.
        let (removed, left): (Vec<_>, Vec<_>) =
            keys.iter().enumerate().partition(|one| one.0 % 2 == 0);
        let removed: Vec<&[u8]> = removed.into_iter().map(|(_, key)| *key).collect();
        let mut deleted = 0;
        let count_deleted =
            |_, answer: Answer<'_>| deleted += usize::from(answer == Answer::Deleted);
        core.delete_many(&removed, count_deleted).await.unwrap();
        assert_eq!(deleted, removed.len());
        let mut right = 0;
        let check = |place: usize, answer: Answer<'_>| {
            right += usize::from(match answer {
                Answer::Absent => place.is_multiple_of(2),
                Answer::Value { value, .. } => !place.is_multiple_of(2) && value == values[place],
                _ => false,
            });
        };
        core.get_many(&keys, check).await.unwrap();
        assert_eq!(right, keys.len());
        // A call's answers are no other call's: drop this one half-way.
        {
            let all = keys.iter().map(|key| Operation::Get { key });
            let mut dropped = std::pin::pin!(core.many(all, |_, _| {}));
            let _: Poll<_> = dropped
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()));
        }
        let (place, name) = left[0];
        assert_eq!(*core.get(name).await.unwrap().unwrap(), values[place]);
        // Operations before a mistake are carried out.
        let mut seen = 0;
        let mistake = [Operation::Get { key: keys[1] }, Operation::Get { key: b"" }];
        let outcome = core.many(mistake, |_, _| seen += 1).await;
        assert!(matches!(outcome, Err(Error::KeyEmpty { .. })) && seen == 1);
    };
    answer_to(engine.run_on_core(0, job).unwrap()).unwrap();
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

/// State shared by a job and the test that started it.
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

/// Starts a job on the first core, and continues it once the core sleeps.
fn on_a_sleeping_core<T, F>(
    engine: &Engine,
    sleeps: impl Fn() -> bool,
    job: impl FnOnce(farcore::Core) -> F + Send + 'static,
) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let signals = Arc::new([const { Signal::new() }; 2]);
    let in_job = Arc::clone(&signals);
    let waiting = move |core: farcore::Core| async move {
        in_job[0].give();
        in_job[1].wait().await;
        job(core).await
    };
    let task = engine.run_on_core(0, waiting)?;
    signals[0].block();
    while !sleeps() {
        std::thread::yield_now();
    }
    signals[1].give();
    task.join()
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
    // The core also wakes by its timer, so one round proves nothing.
    for _ in 0..10 {
        let asleep = sleeps.clone();
        let job = move |mut core: farcore::Core| async move {
            // No other task runs on this core between these two.
            let was_asleep = asleep();
            core.poll(|_, _| {});
            (was_asleep, asleep())
        };
        let (before, after) = on_a_sleeping_core(&engine, &sleeps, job).unwrap();
        assert!(!after);
        woken += u32::from(before);
    }
    assert!(woken > 0);
}

#[test]
fn a_request_submitted_to_a_sleeping_core_is_served_without_a_poll() {
    let engine = Engine::open(Config {
        cores: cores(1),
        ..tiny()
    })
    .unwrap();
    let reporter = Arc::new(engine.reporter());
    // Whether the core sleeps, and what it has stored.
    let seen = move || {
        let counters = &reporter.report().cores[0].counters;
        let sleeps = counters.parks.wrapping_sub(counters.wakes) == 1;
        (sleeps, counters.puts)
    };
    let mut woken = 0;
    // The core also wakes by its timer, so one round proves nothing.
    for round in 0..10 {
        let seen_there = seen.clone();
        let job = move |mut core: farcore::Core| async move {
            let (was_asleep, _) = seen_there();
            let operation = Operation::Put {
                key: &key(round),
                value: &value(round, 0),
            };
            core.submit(operation, round).unwrap();
            // Each yield runs every ready task of the core; all together take a fraction of the
            // timer.
            for _ in 0..10 {
                sleep(Duration::from_millis(1)).await;
            }
            (was_asleep, seen_there().1)
        };
        let (was_asleep, puts) = on_a_sleeping_core(&engine, || seen().0, job).unwrap();
        assert_eq!(puts, round + 1);
        woken += u32::from(was_asleep);
    }
    assert!(woken > 0);
}

#[test]
fn a_core_serves_a_few_requests_to_a_sleeping_one_itself_and_wakes_it_for_more() {
    const ROUNDS: u64 = 20;
    let engine = Engine::open(tiny()).unwrap();
    let there = (0..).map(key).find(|key| engine.shard_of(key) == 1);
    let there = there.unwrap();
    let mut heard_at_once = 0;
    for round in 0..ROUNDS {
        let count = if round % 2 == 0 { 1 } else { 40 };
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
        let there = there.clone();
        let job = move |mut core: farcore::Core| async move {
            for token in 0..count {
                core.submit(Operation::Get { key: &there }, token).unwrap();
            }
            // All together take a fraction of the other's timer.
            for _ in 0..10 {
                core.poll(|_, _| {});
                sleep(Duration::from_millis(1)).await;
            }
            let is_heard = core.poll(|_, _| {}) > 0 || core.in_flight() == 0;
            for number in 0..10 {
                core.put(&key(number), &value(number, round)).await.unwrap();
                let read = core.get(&key(number)).await.unwrap().unwrap();
                assert_eq!(*read, value(number, round));
            }
            is_heard
        };
        heard_at_once += u64::from(engine.run_on_core(0, job).unwrap().join().unwrap());
    }
    // By the timer alone it happens in one of twenty.
    assert!(heard_at_once > ROUNDS / 2, "{heard_at_once}");
    let lent = engine.stats().shards[1].requests_lent;
    assert!(lent > 0, "a core serves itself at a sleeping shard");
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
            let read = core.get(&key(other)).await.unwrap().unwrap();
            assert_eq!(*read, value(other, 0), "{number}");
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
fn a_full_lane_delays_no_other() {
    let engine = Engine::open(tiny()).unwrap();
    let [own, away] = [0, 1].map(|shard| {
        let mut keys = (0..).map(key);
        keys.find(|key| engine.shard_of(key) == shard).unwrap()
    });
    let signals = Arc::new([const { Signal::new() }; 2]);
    let in_job = Arc::clone(&signals);
    let busy = async move |_| {
        in_job[0].give();
        in_job[1].block();
    };
    let busy = engine.run_on_core(1, busy).unwrap();
    signals[0].block();
    let job = async move |mut core: farcore::Core| {
        let mut sent = 0;
        while core.submit(Operation::Get { key: &away }, sent).is_ok() {
            sent += 1;
        }
        assert!(
            (1..1024).contains(&sent),
            "the lane is full, not the client"
        );
        for number in 0..100 {
            let put = Operation::Put {
                key: &own,
                value: b"value",
            };
            core.submit(put, number).unwrap();
            let mut seen = Vec::new();
            core.poll(|token, answer| {
                assert!(matches!(answer, Answer::Stored { .. }));
                seen.push(token);
            });
            assert_eq!(seen, [number]);
        }
        let refused = core.submit(Operation::Get { key: &away }, sent);
        assert_eq!(refused, Err(Refused::Full));
        signals[1].give();
        let mut seen = Vec::new();
        while core.in_flight() > 0 {
            core.poll(|token, _| seen.push(token));
            core.yield_now().await;
        }
        assert!(seen.into_iter().eq(0..sent));
    };
    engine.run_on_core(0, job).unwrap().join().unwrap();
    busy.join().unwrap();
}

#[test]
fn requests_that_a_shard_cannot_serve_yet_wait_in_order() {
    const KEYS: u64 = 50_000;
    let engine = Engine::open(Config {
        cores: cores(1),
        link: LinkModel {
            latency_ns: 200_000,
            ..LinkModel::default()
        },
        ..tiny()
    })
    .unwrap();
    let job = async move |mut core: farcore::Core| {
        for number in 0..KEYS {
            let put = |core: &mut farcore::Core| {
                let (key, value) = (key(number), value(number, 0));
                let (key, value) = (&key[..], &value[..]);
                core.submit(Operation::Put { key, value }, number)
            };
            while put(&mut core).is_err() {
                core.poll(|_, _| {});
                core.yield_now().await;
            }
        }
        while core.in_flight() > 0 {
            core.poll(|_, _| {});
            core.yield_now().await;
        }
        // Most of these are far, and more than may wait for far memory at once.
        let asked: Vec<u64> = (0..80).map(|place| place * 601 % KEYS).collect();
        for step in 0..3 {
            for &number in &asked {
                let (key, value) = (key(number), value(number, 1));
                let (key, value) = (&key[..], &value[..]);
                let operation = match step {
                    1 => Operation::Put { key, value },
                    _ => Operation::Get { key },
                };
                core.submit(operation, number << 2 | step).unwrap();
            }
        }
        let mut steps = HashMap::new();
        while core.in_flight() > 0 {
            core.poll(|token, answer| {
                let (number, step) = (token >> 2, token & 3);
                let done = steps.entry(number).or_insert(0);
                assert_eq!(step, *done, "key {number}");
                *done += 1;
                match answer {
                    Answer::Value { value: read, .. } => assert_eq!(read, value(number, step / 2)),
                    answer => assert!(step == 1 && matches!(answer, Answer::Stored { .. })),
                }
            });
            core.yield_now().await;
        }
        assert!(asked.iter().all(|number| steps[number] == 3));
    };
    let before = engine.stats().total.back_pressure;
    engine.run_on_core(0, job).unwrap().join().unwrap();
    let total = engine.stats().total;
    assert!(
        total.far_reads > 0 && total.back_pressure > before,
        "{total:?}"
    );
    // No work is left that keeps the core awake.
    while engine.stats().total.parks == engine.stats().total.wakes {
        std::thread::yield_now();
    }
}

/// One core, so one shard.
fn one_core() -> Config {
    Config {
        cores: cores(1),
        ..tiny()
    }
}

/// Waits for a condition that other jobs of the core fulfil.
async fn until(core: &farcore::Core, is_met: impl Fn() -> bool) {
    while !is_met() {
        core.yield_now().await;
    }
}

#[test]
fn three_hundred_jobs_of_one_core_all_run_at_once() {
    const JOBS: u64 = 300;
    let engine = Engine::open(one_core()).unwrap();
    let started = Arc::new(AtomicU64::new(0));
    let start = |number| {
        let started = Arc::clone(&started);
        let job = async move |mut core: farcore::Core| {
            core.put(&key(number), &value(number, 0)).await.unwrap();
            let get = Operation::Get { key: &key(number) };
            core.submit(get, number).unwrap();
            started.fetch_add(1, Ordering::SeqCst);
            until(&core, || started.load(Ordering::SeqCst) == JOBS).await;
            let mut seen = false;
            while core.in_flight() > 0 {
                core.poll(|token, answer| {
                    assert_eq!(token, number);
                    let expected = value(number, 0);
                    seen = matches!(answer, Answer::Value { value, .. } if value == expected);
                });
                core.yield_now().await;
            }
            seen
        };
        engine.run_on_core(0, job).unwrap()
    };
    let tasks: Vec<_> = (0..JOBS).map(start).collect();
    assert!(tasks.into_iter().all(|task| task.join() == Ok(true)));
}

#[test]
fn a_job_may_start_any_number_of_jobs_on_its_own_core() {
    let engine = Arc::new(Engine::open(one_core()).unwrap());
    let starter = Arc::clone(&engine);
    let job = async move |_| {
        let start = |number: u64| starter.run_on_core(0, async move |_| number).unwrap();
        let tasks: Vec<_> = (0..5_000).map(start).collect();
        let mut sum = 0;
        for task in tasks {
            sum += task.await.unwrap();
        }
        sum
    };
    let task = engine.run_on_core(0, job).unwrap();
    assert_eq!(answer_to(task), Ok(4_999 * 5_000 / 2));
}

#[test]
fn jobs_beyond_the_number_of_clients_wait_for_their_turn() {
    // A call takes a client number of 13 bits.
    const CLIENTS: u64 = (1 << 13) - 1;
    let engine = Engine::open(one_core()).unwrap();
    let served = Arc::new(AtomicU64::new(0));
    let start = |number| {
        let served = Arc::clone(&served);
        let job = async move |mut core: farcore::Core| {
            core.put(&key(number), b"value").await.unwrap();
            served.fetch_add(1, Ordering::SeqCst);
            // No job ends before all numbers are used.
            until(&core, || served.load(Ordering::SeqCst) >= CLIENTS).await;
        };
        engine.run_on_core(0, job).unwrap()
    };
    let tasks: Vec<_> = (0..CLIENTS + 500).map(start).collect();
    for task in tasks {
        answer_to(task).unwrap();
    }
    assert_eq!(served.load(Ordering::SeqCst), CLIENTS + 500);
}

#[test]
fn a_job_may_close_its_engine() {
    for count in [1, 2] {
        let config = Config {
            cores: cores(count),
            ..tiny()
        };
        let engine = Arc::new(Engine::open(config).unwrap());
        let mut handle = engine.handle().unwrap();
        let closed = Arc::clone(&engine);
        let job = async move |mut core: farcore::Core| {
            closed.close();
            closed.close();
            // It continues as before.
            core.put(b"key", b"value").await.unwrap();
            closed.run_on_core(0, async |_| {}).map(drop)
        };
        let task = engine.run_on_core(0, job).unwrap();
        assert_eq!(answer_to(task), Ok(Err(Error::Closed)));
        engine.close();
        assert_eq!(handle.get(b"key").wait(), Err(Error::Closed));
    }
}

#[test]
fn a_job_may_drop_its_engine() {
    for count in [1, 2] {
        let config = || Config {
            cores: cores(count),
            ..tiny()
        };
        let engine = Arc::new(Engine::open(config()).unwrap());
        let (last, signal) = (Arc::clone(&engine), Arc::new(Signal::new()));
        let in_job = Arc::clone(&signal);
        let job = async move |mut core: farcore::Core| {
            in_job.wait().await;
            drop(Arc::into_inner(last).expect("it is the last one"));
            core.put(b"key", b"value").await.unwrap()
        };
        let task = engine.run_on_core(0, job).unwrap();
        drop(engine);
        signal.give();
        assert!(answer_to(task).unwrap() > 0);
        // Its cores serve another engine.
        let engine = Engine::open(config()).unwrap();
        engine
            .handle()
            .unwrap()
            .put(b"key", b"value")
            .wait()
            .unwrap();
    }
}

#[test]
fn a_handle_with_a_forgotten_call_may_be_dropped_in_a_job() {
    let engine = Arc::new(
        Engine::open(Config {
            handles_max: 1,
            ..one_core()
        })
        .unwrap(),
    );
    let within = Arc::clone(&engine);
    let job = async move |mut core: Core| {
        // An awake core is not lent: the calls wait for it.
        core.poll(|_, _| {});
        let mut handle = within.handle().unwrap();
        for number in 0..10 {
            let name = key(number);
            let mut call = std::pin::pin!(handle.put(&name, b"value"));
            let mut context = Context::from_waker(Waker::noop());
            assert!(call.as_mut().poll(&mut context).is_pending());
        }
    };
    answer_to(engine.run_on_core(0, job).unwrap()).unwrap();
    let mut handle = loop {
        match engine.handle() {
            Ok(handle) => break handle,
            Err(error) => assert_eq!(error, Error::Handles { limit: 1 }),
        }
    };
    for number in 0..10 {
        // Its requests were carried out, and no other client receives their answers.
        assert_eq!(
            &*handle.get(&key(number)).wait().unwrap().unwrap(),
            b"value"
        );
    }
    assert_eq!(handle.poll(|_, _| {}), 0);
}

#[test]
fn a_job_that_waits_for_its_own_shard_serves_it() {
    let engine = Arc::new(Engine::open(one_core()).unwrap());
    let within = Arc::clone(&engine);
    let job = async move |_| {
        let mut handle = within.handle().unwrap();
        handle.put(b"key", b"value").wait().unwrap();
        let puts = (0..2_000).map(key).collect::<Vec<_>>();
        let pairs: Vec<(&[u8], &[u8])> = puts.iter().map(|key| (&key[..], &b"v"[..])).collect();
        let mut stored = 0;
        let visit =
            |_, answer: Answer<'_>| stored += u64::from(matches!(answer, Answer::Stored { .. }));
        handle.put_many(&pairs, visit).unwrap();
        within.flush().unwrap();
        within.compact().unwrap();
        let found = handle.get(b"key").wait().unwrap().is_some();
        (stored, found)
    };
    let task = engine.run_on_core(0, job).unwrap();
    assert_eq!(answer_to(task), Ok((2_000, true)));
}

#[test]
fn requests_of_a_dropped_client_are_carried_out() {
    let engine = Engine::open(tiny()).unwrap();
    // More rounds than there are client numbers, to detect lost ones.
    for round in 0..100 {
        let job = async move |mut core: farcore::Core| {
            for number in 0..40 {
                let put = Operation::Put {
                    key: &key(number),
                    value: &[round],
                };
                while core.submit(put, number).is_err() {
                    core.poll(|_, _| {});
                    core.yield_now().await;
                }
            }
            let name = key(50);
            let mut call = std::pin::pin!(core.get(&name));
            let _: Poll<_> = call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        };
        answer_to(engine.run_on_core(0, job).unwrap()).unwrap();
    }
    let read = async |mut core: farcore::Core| {
        let mut right = 0;
        for number in 0..40 {
            let read = core.get(&key(number)).await.unwrap().unwrap();
            right += u64::from(*read == [99]);
        }
        assert_eq!(core.poll(|_, _| {}), 0, "answers to others");
        right
    };
    assert_eq!(answer_to(engine.run_on_core(0, read).unwrap()), Ok(40));
}

/// Panics when it is dropped.
struct Bomb(&'static str);

impl Drop for Bomb {
    fn drop(&mut self) {
        std::panic::panic_any(Payload(self.0));
    }
}

/// The payload of a panic, which panics when it is dropped.
struct Payload(#[expect(dead_code, reason = "the payload is never read")] &'static str);

impl Drop for Payload {
    fn drop(&mut self) {
        panic!("a payload's panic");
    }
}

/// A future that is ready at once and panics when it is dropped.
struct Unsound<T>(
    Option<T>,
    #[expect(dead_code, reason = "it is dropped")] Bomb,
);

impl<T: Unpin> Future for Unsound<T> {
    type Output = T;

    fn poll(mut self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        Poll::Ready(self.0.take().expect("it is polled once"))
    }
}

#[test]
fn panics_in_drops_of_a_job_end_no_core() {
    let engine = Engine::open(one_core()).unwrap();
    let reason = "a panic without a text".to_owned();
    // Its future.
    let job = |_| Unsound(Some(5), Bomb("future"));
    let task = engine.run_on_core(0, job).unwrap();
    assert_eq!(
        answer_to(task),
        Err(Error::JobPanicked {
            reason: reason.clone()
        })
    );
    // Both panic; the caller receives one.
    let job = |_| Unsound(Some(Arc::new(Bomb("result"))), Bomb("future"));
    let task = engine.run_on_core(0, job).unwrap();
    assert_eq!(
        answer_to(task).map(drop),
        Err(Error::JobPanicked {
            reason: reason.clone()
        })
    );
    // A result that no caller waits for.
    let signal = Arc::new(Signal::new());
    let in_job = Arc::clone(&signal);
    let job = async move |_| {
        in_job.wait().await;
        Bomb("result")
    };
    drop(engine.run_on_core(0, job).unwrap());
    signal.give();
    // A panic whose payload panics.
    let job = async |_| std::panic::panic_any(Payload("job"));
    let task = engine.run_on_core::<(), _>(0, job).unwrap();
    assert_eq!(answer_to(task), Err(Error::JobPanicked { reason }));
    engine
        .handle()
        .unwrap()
        .put(b"key", b"still served")
        .wait()
        .unwrap();
}

#[test]
fn a_job_that_blocks_its_core_is_detected() {
    let engine = Engine::open(tiny()).unwrap();
    assert!(engine.is_alive());
    let reporter = engine.reporter();
    let seen = |core: usize| {
        let counters = reporter.report().cores[core].counters;
        (counters.stalls, counters.stalled)
    };
    let signals = Arc::new([const { Signal::new() }; 2]);
    // A job that serves its shard but leaves the executor no time: that is no stall.
    let in_job = Arc::clone(&signals);
    let polls = async move |mut core: farcore::Core| {
        while !in_job[0].is_given() {
            core.poll(|_, _| {});
        }
    };
    let polling = engine.run_on_core(0, polls).unwrap();
    let in_job = Arc::clone(&signals);
    let blocking = engine.run_on_core(1, async move |_| in_job[1].block());
    while engine.is_alive() {
        std::thread::yield_now();
    }
    assert_eq!((seen(0), seen(1)), ((0, 0), (1, 1)));
    signals.iter().for_each(Signal::give);
    while !engine.is_alive() {
        std::thread::yield_now();
    }
    assert_eq!((seen(0).1, seen(1)), (0, (1, 0)));
    answer_to(polling).unwrap();
    answer_to(blocking.unwrap()).unwrap();
    engine.close();
    assert!(!engine.is_alive());
}
