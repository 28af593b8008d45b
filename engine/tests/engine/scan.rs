//! Scans, exports, counts and clears through handles and core clients, with local and far records.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use farcore::{
    Config, Cursor, Engine, Error, Expiry, ExportOptions, Handle, PutOptions, ScanOptions, ScanPage,
};

use crate::support::{every_encryption, key, tiny, value};

/// Enough keys that most records are far.
const KEYS: u64 = 20_000;

fn opened(config: Config) -> Engine {
    Engine::open(Config {
        keys_expected: KEYS / 8,
        ..config
    })
    .unwrap()
}

fn fill(handle: &mut Handle, keys: std::ops::Range<u64>) {
    let pairs: Vec<_> = keys.map(|n| (key(n), value(n, 0))).collect();
    let pairs: Vec<_> = pairs.iter().map(|(k, v)| (&k[..], &v[..])).collect();
    handle.put_many(&pairs, |_, _| {}).unwrap();
}

/// Every page of a scan.
fn pages(handle: &mut Handle, options: ScanOptions) -> Vec<ScanPage> {
    let mut pages = Vec::new();
    let mut cursor = Some(Cursor::START);
    while let Some(from) = cursor {
        let page = handle.scan(from, options).unwrap();
        cursor = page.next().map(|next| Cursor::from_bytes(next.to_bytes()));
        pages.push(page);
    }
    pages
}

/// Stops the other threads of a test when it ends, also by a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How often each key was returned.
fn counts(pages: &[ScanPage]) -> HashMap<Vec<u8>, u64> {
    let mut counts = HashMap::new();
    for entry in pages.iter().flat_map(ScanPage::entries) {
        *counts.entry(entry.key.to_vec()).or_default() += 1;
    }
    counts
}

#[test]
fn a_scan_returns_every_key_once_with_what_it_holds() {
    for config in every_encryption(tiny()) {
        let engine = opened(config);
        let mut handle = engine.handle().unwrap();
        assert_eq!(handle.len().unwrap(), 0);
        assert_eq!(pages(&mut handle, ScanOptions::default()).len(), 1);
        fill(&mut handle, 0..KEYS);
        // Longer than what a list carries itself.
        handle.put(b"long", &[7; 9000]).wait().unwrap();
        let expiring = PutOptions {
            expiry: Expiry::At(1 << 50),
            ..PutOptions::default()
        };
        let _ = handle
            .put_with(b"expires", b"later", expiring)
            .wait()
            .unwrap();
        engine.flush().unwrap();
        assert_eq!(handle.len().unwrap(), KEYS + 2);
        for (values, entries) in [(false, 1), (false, 1000), (true, 50), (true, 100_000)] {
            let entries = if entries == 1 {
                KEYS as usize / 3
            } else {
                entries
            };
            let pages = pages(&mut handle, ScanOptions { values, entries });
            let seen = counts(&pages);
            assert_eq!(seen.len() as u64, KEYS + 2);
            assert!(seen.values().all(|&count| count == 1));
            for entry in pages.iter().flat_map(ScanPage::entries) {
                let found = handle.get(entry.key).wait().unwrap().unwrap();
                assert_eq!(
                    (found.version(), found.len()),
                    (entry.version, entry.length)
                );
                assert!(entry.value == values.then_some(&found[..]));
                let expires = values && entry.key == b"expires";
                assert_eq!(entry.expiry_ms, expires.then_some(1 << 50));
            }
            assert!(pages.iter().all(|page| page.unreadable() == 0));
        }
        engine.close();
    }
}

#[test]
fn keys_that_stay_are_returned_exactly_once_while_others_come_and_go() {
    let engine = opened(tiny());
    let mut handle = engine.handle().unwrap();
    fill(&mut handle, 0..KEYS / 2);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut writer = engine.handle().unwrap();
        let _stop = Stop(&stop);
        let stop = &stop;
        scope.spawn(move || {
            // The index grows, pages are flushed and compacted, and keys of the scan's places move.
            let mut round = 0;
            while !stop.load(Ordering::Relaxed) {
                fill(&mut writer, KEYS..KEYS * 3);
                let keys: Vec<_> = (KEYS..KEYS * 3).filter(|n| n % 3 > 0).map(key).collect();
                let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
                writer.delete_many(&keys, |_, _| {}).unwrap();
                round += 1;
            }
            assert!(round > 0);
        });
        for round in 0..6 {
            let options = ScanOptions {
                values: round % 2 == 0,
                entries: [64, 1000, 5000][round % 3],
            };
            let seen = counts(&pages(&mut handle, options));
            for number in 0..KEYS / 2 {
                assert_eq!(seen.get(&key(number)[..]), Some(&1), "key {number}");
            }
        }
        let mut seen: HashMap<Vec<u8>, u64> = HashMap::new();
        let options = ExportOptions {
            batch: 3000,
            ..ExportOptions::default()
        };
        let summary = handle.export(options, |entry| {
            *seen.entry(entry.key.to_vec()).or_default() += 1;
        });
        let summary = summary.unwrap();
        assert_eq!(summary.entries, seen.values().sum::<u64>());
        assert!((0..KEYS / 2).all(|number| seen.get(&key(number)[..]) == Some(&1)));
    });
}

#[test]
fn keys_that_are_overwritten_are_returned_exactly_once() {
    const HOT: u64 = 12;
    let engine = opened(tiny());
    let mut handle = engine.handle().unwrap();
    // Longer than what a list carries itself, so that each is read where it lies, unless it has
    // moved by then: those that have arrive after the others.
    let put = |handle: &mut Handle, number: u64, round: u64| {
        let bytes = vec![number as u8; 2_100 + (round * 977 % 6_000) as usize];
        handle.put(&key(number), &bytes).wait().unwrap();
    };
    (0..HOT).for_each(|number| put(&mut handle, number, 0));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for first in 0..2 {
            let mut writer = engine.handle().unwrap();
            let stop = &stop;
            scope.spawn(move || {
                let mut round = first;
                while !stop.load(Ordering::Relaxed) {
                    put(&mut writer, round * 7 % HOT, round);
                    round += 1;
                }
            });
        }
        let options = ScanOptions {
            values: true,
            entries: 1_000,
        };
        for _ in 0..2_000 {
            let seen = counts(&pages(&mut handle, options));
            assert_eq!(seen.len() as u64, HOT);
            assert!(seen.values().all(|&count| count == 1), "{seen:?}");
        }
    });
}

#[test]
fn an_export_visits_what_a_scan_returns() {
    for config in every_encryption(tiny()) {
        let engine = opened(config);
        let mut handle = engine.handle().unwrap();
        fill(&mut handle, 0..KEYS);
        engine.flush().unwrap();
        for batch in [700, ExportOptions::default().batch] {
            for values in [true, false] {
                let mut seen = HashMap::new();
                let summary = handle.export(ExportOptions { values, batch }, |entry| {
                    let value = entry.value.map(<[u8]>::to_vec);
                    assert!(seen.insert(entry.key.to_vec(), value).is_none());
                });
                assert_eq!(summary.unwrap().entries, KEYS);
                let held = (0..KEYS).all(|n| seen[&key(n)[..]] == values.then(|| value(n, 0)));
                assert!(held);
            }
        }
        engine.close();
    }
}

#[test]
fn what_has_expired_is_not_scanned() {
    let engine = opened(tiny());
    let mut handle = engine.handle().unwrap();
    for number in 0..KEYS {
        let expiry = if number % 2 == 0 {
            Expiry::In(1)
        } else {
            Expiry::Never
        };
        let options = PutOptions {
            expiry,
            ..PutOptions::default()
        };
        let (key, value) = (key(number), value(number, 0));
        let _ = handle.put_with(&key, &value, options).wait().unwrap();
    }
    // All have expired once the last one has.
    while handle.exists(&key(KEYS - 2)).wait().unwrap() {}
    for values in [false, true] {
        let options = ScanOptions {
            values,
            entries: 500,
        };
        let seen = counts(&pages(&mut handle, options));
        assert_eq!(seen.len() as u64, KEYS / 2);
    }
}

#[test]
fn a_clear_removes_all_keys_and_frees_their_memory() {
    for config in every_encryption(tiny()) {
        let engine = opened(config);
        let mut handle = engine.handle().unwrap();
        for round in 0..3 {
            fill(&mut handle, 0..KEYS);
            if round > 0 {
                engine.flush().unwrap();
            }
            assert_eq!(handle.len().unwrap(), KEYS);
            assert_eq!(handle.clear().unwrap(), KEYS);
            assert_eq!(handle.len().unwrap(), 0);
            for number in (0..KEYS).step_by(37) {
                assert!(handle.get(&key(number)).wait().unwrap().is_none());
            }
            assert!(
                pages(&mut handle, ScanOptions::default())[0]
                    .entries()
                    .next()
                    .is_none()
            );
        }
        engine.flush().unwrap();
        assert_eq!(engine.stats().far_used_bytes, 0, "no extent is in use");
        fill(&mut handle, 0..KEYS);
        assert_eq!(&*handle.get(&key(9)).wait().unwrap().unwrap(), value(9, 0));
        engine.close();
    }
}

#[test]
fn a_clear_beside_requests_answers_each_of_them() {
    let engine = opened(tiny());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for client in 0..2 {
            let mut handle = engine.handle().unwrap();
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let own = client * KEYS..client * KEYS + KEYS / 2;
                    fill(&mut handle, own.clone());
                    let keys: Vec<_> = own.clone().map(key).collect();
                    let keys: Vec<_> = keys.iter().map(|key| &key[..]).collect();
                    let mut answered = 0;
                    let read = handle.get_many(&keys, |place, answer| {
                        answered += 1;
                        if let farcore::Answer::Value { value: found, .. } = answer {
                            assert_eq!(found, value(own.start + place as u64, 0));
                        } else {
                            assert_eq!(answer, farcore::Answer::Absent);
                        }
                    });
                    read.unwrap();
                    assert_eq!(answered, keys.len());
                }
            });
        }
        let mut handle = engine.handle().unwrap();
        for _ in 0..20 {
            handle.clear().unwrap();
            let seen = counts(&pages(&mut handle, ScanOptions::default()));
            assert!(seen.values().all(|&count| count == 1));
        }
    });
    let mut handle = engine.handle().unwrap();
    handle.clear().unwrap();
    engine.compact().unwrap();
    assert_eq!(handle.len().unwrap(), 0);
}

#[test]
fn a_core_client_scans_counts_and_clears_too() {
    let engine = opened(tiny());
    let mut handle = engine.handle().unwrap();
    fill(&mut handle, 0..KEYS);
    let task = engine.run_on_core(0, move |mut core| async move {
        assert_eq!(core.len().await.unwrap(), KEYS);
        let options = ScanOptions {
            values: true,
            entries: 777,
        };
        let (mut seen, mut cursor) = (Vec::new(), Some(Cursor::START));
        while let Some(from) = cursor {
            let page = core.scan(from, options).await.unwrap();
            seen.push(page.clone());
            cursor = page.next();
        }
        assert_eq!(counts(&seen).len() as u64, KEYS);
        let mut visited = 0;
        let summary = core
            .export(ExportOptions::default(), |_| visited += 1)
            .await;
        assert_eq!((summary.unwrap().entries, visited), (KEYS, KEYS));
        assert_eq!(core.clear().await.unwrap(), KEYS);
        assert_eq!(core.len().await.unwrap(), 0);
    });
    task.unwrap().join().unwrap();
}

#[test]
fn a_cursor_of_another_engine_is_an_error() {
    let engine = opened(tiny());
    let mut handle = engine.handle().unwrap();
    let cursor = Cursor::from_bytes([3; 16]);
    let refused = handle.scan(cursor, ScanOptions::default());
    assert!(matches!(refused, Err(Error::Cursor { .. })));
}
