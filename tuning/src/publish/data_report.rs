//! The part of a report about an engine's data directory.
//!
//! As the report, it grows by fields: a reader ignores those that it does not know, and those that
//! a writer lacks are zero. What comes from another process is never trusted: differences and sums
//! of these figures saturate.

use serde::{Deserialize, Serialize};

use crate::measure::HistogramSnapshot;

/// What an engine says of its data directory.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DataReport {
    /// How far loading is.
    pub loading: LoadingReport,
    /// What is known of snapshots.
    pub snapshots: SnapshotsReport,
    /// What is known of the log of changes.
    pub log: LogReport,
    /// What is known of repairs.
    pub repairs: RepairsReport,
}

/// How far the loading of a data directory is, or was when it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadingReport {
    /// It is being loaded.
    pub is_under_way: bool,
    /// Entries of files that were loaded.
    pub entries: u64,
    /// Bytes of files that were read.
    pub bytes: u64,
    /// Bytes of the files that are being read or were; it may rise while they are.
    pub total_bytes: u64,
    /// How long loading took, in nanoseconds; 0 while it is under way.
    pub took_ns: u64,
    /// Bytes at the ends of logs that were not whole and were left out.
    pub torn_bytes: u64,
}

/// The snapshots in a data directory. Counts are since the engine was opened.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotsReport {
    /// One is being written.
    pub is_under_way: bool,
    /// Those that were completed.
    pub completed: u64,
    /// Those of them that the engine made by itself, because the log was long.
    pub rewrites: u64,
    /// Those that failed.
    pub failed: u64,
    /// When the last one was completed, by this or an earlier engine, in milliseconds since 1970;
    /// 0 if there is none.
    pub last_unix_ms: u64,
    /// How long that took, in nanoseconds; 0 if an earlier engine made it.
    pub last_took_ns: u64,
    /// Bytes of its files.
    pub last_bytes: u64,
    /// Its keys.
    pub last_keys: u64,
    /// When one failed last, in milliseconds since 1970; 0 if none has.
    pub failed_unix_ms: u64,
    /// Why the last one that was tried failed; empty if it did not.
    pub error: String,
}

/// The log of changes of all cores together. Counts are since the engine was opened.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LogReport {
    /// Changes are logged.
    pub is_on: bool,
    /// The log cannot be written now, and changes are refused.
    pub is_failing: bool,
    /// Bytes that were logged.
    pub bytes: u64,
    /// Those of them that are durable.
    pub durable_bytes: u64,
    /// Bytes that are logged and not durable yet.
    pub unsynced_bytes: u64,
    /// How long the oldest change that is not durable has waited, in nanoseconds; 0 if all are
    /// durable.
    pub unsynced_ns: u64,
    /// How long the last sync of each core took, from when it was begun until all that it covers
    /// was durable, in nanoseconds: the longest of them.
    pub last_sync_ns: u64,
    /// How long syncs took, in nanoseconds; all of them, not a sample.
    pub syncs: HistogramSnapshot,
}

/// The repairs that restored what memory nodes have lost. Counts are since the engine was opened.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RepairsReport {
    /// One is running.
    pub is_under_way: bool,
    /// Those that restored all that was lost.
    pub completed: u64,
    /// Those that did not.
    pub failed: u64,
    /// Keys that were restored by those that were completed.
    pub keys: u64,
    /// Why the last one that was tried failed; empty if it did not.
    pub error: String,
}

impl DataReport {
    /// The figures since an earlier report of the same engine. What is no count keeps its value.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut report = self.clone();
        let (now, then) = (&mut report.snapshots, &earlier.snapshots);
        now.completed = now.completed.saturating_sub(then.completed);
        now.rewrites = now.rewrites.saturating_sub(then.rewrites);
        now.failed = now.failed.saturating_sub(then.failed);
        let (now, then) = (&mut report.log, &earlier.log);
        now.bytes = now.bytes.saturating_sub(then.bytes);
        now.durable_bytes = now.durable_bytes.saturating_sub(then.durable_bytes);
        now.syncs = now.syncs.since(&then.syncs);
        let (now, then) = (&mut report.repairs, &earlier.repairs);
        now.completed = now.completed.saturating_sub(then.completed);
        now.failed = now.failed.saturating_sub(then.failed);
        now.keys = now.keys.saturating_sub(then.keys);
        report
    }
}
