//! Limits the lines that one place of the code logs: what a peer causes may come at any rate.
//!
//! - I1: at most one line is logged in an interval. It says how many were left out before it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Length of an interval.
const INTERVAL: Duration = Duration::from_secs(1);

/// The limit of one place. Any thread may log there.
#[derive(Debug)]
pub struct LogLimit {
    start: OnceLock<Instant>,
    /// When the next line may be logged, in milliseconds after the start.
    next_ms: AtomicU64,
    left_out: AtomicU64,
}

impl LogLimit {
    /// A limit for a static.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            start: OnceLock::new(),
            next_ms: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        }
    }

    /// How many lines were left out, if one may be logged now. If not, it is left out too.
    pub fn note(&self) -> Option<u64> {
        let passed = self.start.get_or_init(Instant::now).elapsed();
        self.note_at(u64::try_from(passed.as_millis()).unwrap_or(u64::MAX))
    }

    fn note_at(&self, now_ms: u64) -> Option<u64> {
        let next_ms = self.next_ms.load(Ordering::Relaxed);
        let then_ms = now_ms.saturating_add(INTERVAL.as_secs() * 1_000);
        // ORDERING: relaxed; the exchange only decides which thread logs.
        let logs = now_ms >= next_ms
            && self
                .next_ms
                .compare_exchange(next_ms, then_ms, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if logs {
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
        assert_eq!(limit.note_at(5), Some(0));
        assert!((6..1_005).all(|now| limit.note_at(now).is_none()));
        assert_eq!(limit.note_at(1_005), Some(999));
        assert_eq!(limit.note_at(1_006), None);
        assert_eq!(limit.note_at(9_000), Some(1));
        assert_eq!(limit.note_at(10_000), Some(0));
    }
}
