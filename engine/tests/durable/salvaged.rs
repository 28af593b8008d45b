//! A damaged data directory opens again with what came before the damage, and what is lost is
//! named.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use farcore::{Config, DirectoryReport, Engine, Error, LogPolicy, Salvage, StorageError};

use crate::checked::{below, copy};
use crate::contents;
use crate::work::{Random, steps};

const DAMAGES: u64 = 60;

fn config(dir: &Path, snapshots_kept: usize) -> Config {
    Config {
        snapshots_kept,
        ..crate::config(dir, 2, LogPolicy::EverySecond)
    }
}

/// A store with snapshots and logs, written by two engines, one after the other.
fn store(dir: &Path, snapshots_kept: usize) -> contents::Contents {
    let mut random = Random(17);
    let mut held = contents::Contents::new();
    for _ in 0..2 {
        let engine = Engine::open(config(dir, snapshots_kept)).expect("it opens");
        let mut handle = engine.handle().expect("a handle is free");
        steps(&mut handle, &mut random, 400);
        engine.snapshot().expect("a snapshot is made");
        steps(&mut handle, &mut random, 400);
        drop(handle);
        held = contents::of(&engine);
        engine.close();
    }
    // It begins further logs, so the manifest before the last one names the same snapshot.
    let engine = Engine::open(config(dir, snapshots_kept)).expect("it opens");
    engine.close();
    held
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("it can be read");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    let is_file = |path: &PathBuf| path.is_file() && !path.ends_with("LOCK");
    let mut files: Vec<_> = paths.filter(is_file).collect();
    files.sort();
    files
}

fn is_damaged(dir: &Path) -> bool {
    match DirectoryReport::read(dir, None, |_, _| {}) {
        Ok(report) => report.damage().is_some(),
        Err(_) => true,
    }
}

/// Mends a directory and opens it; what differs from what was held is named. Returns how many keys
/// differ, and how many of them are named.
fn mend(dir: &Path, held: &contents::Contents, what: &str) -> (usize, usize) {
    let salvage = Salvage::run(dir, None).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(!salvage.damage.is_empty(), "{what}");
    assert!(!is_damaged(dir), "{what}");
    let folder = salvage.set_aside.as_ref().expect("something was changed");
    let named = fs::read_to_string(folder.join("LOST")).expect("it is there");
    let named: HashSet<_> = named.lines().collect();
    assert_eq!(named.len() as u64, salvage.lost_keys, "{what}");
    let engine = Engine::open(config(dir, 2)).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = contents::of(&engine);
    let is_missing = |error: &StorageError| {
        matches!(
            error,
            StorageError::Missing { .. } | StorageError::Shorter { .. }
        )
    };
    let is_unknown = salvage.unreadable_bytes > 0 || salvage.damage.iter().any(is_missing);
    let (mut lost, mut said) = (0, 0);
    let keys: HashSet<_> = held.keys().chain(found.keys()).collect();
    for key in keys {
        if held.get(key) != found.get(key) {
            lost += 1;
            let name = key.escape_ascii().to_string();
            said += usize::from(named.contains(&name[..]));
            assert!(
                is_unknown || named.contains(&name[..]),
                "{what}: {name} is lost and not named"
            );
        }
    }
    // It is a store like others.
    let mut handle = engine.handle().expect("a handle is free");
    handle.put(b"new", b"value").wait().expect("there is room");
    drop(handle);
    engine.snapshot().expect("a snapshot is made");
    engine.close();
    let again = Salvage::run(dir, None).expect("it can be read");
    assert_eq!(
        (again.damage, again.set_aside),
        (Vec::new(), None),
        "{what}"
    );
    (lost, said)
}

#[test]
fn a_damaged_directory_opens_with_what_came_before() {
    let dir = tempfile::tempdir().expect("there is room");
    let held = store(dir.path(), 2);
    let copies = tempfile::tempdir().expect("there is room");
    let copied = copies.path().join("copy");
    let (mut random, mut mended) = (Random(19), 0);
    let (mut all_lost, mut all_said) = (0, 0);
    for number in 0..DAMAGES {
        copy(dir.path(), &copied);
        let all = files(&copied);
        let path = &all[below(&mut random, all.len())];
        let name = path
            .file_name()
            .expect("it has one")
            .to_string_lossy()
            .into_owned();
        let what = match number % 3 {
            0 => {
                fs::remove_file(path).expect("it can be removed");
                format!("{name} is missing")
            }
            cut => {
                let mut bytes = fs::read(path).expect("it can be read");
                let at = below(&mut random, bytes.len());
                if cut == 1 {
                    bytes.truncate(at);
                } else {
                    bytes[at] ^= 1 << random.below(8);
                }
                fs::write(path, &bytes).expect("it can be written");
                format!("{name} is damaged at {at}, {}", number % 3)
            }
        };
        if !is_damaged(&copied) {
            continue;
        }
        mended += 1;
        let (lost, said) = mend(&copied, &held, &what);
        // What was cut off or removed cannot be read.
        if number % 3 == 2 {
            (all_lost, all_said) = (all_lost + lost, all_said + said);
        }
        let of_base = name.starts_with("base") || name.starts_with("MANIFEST");
        assert!(lost == 0 || !of_base, "{what}: {lost} keys are lost");
    }
    assert!(mended > DAMAGES / 4, "{mended}");
    // Behind a flipped bit, what is left out can be read, and most of it is named.
    assert!(
        all_lost > 0 && all_said * 2 > all_lost,
        "{all_said} of {all_lost}"
    );
}

#[test]
fn a_snapshot_that_is_damaged_and_has_none_before_it_is_left_as_it_is() {
    let dir = tempfile::tempdir().expect("there is room");
    store(dir.path(), 1);
    let all = files(dir.path());
    let bases = all
        .iter()
        .filter(|path| path.to_string_lossy().contains("/base-"));
    assert_eq!(bases.clone().count(), 2);
    let base = bases.clone().next().expect("there is one");
    let mut bytes = fs::read(base).expect("it can be read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(base, &bytes).expect("it can be written");
    let refused = Salvage::run(dir.path(), None);
    assert!(
        matches!(&refused, Err(Error::Storage(error)) if matches!(**error, StorageError::Corrupt { .. })),
        "{refused:?}"
    );
    assert_eq!(files(dir.path()), all);
}

#[test]
fn a_whole_directory_and_one_that_is_used_stay_as_they_are() {
    let dir = tempfile::tempdir().expect("there is room");
    let none = dir.path().join("none");
    assert!(Salvage::run(&none, None).is_err() && !none.exists());
    let held = store(dir.path(), 1);
    let salvage = Salvage::run(dir.path(), None).expect("it can be read");
    assert_eq!((salvage.damage, salvage.set_aside), (Vec::new(), None));
    let engine = Engine::open(config(dir.path(), 1)).expect("it opens");
    let used = Salvage::run(dir.path(), None);
    assert!(matches!(used, Err(Error::Storage(_))), "{used:?}");
    assert!(contents::of(&engine) == held);
}

/// What no snapshot that is left goes on with is set aside, and its keys are named.
#[test]
fn logs_behind_a_damaged_snapshot_without_one_before_it_are_named() {
    let dir = tempfile::tempdir().expect("there is room");
    let open = |log| {
        let config = Config {
            log,
            ..config(dir.path(), 2)
        };
        Engine::open(config).expect("it opens")
    };
    let put = |engine: &Engine, key: &[u8]| {
        let mut handle = engine.handle().expect("a handle is free");
        handle.put(key, b"value").wait().expect("there is room");
    };
    let engine = open(LogPolicy::Off);
    for key in [b"one", b"two"] {
        put(&engine, key);
        engine.snapshot().expect("a snapshot is made");
    }
    engine.close();
    let engine = open(LogPolicy::EverySecond);
    put(&engine, b"six");
    engine.close();
    let is_base = |path: &&PathBuf| path.to_string_lossy().contains("/base-");
    let all = files(dir.path());
    let newest = all.iter().rfind(is_base).expect("it is there");
    let mut bytes = fs::read(newest).expect("it can be read");
    let place = bytes.len() / 2;
    bytes[place] ^= 1;
    fs::write(newest, bytes).expect("it can be written");
    let salvage = Salvage::run(dir.path(), None).expect("the snapshot before is whole");
    let folder = salvage.set_aside.expect("something was changed");
    let lost = fs::read_to_string(folder.join("LOST")).expect("it is there");
    assert!(lost.lines().any(|key| key == "six"), "{lost}");
    let engine = open(LogPolicy::EverySecond);
    let mut handle = engine.handle().expect("a handle is free");
    assert!(handle.get(b"one").wait().expect("it is read").is_some());
    assert!(handle.get(b"six").wait().expect("it is read").is_none());
    drop(handle);
    engine.close();
}
