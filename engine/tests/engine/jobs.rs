//! Jobs on cores: what they do, how many there may be, and one that blocks its core.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use farcore::{Answer, Engine, Error, Operation, Reporter};

use crate::signal::Signal;
use crate::support::{answer_to, key, one_core, tiny, value};

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
