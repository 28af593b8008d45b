//! What others than the engine's owner may do with its data directory.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use farcore_tuning::{
    DataReport, HistogramSnapshot, LoadingReport, LogReport, RepairsReport, SnapshotsReport,
};

use super::figures::{DurableStats, RepairSummary, SnapshotSummary};
use super::keeper::Durable;
use super::load::LoadProgress;
use crate::error::{Error, Result};
use crate::observe::metrics::DurableSource;

/// How far the loading of a data directory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct LoadFigures {
    /// Entries of files that were loaded.
    pub entries: u64,
    /// Bytes of files that were read.
    pub bytes: u64,
    /// Bytes of the files that are being read or were; it may rise.
    pub total_bytes: u64,
}

/// Has snapshots of an engine written, and reads what there is to say of its data directory, from
/// any thread. It may outlive the engine.
#[derive(Clone, Debug, Default)]
pub struct Durability {
    pub(crate) keeper: Arc<OnceLock<Durable>>,
    pub(crate) progress: Arc<LoadProgress>,
}

impl Durability {
    /// As [`Engine::snapshot`](crate::Engine::snapshot).
    ///
    /// # Errors
    /// Those of [`Engine::snapshot`](crate::Engine::snapshot); [`Error::Closed`] once the engine is
    /// closed.
    pub fn snapshot(&self) -> Result<SnapshotSummary> {
        self.keeper.get().ok_or(Error::NoDataDirectory)?.snapshot()
    }

    /// As [`Engine::repair`](crate::Engine::repair).
    ///
    /// # Errors
    /// Those of [`Engine::repair`](crate::Engine::repair); [`Error::Closed`] once the engine is
    /// closed.
    pub fn repair(&self) -> Result<RepairSummary> {
        self.keeper.get().ok_or(Error::NoDataDirectory)?.repair()
    }

    /// What there is to say of the data directory; `None` without one, or while it is loaded.
    #[must_use]
    pub fn stats(&self) -> Option<DurableStats> {
        self.keeper.get().map(Durable::stats)
    }

    /// How far loading is.
    #[must_use]
    pub fn load_figures(&self) -> LoadFigures {
        let read = |figure: &std::sync::atomic::AtomicU64| figure.load(Ordering::Relaxed);
        LoadFigures {
            entries: read(&self.progress.entries),
            bytes: read(&self.progress.bytes),
            total_bytes: read(&self.progress.total_bytes),
        }
    }
}

/// Nanoseconds of milliseconds.
fn ns(ms: u64) -> u64 {
    ms.saturating_mul(1_000_000)
}

impl DurableSource for Durability {
    fn report(&self) -> DataReport {
        let keeper = self.keeper.get();
        let stats = keeper.map(Durable::stats).unwrap_or_default();
        let figures = self.load_figures();
        let last_ms = stats.last.map_or(0, |last| last.took_ms);
        DataReport {
            loading: LoadingReport {
                is_under_way: keeper.is_none(),
                entries: figures.entries,
                bytes: figures.bytes,
                total_bytes: figures.total_bytes,
                took_ns: ns(stats.load_ms),
                torn_bytes: stats.torn_bytes,
            },
            snapshots: SnapshotsReport {
                is_under_way: stats.is_saving,
                completed: stats.snapshots,
                rewrites: stats.rewrites,
                failed: stats.failed_snapshots,
                last_unix_ms: stats.last_unix_ms,
                last_took_ns: ns(last_ms),
                last_bytes: stats.last_bytes,
                last_keys: stats.last_keys,
                failed_unix_ms: stats.failed_unix_ms,
                error: stats.last_error.unwrap_or_default(),
            },
            log: LogReport {
                is_on: stats.is_logging,
                is_failing: stats.is_failing,
                bytes: stats.log_bytes,
                durable_bytes: stats.synced_bytes,
                unsynced_bytes: stats.unsynced_bytes,
                unsynced_ns: stats.unsynced_ns,
                last_sync_ns: stats.last_sync_ns,
                syncs: keeper.map_or_else(HistogramSnapshot::default, Durable::sync_times),
            },
            repairs: RepairsReport {
                is_under_way: stats.is_repairing,
                completed: stats.repairs,
                failed: stats.failed_repairs,
                keys: stats.repaired_keys,
                error: stats.last_repair_error.unwrap_or_default(),
            },
        }
    }
}
