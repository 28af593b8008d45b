//! Copies of a data directory that are made while the engine works: as a crash leaves it, but that
//! what was written and not synced is there too, as far as the copy met it.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use farcore::{Engine, LogPolicy};

use crate::work::{Random, steps};
use crate::{config, contents};

/// Copies the files of a directory, as they are under one manifest.
fn copy(from: &Path, to: &Path) {
    let manifest = || fs::read(from.join("MANIFEST")).ok();
    loop {
        let before = manifest();
        let _ = fs::remove_dir_all(to);
        fs::create_dir_all(to).expect("it can be made");
        let names = fs::read_dir(from).expect("it can be read");
        let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut is_whole = true;
        for name in names.filter(|name| name != "LOCK") {
            is_whole &= fs::copy(from.join(&name), to.join(&name)).is_ok();
        }
        // Files that a later manifest does not need are removed meanwhile.
        if is_whole && before == manifest() {
            return;
        }
    }
}

/// All writes of two keys in two shards are under one section: after a crash both have one value.
#[test]
fn a_crash_leaves_no_half_of_a_section() {
    let dir = tempfile::tempdir().expect("there is room");
    let copies = tempfile::tempdir().expect("there is room");
    let engine = Engine::open(config(dir.path(), 2, LogPolicy::EverySecond)).expect("it opens");
    let is_done = AtomicBool::new(false);
    let (one, other) = {
        let keys: Vec<_> = (0..100).map(|at| format!("key{at}")).collect();
        let of = |shard| {
            keys.iter()
                .find(|key| engine.shard_of(key.as_bytes()) == shard)
        };
        let of = |shard| of(shard).expect("each shard has keys").clone();
        (of(0), of(1))
    };
    let made = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut handle = engine.handle().expect("a handle is free");
            let keys = [one.as_bytes(), other.as_bytes()];
            while !is_done.load(Ordering::Acquire) {
                let number = made.fetch_add(1, Ordering::AcqRel).to_le_bytes();
                let written = handle.section(&keys, |handle| {
                    handle.put(keys[0], &number).wait()?;
                    handle.put(keys[1], &number).wait()
                });
                written
                    .expect("it gets the section")
                    .expect("there is room");
            }
        });
        for round in 0..6 {
            std::thread::sleep(std::time::Duration::from_millis(700));
            copy(dir.path(), &copies.path().join(round.to_string()));
        }
        is_done.store(true, Ordering::Release);
    });
    let most = made.load(Ordering::Acquire);
    engine.close();
    let mut seen = 0;
    for round in 0..6 {
        let at = copies.path().join(round.to_string());
        // Twice: what was left out stays out.
        for cores in [1, 2] {
            let engine =
                Engine::open(config(&at, cores, LogPolicy::EverySecond)).expect("it opens");
            let mut handle = engine.handle().expect("a handle is free");
            let mut value = |key: &str| {
                let value = handle.get(key.as_bytes()).wait().expect("it can be read");
                value.map(|value| u64::from_le_bytes(value[..].try_into().expect("8 bytes")))
            };
            let (first, second) = (value(&one), value(&other));
            assert_eq!(first, second, "round {round}");
            seen = seen.max(first.unwrap_or(0));
            drop(handle);
            engine.close();
        }
    }
    assert!(seen > 0 && seen <= most, "{seen} of {most}");
}

/// What was answered before a copy was begun is in it, if answers wait for the disk.
#[test]
fn a_crash_loses_no_answered_change() {
    let dir = tempfile::tempdir().expect("there is room");
    let copies = tempfile::tempdir().expect("there is room");
    let engine = Engine::open(config(dir.path(), 2, LogPolicy::Always)).expect("it opens");
    let (is_done, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut least = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut handle = engine.handle().expect("a handle is free");
            for number in 0.. {
                if is_done.load(Ordering::Acquire) {
                    return;
                }
                let key = format!("key{number}");
                handle
                    .put(key.as_bytes(), key.as_bytes())
                    .wait()
                    .expect("there is room");
                answered.store(number + 1, Ordering::Release);
            }
        });
        scope.spawn(|| {
            for _ in 0..2 {
                engine.snapshot().expect("a snapshot is made");
            }
        });
        for round in 0..4 {
            std::thread::sleep(std::time::Duration::from_millis(300));
            least.push(answered.load(Ordering::Acquire));
            copy(dir.path(), &copies.path().join(round.to_string()));
        }
        is_done.store(true, Ordering::Release);
    });
    engine.close();
    for (round, least) in least.into_iter().enumerate() {
        let at = copies.path().join(round.to_string());
        let engine = Engine::open(config(&at, 1, LogPolicy::Off)).expect("it opens");
        let mut handle = engine.handle().expect("a handle is free");
        for number in 0..least {
            let key = format!("key{number}");
            let value = handle.get(key.as_bytes()).wait().expect("it can be read");
            assert_eq!(value.as_deref(), Some(key.as_bytes()), "round {round}");
        }
        assert!(least > 0, "there was something to lose");
    }
}

/// A copy amid random work and snapshots opens, and holds what can be read.
#[test]
fn a_crash_amid_anything_leaves_a_store_that_opens() {
    let dir = tempfile::tempdir().expect("there is room");
    let copies = tempfile::tempdir().expect("there is room");
    let engine = Engine::open(config(dir.path(), 2, LogPolicy::EverySecond)).expect("it opens");
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut handle = engine.handle().expect("a handle is free");
            let mut random = Random(99);
            while !is_done.load(Ordering::Acquire) {
                steps(&mut handle, &mut random, 20);
            }
        });
        scope.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                engine.snapshot().expect("a snapshot is made");
            }
        });
        for round in 0..8 {
            std::thread::sleep(std::time::Duration::from_millis(400));
            copy(dir.path(), &copies.path().join(round.to_string()));
        }
        is_done.store(true, Ordering::Release);
    });
    engine.close();
    let mut keys = 0;
    for round in 0..8 {
        let at = copies.path().join(round.to_string());
        let mut before = None;
        for cores in [2, 1] {
            let engine = Engine::open(config(&at, cores, LogPolicy::EverySecond));
            let engine = engine.unwrap_or_else(|error| panic!("round {round}: {error}"));
            let found = contents::of(&engine);
            keys += found.len();
            if let Some(before) = before.replace(found.clone()) {
                assert!(found == before, "round {round}");
            }
            engine.close();
        }
    }
    assert!(keys > 0);
}
