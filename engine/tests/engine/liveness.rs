//! No client waits forever: clients that do not poll, writers beside a flush, and an engine that
//! closes with far memory full.

use std::sync::atomic::{AtomicBool, Ordering};

use farcore::{Answer, Config, Engine, Error, Operation, Refused};

use crate::support::{answer_to, cores, key, tiny};

/// Runs work that must end; if it does not, the process exits.
fn must_end<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let work = scope.spawn(work);
        answer_to(std::future::poll_fn(|_| {
            if work.is_finished() {
                std::task::Poll::Ready(())
            } else {
                std::task::Poll::Pending
            }
        }));
        work.join().expect("the work did not panic")
    })
}

/// Long values, most of which are far.
fn fill(engine: &Engine, count: u64, bytes: usize) {
    let mut handle = engine.handle().expect("a handle is free");
    for number in 0..count {
        let value = vec![number as u8; bytes];
        handle
            .put(&key(number), &value)
            .wait()
            .expect("there is room");
    }
}

/// Sends gets until no more are accepted, and reads no answer.
fn send_and_sleep(handle: &mut farcore::Handle, count: u64) -> usize {
    let mut sent = 0;
    for number in (0..count).cycle().take(5_000) {
        let key = key(number);
        match handle.submit(Operation::Get { key: &key }, number) {
            Ok(()) => sent += 1,
            Err(Refused::Full) => break,
            Err(error) => panic!("{error:?}"),
        }
    }
    sent
}

#[test]
fn a_thread_that_waits_on_one_handle_is_not_delayed_by_its_others() {
    for (count, bytes) in [(3_000, 12_000), (700, 31_000), (60_000, 400)] {
        let engine = Engine::open(tiny()).unwrap();
        fill(&engine, count, bytes);
        let mut sleepers: Vec<_> = (0..5).map(|_| engine.handle().unwrap()).collect();
        let mut sent = 0;
        for sleeper in &mut sleepers {
            sent += send_and_sleep(sleeper, count);
            // Publishes the requests and reads the answers that have arrived, and no others.
            sleeper.poll(|_, _| {});
        }
        assert!(sent > 0);
        let mut handle = engine.handle().unwrap();
        for number in (0..count).step_by(7) {
            let read = answer_to(handle.get(&key(number))).unwrap().unwrap();
            assert_eq!(&*read, vec![number as u8; bytes]);
            if number % 5 == 0 {
                answer_to(handle.put(&key(count + number), &vec![1; bytes])).unwrap();
            }
        }
        drop(handle);
        // All requests are answered once the client polls.
        for mut sleeper in sleepers {
            must_end(|| {
                while sleeper.in_flight() > 0 {
                    sleeper.poll(|number, answer| {
                        let expected = vec![number as u8; bytes];
                        assert!(matches!(answer, Answer::Value { value, .. } if value == expected));
                    });
                }
            });
        }
    }
}

#[test]
fn a_call_that_is_polled_once_and_forgotten_delays_no_other() {
    let engine = Engine::open(tiny()).unwrap();
    let (count, bytes) = (3_000, 12_000);
    fill(&engine, count, bytes);
    let mut forgetful: Vec<_> = (0..5).map(|_| engine.handle().unwrap()).collect();
    for handle in &mut forgetful {
        for number in 0..200 {
            let key = key(number);
            let mut call = std::pin::pin!(handle.get(&key));
            let _ = std::future::Future::poll(
                call.as_mut(),
                &mut std::task::Context::from_waker(std::task::Waker::noop()),
            );
        }
    }
    let mut handle = engine.handle().unwrap();
    for number in (0..count).step_by(3) {
        assert!(answer_to(handle.get(&key(number))).unwrap().is_some());
    }
    must_end(|| drop(forgetful));
}

#[test]
fn flush_and_compact_end_beside_a_writer() {
    let engine = Engine::open(tiny()).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut handle = engine.handle().unwrap();
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                let keys: Vec<_> = (0..64)
                    .map(|place| key((number + place) % 30_000))
                    .collect();
                let pairs: Vec<_> = keys.iter().map(|key| (&key[..], &[7; 500][..])).collect();
                handle
                    .put_many(&pairs, |_, answer| {
                        assert!(matches!(answer, Answer::Stored { .. }), "{answer:?}");
                    })
                    .unwrap();
                number += 64;
            }
        });
        for _ in 0..5 {
            must_end(|| engine.flush()).unwrap();
            must_end(|| engine.compact()).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn an_engine_closes_however_full_it_is() {
    // Enough frames that more than the minimum are kept free.
    let config = Config {
        cores: cores(1),
        local_bytes: 24 << 20,
        far_bytes: 1 << 20,
        page_bytes: Some(64 << 10),
        ..tiny()
    };
    for spared in [0, 1, 2, 3, 4, 6] {
        let engine = Engine::open(config.clone()).unwrap();
        let mut handle = engine.handle().unwrap();
        let (mut number, mut refused) = (0, false);
        while !refused {
            let keys: Vec<_> = (number..number + 8).map(key).collect();
            let pairs: Vec<_> = keys.iter().map(|key| (&key[..], &[3; 5_000][..])).collect();
            let visit = |_, answer: Answer<'_>| match answer {
                Answer::Stored { .. } => {}
                Answer::Failed(Error::FarFull { .. }) => refused = true,
                other => panic!("{other:?}"),
            };
            handle.put_many(&pairs, visit).unwrap();
            number += 8;
            let free = engine.stats().total.frames_free;
            refused |= spared > 0 && number > 100 && free <= 2 + spared;
        }
        drop(handle);
        must_end(|| engine.close());
    }
}
