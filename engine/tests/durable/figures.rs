//! What a report says of the data directory.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use farcore::statistics::DataReport;
use farcore::{Config, Engine, LogPolicy, Reporter};

use super::config;

/// Limit on everything that must happen.
const PATIENCE: Duration = Duration::from_secs(60);

fn data(engine: &Engine) -> DataReport {
    let report = engine.reporter().report();
    report.data.expect("there is a data directory")
}

/// What a report says once it is as wanted.
fn data_when(engine: &Engine, is_wanted: impl Fn(&DataReport) -> bool) -> DataReport {
    let began = Instant::now();
    loop {
        let now = data(engine);
        if is_wanted(&now) {
            return now;
        }
        assert!(began.elapsed() < PATIENCE, "{now:?}");
        std::thread::yield_now();
    }
}

#[test]
fn a_report_says_what_was_logged_synced_saved_and_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let config = || config(dir.path(), 2, LogPolicy::EverySecond);
    let engine = Engine::open(config()).unwrap();
    let before = data(&engine);
    assert!(before.log.is_on && !before.log.is_failing && !before.loading.is_under_way);
    assert_eq!(before.snapshots.last_unix_ms, 0);
    let mut handle = engine.handle().unwrap();
    for number in 0..100_u32 {
        handle.put(&number.to_le_bytes(), &[7; 100]).wait().unwrap();
    }
    let after = data_when(&engine, |now| {
        now.log.bytes >= before.log.bytes + 100 * 100
            && now.log.unsynced_bytes == 0
            && now.log.syncs.count() > before.log.syncs.count()
    });
    assert!(after.log.durable_bytes >= before.log.durable_bytes + 100 * 100);
    assert!(after.log.last_sync_ns > 0 && after.log.syncs.max() >= after.log.last_sync_ns);
    let made = engine.snapshot().unwrap();
    let saved = data(&engine).snapshots;
    assert_eq!((saved.completed, saved.failed, saved.rewrites), (1, 0, 0));
    assert_eq!((saved.last_keys, made.keys), (100, 100));
    assert!(saved.last_bytes > 100 * 100 && saved.last_unix_ms > 0);
    assert!(saved.error.is_empty() && !saved.is_under_way);
    handle.put(b"one more", b"value").wait().unwrap();
    drop(handle);
    engine.close();

    let engine = Engine::open_unloaded(config()).unwrap();
    assert!(data(&engine).loading.is_under_way);
    engine.load().unwrap();
    let loaded = data(&engine);
    assert!(!loaded.loading.is_under_way && loaded.loading.took_ns > 0);
    assert!(loaded.loading.entries >= 101, "{loaded:?}");
    assert_eq!(loaded.loading.torn_bytes, 0);
    assert!(loaded.loading.bytes > 0 && loaded.loading.bytes <= loaded.loading.total_bytes);
    let snapshots = loaded.snapshots;
    assert_eq!((snapshots.completed, snapshots.last_keys), (0, 100));
    assert_eq!(snapshots.last_bytes, saved.last_bytes);
    // It is the same figures.
    let stats = engine.durable_stats().unwrap();
    assert_eq!(stats.last_unix_ms, snapshots.last_unix_ms);
    assert_eq!(stats.loaded_entries, loaded.loading.entries);
}

/// Stands in the way of the next generation of a directory of one core; returns where.
pub(super) fn block_next(dir: &Path) -> PathBuf {
    let is_log = |name: &str| name.starts_with("log-");
    let entries = std::fs::read_dir(dir).expect("it can be read");
    let names = entries.map(|entry| {
        let name = entry.expect("it can be read").file_name();
        name.into_string().expect("it is text")
    });
    let log = names
        .filter(|name| is_log(name))
        .max()
        .expect("there is a log");
    let (start, shard) = log.rsplit_once('-').expect("it has parts");
    let (kind, generation) = start.rsplit_once('-').expect("it has parts");
    let width = generation.len();
    let next = generation.parse::<u64>().expect("it is a number") + 1;
    let blocked = dir.join(format!("{kind}-{next:0width$}-{shard}"));
    std::fs::create_dir(&blocked).expect("it can be made");
    blocked
}

#[test]
fn a_snapshot_that_cannot_be_written_is_counted_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(config(dir.path(), 1, LogPolicy::EverySecond)).unwrap();
    block_next(dir.path());
    engine.snapshot().unwrap_err();
    let snapshots = data(&engine).snapshots;
    assert_eq!((snapshots.completed, snapshots.failed), (0, 1));
    assert!(snapshots.failed_unix_ms > 0 && !snapshots.error.is_empty());
    assert!(!snapshots.is_under_way);
}

#[test]
fn an_engine_without_a_data_directory_says_nothing_of_one() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(Config {
        data_dir: None,
        ..config(dir.path(), 1, LogPolicy::EverySecond)
    });
    assert!(engine.unwrap().reporter().report().data.is_none());
}
