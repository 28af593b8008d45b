//! What `DirectoryReport` says of a directory is what an engine does with it.

use std::fs;
use std::path::{Path, PathBuf};

use farcore::{DirectoryReport, Engine, Error, FileState, LogPolicy, Salvage, StorageError};

use crate::work::{Random, steps};
use crate::{config, contents};

const FLIPS: u64 = 400;
/// An engine is opened on one of this many.
const OPENED: u64 = 25;

fn read(dir: &Path) -> DirectoryReport {
    DirectoryReport::read(dir, None, |read, of| assert!(read <= of)).expect("it can be read")
}

/// A store with a snapshot and a log, which was closed.
fn store(dir: &Path, cores: usize) -> contents::Contents {
    let engine = Engine::open(config(dir, cores, LogPolicy::EverySecond)).expect("it opens");
    let mut handle = engine.handle().expect("a handle is free");
    let mut random = Random(7);
    steps(&mut handle, &mut random, 400);
    engine.snapshot().expect("a snapshot is made");
    steps(&mut handle, &mut random, 400);
    drop(handle);
    let held = contents::of(&engine);
    engine.close();
    held
}

/// Tries a damage: the report finds it, or says that a log was not finished, which is how a crash
/// leaves it, or nothing is changed. Returns whether it is found.
fn try_damage(dir: &Path, whole: &DirectoryReport, held: &contents::Contents, opens: bool) -> bool {
    let report = read(dir);
    let damage = report.damage().cloned();
    let is_cut =
        |state: &FileState| matches!(state, FileState::Unfinished { .. } | FileState::Empty);
    let is_same = !report.files.iter().any(|file| is_cut(&file.state));
    if damage.is_none() && is_same {
        assert_eq!(&report, whole, "a damage that is not found changes nothing");
    }
    if opens {
        match Engine::open(config(dir, 2, LogPolicy::EverySecond)) {
            Ok(engine) => {
                assert_eq!(damage, None);
                assert!(!is_same || contents::of(&engine) == *held);
                engine.close();
            }
            Err(error) => assert!(damage.is_some(), "{error}"),
        }
    }
    damage.is_some()
}

pub(crate) fn below(random: &mut Random, count: usize) -> usize {
    usize::try_from(random.below(count as u64)).expect("it is less than that")
}

pub(crate) fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).expect("it can be made");
    for entry in fs::read_dir(from).expect("it can be read") {
        let name = entry.expect("it can be read").file_name();
        fs::copy(from.join(&name), to.join(&name)).expect("it can be copied");
    }
}

#[test]
fn each_damage_of_a_store_is_found_and_named() {
    let dir = tempfile::tempdir().expect("there is room");
    let held = store(dir.path(), 2);
    let whole = read(dir.path());
    assert!(whole.snapshot_unix_ms > 0 && whole.snapshot_keys > 0);
    let is_whole = |state: &FileState| *state == FileState::Whole;
    assert!(whole.files.iter().all(|file| is_whole(&file.state)));
    assert!(whole.files.iter().all(|file| file.entries > 0));
    assert_eq!(whole.files.len(), 4);

    let copies = tempfile::tempdir().expect("there is room");
    let copied = copies.path().join("copy");
    let (mut random, mut found) = (Random(11), 0);
    for number in 0..FLIPS {
        copy(dir.path(), &copied);
        let file = &whole.files[below(&mut random, whole.files.len())];
        let path: PathBuf = copied.join(file.path.file_name().expect("it has one"));
        let mut bytes = fs::read(&path).expect("it can be read");
        let at = below(&mut random, bytes.len());
        if number % 4 == 0 {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << random.below(8);
        }
        fs::write(&path, &bytes).expect("it can be written");
        let of_copy = read_paths(&whole, &copied);
        found += u64::from(try_damage(&copied, &of_copy, &held, number % OPENED == 0));
    }
    // Others lie in bytes between blocks, or at the end of a log.
    assert!(found > FLIPS / 2, "{found}");
}

/// A report, as it is of a copy.
fn read_paths(report: &DirectoryReport, of: &Path) -> DirectoryReport {
    let mut report = report.clone();
    for file in &mut report.files {
        let of = of.canonicalize().expect("it is there");
        file.path = of.join(file.path.file_name().expect("it has one"));
    }
    report
}

#[test]
fn a_log_that_was_not_finished_is_no_damage() {
    let dir = tempfile::tempdir().expect("there is room");
    store(dir.path(), 1);
    let log = read(dir.path()).files.pop().expect("there is a log");
    // Its last block says that it was finished.
    let bytes = fs::read(&log.path).expect("it can be read");
    fs::write(&log.path, &bytes[..bytes.len() - 4096]).expect("it can be written");
    let report = read(dir.path());
    assert_eq!(report.damage(), None);
    let cut = report.files.last().expect("there is a log");
    assert!(matches!(cut.state, FileState::Unfinished { cut: 0, .. }));
    assert_eq!(cut.entries, log.entries);
}

#[test]
fn directories_that_are_none_of_a_store_are_refused() {
    let dir = tempfile::tempdir().expect("there is room");
    let missing = dir.path().join("missing");
    let read = |path: &Path| {
        let read = DirectoryReport::read(path, None, |_, _| {});
        read.map_err(|error| match error {
            Error::Storage(error) => StorageError::clone(&error),
            error => panic!("{error}"),
        })
    };
    let refused = read(&missing);
    assert!(matches!(refused, Err(StorageError::Io { .. })));
    assert!(!missing.exists());
    assert!(read(dir.path()).expect("it is empty").files.is_empty());
    let mut entries = fs::read_dir(dir.path()).expect("it can be read");
    assert!(entries.next().is_none(), "nothing is made there");

    let engine = Engine::open(config(dir.path(), 1, LogPolicy::EverySecond)).expect("it opens");
    let refused = read(dir.path());
    assert!(matches!(
        refused,
        Err(StorageError::Locked { pid: Some(_), .. })
    ));
    engine.snapshot().expect("a snapshot is made");
    engine.close();
    fs::remove_file(dir.path().join("MANIFEST")).expect("it is there");
    let refused = read(dir.path());
    assert!(matches!(refused, Err(StorageError::NoManifest { .. })));
}

#[test]
fn logs_that_are_missing_are_never_passed_over() {
    let dir = tempfile::tempdir().expect("there is room");
    for key in ["one", "two", "three"] {
        let engine = Engine::open(config(dir.path(), 2, LogPolicy::EverySecond));
        let engine = engine.expect("it opens");
        let mut handle = engine.handle().expect("a handle is free");
        for number in 0..20 {
            let key = format!("{key}{number}");
            handle.put(key.as_bytes(), b"v").wait().expect("it is put");
        }
        drop(handle);
        engine.close();
    }
    let files = read(dir.path()).files;
    assert_eq!(files.len(), 6);
    let copies = tempfile::tempdir().expect("there is room");
    let copied = copies.path().join("copy");
    let by_generation = files.chunks(2).map(|files| files.iter().collect());
    let alone = files.iter().map(|file| vec![file]);
    for lost in by_generation.chain(alone) {
        copy(dir.path(), &copied);
        for file in &lost {
            let name = file.path.file_name().expect("it has one");
            fs::remove_file(copied.join(name)).expect("it is there");
        }
        let is_missing = |error: &Error| matches!(error, Error::Storage(error) if matches!(**error, StorageError::Missing { .. }));
        let opened = Engine::open(config(&copied, 2, LogPolicy::EverySecond));
        assert!(
            opened.err().is_some_and(|error| is_missing(&error)),
            "{lost:?}"
        );
        let checked = DirectoryReport::read(&copied, None, |_, _| {});
        assert!(
            checked.err().is_some_and(|error| is_missing(&error)),
            "{lost:?}"
        );
    }
}

/// A store that was closed, and opened and closed again.
fn store_twice(dir: &Path, cores: usize, log: LogPolicy, between: impl Fn(&[PathBuf])) {
    for life in 0..2 {
        let engine = Engine::open(config(dir, cores, log)).expect("it opens");
        let mut handle = engine.handle().expect("a handle is free");
        for number in 0..200 {
            let key = format!("{life} {number}");
            let value = [b'v'; 500];
            handle
                .put(key.as_bytes(), &value)
                .wait()
                .expect("it is put");
        }
        drop(handle);
        engine.close();
        if life == 0 {
            let files = read(dir).files.into_iter().map(|file| file.path);
            between(&files.collect::<Vec<_>>());
        }
    }
}

fn shorten(log: &Path, bytes: u64) {
    let file = fs::OpenOptions::new().write(true).open(log);
    let file = file.expect("it can be opened");
    let length = file.metadata().expect("it has a length").len();
    file.set_len(length - bytes).expect("it can be cut");
}

#[test]
fn logs_that_end_earlier_than_when_they_were_loaded_are_damaged() {
    const BLOCK: u64 = 4096;
    let is_shorter = |error: &StorageError| matches!(error, StorageError::Shorter { .. });
    for (cores, log) in [
        (1, LogPolicy::EverySecond),
        (1, LogPolicy::Always),
        (2, LogPolicy::Always),
    ] {
        for was_torn in [false, true] {
            let dir = tempfile::tempdir().expect("there is room");
            store_twice(dir.path(), cores, log, |files| {
                // As a crash leaves it.
                if was_torn {
                    shorten(&files[0], BLOCK);
                }
            });
            assert_eq!(read(dir.path()).damage(), None);
            let open = || Engine::open(config(dir.path(), cores, log));
            open().expect("it opens").close();
            let first = &read(dir.path()).files[0].path.clone();
            shorten(first, BLOCK);
            let refused = open().err();
            let is_refused =
                |error: &Error| matches!(error, Error::Storage(error) if is_shorter(error));
            assert!(refused.as_ref().is_some_and(is_refused), "{refused:?}");
            let report = read(dir.path());
            assert!(report.damage().is_some_and(is_shorter), "{report:?}");
            let salvage = Salvage::run(dir.path(), None).expect("it is mended");
            assert!(salvage.damage.iter().any(is_shorter), "{salvage:?}");
            assert_eq!(read(dir.path()).damage(), None);
            let engine = open().expect("it opens");
            let mut handle = engine.handle().expect("a handle is free");
            assert!(handle.get(b"0 0").wait().expect("it is read").is_some());
            // What came after the damage is left out, and named.
            assert!(handle.get(b"1 0").wait().expect("it is read").is_none());
            assert!(salvage.lost_keys >= 200);
            drop(handle);
            engine.close();
        }
    }
}

/// A log that was begun and has nothing looks, once damaged, like one that was not begun.
#[test]
fn an_empty_log_that_is_damaged_is_missed_by_those_that_follow() {
    let dir = tempfile::tempdir().expect("there is room");
    store_twice(dir.path(), 1, LogPolicy::EverySecond, |files| {
        let length = fs::metadata(&files[0]).expect("it is there").len();
        shorten(&files[0], length - 4096);
    });
    let first = read(dir.path()).files[0].path.clone();
    let mut bytes = fs::read(&first).expect("it can be read");
    bytes[100] ^= 1;
    fs::write(&first, bytes).expect("it can be written");
    let opened = Engine::open(config(dir.path(), 1, LogPolicy::EverySecond));
    assert!(
        matches!(opened.err(), Some(Error::Storage(error)) if matches!(*error, StorageError::Shorter { .. }))
    );
    assert!(read(dir.path()).damage().is_some());
}
