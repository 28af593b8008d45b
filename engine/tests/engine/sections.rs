//! Sections of a whole engine: two counters on two shards that are always equal, whoever dies.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use farcore::constants::{SECTION_KEYS_MAX, SECTION_SHARDS_MAX};
use farcore::{Answer, Config, Core, Engine, Error, Operation, Refused};

use crate::support::{answer_to, key, tiny};

/// Two keys, of different shards.
fn two_keys(engine: &Engine) -> [Vec<u8>; 2] {
    [0, 1].map(|shard| {
        let mut keys = (0..).map(key);
        keys.find(|key| engine.shard_of(key) == shard).unwrap()
    })
}

fn decimal(bytes: &[u8]) -> u64 {
    std::str::from_utf8(bytes).unwrap().parse().unwrap()
}

/// Polls a future this many times, then drops it. What it returned, if it has ended before.
async fn polled<T>(polls: u32, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if let Poll::Ready(result) = future.as_mut().poll(context) {
            return Poll::Ready(Some(result));
        }
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        Poll::Pending
    })
    .await
}

/// Adds one to both counters at once. Both requests are sent in one poll, so both or none is.
async fn add_to_both(core: &mut Core, [a, b]: &[Vec<u8>; 2]) -> farcore::Result<[u64; 2]> {
    core.section(&[a, b], async |core| {
        let mut read = [0; 2];
        for (key, read) in [a, b].into_iter().zip(&mut read) {
            *read = match core.get(key).await? {
                Some(value) => decimal(&value),
                None => 0,
            };
        }
        let adds = [a, b].map(|key| Operation::increment(key, 1));
        let mut sums = [0; 2];
        core.many(adds, |place, answer| {
            if let Answer::Value { value, .. } = answer {
                sums[place] = decimal(value);
            }
        })
        .await?;
        assert_eq!(sums, read.map(|before| before + 1), "another came between");
        Ok(sums)
    })
    .await?
}

#[test]
fn counters_of_two_shards_are_always_equal_though_holders_die_at_each_step() {
    let engine = Engine::open(tiny()).unwrap();
    let keys = Arc::new(two_keys(&engine));
    let done = Arc::new(AtomicU64::new(0));
    let jobs: Vec<_> = (0..16_u32)
        .map(|number| {
            let (keys, done) = (Arc::clone(&keys), Arc::clone(&done));
            let job = async move |mut core: Core| {
                for round in 0..40 {
                    // Each dies after another number of polls, and some do not.
                    let polls = (round * 7 + number) % 60;
                    let polls = if polls < 40 { polls } else { u32::MAX };
                    match polled(polls, add_to_both(&mut core, &keys)).await {
                        Some(sums) => {
                            let [a, b] = sums.unwrap();
                            assert_eq!(a, b);
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                        None => core.yield_now().await,
                    }
                }
            };
            engine.run_on_core(number as usize % 2, job).unwrap()
        })
        .collect();
    for job in jobs {
        answer_to(job).unwrap();
    }
    let mut handle = engine.handle().unwrap();
    let sums = [&keys[0], &keys[1]].map(|key| decimal(&handle.get(key).wait().unwrap().unwrap()));
    assert_eq!(sums[0], sums[1]);
    let done = done.load(Ordering::Relaxed);
    assert!(done > 100 && sums[0] >= done, "{done} of {sums:?}");
    let total = engine.stats().total;
    assert!(total.sections >= 2 * done);
    assert_eq!((total.sections_lost, total.sections_waiting), (0, 0));
}
