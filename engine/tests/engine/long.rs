//! Long values through handles and core clients.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use farcore::{
    CasOutcome, Condition, Config, Cursor, Engine, Error, Expiry, Handle, PutOptions, PutOutcome,
    ScanOptions, TimeToLive,
};

use crate::support::{every_encryption, key, tiny, value};

fn opened(config: Config) -> Engine {
    Engine::open(Config {
        local_bytes: 32 << 20,
        far_bytes: 128 << 20,
        ..config
    })
    .unwrap()
}

/// A value that differs at every place, by seed.
fn long(seed: u64, bytes: usize) -> Vec<u8> {
    let mut word = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut value = Vec::with_capacity(bytes + 8);
    while value.len() < bytes {
        word = word.wrapping_mul(0xD129_0DDC_53C4_3E49).rotate_left(23);
        value.extend(word.to_le_bytes());
    }
    value.truncate(bytes);
    value
}

fn read(handle: &mut Handle, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    let found = handle.get_long(key, &mut value).unwrap();
    found.map(|_| value)
}

/// Pushes what was written before out of local memory.
fn crowd(handle: &mut Handle, from: u64) {
    let pairs: Vec<_> = (from..from + 40_000)
        .map(|n| (key(n), value(n, 0)))
        .collect();
    let pairs: Vec<_> = pairs.iter().map(|(k, v)| (&k[..], &v[..])).collect();
    handle.put_many(&pairs, |_, _| {}).unwrap();
}

#[test]
fn values_of_any_length_read_back_near_and_far() {
    for config in every_encryption(tiny()) {
        let engine = opened(config);
        let mut handle = engine.handle().unwrap();
        let lengths = [
            0,
            1,
            1000,
            32 << 10,
            (32 << 10) + 1,
            100_000,
            2_000_000,
            5 << 20,
        ];
        for round in 0..2 {
            for (seed, bytes) in (0u64..).zip(lengths) {
                let value = long(seed + 10 * round, bytes);
                let version = handle.put_long(&seed.to_le_bytes(), &value).unwrap();
                let mut found = vec![9; 3];
                let read = handle.get_long(&seed.to_le_bytes(), &mut found).unwrap();
                assert_eq!(read, Some(version));
                assert!(found == value, "{bytes}");
            }
            crowd(&mut handle, 0);
            engine.flush().unwrap();
            if round == 1 {
                engine.compact().unwrap();
            }
            for (seed, bytes) in (0u64..).zip(lengths) {
                let expected = long(seed + 10 * round, bytes);
                assert!(
                    read(&mut handle, &seed.to_le_bytes()).unwrap() == expected,
                    "{bytes}"
                );
                let (mut visited, mut lengths_seen) = (Vec::new(), Vec::new());
                let found = handle.read_long(&seed.to_le_bytes(), |length, part| {
                    lengths_seen.push(length);
                    visited.extend_from_slice(part);
                });
                assert!(found.unwrap().is_some() && visited == expected);
                assert!(lengths_seen.iter().all(|&length| length == bytes as u64));
                for (offset, count) in [(0, 10), (bytes / 2, 40_000), (bytes - bytes / 9, 1 << 30)]
                {
                    let mut part = Vec::new();
                    let found = handle
                        .get_long_range(&seed.to_le_bytes(), offset as u64, count as u64, &mut part)
                        .unwrap();
                    let end = (offset + count).min(bytes);
                    assert!(
                        found.is_some() && part == expected[offset..end],
                        "{bytes} {offset}"
                    );
                }
            }
        }
        assert_eq!(read(&mut handle, b"absent"), None);
        engine.close();
    }
}

#[test]
fn a_long_value_is_one_key_and_goes_as_one() {
    let engine = opened(tiny());
    let mut handle = engine.handle().unwrap();
    let put = |handle: &mut Handle, name: &[u8]| handle.put_long(name, &long(1, 3 << 20)).unwrap();
    let version = put(&mut handle, b"a");
    let known = handle.inspect(b"a").wait().unwrap().unwrap();
    assert_eq!((known.version, known.length), (version, 3 << 20));
    assert_eq!(handle.len().unwrap(), 1);
    let page = handle.scan(Cursor::START, ScanOptions::default()).unwrap();
    let entries: Vec<_> = page
        .entries()
        .map(|entry| (entry.key, entry.length))
        .collect();
    assert_eq!(entries, [(&b"a"[..], 3 << 20)]);
    // Reads and changes of a part say how to read it.
    let error = Err(Error::LongValue {
        bytes: 3 << 20,
        key: b"a"[..].into(),
    });
    assert_eq!(handle.get(b"a").wait().map(|_| ()), error);
    assert_eq!(handle.get_range(b"a", 0, 5).wait().map(|_| ()), error);
    assert_eq!(handle.append(b"a", b"x").wait().map(|_| ()), error);
    assert_eq!(handle.get_and_delete(b"a").wait().map(|_| ()), error);
    assert_eq!(handle.increment(b"a", 1).wait().map(|_| ()), error);
    assert!(handle.exists(b"a").wait().unwrap());
    // Expiry keeps the value.
    let _ = handle
        .expire(b"a", Expiry::In(1 << 40), farcore::ExpiryCondition::Always)
        .wait()
        .unwrap();
    assert!(matches!(
        handle.time_to_live(b"a").wait().unwrap(),
        Some(TimeToLive::Milliseconds(_))
    ));
    assert!(read(&mut handle, b"a").unwrap() == long(1, 3 << 20));
    assert!(handle.persist(b"a").wait().unwrap());
    assert!(read(&mut handle, b"a").unwrap() == long(1, 3 << 20));
    let version = handle.inspect(b"a").wait().unwrap().unwrap().version;
    // It is replaced by a value in a record, and the other way round.
    let swapped = handle
        .compare_and_swap(b"a", version, b"short")
        .wait()
        .unwrap();
    assert!(matches!(swapped, CasOutcome::Stored(_)));
    assert_eq!(&*handle.get(b"a").wait().unwrap().unwrap(), b"short");
    put(&mut handle, b"a");
    handle.put(b"a", b"short again").wait().unwrap();
    put(&mut handle, b"a");
    assert!(handle.delete(b"a").wait().unwrap());
    assert_eq!(read(&mut handle, b"a"), None);
    put(&mut handle, b"a");
    put(&mut handle, b"b");
    assert_eq!(handle.clear().unwrap(), 2);
    // Nothing is left of all of them.
    engine.flush().unwrap();
    assert_eq!(handle.len().unwrap(), 0);
    assert_eq!(engine.stats().far_used_bytes, 0);
    assert_eq!(engine.stats().total.long_values, 0);
}

#[test]
fn memory_of_long_values_comes_back() {
    // A seed with which not all three keys lie in one shard: its table has room for the pieces of
    // four such values, and those of a replaced one leave it a little later.
    let spread = Config {
        seed: Some(1),
        ..tiny()
    };
    for config in every_encryption(spread) {
        let engine = opened(config);
        assert!(!engine.same_shard([b"x", b"y", b"z"]));
        let mut handle = engine.handle().unwrap();
        // Many times what there is.
        for round in 0..60 {
            let name = [b"x", b"y", b"z"][round % 3];
            match round % 4 {
                0 => drop(handle.delete(name).wait().unwrap()),
                1 => drop(handle.put(name, b"short").wait().unwrap()),
                _ => {}
            }
            handle.put_long(name, &long(round as u64, 9 << 20)).unwrap();
            if round % 3 == 0 {
                engine.flush().unwrap();
            }
            assert!(read(&mut handle, name).unwrap() == long(round as u64, 9 << 20));
        }
        engine.close();
    }
}

#[test]
fn a_reader_finds_one_version_or_the_other() {
    let engine = opened(tiny());
    let mut handle = engine.handle().unwrap();
    handle.put_long(b"k", &vec![0; 1 << 20]).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut writer = engine.handle().unwrap();
        let stop = &stop;
        scope.spawn(move || {
            for round in 1..=60u8 {
                let bytes = (1 << 20) + usize::from(round) * 1000;
                writer.put_long(b"k", &vec![round; bytes]).unwrap();
            }
            stop.store(true, Ordering::Relaxed);
        });
        let mut last = 0;
        let mut found = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            match handle.get_long(b"k", &mut found) {
                Ok(Some(_)) => {
                    let round = found[0];
                    assert!(round >= last && found.iter().all(|&byte| byte == round));
                    assert_eq!(found.len(), (1 << 20) + usize::from(round) * 1000);
                    last = round;
                }
                Err(Error::LongValueGone) => {}
                other => panic!("{other:?}"),
            }
        }
    });
    assert!(
        read(&mut handle, b"k")
            .unwrap()
            .iter()
            .all(|&byte| byte == 60)
    );
}

#[test]
fn what_cannot_be_stored_changes_nothing() {
    let engine = opened(tiny());
    let mut handle = engine.handle().unwrap();
    handle.put_long(b"k", &long(5, 1 << 20)).unwrap();
    let said = |handle: &mut Handle, said: u64, parts: Vec<Vec<u8>>| {
        handle.put_long_with(b"k", said, parts, PutOptions::default())
    };
    let parts = |count: usize| vec![vec![7u8; 100_000]; count];
    for (said_bytes, count, given) in [(1_000_000, 9, 900_000), (1_000_000, 11, 1_100_000)] {
        let error = said(&mut handle, said_bytes, parts(count));
        let expected = Error::LongValueLength {
            said: said_bytes,
            given,
        };
        assert_eq!(error, Err(expected));
    }
    assert!(matches!(
        said(&mut handle, 100, parts(1)),
        Err(Error::LongValueLength { .. })
    ));
    let too_long = said(&mut handle, (64 << 20) + 1, parts(1));
    assert!(matches!(too_long, Err(Error::LongValueTooLong { .. })));
    let no_key = handle.put_long(b"", &long(1, 1 << 20));
    assert!(matches!(no_key, Err(Error::KeyEmpty { .. })));
    let unmet = PutOptions {
        condition: Condition::Absent,
        ..PutOptions::default()
    };
    let outcome = handle.put_long_with(b"k", 1_000_000, parts(10), unmet);
    assert!(matches!(outcome, Ok(PutOutcome::Unmet(version)) if version > 0));
    // Far memory fills up in the middle.
    let mut full = 0;
    for number in 0..40u64 {
        match handle.put_long(&number.to_le_bytes(), &long(number, 6 << 20)) {
            Ok(_) => {}
            Err(Error::FarFull { .. } | Error::LongValues { .. }) => full += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(full > 0);
    assert!(read(&mut handle, b"k").unwrap() == long(5, 1 << 20));
    // Room comes back with what is deleted.
    for number in 0..40u64 {
        handle.delete(&number.to_le_bytes()).wait().unwrap();
    }
    handle.put_long(b"after", &long(3, 6 << 20)).unwrap();
    assert!(read(&mut handle, b"after").unwrap() == long(3, 6 << 20));
    assert!(read(&mut handle, b"k").unwrap() == long(5, 1 << 20));
}

#[test]
fn a_core_client_writes_and_reads_long_values() {
    let engine = opened(tiny());
    let task = engine.run_on_core(1, |mut core| async move {
        for number in 0..6u64 {
            core.put_long(&number.to_le_bytes(), &long(number, 700_000))
                .await
                .unwrap();
        }
        let mut value = Vec::new();
        for number in 0..6u64 {
            let found = core
                .get_long(&number.to_le_bytes(), &mut value)
                .await
                .unwrap();
            assert!(found.is_some() && value == long(number, 700_000));
            let mut visited = 0;
            core.read_long(&number.to_le_bytes(), |_, part| visited += part.len())
                .await
                .unwrap();
            assert_eq!(visited, 700_000);
        }
        let part = core
            .get_long_range(&2u64.to_le_bytes(), 600_000, 10, &mut value)
            .await;
        assert!(part.unwrap().is_some() && value == long(2, 700_000)[600_000..600_010]);
    });
    task.unwrap().join().unwrap();
}
