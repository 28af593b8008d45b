//! The keys whose contents no load knows, because a write of them ended with an error.
//!
//! Shared by the workers of a run. It is used only after an error or an unexpected answer, so its
//! lock is off the path that is measured.
//!
//! I1: a key in doubt stays so: the write that failed may have taken effect or not, and a later one
//!     that succeeds is not noted. An unexpected answer about it is unverified, not wrong, if it is
//!     possible: the key is absent, or holds a value that was written to it. A value that is torn,
//!     foreign or was never written is wrong.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The keys, each by a number that all threads derive alike.
#[derive(Debug, Default)]
pub struct Doubts(Mutex<HashSet<u64>>);

impl Doubts {
    /// Notes that a write of a key failed.
    #[cold]
    pub fn add(&self, key: u64) {
        self.keys().insert(key);
    }

    /// Whether a write of a key has failed.
    #[cold]
    #[must_use]
    pub fn has(&self, key: u64) -> bool {
        self.keys().contains(&key)
    }

    fn keys(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
