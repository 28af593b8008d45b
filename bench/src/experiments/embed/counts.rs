//! What one caller counts and times.
//!
//! I1: operations count only between the begin and the end of the measurement, as the caller sees
//!     them; one that did not run meanwhile counts none. Faults always count.
//!
//! One single call in [`SAMPLE_PERIOD`] is timed, and each batch: two readings of the clock take
//! some 20 ns, a tenth of the shortest call.

use farcore::{Error, Result};
use farcore_tuning::{Clock, Histogram};

use crate::failures::Failures;

/// One single call in this many is timed. A prime, so that the samples do not keep step with turns
/// of tasks.
pub(super) const SAMPLE_PERIOD: u32 = 17;

/// The counts of one caller.
#[derive(Debug, Default)]
pub(super) struct Counts {
    is_counting: bool,
    /// Operations during the measurement.
    pub(super) operations: u64,
    /// Wrong and missing values.
    pub(super) wrong: u64,
    /// A description of the first one.
    pub(super) complaint: Option<String>,
    /// Operations that ended with an error.
    pub(super) failures: Failures,
}

impl Counts {
    /// Counts an operation on a key: whether what it answered was right.
    #[inline]
    pub(super) fn note(&mut self, word: u64, outcome: Result<bool>) {
        match outcome {
            Ok(true) => self.operations += u64::from(self.is_counting),
            Ok(false) => self.wrong(word),
            Err(error) => self.failed(word, &error),
        }
    }

    #[cold]
    fn wrong(&mut self, word: u64) {
        self.wrong += 1;
        self.complaint
            .get_or_insert_with(|| format!("key {word:016x} was answered with a wrong value"));
    }

    #[cold]
    pub(super) fn failed(&mut self, word: u64, error: &Error) {
        self.failures.count(error, || format!("key {word:016x}"));
    }

    /// The measurement begins.
    pub(super) fn begin(&mut self) {
        self.is_counting = true;
    }

    /// The measurement ends. What arrives later is checked still.
    pub(super) fn end(&mut self) {
        self.is_counting = false;
    }
}

/// Which calls are timed.
#[derive(Debug)]
pub(super) struct Timer {
    clock: Clock,
    countdown: u32,
    /// Calls that were timed since the measurement began.
    samples: u64,
}

impl Timer {
    /// The timer of the caller of this number; the first sample of each is another call.
    pub(super) fn new(clock: Clock, number: u64) -> Self {
        let first = number % u64::from(SAMPLE_PERIOD);
        Self {
            clock,
            countdown: u32::try_from(first).unwrap_or(0) + 1,
            samples: 0,
        }
    }

    /// The measurement begins.
    pub(super) fn restart(&mut self) {
        self.samples = 0;
    }

    /// Whether a call was timed since then.
    #[inline]
    pub(super) fn has_samples(&self) -> bool {
        self.samples > 0
    }

    /// The start of a single call, if it is timed.
    #[inline]
    pub(super) fn start(&mut self) -> Option<u64> {
        self.countdown -= 1;
        if self.countdown > 0 {
            return None;
        }
        self.countdown = SAMPLE_PERIOD;
        Some(self.clock.raw())
    }

    /// The start of a call that is timed in any case.
    pub(super) fn start_now(&self) -> Option<u64> {
        Some(self.clock.raw())
    }

    /// The end of a call.
    #[inline]
    pub(super) fn end(&mut self, start: Option<u64>, latency: &Histogram) {
        if let Some(start) = start {
            self.samples += 1;
            latency.record(self.clock.delta_ns(start, self.clock.raw()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_in_a_period_is_timed() {
        let mut timer = Timer::new(Clock::new(), 3);
        let period = SAMPLE_PERIOD as usize;
        let timed: Vec<usize> = (0..3 * period)
            .filter(|_| timer.start().is_some())
            .collect();
        assert_eq!(timed, [3, 3 + period, 3 + 2 * period]);
        let latency = Histogram::default();
        timer.end(None, &latency);
        assert!(!timer.has_samples());
        timer.end(timer.start_now(), &latency);
        assert!(timer.has_samples() && latency.snapshot().count() == 1);
        timer.restart();
        assert!(!timer.has_samples());
    }

    #[test]
    fn faults_count_always_and_operations_while_measured() {
        let mut counts = Counts::default();
        counts.note(1, Ok(true));
        counts.note(2, Ok(false));
        counts.note(3, Err(Error::Closed));
        counts.begin();
        counts.note(4, Ok(true));
        counts.end();
        counts.note(5, Ok(true));
        let faults = (counts.wrong, counts.failures.total());
        assert_eq!((counts.operations, faults), (1, (1, 1)));
        assert!(counts.complaint.unwrap().contains("0000000000000002"));
    }
}
