//! Commands of a core that wait for their turn, in the order in which they came.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Those that wait.
#[derive(Debug, Default)]
pub(crate) struct TicketQueue {
    waiting: RefCell<VecDeque<u64>>,
    next: Cell<u64>,
}

impl TicketQueue {
    /// True if none waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.borrow().is_empty()
    }

    /// A place behind all others.
    pub(crate) fn last(&self) -> Place<'_> {
        let ticket = self.next.get();
        self.next.set(ticket.wrapping_add(1));
        self.waiting.borrow_mut().push_back(ticket);
        Place {
            tickets: self,
            ticket,
        }
    }
}

/// A command's place among those that wait, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    tickets: &'a TicketQueue,
    ticket: u64,
}

impl Place<'_> {
    pub(crate) fn is_first(&self) -> bool {
        self.tickets.waiting.borrow().front() == Some(&self.ticket)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.tickets.waiting.borrow_mut();
        if waiting.front() == Some(&self.ticket) {
            waiting.pop_front();
        } else {
            // Its command was given up before its turn.
            waiting.retain(|&ticket| ticket != self.ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_up_in_any_order() {
        let tickets = TicketQueue::default();
        let (first, second, third) = (tickets.last(), tickets.last(), tickets.last());
        assert!(first.is_first() && !second.is_first());
        drop(second);
        drop(first);
        assert!(third.is_first());
        drop(third);
        assert!(tickets.is_empty());
    }
}
