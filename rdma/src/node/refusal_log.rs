//! Limits the log lines about refusals: any peer can cause a refusal, and none may fill a disk or
//! make the node wait for a reader of its log.
//!
//! The first refusal for each reason in an interval is logged by itself. The others are counted,
//! and logged as one line when the interval is over. The metrics count every refusal by reason.
//!
//! - I1: each interval logs at most one refusal for each reason, and one sum.

use std::sync::atomic::{AtomicU64, Ordering};

use super::metrics::{REASONS, Why};
use crate::log_limit::Intervals;

/// The refusals of one node since the last line about them. Any thread notes one.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    /// By [`Why`], of refusals that are logged by themselves.
    each: [Intervals; REASONS.len()],
    /// Of sums.
    sums: Intervals,
    /// Refusals that were not logged by themselves.
    unlogged: AtomicU64,
}

impl RefusalLog {
    /// Notes a refusal; true if the caller must log it.
    pub(super) fn note(&self, why: Why, now_ns: u64) -> bool {
        let logs = self.each[why as usize].begin(now_ns);
        if !logs {
            self.unlogged.fetch_add(1, Ordering::Relaxed);
        }
        logs
    }

    /// The number of refusals that were not logged, once an interval; `None` if there were none.
    /// For one thread.
    pub(super) fn sum(&self, now_ns: u64) -> Option<u64> {
        if !self.sums.begin(now_ns) {
            return None;
        }
        Some(self.unlogged.swap(0, Ordering::Relaxed)).filter(|&count| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_limit::INTERVAL_NS;

    #[test]
    fn one_refusal_for_each_reason_and_one_sum_are_logged_in_an_interval() {
        let interval = INTERVAL_NS;
        let log = RefusalLog::default();
        let start = 5 * interval;
        assert_eq!(log.sum(start), None, "nothing happened");
        let logged = |why| {
            (0..1000)
                .filter(|&later| log.note(why, start + later))
                .count()
        };
        assert_eq!((logged(Why::Token), logged(Why::Proof)), (1, 1));
        assert_eq!(log.sum(start + 1000), None, "the interval is not over");
        assert_eq!(log.sum(start + interval), Some(2 * 999));
        assert_eq!(log.sum(start + 2 * interval), None, "it was logged");
        assert!(log.note(Why::Token, start + interval));
        assert!(!log.note(Why::Token, start + interval));
    }
}
