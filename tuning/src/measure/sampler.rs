//! Times one request in so many: one at a time, so that there is nothing to look up.
//!
//! Which request is timed depends on how many were sent since the last one, not on how long it will
//! take itself. One that takes longer than 250 others need to be sent puts off the next: by as
//! much, slow spells are seen less often than they are.

use crate::measure::clock::Clock;

/// Requests from the start of one measurement to the start of the next, at least. A prime, so that
/// no batch beats with it.
const PERIOD: u32 = 251;

/// Whoever sends requests has one, and marks the request that it times.
#[derive(Debug)]
pub struct Sampler {
    clock: Clock,
    countdown: u32,
    started: Option<u64>,
}

impl Sampler {
    /// A sampler that times the first request.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            countdown: 1,
            started: None,
        }
    }

    /// Another request is about to be sent; true if it is to be marked: its time runs from now on.
    /// Cost: a subtraction and a branch.
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
            // The one before is still under way.
            self.countdown = 1;
            return false;
        }
        self.countdown = PERIOD;
        self.started = Some(self.clock.raw());
        true
    }

    /// The request was not sent after all, and does not count; if it was marked, the next is in its
    /// place.
    #[cold]
    pub fn refused(&mut self, marked: bool) {
        if marked {
            self.started = None;
            self.countdown = 1;
        } else if crate::COUNTED {
            self.countdown += 1;
        }
    }

    /// The marked request was answered: how long it took, in nanoseconds.
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
                // Sooner or later, but before the next.
                if request == if period % 2 == 0 { 100 } else { PERIOD - 1 } {
                    assert!(sampler.answered().is_some() && sampler.answered().is_none());
                }
            }
        }
    }

    #[test]
    fn none_is_timed_while_another_is_under_way() {
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
