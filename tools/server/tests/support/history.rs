//! Histories of operations on one key, and whether they are linearizable: the algorithm of Wing and
//! Gong with the memory of Lowe.
//!
//! - I1: an order is found if and only if there is one in which each operation takes effect between
//!   its call and its end, operations of one client keep their order, and each returns what a
//!   register would return.

use std::collections::HashSet;

/// Operations of a history, at most: one bit each.
pub(crate) const OPERATIONS_MAX: usize = 128;

/// What a client did, and what the server answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    /// Read this value; `None` is absent.
    Get(Option<u64>),
    Set(u64),
    /// True if there was a value.
    Delete(bool),
    /// Set `new` if the value was `expected`, or if it was absent; `done` says whether it was.
    Swap {
        expected: Option<u64>,
        new: u64,
        done: bool,
    },
}

impl Operation {
    /// The value after the operation; `None` if it could not have returned this.
    fn apply(self, value: Option<u64>) -> Option<Option<u64>> {
        match self {
            Self::Get(read) => (read == value).then_some(value),
            Self::Set(new) => Some(Some(new)),
            Self::Delete(was_there) => (was_there == value.is_some()).then_some(None),
            Self::Swap {
                expected,
                new,
                done,
            } => {
                let is_equal = value == expected;
                (is_equal == done).then_some(if done { Some(new) } else { value })
            }
        }
    }
}

/// An operation with the times of its call and its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Event {
    pub(crate) client: usize,
    pub(crate) called: u64,
    pub(crate) ended: u64,
    pub(crate) operation: Operation,
}

/// True if a history of a key that was absent at first is linearizable.
pub(crate) fn is_linearizable(events: &[Event]) -> bool {
    assert!(events.len() <= OPERATIONS_MAX, "the history is too long");
    let mut events = events.to_vec();
    events.sort_by_key(|event| event.called);
    Search {
        events: &events,
        seen: HashSet::new(),
    }
    .goes_on(0, None)
}

struct Search<'a> {
    events: &'a [Event],
    /// Operations that were done, with the value after them, from which there is no way on.
    seen: HashSet<(u128, Option<u64>)>,
}

impl Search<'_> {
    /// True if the operations that are not done can be put in order from this value on.
    fn goes_on(&mut self, done: u128, value: Option<u64>) -> bool {
        let events = self.events;
        let open = || (0..events.len()).filter(move |place| done & (1 << place) == 0);
        let Some(first_end) = open().map(|place| events[place].ended).min() else {
            return true;
        };
        if !self.seen.insert((done, value)) {
            return false;
        }
        let mut clients = HashSet::new();
        for place in open() {
            let event = &events[place];
            if event.called > first_end {
                break;
            }
            // A client's next operation comes before its later ones.
            if !clients.insert(event.client) {
                continue;
            }
            if let Some(after) = event.operation.apply(value)
                && self.goes_on(done | (1 << place), after)
            {
                return true;
            }
        }
        false
    }
}
