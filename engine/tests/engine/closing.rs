//! Closing an engine while requests are in flight.

use std::collections::HashSet;

use farcore::{Answer, Engine, Error, Handle, Operation, Refused};

use crate::support::{key, tiny};

#[test]
fn closing_answers_requests_in_flight() {
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
fn closing_does_not_wait_for_clients_that_do_not_poll() {
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
    // Publishes the requests; more answers are due than a lane holds.
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
                assert_eq!(answer, Answer::Failed(&Error::Closed));
                closed += 1;
            }
        }) as u64;
    }
    assert_eq!(seen, due, "{values} values, {closed} refusals");
}
