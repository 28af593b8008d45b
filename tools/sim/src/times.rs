//! What the engine's time for keys that expire may be, from what the simulation did to the clocks.
//!
//! The engine's time follows the system's clock forwards at its next comparison, and never goes
//! back. So it is at least what the system's clock was ahead lately, and at most what it ever was.

use std::collections::VecDeque;

/// The engine compares its time at least this often when it is used.
const COMPARE_NS: u64 = 200_000_000;
const NS_PER_MS: u64 = 1_000_000;

/// How far the system's clock is ahead of the monotonic one.
#[derive(Debug)]
pub(crate) struct Times {
    now_ns: u64,
    ahead_ns: u64,
    most_ns: u64,
    /// What it was before, until when.
    before: VecDeque<(u64, u64)>,
}

impl Times {
    pub(crate) fn new(ahead_ns: u64) -> Self {
        Self {
            now_ns: 0,
            ahead_ns,
            most_ns: ahead_ns,
            before: VecDeque::new(),
        }
    }

    /// Time has passed.
    pub(crate) fn pass(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        let is_over = |one: &(u64, u64)| one.0 + COMPARE_NS < now_ns;
        while self.before.front().is_some_and(is_over) {
            self.before.pop_front();
        }
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
        (self.now_ns + least_ns) / NS_PER_MS - 1
    }

    pub(crate) fn ceiling_ms(&self) -> u64 {
        (self.now_ns + self.most_ns) / NS_PER_MS + 1
    }
}
