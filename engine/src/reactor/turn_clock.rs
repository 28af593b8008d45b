//! Counts turns, and what time went into them: busy, spinning, asleep, or lent to callers.
//!
//! - I1: of each span between two readings every nanosecond is counted once: as lent, or as busy or
//!   spinning. A span is busy if a turn in it did some work.

use farcore_tuning::{COUNTED, ShardCounters};

use super::time::Time;
use super::unix_time::UnixTime;

/// Turns after which the clock is read and commands are checked, whether or not anything waits for
/// the fabric.
pub(super) const TURNS_A_READING: u64 = 8;

/// The time and the turns of one core.
#[derive(Debug)]
pub(super) struct TurnClock<T> {
    time: T,
    unix_time: UnixTime,
    /// The last reading.
    read_ns: u64,
    turns: u64,
    /// Turns at the last reading.
    turns_counted: u64,
    /// A turn since then did some work.
    was_busy: bool,
    /// Time since then that callers served themselves, in nanoseconds.
    lent_ns: u64,
}

impl<T: Time> TurnClock<T> {
    pub(super) fn new(time: T) -> Self {
        let read_ns = time.now_ns();
        Self {
            time,
            unix_time: UnixTime::default(),
            read_ns,
            turns: 0,
            turns_counted: 0,
            was_busy: false,
            lent_ns: 0,
        }
    }

    /// Turns so far.
    #[inline]
    pub(super) fn turns(&self) -> u64 {
        self.turns
    }

    /// The time of the last reading.
    #[inline]
    pub(super) fn read_ns(&self) -> u64 {
        self.read_ns
    }

    /// The time at this moment; no reading that ends a span.
    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        self.time.now_ns()
    }

    /// Counts a turn. True if the clock is to be read in it.
    #[inline]
    pub(super) fn count_turn(&mut self) -> bool {
        self.turns += 1;
        self.turns.is_multiple_of(TURNS_A_READING)
    }

    /// Notes whether a turn has done some work.
    #[inline]
    pub(super) fn note_work(&mut self, is_busy: bool) {
        self.was_busy |= is_busy;
    }

    /// Reads the clock and counts the time since the last reading. Returns the time.
    #[inline]
    pub(super) fn read(&mut self, counters: &ShardCounters) -> u64 {
        let now_ns = self.time.now_ns();
        if COUNTED {
            let passed_ns = self.passed_ns(now_ns);
            let spent = if self.was_busy {
                &counters.busy_ns
            } else {
                &counters.spinning_ns
            };
            spent.add(passed_ns);
            counters.turns.add(self.turns - self.turns_counted);
        }
        self.turns_counted = self.turns;
        self.read_ns = now_ns;
        self.was_busy = false;
        now_ns
    }

    /// Reads the clock after a sleep and counts that. Returns the time.
    pub(super) fn read_after_sleep(&mut self, counters: &ShardCounters) -> u64 {
        let now_ns = self.time.now_ns();
        counters.parked_ns.add(self.passed_ns(now_ns));
        self.read_ns = now_ns;
        now_ns
    }

    /// Nanoseconds since the last reading, without those that callers served themselves.
    #[inline]
    fn passed_ns(&mut self, now_ns: u64) -> u64 {
        let passed_ns = now_ns.saturating_sub(self.read_ns);
        passed_ns.saturating_sub(std::mem::take(&mut self.lent_ns))
    }

    /// Counts the time from `since_ns` to this moment as lent.
    #[inline]
    pub(super) fn count_lent(&mut self, since_ns: u64, counters: &ShardCounters) {
        let took_ns = self.time.now_ns().saturating_sub(since_ns);
        counters.lent_ns.add(took_ns);
        self.lent_ns += took_ns;
    }

    /// Milliseconds since 1970 at a reading of the monotonic clock.
    #[inline]
    pub(super) fn unix_ms(&mut self, now_ns: u64) -> u64 {
        let time = &self.time;
        self.unix_time.at(now_ns, || {
            let system_ns = time.system_ns();
            (system_ns, time.now_ns())
        })
    }
}
