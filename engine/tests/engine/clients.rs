//! Clients that threads and tasks share: each call answers as a handle's.

use std::collections::{HashMap, HashSet};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use farcore::{
    Answer, CasOutcome, Client, Condition, Config, Cursor, DeleteOutcome, Engine, Error, Expiry,
    ExpiryCondition, ExpiryOutcome, ExportOptions, LinkModel, Operation, PutOptions, PutOutcome,
    ScanOptions, TimeToLive, Transaction, TransactionOutcome,
};
use futures_lite::future::block_on;

use crate::support::{answer_to, key, tiny, value};

/// Small local memory and far memory some way off: requests are served by callers, by cores, and
/// wait for READs.
fn far() -> Config {
    Config {
        link: LinkModel {
            latency_ns: 3_000,
            ..LinkModel::default()
        },
        handles_max: 4,
        ..tiny()
    }
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn every_operation_answers_as_a_handles_does() {
    let engine = Engine::open(tiny()).unwrap();
    let client = engine.client().unwrap();
    assert_eq!(client.get(b"a").wait().unwrap(), None);
    let first = client.put(b"a", b"one").wait().unwrap();
    let read = client.get(b"a").wait().unwrap().unwrap();
    assert_eq!((&*read, read.version()), (&b"one"[..], first));
    assert_eq!(&*read.into_bytes(), b"one");
    let swap = client.compare_and_swap(b"a", first + 1, b"x").wait();
    assert_eq!(swap, Ok(CasOutcome::Mismatch(first)));
    let absent = client.put_if(b"a", b"x", Condition::Absent).wait();
    assert_eq!(absent, Ok(CasOutcome::Mismatch(first)));
    let before = client.get_and_put(b"a", b"two").wait().unwrap().unwrap();
    assert_eq!(&*before, b"one");
    assert_eq!(client.append(b"a", b"!").wait().unwrap().length, 4);
    assert_eq!(client.set_range(b"a", 3, b"?").wait().unwrap().length, 4);
    let part = client.get_range(b"a", 1, 2).wait().unwrap().unwrap();
    assert_eq!(&*part, b"wo");
    assert_eq!(client.increment(b"n", 5).wait(), Ok(5));
    assert_eq!(client.increment_float(b"n", 0.5).wait(), Ok(5.5));
    assert_eq!(client.exists(b"n").wait(), Ok(true));
    assert_eq!(client.inspect(b"n").wait().unwrap().unwrap().length, 3);
    let hour = Expiry::In(3_600_000);
    let set = client.expire(b"n", hour, ExpiryCondition::Always).wait();
    assert!(matches!(set, Ok(ExpiryOutcome::Set(_))));
    let left = client.time_to_live(b"n").wait().unwrap().unwrap();
    assert!(matches!(left, TimeToLive::Milliseconds(ms) if ms <= 3_600_000));
    assert_eq!(client.persist(b"n").wait(), Ok(true));
    let read = client.get_and_expire(b"n", hour).wait().unwrap().unwrap();
    assert_eq!(&*read, b"5.5");
    let put = client.put_with(b"s", b"map", PutOptions::default()).wait();
    assert!(matches!(put, Ok(PutOutcome::Stored(_))));
    let gone = client.delete_if(b"s", Condition::Present).wait();
    assert_eq!(gone, Ok(DeleteOutcome::Deleted));
    let gone = client.get_and_delete(b"a").wait().unwrap().unwrap();
    assert_eq!(&*gone, b"two?");
    assert_eq!(client.delete(b"a").wait(), Ok(false));
    let both = Transaction::new().expect(b"t", 0).put(b"t", b"1");
    let done = client.transaction(&both).wait();
    assert!(matches!(done, Ok(TransactionOutcome::Committed { .. })));
    let conflict = client.transaction(&both).wait();
    assert!(matches!(
        conflict,
        Ok(TransactionOutcome::Conflict { place: 0, .. })
    ));
    assert_eq!(client.get(b"").wait(), Err(Error::KeyEmpty { max: 1024 }));
}

#[test]
fn batches_scans_counts_and_long_values_work() {
    let engine = Engine::open(tiny()).unwrap();
    let client = engine.client().unwrap();
    let keys: Vec<_> = (0..5_000).map(key).collect();
    let pairs: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &key[..])).collect();
    let stored = client.put_many(&pairs).wait().unwrap();
    assert_eq!(stored.len(), keys.len());
    assert!(
        stored
            .iter()
            .all(|answer| matches!(answer, Answer::Stored { .. }))
    );
    let names: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    let read = block_on(client.get_many(&names)).unwrap();
    for (answer, key) in read.iter().zip(&keys) {
        assert_eq!(answer.value(), key);
    }
    assert_eq!(block_on(client.len()), Ok(5_000));
    let (mut seen, mut cursor) = (HashSet::new(), Some(Cursor::START));
    while let Some(from) = cursor {
        let page = block_on(client.scan(from, ScanOptions::default())).unwrap();
        seen.extend(page.entries().map(|entry| entry.key.to_vec()));
        cursor = page.next();
    }
    assert_eq!(seen, keys.iter().cloned().collect());
    let mut exported = 0;
    let options = ExportOptions::default();
    let summary = block_on(client.export(options, |_| exported += 1)).unwrap();
    assert_eq!((summary.entries, exported), (5_000, 5_000));
    let some = client.delete_many(&names[..10]).wait().unwrap();
    assert!((0..10).all(|place| some.at(place) == Answer::Deleted));
    let long: Vec<u8> = (0..300_000_u32).map(|byte| byte as u8).collect();
    let version = block_on(client.put_long(b"long", &long)).unwrap();
    let mut found = Vec::new();
    assert_eq!(
        block_on(client.get_long(b"long", &mut found)),
        Ok(Some(version))
    );
    assert_eq!(found, long);
    let range = block_on(client.get_long_range(b"long", 200_000, 7, &mut found));
    assert_eq!(
        (range, &found[..]),
        (Ok(Some(version)), &long[200_000..200_007])
    );
    found.clear();
    let visit = |length, piece: &[u8]| {
        assert_eq!(length, 300_000);
        found.extend_from_slice(piece);
    };
    assert_eq!(
        block_on(client.read_long(b"long", visit)),
        Ok(Some(version))
    );
    assert_eq!(found, long);
    assert_eq!(block_on(client.clear()), Ok(4_991));
    // A mistake stops a batch there; what is before it is carried out.
    let operations = [&b"x"[..], b"", b"y"].map(|key| Operation::Put { key, value: b"1" });
    assert_eq!(
        client.many(operations).wait().err(),
        Some(Error::KeyEmpty { max: 1024 })
    );
    assert_eq!(block_on(client.len()), Ok(1));
}

/// Random operations on keys of one caller, against a map.
fn compare_with_a_map(client: &Client, caller: u64, steps: u64) {
    let mut map: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut state = caller + 1;
    let mut below = |bound: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % bound
    };
    for step in 0..steps {
        let number = below(200);
        let name = key(caller << 32 | number);
        match below(4) {
            0 => {
                let value = vec![step as u8; 20 + below(16_000) as usize];
                client.put(&name, &value).wait().expect("it is stored");
                map.insert(number, value);
            }
            1 => {
                let was = map.remove(&number).is_some();
                assert_eq!(client.delete(&name).wait(), Ok(was));
            }
            _ => {
                let found = client.get(&name).wait().expect("it is read");
                let known = map.get(&number).map(Vec::as_slice);
                assert_eq!(found.as_deref(), known);
            }
        }
    }
}

#[test]
fn many_more_threads_than_handles_find_what_they_stored() {
    let engine = Engine::open(far()).unwrap();
    let client = engine.client().unwrap();
    thread::scope(|scope| {
        for caller in 0..12 {
            let client = client.clone();
            scope.spawn(move || compare_with_a_map(&client, caller, 1_500));
        }
    });
    let far_reads = engine.stats().total.far_reads;
    assert!(far_reads > 0, "some of it was in far memory");
}

#[test]
fn counters_lose_no_increment_of_many_threads() {
    let engine = Engine::open(tiny()).unwrap();
    let client = engine.client().unwrap();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..2_000 {
                    client.increment(b"count", 1).wait().unwrap();
                }
            });
        }
    });
    assert_eq!(client.increment(b"count", 0).wait(), Ok(16_000));
}

/// Blocks a core until the returned sender is dropped.
fn block_core(engine: &Engine) -> (mpsc::Sender<()>, farcore::Task<()>) {
    let (release, released) = mpsc::channel::<()>();
    let (blocks, blocked) = mpsc::channel();
    let job = engine.run_on_core(0, async move |mut core: farcore::Core| {
        core.poll(|_, _| {});
        blocks.send(()).expect("the test waits");
        // Until the sender is gone.
        let _ = released.recv();
    });
    blocked.recv().expect("the job runs");
    (release, job.expect("the engine is open"))
}

fn one_core() -> Config {
    Config {
        cores: tiny().cores[..1].to_vec(),
        ..far()
    }
}

#[test]
fn a_call_that_takes_too_long_ends_and_may_still_be_carried_out() {
    let engine = Engine::open(one_core()).unwrap();
    let client = engine.client().unwrap();
    let (release, job) = block_core(&engine);
    let limit = Duration::from_millis(20);
    assert_eq!(
        client.put(b"key", b"value").wait_for(limit),
        Err(Error::TimedOut { limit })
    );
    drop(release);
    answer_to(job).unwrap();
    // Later requests of the thread come after it.
    let found = client.get(b"key").wait().unwrap().unwrap();
    assert_eq!(&*found, b"value");
}

#[test]
fn calls_that_find_no_room_wait_for_it_and_dropped_ones_are_forgotten() {
    let engine = Engine::open(one_core()).unwrap();
    let client = engine.client().unwrap();
    let (release, job) = block_core(&engine);
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut context = Context::from_waker(&waker);
    // More than a lane holds.
    let names: Vec<_> = (0..3_000).map(key).collect();
    let mut puts: Vec<_> = names
        .iter()
        .map(|name| Some(Box::pin(client.put(name, name))))
        .collect();
    for put in puts.iter_mut().flatten() {
        assert!(put.as_mut().poll(&mut context).is_pending());
    }
    for put in puts.iter_mut().step_by(3) {
        *put = None;
    }
    drop(release);
    answer_to(job).unwrap();
    for (number, put) in puts.into_iter().enumerate() {
        if let Some(put) = put {
            block_on(put).unwrap();
            let found = client.get(&names[number]).wait().unwrap().unwrap();
            assert_eq!(&*found, &names[number][..]);
        }
    }
    assert!(
        count.0.load(Ordering::SeqCst) > 0,
        "waiting tasks are woken"
    );
}

#[test]
fn a_call_that_nobody_polls_holds_up_no_other() {
    let engine = Engine::open(one_core()).unwrap();
    let client = engine.client().unwrap();
    let (release, job) = block_core(&engine);
    let mut ignored = pin!(client.put(b"ignored", b"1"));
    let mut context = Context::from_waker(Waker::noop());
    assert!(ignored.as_mut().poll(&mut context).is_pending());
    // The only other caller waits on the same station, if this thread starts another one or not.
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut other = pin!(client.get(b"ignored"));
    assert!(
        other
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    drop(release);
    answer_to(job).unwrap();
    // It is woken although the first call is not polled again.
    while count.0.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    let found = block_on(other.as_mut()).unwrap().unwrap();
    assert_eq!(&*found, b"1");
    assert!(block_on(ignored).is_ok());
}

#[test]
fn a_call_may_move_between_threads() {
    let engine = Engine::open(one_core()).unwrap();
    let client = engine.client().unwrap();
    let (release, job) = block_core(&engine);
    thread::scope(|scope| {
        let mut calls: Vec<Pin<Box<dyn Future<Output = _> + Send>>> = Vec::new();
        for number in 0..50_i64 {
            let client = client.clone();
            calls.push(Box::pin(
                async move { client.increment(b"moved", number).await },
            ));
        }
        for call in &mut calls {
            let mut context = Context::from_waker(Waker::noop());
            assert_eq!(call.as_mut().poll(&mut context), Poll::Pending);
        }
        drop(release);
        for call in calls {
            scope.spawn(move || block_on(call).unwrap());
        }
    });
    answer_to(job).unwrap();
    assert_eq!(client.increment(b"moved", 0).wait(), Ok(49 * 50 / 2));
}

#[test]
fn tasks_of_a_runtime_with_several_threads_share_a_client() {
    let engine = Engine::open(far()).unwrap();
    let client = engine.client().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(3)
        .enable_time()
        .build()
        .unwrap();
    let tasks: Vec<_> = (0..100_u64)
        .map(|task| {
            let client = client.clone();
            runtime.spawn(async move {
                for number in 0..100 {
                    let name = key(task << 32 | number);
                    let value = value(number, 500);
                    client.put(&name, &value).await.unwrap();
                    // Polled once, and given up if it has to wait.
                    let hurried = tokio::time::timeout(Duration::ZERO, client.get(&name)).await;
                    if let Ok(found) = hurried {
                        assert_eq!(found.unwrap().as_deref(), Some(&value[..]));
                    }
                    let found = client.get(&name).await.unwrap().unwrap();
                    assert_eq!(&*found, &value[..]);
                }
            })
        })
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(block_on(client.len()), Ok(10_000));
}

#[test]
fn a_closed_engine_ends_calls_and_refuses_new_ones() {
    let engine = Engine::open(one_core()).unwrap();
    let client = engine.client().unwrap();
    let (release, job) = block_core(&engine);
    let mut pending = pin!(client.put(b"key", b"value"));
    let mut context = Context::from_waker(Waker::noop());
    assert!(pending.as_mut().poll(&mut context).is_pending());
    let closing = thread::spawn(move || drop(engine));
    drop(release);
    answer_to(job).unwrap();
    // Accepted before the end: carried out, or refused; never forgotten.
    let ended = block_on(pending);
    assert!(matches!(ended, Ok(_) | Err(Error::Closed)));
    closing.join().unwrap();
    assert_eq!(client.get(b"key").wait(), Err(Error::Closed));
    assert_eq!(block_on(client.len()), Err(Error::Closed));
}

#[test]
fn clients_leave_a_handle_and_share_what_is_there() {
    let engine = Engine::open(Config {
        handles_max: 2,
        ..tiny()
    })
    .unwrap();
    let (client, other) = (engine.client().unwrap(), engine.client().unwrap());
    let handle = engine.handle().unwrap();
    assert_eq!(engine.handle().err(), Some(Error::Handles { limit: 2 }));
    client.put(b"key", b"value").wait().unwrap();
    assert_eq!(&*other.get(b"key").wait().unwrap().unwrap(), b"value");
    drop(handle);
    let engine = Engine::open(Config {
        handles_max: 1,
        ..tiny()
    })
    .unwrap();
    let handle = engine.handle().unwrap();
    assert_eq!(engine.client().err(), Some(Error::Handles { limit: 1 }));
    drop(handle);
    assert!(engine.client().is_ok());
}

#[test]
fn a_handle_reads_into_a_buffer_and_within_a_limit() {
    let engine = Engine::open(one_core()).unwrap();
    let mut handle = engine.handle().unwrap();
    handle.put(b"key", b"value").wait().unwrap();
    let mut buffer = Vec::with_capacity(64);
    let place = buffer.as_ptr();
    for _ in 0..3 {
        let version = handle.get_into(b"key", &mut buffer).unwrap();
        assert_eq!((version.is_some(), &buffer[..]), (true, &b"value"[..]));
        assert_eq!(handle.get_into(b"none", &mut buffer), Ok(None));
        assert!(buffer.is_empty());
    }
    assert_eq!(buffer.as_ptr(), place, "the caller's buffer is used");
    assert_eq!(
        handle.get_into(b"", &mut buffer),
        Err(Error::KeyEmpty { max: 1024 })
    );
    assert_eq!(buffer.as_ptr(), place);
    let limit = Duration::from_secs(60);
    let found = handle.get(b"key").wait_for(limit).unwrap();
    assert_eq!(found.as_deref(), Some(&b"value"[..]));
    let (release, job) = block_core(&engine);
    let limit = Duration::from_millis(20);
    let late = handle.put(b"key", b"late").wait_for(limit);
    assert_eq!(late, Err(Error::TimedOut { limit }));
    drop(release);
    answer_to(job).unwrap();
    assert_eq!(&*handle.get(b"key").wait().unwrap().unwrap(), b"late");
}

#[test]
fn a_job_reads_a_value_where_it_lies() {
    let engine = Engine::open(tiny()).unwrap();
    let job = engine.run_on_core(0, async move |mut core: farcore::Core| {
        for number in 0..50 {
            core.put(&key(number), &value(number, 0)).await.unwrap();
            let length = core.get_with(&key(number), |value, _| value.len()).await;
            assert_eq!(length, Ok(Some(value(number, 0).len())));
        }
        assert_eq!(core.get_with(b"none", |_, _| ()).await, Ok(None));
        let wrong = core.get_with(b"", |_, _| ()).await;
        assert_eq!(wrong, Err(Error::KeyEmpty { max: 1024 }));
    });
    answer_to(job.unwrap()).unwrap();
}

/// Runs what should end, and fails instead of hanging.
fn within_a_minute<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    thread::spawn(move || done.send(run()));
    let limit = Duration::from_secs(60);
    result.recv_timeout(limit).expect("it ends within a minute")
}

#[test]
fn a_panic_of_a_callers_code_harms_no_other_caller() {
    let engine = Engine::open(far()).unwrap();
    let client = engine.client().unwrap();
    let names: Vec<_> = (0..600).map(key).collect();
    let panicking = names.iter().enumerate().map(|(number, key)| {
        assert!(number < 400, "as planned");
        Operation::Put { key, value: b"1" }
    });
    let call = std::panic::AssertUnwindSafe(|| client.many(panicking).wait());
    assert!(std::panic::catch_unwind(call).is_err());
    let visit = |_: farcore::Entry<'_>| panic!("as planned");
    let options = ExportOptions::default();
    let call = std::panic::AssertUnwindSafe(|| block_on(client.export(options, visit)));
    assert!(std::panic::catch_unwind(call).is_err());
    within_a_minute(move || {
        thread::scope(|scope| {
            for caller in 20..24 {
                let client = &client;
                scope.spawn(move || compare_with_a_map(client, caller, 300));
            }
        });
        drop((client, engine));
    });
}

#[test]
fn a_call_within_a_batchs_iterator_works_and_one_within_a_visitor_is_refused() {
    let engine = Engine::open(one_core()).unwrap();
    let client = engine.client().unwrap();
    let names: Vec<_> = (0..700).map(key).collect();
    let inner = client.clone();
    let puts = names.iter().filter_map(move |key| {
        let is_new = !inner.exists(key).wait().expect("it is answered");
        is_new.then_some(Operation::Put { key, value: b"1" })
    });
    assert_eq!(client.many(puts).wait().unwrap().len(), 700);
    let visit = |entry: farcore::Entry<'_>| {
        let _ = client.get(entry.key).wait();
    };
    let call =
        std::panic::AssertUnwindSafe(|| block_on(client.export(ExportOptions::default(), visit)));
    let refused = std::panic::catch_unwind(call).unwrap_err();
    let text = refused.downcast_ref::<&str>().copied().unwrap_or_default();
    assert!(text.contains("visitor"), "{text}");
    assert_eq!(block_on(client.len()), Ok(700));
}

#[test]
fn a_station_is_found_when_a_handle_comes_back_and_lanes_are_shared_until_then() {
    let engine = Engine::open(Config {
        handles_max: 3,
        ..one_core()
    })
    .unwrap();
    let handles = [engine.handle().unwrap(), engine.handle().unwrap()];
    let client = engine.client().unwrap();
    let call = |client: &Client| client.increment(b"calls", 1).wait().unwrap();
    thread::scope(|scope| {
        (0..3).for_each(|_| drop(scope.spawn(|| call(&client))));
    });
    assert_eq!(engine.handle().err(), Some(Error::Handles { limit: 3 }));
    drop(handles);
    // A thread that calls first now takes lanes of its own; one handle is left.
    thread::scope(|scope| {
        scope.spawn(|| {
            call(&client);
            thread::scope(|scope| drop(scope.spawn(|| call(&client))));
        });
    });
    assert!(engine.handle().is_ok());
    assert_eq!(client.increment(b"calls", 0).wait(), Ok(5));
}

#[test]
fn polls_that_find_no_room_leave_nothing_behind() {
    let engine = Engine::open(one_core()).unwrap();
    let client = engine.client().unwrap();
    let (release, job) = block_core(&engine);
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let names: Vec<_> = (0..3_000).map(key).collect();
    let mut puts: Vec<_> = names
        .iter()
        .map(|name| Box::pin(client.put(name, b"1")))
        .collect();
    for put in &mut puts {
        let mut context = Context::from_waker(Waker::noop());
        assert!(put.as_mut().poll(&mut context).is_pending());
    }
    let mut late = Box::pin(client.put(b"late", b"1"));
    for _ in 0..1_000 {
        let mut context = Context::from_waker(&waker);
        assert!(late.as_mut().poll(&mut context).is_pending());
    }
    assert!(
        Arc::strong_count(&count) <= 3,
        "one clone of its waker is kept"
    );
    drop(late);
    drop(release);
    answer_to(job).unwrap();
    for put in puts {
        block_on(put).unwrap();
    }
    assert_eq!(
        count.0.load(Ordering::SeqCst),
        0,
        "a dropped call is not woken"
    );
    assert_eq!(client.get(b"late").wait(), Ok(None));
}

#[test]
fn a_buffer_holds_no_other_keys_value() {
    let engine = Engine::open(one_core()).unwrap();
    let mut handle = engine.handle().unwrap();
    handle.put(b"other", b"of another key").wait().unwrap();
    handle.get(b"other").wait().unwrap();
    let mut buffer = Vec::new();
    assert_eq!(handle.get_into(b"missing", &mut buffer), Ok(None));
    assert!(buffer.is_empty());
}

#[test]
fn a_call_in_a_thread_locals_destructor_is_answered() {
    struct Late(Client);
    impl Drop for Late {
        fn drop(&mut self) {
            self.0.put(b"late", b"1").wait().expect("it is answered");
        }
    }
    thread_local! {
        static LATE: std::cell::RefCell<Option<Late>> = const { std::cell::RefCell::new(None) };
    }
    let engine = Engine::open(one_core()).unwrap();
    let client = engine.client().unwrap();
    let late = Late(client.clone());
    thread::spawn(move || {
        LATE.set(Some(late));
        LATE.with_borrow(|late| late.as_ref().expect("set").0.get(b"x").wait())
            .unwrap();
    })
    .join()
    .unwrap();
    assert!(client.exists(b"late").wait().unwrap());
}
