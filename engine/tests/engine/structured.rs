//! Structured values: they keep their mark wherever their records lie, and no call reads or changes
//! one as plain bytes.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use farcore::{
    Answer, Change, Condition, Engine, Error, Expiry, ExpiryCondition, Handle, Operation,
    PutOptions, PutOutcome, ScanOptions,
};

use crate::support::{every_encryption, key, tiny, value};

/// Enough keys that most records are far.
const KEYS: u64 = 30_000;

/// Every third key is structured.
fn is_structured(number: u64) -> bool {
    number.is_multiple_of(3)
}

fn structured() -> PutOptions<'static> {
    PutOptions {
        structured: true,
        ..PutOptions::default()
    }
}

fn filled(config: farcore::Config) -> Engine {
    let engine = Engine::open(farcore::Config {
        keys_expected: KEYS,
        ..config
    })
    .unwrap();
    let mut handle = engine.handle().unwrap();
    let records: Vec<_> = (0..KEYS)
        .map(|number| (number, key(number), value(number, 0)))
        .collect();
    let puts = records.iter().map(|(number, key, value)| {
        let change = Change::Put {
            value,
            expiry: Expiry::Never,
            condition: Condition::Absent,
            previous: false,
            structured: is_structured(*number),
        };
        Operation::Change { key, change }
    });
    handle
        .many(puts, |_, answer| {
            assert!(matches!(answer, Answer::Stored { .. }));
        })
        .unwrap();
    drop(handle);
    engine.flush().unwrap();
    engine
}

/// Every read of a key as plain bytes, and every change that depends on them, is refused.
fn is_refused_as_plain(handle: &mut Handle, key: &[u8]) {
    let refused = Err(Error::Structured);
    assert_eq!(handle.get(key).wait().map(|_| ()), refused);
    assert_eq!(handle.get_range(key, 0, 4).wait().map(|_| ()), refused);
    let mut long = Vec::new();
    assert_eq!(handle.get_long(key, &mut long).map(|_| ()), refused);
    assert_eq!(handle.increment(key, 1).wait().map(|_| ()), refused);
    assert_eq!(handle.increment_float(key, 1.0).wait().map(|_| ()), refused);
    assert_eq!(handle.append(key, b"more").wait().map(|_| ()), refused);
    assert_eq!(
        handle.set_range(key, 0, b"more").wait().map(|_| ()),
        refused
    );
    assert_eq!(handle.get_and_put(key, b"new").wait().map(|_| ()), refused);
    assert_eq!(handle.get_and_delete(key).wait().map(|_| ()), refused);
    let expired = handle.get_and_expire(key, Expiry::In(0)).wait();
    assert_eq!(expired.map(|_| ()), refused);
    let equal = Condition::Equals(b"");
    assert_eq!(handle.delete_if(key, equal).wait().map(|_| ()), refused);
    assert_eq!(handle.put_if(key, b"", equal).wait().map(|_| ()), refused);
}

#[test]
fn local_far_and_compacted_records_keep_their_mark() {
    for config in every_encryption(tiny()) {
        let engine = filled(config);
        let mut handle = engine.handle().unwrap();
        for round in 0..2 {
            for number in (0..KEYS).step_by(1_999) {
                let (key, held) = (key(number), value(number, 0));
                let metadata = handle.inspect(&key).wait().unwrap().unwrap();
                assert_eq!(metadata.structured, is_structured(number), "{number}");
                assert_eq!(metadata.length, held.len() as u64);
                if is_structured(number) {
                    is_refused_as_plain(&mut handle, &key);
                    // More than once, so that the read cache takes it.
                    for _ in 0..3 {
                        let read = handle.get_structured(&key).wait().unwrap().unwrap();
                        assert_eq!((&*read, read.version()), (&held[..], metadata.version));
                    }
                    is_refused_as_plain(&mut handle, &key);
                } else {
                    let refused = handle.get_structured(&key).wait().map(|_| ());
                    assert_eq!(refused, Err(Error::Plain));
                    assert_eq!(*handle.get(&key).wait().unwrap().unwrap(), held[..]);
                }
            }
            for values in [false, true] {
                let options = ScanOptions {
                    values,
                    ..ScanOptions::default()
                };
                let page = handle.scan(farcore::Cursor::START, options).unwrap();
                for entry in page.entries() {
                    let text = std::str::from_utf8(&entry.key[4..]).unwrap();
                    let number = text.parse().unwrap();
                    assert_eq!(entry.structured, is_structured(number), "{number}");
                }
            }
            if round == 0 {
                // Two thirds go, so that the rest is moved.
                for number in (0..KEYS).filter(|number| number % 1_999 % 3 != 0) {
                    handle.delete(&key(number)).wait().unwrap();
                }
                engine.flush().unwrap();
                engine.compact().unwrap();
            }
        }
        engine.close();
    }
}

#[test]
fn an_expiry_keeps_the_mark_and_a_plain_put_ends_it() {
    let engine = Engine::open(tiny()).unwrap();
    let mut handle = engine.handle().unwrap();
    let options = PutOptions {
        expiry: Expiry::At(1 << 50),
        ..structured()
    };
    let stored = handle.put_with(b"key", b"fields", options).wait().unwrap();
    assert!(matches!(stored, PutOutcome::Stored(_)));
    let always = ExpiryCondition::Always;
    let _ = handle
        .expire(b"key", Expiry::At(1 << 51), always)
        .wait()
        .unwrap();
    is_refused_as_plain(&mut handle, b"key");
    let metadata = handle.inspect(b"key").wait().unwrap().unwrap();
    assert_eq!(
        (metadata.structured, metadata.expiry_ms),
        (true, Some(1 << 51))
    );
    assert!(handle.persist(b"key").wait().unwrap());
    let read = handle.get_structured(b"key").wait().unwrap().unwrap();
    assert_eq!(&*read, b"fields");
    let version = read.version();
    let next = PutOptions {
        condition: Condition::Version(version),
        ..structured()
    };
    let stored = handle.put_with(b"key", b"others", next).wait().unwrap();
    assert!(matches!(stored, PutOutcome::Stored(now) if now > version));
    is_refused_as_plain(&mut handle, b"key");
    // In place.
    handle.put(b"key", b"plain!").wait().unwrap();
    assert_eq!(&*handle.get(b"key").wait().unwrap().unwrap(), b"plain!");
    let refused = handle.get_structured(b"key").wait().map(|_| ());
    assert_eq!(refused, Err(Error::Plain));
    // The value before is plain, and the new one is not.
    let change = Change::Put {
        value: b"fields",
        expiry: Expiry::Never,
        condition: Condition::Equals(b"plain!"),
        previous: false,
        structured: true,
    };
    let operation = Operation::Change {
        key: b"key",
        change,
    };
    handle
        .many([operation], |_, answer| {
            assert!(matches!(answer, Answer::Stored { .. }));
        })
        .unwrap();
    assert!(handle.exists(b"key").wait().unwrap());
    assert_eq!(handle.len().unwrap(), 1);
    assert!(handle.delete(b"key").wait().unwrap());
    assert_eq!(handle.get_structured(b"key").wait().unwrap(), None);
}

#[test]
fn a_long_value_is_never_structured() {
    let engine = Engine::open(tiny()).unwrap();
    let mut handle = engine.handle().unwrap();
    let long = vec![1; engine.value_bytes_max() + 1];
    let length = long.len() as u64;
    let refused = handle.put_long_with(b"long", length, [&long], structured());
    assert!(matches!(refused, Err(Error::ValueTooLong { .. })));
    assert!(!handle.exists(b"long").wait().unwrap());
    handle.put_long(b"long", &long).unwrap();
    let refused = handle.get_structured(b"long").wait().map(|_| ());
    assert_eq!(refused, Err(Error::Plain));
    let core = engine.run_on_core(0, async |mut core: farcore::Core| {
        let options = structured();
        let _ = core.put_with(b"short", b"fields", options).await.unwrap();
        let read = core.get_structured(b"short").await.unwrap().unwrap();
        assert_eq!(&*read, b"fields");
        core.get(b"short").await.map(|_| ())
    });
    assert_eq!(core.unwrap().join().unwrap(), Err(Error::Structured));
}
