//! What an engine says of its data directory, between two of its reports.

use farcore::statistics::DataReport;
use serde::Serialize;

use super::rates::{Latency, latency};

/// The data directory of an engine. Counts are since the engine was opened.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct DataRates {
    /// It is being loaded: what follows up to `torn_bytes` says how far that is.
    pub(crate) is_loading: bool,
    pub(crate) loaded_entries: u64,
    pub(crate) loaded_bytes: u64,
    pub(crate) to_load_bytes: u64,
    /// How long loading took; absent while it is under way.
    pub(crate) load_seconds: Option<f64>,
    /// Bytes at the ends of logs that were left out.
    pub(crate) torn_bytes: u64,
    /// A snapshot is being written.
    pub(crate) is_saving: bool,
    pub(crate) snapshots: u64,
    /// Those of them that were made because the log was long.
    pub(crate) rewrites: u64,
    pub(crate) failed_snapshots: u64,
    /// The last snapshot: when it was completed, as a time of the clock and by its age, how long it
    /// took, and what it holds. Absent without one; what an earlier engine took is absent, too.
    pub(crate) last_snapshot_unix_seconds: Option<f64>,
    pub(crate) last_snapshot_age_seconds: Option<f64>,
    pub(crate) last_snapshot_seconds: Option<f64>,
    pub(crate) last_snapshot_bytes: Option<u64>,
    pub(crate) last_snapshot_keys: Option<u64>,
    /// When a snapshot failed last; absent if none has.
    pub(crate) failed_unix_seconds: Option<f64>,
    /// Why the last snapshot that was tried failed; absent if it did not.
    pub(crate) snapshot_error: Option<String>,
    /// Changes are logged; the log cannot be written.
    pub(crate) is_logging: bool,
    pub(crate) is_failing: bool,
    pub(crate) log_bytes: u64,
    pub(crate) durable_bytes: u64,
    pub(crate) log_bytes_per_second: f64,
    /// What is not durable yet, and how long the oldest of it has waited.
    pub(crate) unsynced_bytes: u64,
    pub(crate) unsynced_ns: u64,
    pub(crate) syncs: u64,
    pub(crate) syncs_per_second: f64,
    /// Syncs of the interval.
    pub(crate) sync: Latency,
    /// The last sync of each core, the longest of them.
    pub(crate) last_sync_ns: u64,
    /// What a memory node has lost is being restored.
    pub(crate) is_repairing: bool,
    pub(crate) repairs: u64,
    pub(crate) failed_repairs: u64,
    /// Keys that completed repairs have restored.
    pub(crate) repaired_keys: u64,
    /// Why the last repair that was tried failed; absent if it did not.
    pub(crate) repair_error: Option<String>,
}

/// A time in milliseconds since 1970, in seconds; absent if it is 0.
fn unix_seconds(unix_ms: u64) -> Option<f64> {
    (unix_ms > 0).then(|| unix_ms as f64 / 1e3)
}

/// A time in nanoseconds, in seconds; absent if it is 0.
fn seconds_of(ns: u64) -> Option<f64> {
    (ns > 0).then(|| ns as f64 / 1e9)
}

impl DataRates {
    /// The rates between two reports that are `seconds` apart, at a time of the clock.
    pub(super) fn between(
        earlier: &DataReport,
        later: &DataReport,
        seconds: f64,
        now_unix_ms: u64,
    ) -> Self {
        let between = later.since(earlier);
        let DataReport {
            loading,
            snapshots,
            log,
            repairs,
        } = later;
        let last_ms = snapshots.last_unix_ms;
        let has_last = last_ms > 0;
        // A clock that was set back makes no age.
        let age_ms = now_unix_ms.saturating_sub(last_ms);
        let why = |error: &String| Some(error).filter(|error| !error.is_empty()).cloned();
        Self {
            is_loading: loading.is_under_way,
            loaded_entries: loading.entries,
            loaded_bytes: loading.bytes,
            to_load_bytes: loading.total_bytes,
            load_seconds: (!loading.is_under_way).then(|| loading.took_ns as f64 / 1e9),
            torn_bytes: loading.torn_bytes,
            is_saving: snapshots.is_under_way,
            snapshots: snapshots.completed,
            rewrites: snapshots.rewrites,
            failed_snapshots: snapshots.failed,
            last_snapshot_unix_seconds: unix_seconds(last_ms),
            last_snapshot_age_seconds: has_last.then(|| age_ms as f64 / 1e3),
            last_snapshot_seconds: seconds_of(snapshots.last_took_ns).filter(|_| has_last),
            last_snapshot_bytes: has_last.then_some(snapshots.last_bytes),
            last_snapshot_keys: has_last.then_some(snapshots.last_keys),
            failed_unix_seconds: unix_seconds(snapshots.failed_unix_ms),
            snapshot_error: why(&snapshots.error),
            is_logging: log.is_on,
            is_failing: log.is_failing,
            log_bytes: log.bytes,
            durable_bytes: log.durable_bytes,
            log_bytes_per_second: between.log.bytes as f64 / seconds,
            unsynced_bytes: log.unsynced_bytes,
            unsynced_ns: log.unsynced_ns,
            syncs: log.syncs.count(),
            syncs_per_second: between.log.syncs.count() as f64 / seconds,
            sync: latency(&between.log.syncs),
            last_sync_ns: log.last_sync_ns,
            is_repairing: repairs.is_under_way,
            repairs: repairs.completed,
            failed_repairs: repairs.failed,
            repaired_keys: repairs.keys,
            repair_error: why(&repairs.error),
        }
    }
}
