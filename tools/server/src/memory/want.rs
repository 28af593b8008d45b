//! That something was wanted a moment ago and could not be had.

use std::sync::atomic::{AtomicU64, Ordering};

/// How long it counts as wanted, in milliseconds.
const WANTED_MS: u64 = 50;

/// When it was wanted last, in milliseconds since 1970; 0 if never. Who waits says it again and
/// again.
#[derive(Debug, Default)]
pub(crate) struct Want(AtomicU64);

// ORDERING: relaxed, throughout. No other data is read by it.
impl Want {
    /// Notes that it is wanted and cannot be had.
    pub(crate) fn note(&self, now_ms: u64) {
        self.0.store(now_ms, Ordering::Relaxed);
    }

    /// True if it was wanted a moment ago.
    #[inline]
    pub(crate) fn is_recent(&self, now_ms: u64) -> bool {
        let wanted_ms = self.0.load(Ordering::Relaxed);
        wanted_ms > 0 && now_ms.saturating_sub(wanted_ms) <= WANTED_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_had_is_wanted_for_a_moment() {
        let want = Want::default();
        assert!(!want.is_recent(0));
        want.note(5000);
        assert!(want.is_recent(5000) && want.is_recent(5000 + WANTED_MS));
        assert!(!want.is_recent(5001 + WANTED_MS));
    }
}
