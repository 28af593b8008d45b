//! Limits the lines that one place of the code logs: what a peer causes may come at any rate.
//!
//! - I1: at most one line is logged in an interval. It says how many were left out before it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Length of an interval, in nanoseconds.
pub(crate) const INTERVAL_NS: u64 = 1_000_000_000;

/// The intervals of one kind of line, of which each may have one. Any thread may use them.
#[derive(Debug, Default)]
pub(crate) struct Intervals {
    /// When the next line may be logged.
    next_ns: AtomicU64,
}

impl Intervals {
    pub(crate) const fn new() -> Self {
        Self {
            next_ns: AtomicU64::new(0),
        }
    }

    /// True if a line may be logged now, which begins an interval.
    pub(crate) fn begin(&self, now_ns: u64) -> bool {
        let next_ns = self.next_ns.load(Ordering::Relaxed);
        let then_ns = now_ns.saturating_add(INTERVAL_NS);
        // ORDERING: relaxed; the exchange only decides which thread logs.
        now_ns >= next_ns
            && self
                .next_ns
                .compare_exchange(next_ns, then_ns, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

/// The limit of one place. Any thread may log there.
#[derive(Debug)]
pub struct LogLimit {
    start: OnceLock<Instant>,
    intervals: Intervals,
    left_out: AtomicU64,
}

impl LogLimit {
    /// A limit for a static.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            start: OnceLock::new(),
            intervals: Intervals::new(),
            left_out: AtomicU64::new(0),
        }
    }

    /// How many lines were left out, if one may be logged now. If not, it is left out too.
    pub fn note(&self) -> Option<u64> {
        let passed = self.start.get_or_init(Instant::now).elapsed();
        self.note_at(u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX))
    }

    fn note_at(&self, now_ns: u64) -> Option<u64> {
        if self.intervals.begin(now_ns) {
            return Some(self.left_out.swap(0, Ordering::Relaxed));
        }
        self.left_out.fetch_add(1, Ordering::Relaxed);
        None
    }
}

impl Default for LogLimit {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_an_interval_says_what_was_left_out() {
        let limit = LogLimit::new();
        let at = |ms: u64| limit.note_at(ms * 1_000_000);
        assert_eq!(at(5), Some(0));
        assert!((6..1_005).all(|now| at(now).is_none()));
        assert_eq!(at(1_005), Some(999));
        assert_eq!(at(1_006), None);
        assert_eq!(at(9_000), Some(1));
        assert_eq!(at(10_000), Some(0));
    }
}
