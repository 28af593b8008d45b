//! Times a sample of requests, one at a time, so that no lookup is needed.
//!
//! Owns the countdown and the start of the request being timed. Which request is timed depends on
//! the number sent since the last sample, not on its own latency. A request that takes longer than
//! 250 others need to be sent delays the next sample, so slow spells are under-represented by that
//! much.

use crate::measure::clock::Clock;

/// The minimum number of requests between the starts of two samples. A prime, so that it does not
/// resonate with batch sizes.
const PERIOD: u32 = 251;

/// One per sender. The sender marks the request that is timed.
#[derive(Debug)]
pub struct Sampler {
    clock: Clock,
    countdown: u32,
    started: Option<u64>,
}

impl Sampler {
    /// Creates a sampler that times the first request.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            countdown: 1,
            started: None,
        }
    }

    /// Announces a request. True if the sender must mark it: its time starts now. Costs a
    /// subtraction and a branch.
    #[inline]
    #[must_use]
    pub fn starts(&mut self) -> bool {
        if !crate::COUNTED {
            return false;
        }
        self.countdown -= 1;
        self.countdown == 0 && self.start()
    }

    #[cold]
    fn start(&mut self) -> bool {
        if self.started.is_some() {
            // The previous sample is still in flight.
            self.countdown = 1;
            return false;
        }
        self.countdown = PERIOD;
        self.started = Some(self.clock.raw());
        true
    }

    /// Withdraws an announced request that was not sent. If it was marked, the next request takes
    /// its place.
    #[cold]
    pub fn refused(&mut self, marked: bool) {
        if marked {
            self.started = None;
            self.countdown = 1;
        } else if crate::COUNTED {
            self.countdown += 1;
        }
    }

    /// The marked request was answered. Returns its latency in nanoseconds.
    #[inline]
    pub fn answered(&mut self) -> Option<u64> {
        let started = self.started.take()?;
        Some(self.clock.delta_ns(started, self.clock.raw()))
    }
}

#[cfg(all(test, not(farcore_uncounted)))]
mod tests {
    use super::*;

    #[test]
    fn one_request_of_a_period_is_timed() {
        let mut sampler = Sampler::new(Clock::new());
        for period in 0..10 {
            for request in 0..PERIOD {
                assert_eq!(sampler.starts(), request == 0, "{period}: {request}");
                // Sooner or later, but before the next sample.
                if request == if period % 2 == 0 { 100 } else { PERIOD - 1 } {
                    assert!(sampler.answered().is_some() && sampler.answered().is_none());
                }
            }
        }
    }

    #[test]
    fn no_request_is_timed_while_another_is_in_flight() {
        let mut sampler = Sampler::new(Clock::new());
        assert!(sampler.starts());
        assert!((0..3 * PERIOD).all(|_| !sampler.starts()));
        assert!(sampler.answered().is_some());
        assert!(sampler.starts());
    }

    #[test]
    fn requests_that_were_not_sent_do_not_count() {
        let mut sampler = Sampler::new(Clock::new());
        assert!(sampler.starts());
        sampler.refused(true);
        assert!(sampler.answered().is_none() && sampler.starts());
        for sent in 1..PERIOD {
            for _ in 0..3 {
                assert!(!sampler.starts());
                sampler.refused(false);
            }
            assert!(!sampler.starts());
            if sent == 7 {
                assert!(sampler.answered().is_some());
            }
        }
        assert!(sampler.starts());
    }
}
