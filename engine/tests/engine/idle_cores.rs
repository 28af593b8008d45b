//! Cores without requests: when they sleep, what wakes them, and which task serves a shard.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use farcore::{Config, Engine, Operation, Reporter, Result};
use glommio::timer::sleep;

use crate::signal::Signal;
use crate::support::{cores, key, tiny, value};

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
