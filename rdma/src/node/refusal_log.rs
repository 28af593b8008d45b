//! Limits the log lines about refusals: any peer can cause a refusal, and none may fill a disk or
//! make the node wait for a reader of its log.
//!
//! The first refusal of an interval is logged with its peer and reason. The others of the interval
//! are counted, and logged as one line when it is over. The metrics count every refusal by reason.
//!
//! - I1: each interval logs at most one refusal by itself and one sum.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::service::nanoseconds;

/// Length of an interval.
const INTERVAL: Duration = Duration::from_secs(1);

/// The refusals of one node since the last line about them. Any thread notes one.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    /// When the next refusal may be logged by itself.
    next_ns: AtomicU64,
    /// Refusals that were not logged by themselves.
    unlogged: AtomicU64,
}

impl RefusalLog {
    /// Notes a refusal; true if the caller must log it.
    pub(super) fn note(&self, now_ns: u64) -> bool {
        let next_ns = self.next_ns.load(Ordering::Relaxed);
        let then_ns = now_ns.saturating_add(nanoseconds(INTERVAL));
        // ORDERING: relaxed; the exchange only decides which thread logs.
        let logs = now_ns >= next_ns
            && (self.next_ns)
                .compare_exchange(next_ns, then_ns, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !logs {
            self.unlogged.fetch_add(1, Ordering::Relaxed);
        }
        logs
    }

    /// The number of refusals that were not logged, once their interval is over; `None` if there
    /// were none.
    pub(super) fn sum(&self, now_ns: u64) -> Option<u64> {
        if now_ns < self.next_ns.load(Ordering::Relaxed) {
            return None;
        }
        Some(self.unlogged.swap(0, Ordering::Relaxed)).filter(|&count| count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_refusal_and_one_sum_are_logged_in_an_interval() {
        let interval = nanoseconds(INTERVAL);
        let log = RefusalLog::default();
        let start = 5 * interval;
        let logged = (0..1000).filter(|&later| log.note(start + later)).count();
        assert_eq!(logged, 1);
        assert_eq!(log.sum(start + 1000), None, "the interval is not over");
        assert_eq!(log.sum(start + interval), Some(999));
        assert_eq!(log.sum(start + interval), None, "it was logged");
        assert!(log.note(start + interval));
        assert!(!log.note(start + interval));
    }
}
