//! What an engine says of its data directory.

use crate::storage::Manifest;

/// What a snapshot has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SnapshotSummary {
    /// Its number: those of one directory only rise.
    pub generation: u64,
    /// Keys in it.
    pub keys: u64,
    /// Bytes of its files, of the logs since it was begun not.
    pub bytes: u64,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// What a repair has restored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct RepairSummary {
    /// Keys that were lost, in whole or in part, and are there again.
    pub keys: u64,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
}

/// What an engine with a data directory says of it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct DurableStats {
    /// Entries that were loaded from files when the engine was opened.
    pub loaded_entries: u64,
    /// How long that took, in milliseconds.
    pub load_ms: u64,
    /// Bytes at the ends of logs that were not whole and were left out then.
    pub torn_bytes: u64,
    /// A snapshot is being written.
    pub is_saving: bool,
    /// The last snapshot, if one was completed since the engine was opened.
    pub last: Option<SnapshotSummary>,
    /// When the last snapshot was completed, in milliseconds since 1970, by this or an earlier
    /// engine; 0 if there is none.
    pub last_unix_ms: u64,
    /// Why the last snapshot that was tried was not completed.
    pub last_error: Option<String>,
    /// Changes are logged.
    pub is_logging: bool,
    /// Bytes that were appended to logs since the engine was opened, and how many of them are
    /// durable.
    pub log_bytes: u64,
    /// Those that are durable.
    pub synced_bytes: u64,
    /// The logs cannot be written, and changes are refused.
    pub is_failing: bool,
    /// What a memory node has lost is being restored.
    pub is_repairing: bool,
    /// Repairs that restored all that was lost, since the engine was opened.
    pub repairs: u64,
    /// Repairs that did not, since then.
    pub failed_repairs: u64,
    /// Keys that repairs have restored since then.
    pub repaired_keys: u64,
    /// Why the last repair that was tried did not restore all.
    pub last_repair_error: Option<String>,
    /// Bytes of the files of the last snapshot, by this or an earlier engine.
    pub last_bytes: u64,
    /// Keys in it.
    pub last_keys: u64,
    /// Snapshots that were completed since the engine was opened.
    pub snapshots: u64,
    /// Those of them that the engine made by itself, because the logs were long.
    pub rewrites: u64,
    /// Snapshots that failed since the engine was opened.
    pub failed_snapshots: u64,
    /// When one failed last, in milliseconds since 1970; 0 if none has.
    pub failed_unix_ms: u64,
    /// Bytes that were appended to logs and are not durable.
    pub unsynced_bytes: u64,
    /// How long the oldest change that is not durable has waited, in nanoseconds; 0 if all are.
    pub unsynced_ns: u64,
    /// How long the last sync of each core's log took, from its beginning until what it covers was
    /// durable, in nanoseconds: the longest of them.
    pub last_sync_ns: u64,
}

impl DurableStats {
    /// Notes what the last snapshot has written, by its manifest.
    pub(super) fn note_last(&mut self, manifest: &Manifest) {
        self.last_bytes = manifest.files.iter().map(|file| file.bytes).sum();
        self.last_keys = manifest.keys;
    }
}
