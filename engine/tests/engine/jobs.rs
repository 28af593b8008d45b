//! Jobs on the cores, and who serves a shard while they run.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use atomic_waker::AtomicWaker;
use farcore::{Answer, Config, Engine, Error, LinkModel, Operation, Refused, Reporter, Result};
use glommio::timer::sleep;

use crate::support::{cores, key, tiny, value};

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

/// Starts a job on the first core, and has it go on once that sleeps.
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
    let told = Arc::clone(&signals);
    let waiting = move |core: farcore::Core| async move {
        told[0].give();
        told[1].wait().await;
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
    // The core wakes by its timer as well, so that one round does not tell.
    for _ in 0..10 {
        let asleep = sleeps.clone();
        let job = move |mut core: farcore::Core| async move {
            // Nobody else runs on this core between these two.
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
fn what_is_submitted_to_a_sleeping_core_is_served_without_a_poll() {
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
    // The core wakes by its timer as well, so that one round does not tell.
    for round in 0..10 {
        let seen_there = seen.clone();
        let job = move |mut core: farcore::Core| async move {
            let (was_asleep, _) = seen_there();
            let operation = Operation::Put {
                key: &key(round),
                value: &value(round, 0),
            };
            core.submit(operation, round).unwrap();
            // Each lets every task of the core run that is ready; all together are a fraction of the timer.
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
fn a_core_that_sleeps_hears_another() {
    const ROUNDS: u64 = 20;
    let engine = Engine::open(tiny()).unwrap();
    let there = (0..).map(key).find(|key| engine.shard_of(key) == 1);
    let there = there.unwrap();
    let mut heard_at_once = 0;
    for round in 0..ROUNDS {
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
            core.submit(Operation::Get { key: &there }, 0).unwrap();
            // All together are a fraction of the other's timer.
            for _ in 0..10 {
                core.poll(|_, _| {});
                sleep(Duration::from_millis(1)).await;
            }
            let is_heard = core.poll(|_, _| {}) > 0 || core.in_flight() == 0;
            for number in 0..10 {
                core.put(&key(number), &value(number, round)).await.unwrap();
                let (_, read) = core.get(&key(number)).await.unwrap().unwrap();
                assert_eq!(read, value(number, round));
            }
            is_heard
        };
        heard_at_once += u64::from(engine.run_on_core(0, job).unwrap().join().unwrap());
    }
    // The timer alone does that in one of twenty.
    assert!(heard_at_once > ROUNDS / 2, "{heard_at_once}");
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
fn a_full_lane_holds_up_no_other() {
    let engine = Engine::open(tiny()).unwrap();
    let [own, away] = [0, 1].map(|shard| {
        let mut keys = (0..).map(key);
        keys.find(|key| engine.shard_of(key) == shard).unwrap()
    });
    let signals = Arc::new([const { Signal::new() }; 2]);
    let told = Arc::clone(&signals);
    let busy = async move |_| {
        told[0].give();
        told[1].block();
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
fn what_a_shard_cannot_take_yet_waits_in_its_order() {
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
    // Nothing is left that keeps it awake.
    while engine.stats().total.parks == engine.stats().total.wakes {
        std::thread::yield_now();
    }
}
