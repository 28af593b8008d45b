//! What will happen: events by time, those of one moment in the order in which they were added.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::time::Ps;

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Event {
    /// Misses have waited long enough for a batch.
    BatchDue,
    /// The tokens of a transfer from the CXL tier are there; its number.
    Fetched(u32),
    /// A token from the host is there; its key.
    Expanded(u32),
    /// A token is at its new tier; its key.
    Migrated(u32),
    /// The host has time for background transfers.
    Background,
    /// The maintenance works.
    Maintenance,
}

#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Reverse<(Ps, u64, Event)>>,
    added: u64,
}

impl Events {
    pub(super) fn add(&mut self, at: Ps, event: Event) {
        self.heap.push(Reverse((at, self.added, event)));
        self.added += 1;
    }

    /// The time of the next event.
    #[inline]
    pub(super) fn next_at(&self) -> Option<Ps> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Whether nothing will happen but the worker's turns.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        let next = self.heap.peek().map(|Reverse((_, _, event))| *event);
        self.heap.len() == 1 && next == Some(Event::Maintenance)
    }

    pub(super) fn pop(&mut self) -> Option<(Ps, Event)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}
