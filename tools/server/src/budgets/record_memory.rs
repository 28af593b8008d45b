//! Memory that the commands of a core hold while they change or combine structured records.
//!
//! Such a command copies records, and how long these are is known only once they were read. So it
//! takes beforehand what the longest record would need that was lately read or stored, and waits
//! while others have the rest. While all records are short, no command waits, and a long
//! one slows others for two periods of [`PERIOD_MS`] at most after its last use.
//!
//! What a command takes is an estimate: commands that began before a long record was noted may have
//! more than they took. That happens when long records are used for the first time, or
//! again after two quiet periods; once one was noted, commands that begin take enough for it. A
//! move from one key to another notes what it stores, not what it reads.
//!
//! The change of one record looks first at how long it is, once long ones are in use. Commands of
//! short records have memory of their own, so that they do not wait for those of long ones.
//!
//! - I1: the commands that run have taken at most [`BYTES_MAX`] together, or one alone has more;
//!   those of short records [`SHORT_BYTES_ALL_MAX`].
//! - I2: commands of long records begin in the order in which they came, and so do those of short
//!   ones.
//! - I3: a command that has taken memory waits for no client and for no command that may want
//!   some, or both could wait for ever.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use farcore::Core;

use crate::budgets::ticket_queue::TicketQueue;

/// Bytes that the commands of a core take together.
const BYTES_MAX: usize = 3 << 20;
/// Copies of a record that a command holds: what it read, what it stores, and that again on
/// its way to the engine.
const COPIES: usize = 3;

/// A command that takes at most this many bytes does not wait for those that take more.
pub(crate) const SHORT_BYTES_MAX: usize = 48 << 10;
/// Bytes that such commands take together.
const SHORT_BYTES_ALL_MAX: usize = 1 << 20;

/// How long the longest record of a period counts at least beyond it, and at most twice.
const PERIOD_MS: u128 = 10_000;
/// Bits of a window below its period.
const BYTES_BITS: u32 = 32;

/// Bytes that a command takes for a record of `record` bytes.
pub(crate) fn needed_of(record: usize) -> usize {
    record.saturating_mul(COPIES)
}

/// The length of the longest structured record that was read or stored in this period or in the one
/// before; all cores share it.
#[derive(Debug)]
pub(crate) struct LongestRecord {
    began: Instant,
    /// Of even periods and of odd ones: the period in the upper half, the bytes in the lower one.
    /// So a later period is the greater number, and in one period the longer record is.
    windows: [AtomicU64; 2],
}

impl Default for LongestRecord {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            windows: [const { AtomicU64::new(0) }; 2],
        }
    }
}

impl LongestRecord {
    /// Notes that a record was read or is about to be stored. Cost: the time and a load, mostly.
    pub(crate) fn note(&self, bytes: usize) {
        self.note_in(self.period(), bytes);
    }

    /// Bytes that a command of `records` takes. Cost: the time and two loads.
    pub(crate) fn needed(&self, records: usize) -> usize {
        let longest = self.longest_in(self.period());
        needed_of(longest.saturating_mul(records))
    }

    /// Periods since the start, of which 32 bits last for more than a thousand years.
    fn period(&self) -> u32 {
        let periods = self.began.elapsed().as_millis() / PERIOD_MS;
        u32::try_from(periods).unwrap_or(u32::MAX)
    }

    fn note_in(&self, period: u32, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let noted = u64::from(period) << BYTES_BITS | u64::from(bytes);
        let [even, odd] = &self.windows;
        let window = if period.is_multiple_of(2) { even } else { odd };
        // ORDERING: it is only an estimate for others.
        if noted > window.load(Ordering::Relaxed) {
            window.fetch_max(noted, Ordering::Relaxed);
        }
    }

    fn longest_in(&self, period: u32) -> usize {
        let longest = self.windows.iter().map(|window| {
            // ORDERING: as above.
            let noted = window.load(Ordering::Relaxed);
            let is_late = noted >> BYTES_BITS < u64::from(period.saturating_sub(1));
            let bytes = if is_late {
                0
            } else {
                noted & u64::from(u32::MAX)
            };
            usize::try_from(bytes).unwrap_or(usize::MAX)
        });
        longest.max().unwrap_or(0)
    }
}

/// What the commands of a core have taken, and which wait.
#[derive(Debug)]
pub(crate) struct RecordMemory {
    long: Pool,
    short: Pool,
}

impl Default for RecordMemory {
    fn default() -> Self {
        Self {
            long: Pool::new(BYTES_MAX),
            short: Pool::new(SHORT_BYTES_ALL_MAX),
        }
    }
}

impl RecordMemory {
    /// Takes memory; waits while others have it.
    pub(crate) async fn take(self: &Rc<Self>, core: &Core, bytes: usize) -> TakenMemory {
        let pool = self.pool_of(bytes);
        if !pool.waiting.is_empty() || !pool.fits(bytes) {
            let place = pool.waiting.last();
            while !(place.is_first() && pool.fits(bytes)) {
                core.yield_now().await;
            }
        }
        self.taken(bytes)
    }

    fn pool_of(&self, bytes: usize) -> &Pool {
        if bytes <= SHORT_BYTES_MAX {
            &self.short
        } else {
            &self.long
        }
    }

    fn taken(self: &Rc<Self>, bytes: usize) -> TakenMemory {
        let taken = &self.pool_of(bytes).taken;
        taken.set(taken.get().saturating_add(bytes));
        TakenMemory {
            memory: Rc::clone(self),
            bytes,
        }
    }
}

/// A part of it, for short commands or for long ones.
#[derive(Debug)]
struct Pool {
    bytes_max: usize,
    taken: Cell<usize>,
    /// Commands that wait.
    waiting: TicketQueue,
}

impl Pool {
    fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            taken: Cell::default(),
            waiting: TicketQueue::default(),
        }
    }

    fn fits(&self, bytes: usize) -> bool {
        let taken = self.taken.get();
        taken == 0 || taken.saturating_add(bytes) <= self.bytes_max
    }
}

/// Memory that a command has taken, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct TakenMemory {
    memory: Rc<RecordMemory>,
    bytes: usize,
}

impl TakenMemory {
    /// True if it is enough for the change of a record of `record` bytes.
    pub(crate) fn suffices(&self, record: usize) -> bool {
        needed_of(record) <= self.bytes.max(SHORT_BYTES_MAX)
    }
}

impl Drop for TakenMemory {
    fn drop(&mut self) {
        let taken = &self.memory.pool_of(self.bytes).taken;
        taken.set(taken.get().saturating_sub(self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_no_more_than_the_limit_or_are_alone() {
        let memory = Rc::new(RecordMemory::default());
        const LONG: usize = SHORT_BYTES_MAX + 1;
        let most = memory.taken(BYTES_MAX - LONG);
        assert!(memory.long.fits(LONG) && !memory.long.fits(LONG + 1));
        let rest = memory.taken(LONG);
        assert!(!memory.long.fits(1));
        // Those of short records have memory of their own.
        assert!(memory.short.fits(SHORT_BYTES_MAX));
        let short: Vec<_> = (0..SHORT_BYTES_ALL_MAX / SHORT_BYTES_MAX)
            .map(|_| memory.taken(SHORT_BYTES_MAX))
            .collect();
        assert!(!memory.short.fits(SHORT_BYTES_MAX));
        drop(short);
        drop((most, rest));
        // One may always run.
        assert!(memory.long.fits(usize::MAX));
        let alone = memory.taken(usize::MAX);
        assert!(!memory.long.fits(1));
        drop(alone);
        assert_eq!((memory.long.taken.get(), memory.short.taken.get()), (0, 0));
    }

    #[test]
    fn what_is_needed_follows_the_longest_record() {
        let longest = LongestRecord::default();
        assert_eq!(longest.needed(5), 0);
        longest.note(100);
        longest.note(40);
        assert_eq!((longest.needed(1), longest.needed(3)), (300, 900));
    }

    #[test]
    fn a_long_record_counts_for_two_periods_after_its_last_use() {
        let longest = LongestRecord::default();
        longest.note_in(4, 1000);
        longest.note_in(4, 10);
        longest.note_in(5, 20);
        assert_eq!((longest.longest_in(4), longest.longest_in(5)), (1000, 1000));
        assert_eq!((longest.longest_in(6), longest.longest_in(7)), (20, 0));
        // The next of its window; and a core whose period is over notes nothing.
        longest.note_in(6, 30);
        longest.note_in(4, 5000);
        assert_eq!((longest.longest_in(6), longest.longest_in(7)), (30, 30));
        longest.note_in(7, 40);
        longest.note_in(6, 50);
        assert_eq!((longest.longest_in(7), longest.longest_in(8)), (50, 40));
        longest.note_in(u32::MAX, usize::MAX);
        let most = u32::MAX as usize;
        assert_eq!(longest.longest_in(u32::MAX), most);
    }
}
