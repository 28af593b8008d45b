//! Expiry through handles and core clients, with local and far records.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::time::{Duration, Instant};

use farcore::{
    Condition, Config, Engine, Error, Expiry, ExpiryCondition, ExpiryOutcome, Handle, PutOptions,
    PutOutcome, TimeToLive,
};

use crate::support::{every_encryption, key, tiny, value};

/// Enough keys that most records are far.
const KEYS: u64 = 20_000;
/// The time limit for anything that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

fn opened(config: Config) -> Engine {
    Engine::open(Config {
        keys_expected: KEYS,
        ..config
    })
    .unwrap()
}

fn expiring(expiry: Expiry) -> PutOptions<'static> {
    PutOptions {
        expiry,
        ..PutOptions::default()
    }
}

/// Waits for what must happen, however long it takes.
fn until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
}

fn is_there(handle: &mut Handle, number: u64) -> bool {
    handle.get(&key(number)).wait().unwrap().is_some()
}

#[test]
fn keys_with_an_expiry_go_wherever_they_are_and_others_stay() {
    for config in every_encryption(tiny()) {
        let engine = opened(config);
        let mut handle = engine.handle().unwrap();
        for number in 0..KEYS {
            let expiry = match number % 4 {
                0 => Expiry::In(1),
                1 => Expiry::In(1 << 40),
                _ => Expiry::Never,
            };
            let (key, value) = (key(number), value(number, 0));
            let stored = handle.put_with(&key, &value, expiring(expiry)).wait();
            assert!(matches!(stored.unwrap(), PutOutcome::Stored(_)));
        }
        engine.flush().unwrap();
        for number in 0..KEYS {
            if number % 4 == 0 {
                until(|| !is_there(&mut handle, number));
                assert!(!handle.exists(&key(number)).wait().unwrap());
                assert!(!handle.delete(&key(number)).wait().unwrap());
                continue;
            }
            let found = handle.get(&key(number)).wait().unwrap().unwrap();
            assert_eq!(&found[..], value(number, 0));
        }
        engine.close();
    }
}

#[test]
fn what_has_expired_is_removed_without_a_request_for_it() {
    let engine = opened(tiny());
    let mut handle = engine.handle().unwrap();
    let put = |handle: &mut Handle, number: u64, expiry| {
        let (key, value) = (key(number), value(number, 0));
        let stored = handle.put_with(&key, &value, expiring(expiry)).wait();
        assert!(matches!(stored.unwrap(), PutOutcome::Stored(_)));
    };
    for number in 0..KEYS {
        put(&mut handle, number, Expiry::In(1));
    }
    engine.flush().unwrap();
    // Other requests keep the cores awake.
    until(|| {
        assert!(!is_there(&mut handle, KEYS + 1));
        engine.stats().total.keys == 0
    });
    assert!(engine.stats().total.expired > KEYS / 2);
    engine.close();
}

#[test]
fn an_expiry_is_read_changed_and_removed() {
    let engine = opened(tiny());
    let mut handle = engine.handle().unwrap();
    let name = b"session";
    let later = Expiry::In(3_600_000);
    let ttl = |handle: &mut Handle| handle.time_to_live(name).wait().unwrap();
    assert_eq!(ttl(&mut handle), None);
    let always = ExpiryCondition::Always;
    let set = handle.expire(name, later, always).wait().unwrap();
    assert_eq!(set, ExpiryOutcome::Absent);
    handle.put(name, b"value").wait().unwrap();
    assert_eq!(ttl(&mut handle), Some(TimeToLive::Unlimited));
    assert!(!handle.persist(name).wait().unwrap());
    let set = handle.expire(name, later, always).wait().unwrap();
    assert!(matches!(set, ExpiryOutcome::Set(_)));
    let is_hour = |left| matches!(left, Some(TimeToLive::Milliseconds(3_500_000..=3_600_000)));
    assert!(is_hour(ttl(&mut handle)));
    let unset = handle.expire(name, later, ExpiryCondition::Unset).wait();
    assert!(matches!(unset.unwrap(), ExpiryOutcome::Unmet(_)));
    // Appends keep it, a plain put removes it, and a put can keep it.
    handle.append(name, b"!").wait().unwrap();
    assert!(is_hour(ttl(&mut handle)));
    let kept = handle.put_with(name, b"other", expiring(Expiry::Keep));
    assert!(matches!(kept.wait().unwrap(), PutOutcome::Stored(_)));
    assert!(is_hour(ttl(&mut handle)));
    assert!(handle.persist(name).wait().unwrap());
    assert_eq!(ttl(&mut handle), Some(TimeToLive::Unlimited));
    let read = handle.get_and_expire(name, later).wait().unwrap().unwrap();
    assert_eq!(&read[..], b"other");
    assert!(is_hour(ttl(&mut handle)));
    handle.put(name, b"plain").wait().unwrap();
    assert_eq!(ttl(&mut handle), Some(TimeToLive::Unlimited));
    engine.close();
}

#[test]
fn an_expiry_in_the_past_deletes_and_says_so() {
    let engine = opened(tiny());
    let mut handle = engine.handle().unwrap();
    for past in [Expiry::At(0), Expiry::At(1_000_000), Expiry::In(0)] {
        handle.put(b"key", b"value").wait().unwrap();
        let set = handle.expire(b"key", past, ExpiryCondition::Always).wait();
        assert_eq!(set.unwrap(), ExpiryOutcome::Deleted);
        assert!(handle.get(b"key").wait().unwrap().is_none());
        handle.put(b"key", b"value").wait().unwrap();
        let put = handle.put_with(b"key", b"new", expiring(past)).wait();
        assert_eq!(put.unwrap(), PutOutcome::Expired);
        assert!(handle.get(b"key").wait().unwrap().is_none());
        let unmet = PutOptions {
            expiry: past,
            condition: Condition::Present,
        };
        let put = handle.put_with(b"key", b"new", unmet).wait();
        assert_eq!(put.unwrap(), PutOutcome::Unmet(0));
    }
    let longest = vec![7; engine.value_bytes_max() - 32];
    let put = handle.put_with(b"key", &longest, expiring(Expiry::In(1 << 40)));
    assert!(matches!(put.wait().unwrap(), PutOutcome::Stored(_)));
    let too_long = vec![7; longest.len() + 32];
    let put = handle.put_with(b"key", &too_long, expiring(Expiry::In(1 << 40)));
    assert!(matches!(put.wait(), Err(Error::ValueTooLong { .. })));
    engine.close();
}

#[test]
fn jobs_on_cores_have_the_same_calls() {
    let engine = opened(tiny());
    let done = engine.run_on_core(0, async |mut core: farcore::Core| {
        let expiry = Expiry::In(1 << 40);
        let put = core.put_with(b"key", b"value", expiring(expiry)).await?;
        assert!(matches!(put, PutOutcome::Stored(_)));
        let left = core.time_to_live(b"key").await?;
        assert!(matches!(left, Some(TimeToLive::Milliseconds(1..))));
        assert!(core.persist(b"key").await?);
        assert_eq!(
            core.time_to_live(b"key").await?,
            Some(TimeToLive::Unlimited)
        );
        let past = core.expire(b"key", Expiry::In(0), ExpiryCondition::Always);
        assert_eq!(past.await?, ExpiryOutcome::Deleted);
        Ok::<_, Error>(core.get_and_expire(b"key", expiry).await?.is_none())
    });
    assert!(done.unwrap().join().unwrap().unwrap());
    engine.close();
}
