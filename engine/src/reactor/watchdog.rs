//! The watchdog: detects a core that serves nothing although it was woken.
//!
//! The process's wake timer wakes a task of each core's executor ten times a second. A core whose
//! task does not run, and that makes no turns either, is stalled: a job blocks it, or the machine
//! gives it no time. A job that polls makes turns, and so serves its shard, without giving the
//! executor any time.

use std::sync::{Arc, Weak};

use farcore_rdma::WAKE_TIMER_PACE;

use crate::observe::metrics::CoreMetrics;

/// Paces without a turn after which a core counts as stalled: one second.
const PACES_MAX: u64 = 10;

/// What is known of one core. Only the timer's thread uses it.
#[derive(Debug)]
pub(crate) struct Watchdog {
    core: usize,
    /// Weak: a closed engine's counters hold descriptors, and the timer drops the watchdog only at
    /// its next pace.
    metrics: Weak<CoreMetrics>,
    /// The core's turns, and the paces since that number changed.
    turns: u64,
    paces: u64,
}

impl Watchdog {
    pub(crate) fn new(core: usize, metrics: &Arc<CoreMetrics>) -> Self {
        Self {
            core,
            metrics: Arc::downgrade(metrics),
            turns: 0,
            paces: 0,
        }
    }

    /// Processes one pace; the core's task has not been polled for `unanswered` paces.
    pub(crate) fn look(&mut self, unanswered: u64) {
        let Some(metrics) = self.metrics.upgrade() else {
            return;
        };
        let counters = &metrics.counters;
        let turns = counters.turns.get();
        if unanswered == 0 || turns != self.turns {
            self.turns = turns;
            self.paces = 0;
            if counters.stalled.get() != 0 {
                counters.stalled.set(0);
                tracing::info!(core = self.core, "the core serves again");
            }
            return;
        }
        self.paces += 1;
        if self.paces == PACES_MAX {
            counters.stalled.set(1);
            counters.stalls.add(1);
            tracing::warn!(
                core = self.core,
                paces = self.paces,
                pace = ?WAKE_TIMER_PACE,
                "the core has served nothing although it was woken: does a job block it?"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_stalled_if_it_neither_answers_nor_turns_for_a_second() {
        let metrics = Arc::new(CoreMetrics::new(0));
        let mut watchdog = Watchdog::new(3, &metrics);
        let seen = || {
            let counters = &metrics.counters;
            (counters.stalls.get(), counters.stalled.get())
        };
        // It sleeps, and responds.
        (0..100).for_each(|_| watchdog.look(0));
        // A job polls.
        for unanswered in 1..100 {
            metrics.counters.turns.add(1);
            watchdog.look(unanswered);
        }
        assert_eq!(seen(), (0, 0));
        // A job blocks for a little less than a second, then for longer.
        (100..109).for_each(|unanswered| watchdog.look(unanswered));
        assert_eq!(seen(), (0, 0));
        (109..150).for_each(|unanswered| watchdog.look(unanswered));
        assert_eq!(seen(), (1, 1));
        watchdog.look(0);
        assert_eq!(seen(), (1, 0));
        (1..11).for_each(|unanswered| watchdog.look(unanswered));
        assert_eq!(seen(), (2, 1));
        metrics.counters.turns.add(1);
        watchdog.look(12);
        assert_eq!(seen(), (2, 0));
    }
}
