//! What the engine's time for keys that expire may be, from what the simulation did to the clocks.
//!
//! The engine's time follows the system's clock forwards at its next comparison, and never goes
//! back. A core serves its requests by the time that it read in its turn before. So the time is at
//! least what the system's clock was a while ago, and at most what it ever was.

use std::collections::VecDeque;

/// The engine compares its time at least this often when it is used.
const COMPARE_NS: u64 = 200_000_000;
const NS_PER_MS: u64 = 1_000_000;
/// Passages of time between two that are kept, and how many of those lie between two turns of a
/// core, at most: longer than anything rests.
const KEPT_EVERY: u64 = 100;
const KEPT: usize = 60;

/// How far the system's clock is ahead of the monotonic one.
#[derive(Debug)]
pub(crate) struct Times {
    now_ns: u64,
    passages: u64,
    /// Times lately, the oldest first.
    lately_ns: VecDeque<u64>,
    ahead_ns: u64,
    most_ns: u64,
    /// What it was before, until when.
    before: VecDeque<(u64, u64)>,
}

impl Times {
    pub(crate) fn new(ahead_ns: u64) -> Self {
        Self {
            now_ns: 0,
            passages: 0,
            lately_ns: VecDeque::from([0]),
            ahead_ns,
            most_ns: ahead_ns,
            before: VecDeque::new(),
        }
    }

    /// Time has passed.
    pub(crate) fn pass(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.passages += 1;
        if self.passages.is_multiple_of(KEPT_EVERY) {
            self.lately_ns.push_back(now_ns);
            if self.lately_ns.len() > KEPT {
                self.lately_ns.pop_front();
            }
            let turn_ns = self.turn_ns();
            let is_over = |one: &(u64, u64)| one.0 + COMPARE_NS < turn_ns;
            while self.before.front().is_some_and(is_over) {
                self.before.pop_front();
            }
        }
    }

    /// When each core has had a turn since.
    fn turn_ns(&self) -> u64 {
        self.lately_ns.front().copied().unwrap_or(0)
    }

    /// The system's clock was set.
    pub(crate) fn step(&mut self, by_ns: i64) {
        self.before.push_back((self.now_ns, self.ahead_ns));
        self.ahead_ns = self.ahead_ns.saturating_add_signed(by_ns);
        self.most_ns = self.most_ns.max(self.ahead_ns);
    }

    /// The system's clock.
    pub(crate) fn system_ms(&self) -> u64 {
        (self.now_ns + self.ahead_ns) / NS_PER_MS
    }

    pub(crate) fn floor_ms(&self) -> u64 {
        let before = self.before.iter().map(|one| one.1);
        let least_ns = before.fold(self.ahead_ns, u64::min);
        (self.turn_ns() + least_ns) / NS_PER_MS - 1
    }

    pub(crate) fn ceiling_ms(&self) -> u64 {
        (self.now_ns + self.most_ns) / NS_PER_MS + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_lies_between_what_the_clock_was_and_ever_was() {
        let mut times = Times::new(1_000 * NS_PER_MS);
        let mut now_ns = 0;
        let mut pass = |times: &mut Times, by_ms: u64| {
            for _ in 0..10_000 {
                now_ns += by_ms * NS_PER_MS / 10_000;
                times.pass(now_ns);
            }
        };
        pass(&mut times, 1_000);
        assert!(times.floor_ms() < 2_000 && times.floor_ms() > 1_300);
        assert_eq!((times.system_ms(), times.ceiling_ms()), (2_000, 2_001));
        times.step(-500_000_000);
        assert!(times.floor_ms() < 1_500 && times.ceiling_ms() == 2_001);
        pass(&mut times, 1_000);
        assert!(times.floor_ms() > 1_800 && times.ceiling_ms() == 3_001);
    }
}
