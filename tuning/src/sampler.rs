//! Times one request in so many: one at a time, so that there is nothing to look up.
//!
//! Which request is timed depends on how many came since the last one was answered, not on how long it will take itself. A slow
//! one does put off the next: slow spells are seen less often than they are, by as much as a request takes longer than 251
//! others need to be sent.

use crate::clock::Clock;

/// Requests from the end of one measurement to the start of the next, at least. A prime, so that no batch beats with it.
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

    /// True if the next request is to be marked.
    #[inline]
    #[must_use]
    pub fn is_due(&self) -> bool {
        crate::COUNTED && self.countdown == 1 && self.started.is_none()
    }

    /// A request was sent, marked if it was due.
    #[inline]
    pub fn sent(&mut self, marked: bool) {
        if marked {
            self.started = Some(self.clock.raw());
            self.countdown = PERIOD;
        } else {
            self.countdown -= u32::from(self.countdown > 1);
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
    fn one_request_at_a_time_is_timed() {
        let mut sampler = Sampler::new(Clock::new());
        let mut marked = 0;
        for request in 0..10 * PERIOD {
            let due = sampler.is_due();
            sampler.sent(due);
            marked += u32::from(due);
            // The answer comes late in every second period: until then no other request is timed.
            let late = if (request / PERIOD).is_multiple_of(2) {
                100
            } else {
                PERIOD - 1
            };
            if request % PERIOD == late {
                assert!(sampler.answered().is_some() && sampler.answered().is_none());
            } else if sampler.started.is_some() {
                assert!(!sampler.is_due());
            }
        }
        assert_eq!(marked, 10);
    }
}
