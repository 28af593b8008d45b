//! What has commands be refused: one word that each command looks at.

use std::sync::atomic::{AtomicU8, Ordering};

/// The data are loaded; as Redis.
pub(crate) const LOADING: &str = "LOADING Redis is loading the dataset in memory";
/// A snapshot of the rules has failed; as Redis.
pub(crate) const UNSAVED: &str = "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. Commands that may modify the data set are disabled, because this instance is configured to report errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Redis logs for details about the RDB error.";

/// The server follows another one, and clients may not write; as Redis.
pub(crate) const READ_ONLY: &str = "READONLY You can't write against a read only replica.";
/// The link to the server that it follows is down, and stale data are not served; as Redis.
pub(crate) const STALE: &str =
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";

/// Fewer replicas than wanted were heard lately; as Redis.
pub(crate) const UNFOLLOWED: &str = "NOREPLICAS Not enough good replicas to write.";

/// Bits of the word.
const IS_LOADING: u8 = 1;
const IS_UNSAVED: u8 = 2;
const IS_READ_ONLY: u8 = 4;
const IS_STALE: u8 = 8;
const IS_SYNCING: u8 = 16;
const IS_UNFOLLOWED: u8 = 32;

/// Why commands are refused now.
#[derive(Debug, Default)]
pub(crate) struct Refusals(AtomicU8);

impl Refusals {
    /// True if some commands are. Cost: one load.
    #[inline]
    pub(crate) fn are_some(&self) -> bool {
        // ORDERING: relaxed, as all here; a core that sees a change late refuses a command more
        // or less.
        self.0.load(Ordering::Relaxed) != 0
    }

    /// True while the data directory, or the data of another server, are loaded.
    pub(crate) fn is_loading(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (IS_LOADING | IS_SYNCING) != 0
    }

    pub(crate) fn is_unsaved(&self) -> bool {
        self.0.load(Ordering::Relaxed) & IS_UNSAVED != 0
    }

    pub(crate) fn set_loading(&self, is_loading: bool) {
        self.set(IS_LOADING, is_loading);
    }

    pub(crate) fn set_unsaved(&self, is_unsaved: bool) {
        self.set(IS_UNSAVED, is_unsaved);
    }

    /// True if clients may not write. Cost: one load.
    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        self.0.load(Ordering::Relaxed) & IS_READ_ONLY != 0
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.0.load(Ordering::Relaxed) & IS_STALE != 0
    }

    pub(crate) fn set_read_only(&self, is_read_only: bool) {
        self.set(IS_READ_ONLY, is_read_only);
    }

    pub(crate) fn set_stale(&self, is_stale: bool) {
        self.set(IS_STALE, is_stale);
    }

    /// True if replicas are missing without which clients may not write.
    pub(crate) fn is_unfollowed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & IS_UNFOLLOWED != 0
    }

    pub(crate) fn set_unfollowed(&self, is_unfollowed: bool) {
        if is_unfollowed != self.is_unfollowed() {
            self.set(IS_UNFOLLOWED, is_unfollowed);
        }
    }

    pub(crate) fn set_syncing(&self, is_syncing: bool) {
        self.set(IS_SYNCING, is_syncing);
    }

    fn set(&self, bit: u8, to: bool) {
        if to {
            self.0.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.0.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_comes_and_goes_alone() {
        let refusals = Refusals::default();
        assert!(!refusals.are_some());
        refusals.set_loading(true);
        refusals.set_unsaved(true);
        refusals.set_loading(false);
        assert!(refusals.are_some() && refusals.is_unsaved() && !refusals.is_loading());
        refusals.set_unsaved(false);
        assert!(!refusals.are_some());
        refusals.set_loading(true);
        refusals.set_syncing(true);
        refusals.set_loading(false);
        assert!(refusals.is_loading() && !refusals.is_read_only());
        refusals.set_syncing(false);
        refusals.set_read_only(true);
        refusals.set_stale(true);
        refusals.set_read_only(false);
        assert!(refusals.is_stale() && !refusals.is_loading());
    }
}
