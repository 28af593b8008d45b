//! What others than the engine's owner may do with its data directory.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use super::keeper::{Durable, DurableStats, RepairSummary, SnapshotSummary};
use super::load::LoadProgress;
use crate::error::{Error, Result};

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
