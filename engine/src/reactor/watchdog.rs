//! The watchdog: detects a core that serves nothing although it was woken.
//!
//! The process's wake timer wakes a task of each core's executor ten times a second. A core whose
//! task does not run for a second, and that makes no turns either, serves nothing. A job that polls
//! makes turns, and so serves its shard, without giving the executor any time.
//!
//! Why it serves nothing, the kernel knows: it counts how long the core's thread ran, and how long
//! it could run and had no processor. A thread that ran or slept for half a second is stalled: a
//! job blocks it, or the kernel does. One that had no processor is not, however long it takes:
//! other programs have the machine.
//!
//! It logs the sections that were held too long as well, ten times a second at most.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use farcore_tuning::{Root, ThreadSnapshot, ThreadState};

use crate::observe::metrics::CoreMetrics;

/// Paces without a turn after which the core is looked at: one second.
const PACES_MAX: u64 = 10;
/// A thread that ran or slept for so long without serving is stalled.
const OWN_MIN: Duration = Duration::from_millis(500);

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
    /// When they were counted first, and what the thread had had by then.
    began: Option<Look>,
    /// The log has it that the core has no processor.
    is_starved: bool,
    /// Sections lost that the log has.
    sections_lost: u64,
}

/// A look at a core's thread.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    thread: Option<ThreadSnapshot>,
}

impl Look {
    fn at_thread(thread: Option<i32>) -> Self {
        let thread = thread.and_then(|thread| ThreadSnapshot::read(&Root::new("/"), thread));
        Self {
            at: Instant::now(),
            thread,
        }
    }
}

/// What a thread did while its core served nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Spent {
    state: ThreadState,
    running: Duration,
    /// It could run, and had no processor.
    waiting: Duration,
    /// The rest: in system calls and page faults.
    sleeping: Duration,
    faults: u64,
}

impl Spent {
    /// What was spent between two looks; `None` if the kernel does not report it.
    fn between(first: Look, last: Look) -> Option<Self> {
        let (before, now) = (first.thread?, last.thread?);
        let running = now.running.saturating_sub(before.running);
        let counted = now.waiting.saturating_sub(before.waiting);
        let rest = (last.at - first.at).saturating_sub(running + counted);
        // A wait for a processor is counted when it ends.
        let (waiting, sleeping) = match now.state {
            ThreadState::Runnable => (counted + rest, Duration::ZERO),
            _ => (counted, rest),
        };
        Some(Self {
            state: now.state,
            running,
            waiting,
            sleeping,
            faults: now.faults.saturating_sub(before.faults),
        })
    }

    /// The thread had its chance to serve.
    fn is_stalled(self) -> bool {
        self.running + self.sleeping >= OWN_MIN
    }

    /// What keeps the core from serving.
    fn cause(self) -> &'static str {
        match self.state {
            _ if self.running >= self.sleeping => "its thread runs: a job computes without a yield",
            ThreadState::Uninterruptible => {
                "its thread waits in the kernel, for memory or the disk"
            }
            ThreadState::Sleeping | ThreadState::Runnable => {
                "its thread sleeps in a system call: a job blocks it, or waits for a lock"
            }
            ThreadState::Other => "its thread is stopped",
        }
    }
}

impl fmt::Display for Spent {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_millis();
        write!(
            out,
            "ran {} ms, slept {} ms, waited {} ms for a processor, {} page faults",
            ms(self.running),
            ms(self.sleeping),
            ms(self.waiting),
            self.faults
        )
    }
}

impl Watchdog {
    pub(crate) fn new(core: usize, metrics: &Arc<CoreMetrics>) -> Self {
        Self {
            core,
            metrics: Arc::downgrade(metrics),
            turns: 0,
            paces: 0,
            began: None,
            is_starved: false,
            sections_lost: 0,
        }
    }

    /// Processes one pace; the core's task has not been polled for `unanswered` paces.
    pub(crate) fn look(&mut self, unanswered: u64) {
        let Some(metrics) = self.metrics.upgrade() else {
            return;
        };
        self.look_at(unanswered, &metrics, || Look::at_thread(metrics.thread()));
    }

    fn look_at(&mut self, unanswered: u64, metrics: &CoreMetrics, look: impl FnOnce() -> Look) {
        let counters = &metrics.counters;
        self.log_lost_sections(
            counters.sections_lost.get(),
            counters.sections_waiting.get(),
        );
        let turns = counters.turns.get();
        if unanswered == 0 || turns != self.turns {
            self.serves(turns, metrics);
            return;
        }
        self.paces += 1;
        if self.paces == 1 {
            self.began = Some(look());
        } else if self.paces.is_multiple_of(PACES_MAX) && counters.stalled.get() == 0 {
            self.judge(look(), metrics);
        }
    }

    /// Logs sections that their holders had for too long. Returns how many.
    fn log_lost_sections(&mut self, all: u64, waiting: u64) -> u64 {
        let lost = all - self.sections_lost;
        self.sections_lost = all;
        if lost > 0 {
            tracing::warn!(
                core = self.core,
                lost,
                waiting,
                "sections of the shard were held for longer than `section_ns` and taken away"
            );
        }
        lost
    }

    /// The core has served.
    fn serves(&mut self, turns: u64, metrics: &CoreMetrics) {
        self.turns = turns;
        self.paces = 0;
        self.began = None;
        let was_stalled = metrics.counters.stalled.get() != 0;
        metrics.counters.stalled.set(0);
        if std::mem::take(&mut self.is_starved) || was_stalled {
            tracing::info!(core = self.core, "the core serves again");
        }
    }

    /// Finds out why the core serves nothing.
    fn judge(&mut self, look: Look, metrics: &CoreMetrics) {
        let began = self.began.unwrap_or(look);
        let silent = look.at - began.at;
        let spent = Spent::between(began, look);
        if let Some(spent) = spent.filter(|spent| !spent.is_stalled()) {
            if !std::mem::replace(&mut self.is_starved, true) {
                tracing::info!(
                    core = self.core,
                    ?silent,
                    thread = %spent,
                    "the core serves late: other programs have its processor"
                );
            }
            return;
        }
        metrics.counters.stalled.set(1);
        metrics.counters.stalls.add(1);
        let cause = spent.map_or("does a job block it?", Spent::cause);
        let thread = spent.map_or_else(
            || "not reported by this kernel".to_owned(),
            |spent| spent.to_string(),
        );
        tracing::warn!(
            core = self.core,
            ?silent,
            thread,
            "the core has served nothing although it was woken: {cause}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at threads that the kernel does not report.
    fn look(watchdog: &mut Watchdog, unanswered: u64) {
        let metrics = watchdog.metrics.upgrade().expect("the test has them");
        let at = Instant::now();
        watchdog.look_at(unanswered, &metrics, || Look { at, thread: None });
    }

    #[test]
    fn a_core_is_stalled_if_it_neither_answers_nor_turns_for_a_second() {
        let metrics = Arc::new(CoreMetrics::new(0));
        let mut watchdog = Watchdog::new(3, &metrics);
        let seen = || {
            let counters = &metrics.counters;
            (counters.stalls.get(), counters.stalled.get())
        };
        // It sleeps, and responds.
        (0..100).for_each(|_| look(&mut watchdog, 0));
        // A job polls.
        for unanswered in 1..100 {
            metrics.counters.turns.add(1);
            look(&mut watchdog, unanswered);
        }
        assert_eq!(seen(), (0, 0));
        // A job blocks for a little less than a second, then for longer.
        (100..109).for_each(|unanswered| look(&mut watchdog, unanswered));
        assert_eq!(seen(), (0, 0));
        (109..150).for_each(|unanswered| look(&mut watchdog, unanswered));
        assert_eq!(seen(), (1, 1));
        look(&mut watchdog, 0);
        assert_eq!(seen(), (1, 0));
        (1..11).for_each(|unanswered| look(&mut watchdog, unanswered));
        assert_eq!(seen(), (2, 1));
        metrics.counters.turns.add(1);
        look(&mut watchdog, 12);
        assert_eq!(seen(), (2, 0));
    }

    /// What a thread does in each tenth of a second: how long it runs and waits, in milliseconds,
    /// and its state then. Waits count when they end, as in the kernel.
    fn stalls_of(paces: u64, state: ThreadState, running_ms: u64, waiting_ms: u64) -> u64 {
        let metrics = Arc::new(CoreMetrics::new(0));
        let mut watchdog = Watchdog::new(0, &metrics);
        let began = Instant::now();
        for pace in 1..=paces {
            let thread = ThreadSnapshot {
                state,
                running: Duration::from_millis(running_ms * pace),
                waiting: Duration::from_millis(waiting_ms * pace),
                faults: 0,
            };
            let look = || Look {
                at: began + Duration::from_millis(100 * pace),
                thread: Some(thread),
            };
            watchdog.look_at(pace, &metrics, look);
        }
        metrics.counters.stalls.get()
    }

    #[test]
    fn a_lost_section_is_logged_once() {
        let metrics = Arc::new(CoreMetrics::new(0));
        let mut watchdog = Watchdog::new(0, &metrics);
        let logged = [0, 1, 1, 4, 4].map(|all| watchdog.log_lost_sections(all, 2));
        assert_eq!(logged, [0, 1, 0, 3, 0]);
    }

    #[test]
    fn a_core_without_a_processor_is_not_stalled() {
        // Ready to run, and nothing is counted until it runs.
        assert_eq!(stalls_of(400, ThreadState::Runnable, 0, 0), 0);
        // It has a little of the processor.
        assert_eq!(stalls_of(20, ThreadState::Runnable, 2, 98), 0);
        // It slept as it was looked at, and had waited all the time before.
        assert_eq!(stalls_of(20, ThreadState::Sleeping, 1, 98), 0);
    }

    #[test]
    fn a_core_that_had_its_time_is_stalled() {
        assert_eq!(stalls_of(10, ThreadState::Runnable, 100, 0), 1);
        assert_eq!(stalls_of(10, ThreadState::Sleeping, 0, 0), 1);
        assert_eq!(stalls_of(10, ThreadState::Uninterruptible, 0, 10), 1);
        // A job that computes on a loaded machine takes longer to recognise.
        assert_eq!(stalls_of(10, ThreadState::Runnable, 20, 80), 0);
        assert_eq!(stalls_of(30, ThreadState::Runnable, 20, 80), 1);
    }
}
