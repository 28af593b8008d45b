//! Clients in jobs: calls that are dropped, requests that wait, handles on a core.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use farcore::{Answer, Config, Core, Engine, Error, LinkModel, Operation, Refused};

use crate::signal::Signal;
use crate::support::{answer_to, cores, key, one_core, tiny, value};

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
fn a_value_that_is_too_large_to_keep_is_not_copied_for_a_call() {
    const LIMIT: usize = 1000;
    let engine = Engine::open(tiny()).unwrap();
    let job = async move |mut core: Core| {
        let mut other = core.another();
        let mut names = (0..).map(key).filter(|name| core.shard_of(name) == 1);
        let [short, long] = [(); 2].map(|()| names.next().unwrap());
        core.put(&short, &[1; LIMIT]).await.unwrap();
        core.put(&long, &[2; LIMIT + 1]).await.unwrap();
        // What the answers were, when another client of the core polls as they come.
        let read = async |core: &mut Core, other: &mut Core, limit| {
            let mut found = [None, None];
            let gets = [&short, &long].map(|name| Operation::Get { key: name });
            {
                let mut call = std::pin::pin!(core.many_kept(gets, limit, |place, answer| {
                    found[place] = Some(match answer {
                        Answer::Value { value, .. } => Ok(value.len()),
                        Answer::Failed(Error::LongValue { bytes, .. }) => Err(*bytes),
                        other => panic!("{other:?}"),
                    });
                }));
                let mut context = Context::from_waker(Waker::noop());
                assert!(call.as_mut().poll(&mut context).is_pending());
                // One lane carries both, in order.
                other.get(&long).await.unwrap().unwrap();
                call.await.unwrap();
            }
            found.map(Option::unwrap)
        };
        let long_bytes = LIMIT + 1;
        let (kept, refused) = (Ok(long_bytes), Err(long_bytes as u64));
        assert_eq!(
            read(&mut core, &mut other, LIMIT).await,
            [Ok(LIMIT), refused]
        );
        // The limit is that call's alone.
        assert_eq!(
            read(&mut core, &mut other, usize::MAX).await,
            [Ok(LIMIT), kept]
        );
        assert_eq!(
            read(&mut core, &mut other, LIMIT).await,
            [Ok(LIMIT), refused]
        );
        assert_eq!(core.get(&long).await.unwrap().unwrap().len(), long_bytes);
    };
    answer_to(engine.run_on_core(0, job).unwrap()).unwrap();
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
        let requested: Vec<u64> = (0..80).map(|place| place * 601 % KEYS).collect();
        for step in 0..3 {
            for &number in &requested {
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
        assert!(requested.iter().all(|number| steps[number] == 3));
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
