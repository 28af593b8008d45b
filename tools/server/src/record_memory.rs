//! Memory that the commands of a core have in hand while they change or combine structured records.
//!
//! Such a command copies records, and how long these are is known only once they were read. So it
//! takes beforehand what the longest record that was ever stored would need, and waits while others
//! have the rest. While all records are short, this keeps nobody waiting.
//!
//! - I1: the commands that run have taken at most [`BYTES_MAX`] together, or one alone has more.
//! - I2: commands begin in the order in which they came.
//! - I3: a command that has taken memory waits for no client and for no command that may want
//!   some, or both could wait for ever.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use farcore::Core;

/// Bytes that the commands of a core take together.
const BYTES_MAX: usize = 3 << 20;
/// Copies of a record that a command has in hand: what it read, what it stores, and that again on
/// its way to the engine.
const COPIES: usize = 3;

/// The length of the longest structured record that was stored; all cores share it.
#[derive(Debug, Default)]
pub(crate) struct LongestRecord(AtomicUsize);

impl LongestRecord {
    /// Notes that a record is about to be stored.
    pub(crate) fn note(&self, bytes: usize) {
        // ORDERING: it is only an estimate for others.
        if bytes > self.0.load(Ordering::Relaxed) {
            self.0.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    /// Bytes that a command of so many records takes.
    pub(crate) fn needed(&self, records: usize) -> usize {
        // ORDERING: as above.
        let longest = self.0.load(Ordering::Relaxed);
        longest.saturating_mul(records).saturating_mul(COPIES)
    }
}

/// What the commands of a core have taken, and which wait.
#[derive(Debug, Default)]
pub(crate) struct RecordMemory {
    taken: Cell<usize>,
    /// Tickets of commands that wait, in the order in which they came.
    waiting: RefCell<VecDeque<u64>>,
    next_ticket: Cell<u64>,
}

impl RecordMemory {
    /// Takes memory; waits while others have it.
    pub(crate) async fn take(self: &Rc<Self>, core: &Core, bytes: usize) -> TakenMemory {
        if self.waiting.borrow().is_empty() && self.fits(bytes) {
            return self.taken(bytes);
        }
        let place = Place::last(self);
        while !(place.is_first() && self.fits(bytes)) {
            core.yield_now().await;
        }
        self.taken(bytes)
    }

    fn fits(&self, bytes: usize) -> bool {
        let taken = self.taken.get();
        taken == 0 || taken.saturating_add(bytes) <= BYTES_MAX
    }

    fn taken(self: &Rc<Self>, bytes: usize) -> TakenMemory {
        self.taken.set(self.taken.get().saturating_add(bytes));
        TakenMemory {
            memory: Rc::clone(self),
            bytes,
        }
    }
}

/// Memory that a command has taken, until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct TakenMemory {
    memory: Rc<RecordMemory>,
    bytes: usize,
}

impl Drop for TakenMemory {
    fn drop(&mut self) {
        let taken = &self.memory.taken;
        taken.set(taken.get().saturating_sub(self.bytes));
    }
}

/// A command's place among those that wait, until it is dropped.
struct Place<'a> {
    memory: &'a RecordMemory,
    ticket: u64,
}

impl<'a> Place<'a> {
    fn last(memory: &'a RecordMemory) -> Self {
        let ticket = memory.next_ticket.get();
        memory.next_ticket.set(ticket.wrapping_add(1));
        memory.waiting.borrow_mut().push_back(ticket);
        Self { memory, ticket }
    }

    fn is_first(&self) -> bool {
        self.memory.waiting.borrow().front() == Some(&self.ticket)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.memory.waiting.borrow_mut();
        waiting.retain(|&ticket| ticket != self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_no_more_than_the_limit_or_are_alone() {
        let memory = Rc::new(RecordMemory::default());
        let most = memory.taken(BYTES_MAX - 10);
        assert!(memory.fits(10) && !memory.fits(11));
        let rest = memory.taken(10);
        assert!(!memory.fits(1));
        drop((most, rest));
        // One may always run.
        assert!(memory.fits(usize::MAX));
        let alone = memory.taken(usize::MAX);
        assert!(!memory.fits(1));
        drop(alone);
        assert_eq!(memory.taken.get(), 0);
    }

    #[test]
    fn places_are_given_up_in_any_order() {
        let memory = RecordMemory::default();
        let places: Vec<_> = (0..3).map(|_| Place::last(&memory)).collect();
        let [first, second, third] = places.try_into().unwrap_or_else(|_| panic!("three"));
        assert!(first.is_first() && !second.is_first());
        drop(second);
        drop(first);
        assert!(third.is_first());
        drop(third);
        assert!(memory.waiting.borrow().is_empty());
    }

    #[test]
    fn what_is_needed_follows_the_longest_record() {
        let longest = LongestRecord::default();
        assert_eq!(longest.needed(5), 0);
        longest.note(100);
        longest.note(40);
        assert_eq!((longest.needed(1), longest.needed(3)), (300, 900));
    }
}
