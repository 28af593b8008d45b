//! Sections of a whole engine: two counters on two shards that are always equal, whichever client
//! dies.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::thread;

use farcore::{
    Answer, Client, Config, Core, Engine, Error, Operation, Refused, Result, TreeCondition,
    TreeGuard, TreeOp,
};

use crate::support::{answer_to, key, one_core, tiny};

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
async fn add_to_both(core: &mut Core, [a, b]: &[Vec<u8>; 2]) -> Result<[u64; 2]> {
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
    let sums = both(&engine, &keys);
    assert_eq!(sums[0], sums[1]);
    let done = done.load(Ordering::Relaxed);
    assert!(done > 100 && sums[0] >= done, "{done} of {sums:?}");
    let total = engine.stats().total;
    assert!(total.sections >= 2 * done);
    assert_eq!((total.sections_lost, total.sections_waiting), (0, 0));
}

fn both(engine: &Engine, keys: &[Vec<u8>; 2]) -> [u64; 2] {
    let mut handle = engine.handle().unwrap();
    [&keys[0], &keys[1]].map(|key| decimal(&handle.get(key).wait().unwrap().unwrap()))
}

/// As [`add_to_both`], for a client that tasks share.
async fn add_with(client: &Client, keys: &[Vec<u8>; 2]) -> Result<[u64; 2]> {
    let names = [&keys[0][..], &keys[1]];
    client
        .section(&names, async |client| {
            let before = client
                .get(names[0])
                .await?
                .map_or(0, |value| decimal(&value));
            let adds = names.map(|key| Operation::increment(key, 1));
            let answers = client.many(adds).await?;
            let sums = [0, 1].map(|place| decimal(answers.at(place).value()));
            assert_eq!(sums, [before + 1; 2], "another came between");
            Ok(sums)
        })
        .await?
}

#[test]
fn tasks_that_share_a_client_and_are_dropped_leave_nothing_half_done() {
    let engine = Engine::open(tiny()).unwrap();
    let keys = Arc::new(two_keys(&engine));
    let client = engine.client().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .build()
        .unwrap();
    let tasks: Vec<_> = (0..16_u32)
        .map(|number| {
            let (client, keys) = (client.clone(), Arc::clone(&keys));
            runtime.spawn(async move {
                let mut done = 0;
                for round in 0..60 {
                    let polls = (round * 5 + number) % 20;
                    let polls = if polls < 12 { polls } else { u32::MAX };
                    if let Some(sums) = polled(polls, add_with(&client, &keys)).await {
                        let [a, b] = sums.unwrap();
                        assert_eq!(a, b);
                        done += 1;
                    }
                    tokio::task::yield_now().await;
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += answer_to(task).unwrap();
    }
    let sums = both(&engine, &keys);
    assert_eq!(sums[0], sums[1]);
    assert!(done > 100 && sums[0] >= done, "{done} of {sums:?}");
    assert_eq!(engine.stats().total.sections_lost, 0);
}

#[test]
fn threads_with_handles_take_turns_and_one_that_panics_gives_its_section_back() {
    let engine = Engine::open(tiny()).unwrap();
    let keys = two_keys(&engine);
    thread::scope(|scope| {
        for number in 0..4 {
            let (engine, keys) = (&engine, &keys);
            scope.spawn(move || {
                let mut handle = engine.handle().unwrap();
                let names = [&keys[0][..], &keys[1]];
                for round in 0..100 {
                    let panics = (round + number) % 10 == 0;
                    let work = std::panic::AssertUnwindSafe(|| {
                        handle.section(&names, |handle| {
                            assert!(!panics);
                            let a = handle.increment(names[0], 1).wait()?;
                            Ok::<_, Error>((a, handle.increment(names[1], 1).wait()?))
                        })
                    });
                    match std::panic::catch_unwind(work) {
                        Ok(sums) => {
                            let (a, b) = sums.unwrap().unwrap();
                            assert_eq!(a, b);
                        }
                        Err(_) => assert!(panics),
                    }
                }
            });
        }
    });
    assert_eq!(both(&engine, &keys), [4 * 90; 2]);
}

/// A copy needs a frame, so not every key is near.
#[test]
fn far_keys_are_near_before_their_section_begins() {
    const KEYS: u64 = 40;
    let engine = Engine::open(one_core()).unwrap();
    let mut handle = engine.handle().unwrap();
    for number in 0..20_000 {
        handle.put(&key(number), &[7; 1000]).wait().unwrap();
    }
    // Frames for copies become free once what was written lies in far memory too.
    engine.flush().unwrap();
    // Background work reads far memory too, but answers nothing from there.
    let far_hits = || engine.stats().total.far_hits;
    let (mut were_far, mut within) = (0, 0);
    for number in 0..KEYS {
        // Far apart, so that none is read ahead with another one: those are not copied.
        let name = key(number * 7_919 % 20_000);
        let before = far_hits();
        within += handle
            .section(&[&name], |handle| {
                let entered = far_hits();
                were_far += u64::from(entered > before);
                assert_eq!(handle.get(&name).wait().unwrap().unwrap().len(), 1000);
                far_hits() - entered
            })
            .unwrap();
    }
    assert!(were_far > KEYS / 5, "{were_far} were far");
    assert!(within < were_far / 2, "{within} of {were_far} are far yet");
}

#[test]
fn a_section_that_is_held_too_long_is_lost_and_says_so() {
    let engine = Engine::open(Config {
        section_ns: 20_000_000,
        ..tiny()
    })
    .unwrap();
    let keys = two_keys(&engine);
    let names = [&keys[0][..], &keys[1]];
    let mut handle = engine.handle().unwrap();
    let mut other = engine.handle().unwrap();
    // On a busy machine a section can be lost before its first write; then it is tried again.
    let outcome = loop {
        let mut held = false;
        let outcome = handle.section(&names, |handle| {
            handle.put(names[0], b"mine").wait()?;
            held = true;
            // Others go on, though this one has not left.
            let seen = other
                .get(names[0])
                .wait()
                .unwrap()
                .map(|value| value.to_vec());
            assert_eq!(seen.as_deref(), Some(&b"mine"[..]));
            other.put(names[0], b"theirs").wait().unwrap();
            handle.put(names[0], b"mine again").wait().map(|_| ())
        });
        if held {
            break outcome;
        }
    };
    assert!(
        matches!(outcome, Err(Error::SectionLost { .. })),
        "{outcome:?}"
    );
    assert_eq!(&*other.get(names[0]).wait().unwrap().unwrap(), b"theirs");
    assert!(engine.stats().total.sections_lost >= 1);
    // The next one is whole.
    while !matches!(
        handle.section(&names, |handle| handle.put(names[1], b"whole").wait()),
        Ok(Ok(_))
    ) {}
    assert_eq!(&*other.get(names[1]).wait().unwrap().unwrap(), b"whole");
}

#[test]
fn what_a_section_cannot_do_is_an_error() {
    let engine = Engine::open(tiny()).unwrap();
    let [a, b] = two_keys(&engine);
    let client = engine.client().unwrap();
    let (first, second) = (a.clone(), b.clone());
    let job = async move |mut core: Core| {
        let none = core.section(&[], async |_| ()).await;
        assert!(matches!(none, Err(Error::SectionKeys { keys: 0, .. })));
        core.section(&[&first], async |core| {
            let inside = core.section(&[&first], async |_| ()).await;
            assert!(matches!(inside, Err(Error::SectionInside)));
            let outside = core.put(&second, b"x").await;
            assert!(matches!(outside, Err(Error::SectionOutside { shard: 1 })));
            let get = Operation::Get { key: &second };
            let refused = core.submit(get, 1);
            assert!(matches!(
                refused,
                Err(Refused::Error(Error::SectionOutside { shard: 1 }))
            ));
            let all = core.len().await;
            assert!(matches!(all, Err(Error::SectionOutside { .. })), "{all:?}");
            // Submitted requests are under the section as well.
            for token in 0..5 {
                let put = Operation::Put {
                    key: &first,
                    value: b"y",
                };
                core.submit(put, token).unwrap();
            }
            assert_eq!(core.in_flight(), 5);
            let mut seen = Vec::new();
            while core.in_flight() > 0 {
                core.poll(|token, _| seen.push(token));
                core.yield_now().await;
            }
            assert_eq!(seen, [0, 1, 2, 3, 4]);
        })
        .await
        .unwrap();
    };
    answer_to(engine.run_on_core(0, job).unwrap()).unwrap();
    let mut kept = None;
    answer_to(client.section(&[&a], async |client| {
        let inside = client.section(&[&a], async |_| ()).await;
        assert!(matches!(inside, Err(Error::SectionInside)));
        let outside = client.put(&b, b"x").await;
        assert!(matches!(outside, Err(Error::SectionOutside { shard: 1 })));
        kept = Some(client.clone());
    }))
    .unwrap();
    let late = kept.unwrap().get(&a).wait();
    assert!(matches!(late, Err(Error::SectionEnded)));
    let mut handle = engine.handle().unwrap();
    let inside = handle.section(&[&a], |handle| handle.section(&[&b], |_| ()));
    assert!(matches!(inside, Ok(Err(Error::SectionInside))));
    engine.close();
    let closed = answer_to(client.section(&[&a], async |_| ()));
    assert!(matches!(closed, Err(Error::Closed)));
    assert!(matches!(handle.section(&[&a], |_| ()), Err(Error::Closed)));
}

/// A client that has entered is at once a client of its own: for submitted requests and for calls,
/// over all shards, until it leaves or is dropped.
#[test]
fn a_client_that_enters_keeps_others_away_until_it_leaves() {
    let engine = Engine::open(tiny()).unwrap();
    let keys = two_keys(&engine);
    let shards = engine.shards();
    let job = async move |mut core: Core| {
        let near = [&keys[0][..], &keys[1]];
        let mut other = core.another();
        let outside = core.enter_sections([shards], &[]).await;
        assert!(matches!(outside, Err(Error::SectionOutside { .. })));
        for waits in [true, false, true, false] {
            core.enter_sections(0..shards, &near).await.unwrap();
            let twice = core.enter_sections(0..1, &[]).await;
            assert!(matches!(twice, Err(Error::SectionInside)));
            assert!(core.is_under_section() && !other.is_under_section());
            for (token, key) in keys.iter().enumerate() {
                let put = Operation::Put { key, value: b"1" };
                other.submit(put, token as u64).unwrap();
            }
            let before = core.len().await.unwrap();
            for key in &keys {
                for _ in 0..20 {
                    other.yield_now().await;
                }
                let count = core.increment(key, 1).await;
                assert!(matches!(count, Ok(1)), "{count:?}");
                assert!(core.delete(key).await.unwrap());
                // Its answer is taken after the section.
                let get = Operation::Get { key };
                core.submit(get, 7).unwrap();
            }
            let mut beside = core.beside().await.unwrap();
            for key in &keys {
                let put = beside.put(key, b"beside").await;
                assert!(put.is_ok() && core.delete(key).await.unwrap());
            }
            let second = core.beside().await;
            assert!(matches!(second, Err(Error::SectionLost { .. })));
            drop(beside);
            drop(core.beside().await.unwrap());
            assert_eq!(core.len().await.unwrap(), before);
            assert_eq!((core.in_flight(), other.in_flight()), (2, 2));
            if waits {
                core.leave_sections().await.unwrap();
            } else {
                core.abandon_sections();
            }
            assert!(!core.is_under_section());
            for one in [&mut core, &mut other] {
                while one.in_flight() > 0 {
                    one.poll(|token, answer| match token {
                        7 => assert!(matches!(answer, Answer::Absent)),
                        _ => assert!(matches!(answer, Answer::Stored { .. })),
                    });
                    one.yield_now().await;
                }
            }
            for key in &keys {
                assert!(core.get(key).await.unwrap().is_some());
                core.delete(key).await.unwrap();
            }
        }
    };
    answer_to(engine.run_on_core(0, job).unwrap()).unwrap();
}

/// The test would take as long as a section is lent, and count one that is lost.
#[test]
fn a_handle_that_panics_with_a_full_queue_gives_its_section_back_at_once() {
    let engine = Engine::open(Config {
        section_ns: 10_000_000_000,
        ..tiny()
    })
    .unwrap();
    let keys = two_keys(&engine);
    let names = [&keys[0][..], &keys[1]];
    let mut handle = engine.handle().unwrap();
    let mut other = engine.handle().unwrap();
    let work = std::panic::AssertUnwindSafe(|| {
        handle.section(&names, |handle| {
            for (token, name) in names.into_iter().enumerate() {
                let put = Operation::Put {
                    key: name,
                    value: &[1; 100],
                };
                let mut sent = 0;
                while handle.submit(put, token as u64).is_ok() {
                    sent += 1;
                }
                assert!(sent > 10, "{sent}");
            }
            panic!("with full queues");
        })
    });
    assert!(std::panic::catch_unwind(work).is_err());
    for name in names {
        assert_eq!(other.get(name).wait().unwrap().unwrap().len(), 100);
    }
    let total = engine.stats().total;
    assert_eq!((total.sections, total.sections_lost), (2, 0));
}

/// The answer of one shard comes while requests to the other are not published.
#[test]
fn requests_under_a_section_are_sent_though_a_visitor_of_answers_panics() {
    const PANICS: u32 = 20;
    let engine = Engine::open(tiny()).unwrap();
    let keys = two_keys(&engine);
    let names = [&keys[0][..], &keys[1]];
    let mut handle = engine.handle().unwrap();
    let (mut panics, mut rounds) = (0, 0);
    while panics < PANICS {
        rounds += 1;
        assert!(rounds < 100_000, "{panics} panics");
        let answered = handle.section(&names, |handle| {
            for (token, key) in names.into_iter().enumerate() {
                handle.submit(Operation::Get { key }, token as u64).unwrap();
            }
            let first = std::panic::AssertUnwindSafe(|| {
                handle.poll(|token, _| assert_ne!(token, 0, "the first answer"))
            });
            panics += u32::from(std::panic::catch_unwind(first).is_err());
            for _ in 0..1_000_000 {
                handle.poll(|_, _| {});
                if handle.in_flight() == 0 {
                    return true;
                }
                thread::yield_now();
            }
            false
        });
        assert!(answered.unwrap(), "the second request was not sent");
    }
}

/// Elements of the two queues together.
const QUEUED: u64 = 2_000;

fn queued(number: u64) -> Vec<u8> {
    let mut value = vec![5; 300];
    value[..8].copy_from_slice(&number.to_be_bytes());
    value
}

/// Adds an element to two maps, or removes it from both. Both requests are sent in one poll, so
/// both or none is.
async fn change_maps(core: &mut Core, maps: [&[u8]; 2], op: TreeOp<'_>) -> Result<()> {
    core.section(&maps, async |core| {
        let mut elements = [0; 2];
        for (map, elements) in maps.into_iter().zip(&mut elements) {
            *elements = core.tree(map).len().await?.elements;
        }
        assert_eq!(elements[0], elements[1], "another came between");
        let guard = TreeGuard::default();
        let mut failed = None;
        let both = maps.map(|key| Operation::Tree { key, op, guard });
        core.many(both, |_, answer| {
            if let Answer::Failed(error) = answer {
                failed = Some(error.clone());
            }
        })
        .await?;
        failed.map_or(Ok(()), Err)
    })
    .await?
}

/// Moves elements from the beginning of a queue to the end of another one.
async fn move_some(core: &mut Core, [from, to]: [&[u8]; 2], count: u32) -> Result<()> {
    core.section(&[from, to], async |core| {
        let held = core.tree(from).len().await?.elements;
        assert_eq!(held + core.tree(to).len().await?.elements, QUEUED);
        let page = core.tree(from).pop_first(count).await?;
        let values: Vec<_> = page.iter().map(|(_, value)| value).collect();
        if !values.is_empty() {
            core.tree(to).push_last(&values).await?;
        }
        assert_eq!(
            core.tree(from).len().await?.elements,
            held - values.len() as u64
        );
        Ok(())
    })
    .await?
}

async fn change_trees(mut core: Core, number: u32, [maps, queues]: [[Vec<u8>; 2]; 2]) {
    let maps = maps.each_ref().map(|key| &key[..]);
    let mut queues = queues.each_ref().map(|key| &key[..]);
    for round in 0..120u32 {
        // The maps grow beyond one record, and shrink again.
        let element = [round % 30, number].map(u32::to_be_bytes).concat();
        let op = match round / 30 % 2 {
            0 => TreeOp::Insert {
                key: &element,
                value: &[7; 60],
                condition: TreeCondition::Always,
            },
            _ => TreeOp::Remove { key: &element },
        };
        // Each dies after another number of polls, and some do not.
        let polls = (round * 7 + number) % 90;
        let polls = if polls < 40 { polls } else { u32::MAX };
        match polled(polls, change_maps(&mut core, maps, op)).await {
            Some(changed) => changed.unwrap(),
            None => core.yield_now().await,
        }
        if round % 3 == 0 {
            queues.swap(0, usize::from((round + number).is_multiple_of(2)));
            move_some(&mut core, queues, 1 + round % 40).await.unwrap();
        }
    }
}

/// The elements of a collection, with their keys.
fn elements_of(engine: &Engine, key: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut handle = engine.handle().unwrap();
    let mut elements = Vec::new();
    loop {
        let start = elements.len() as u64;
        let mut tree = handle.tree(key);
        let page = tree.range_by_rank(start, u64::MAX, false, 1_000).wait();
        let page = page.unwrap();
        let owned = |(key, value): (&[u8], &[u8])| (key.to_vec(), value.to_vec());
        elements.extend(page.iter().map(owned));
        if !page.has_more() {
            return elements;
        }
    }
}

#[test]
fn collections_of_two_shards_change_together_though_holders_die_at_each_step() {
    let engine = Engine::open(Config {
        section_ns: 10_000_000_000,
        ..tiny()
    })
    .unwrap();
    let mut names = [0, 1].map(|shard| {
        let keys = (0..).map(key).filter(|key| engine.shard_of(key) == shard);
        keys.take(2).collect::<Vec<_>>().into_iter()
    });
    let both = [0, 1].map(|_| names.each_mut().map(|names| names.next().unwrap()));
    let [maps, queues] = &both;
    let mut handle = engine.handle().unwrap();
    for number in 0..QUEUED {
        let queue = &queues[usize::from(number.is_multiple_of(2))];
        let length = handle.tree(queue).push_last(&[&queued(number)]).wait();
        assert!(length.unwrap().is_some());
    }
    for number in 0..40_000 {
        handle.put(&key(100 + number), &[1; 600]).wait().unwrap();
    }
    let reads = engine.stats().total.far_reads;
    let jobs = (0..8).map(|number| {
        let both = both.clone();
        let job = async move |core| change_trees(core, number, both).await;
        engine.run_on_core(number as usize % 2, job).unwrap()
    });
    for job in jobs.collect::<Vec<_>>() {
        answer_to(job).unwrap();
    }
    let total = engine.stats().total;
    assert!(total.far_reads > reads + 20, "nodes are far");
    assert_eq!((total.sections_lost, total.sections_waiting), (0, 0));
    let [first, second] = maps.each_ref().map(|map| elements_of(&engine, map));
    assert_eq!(first, second);
    let moved = queues.each_ref().map(|queue| elements_of(&engine, queue));
    let mut moved: Vec<_> = moved.into_iter().flatten().map(|it| it.1).collect();
    moved.sort_unstable();
    assert_eq!(moved, (0..QUEUED).map(queued).collect::<Vec<_>>());
}
