//! The gate for writes: an `EXEC` that watches keys and cannot be carried out at once closes it, so
//! that no other client writes from its compare of the versions to its last write.
//!
//! ```text
//! EXEC: queue -> first: closes -> each core: holds new requests until none is under way,
//!                                            then only writes; waits until no pass is out
//!                              -> all cores have acknowledged: compare, replay, open
//! ```
//!
//! The closed gate is a [`GateHold`](crate::tasks::gate_hold::GateHold); what a core does stands in
//! `turn/gate_turns.rs`. A closed gate concerns the clients of the server: who
//! uses the same engine beside it is not held.
//!
//! - I1: one `EXEC` at a time closes the gate, in the order in which they came.
//! - I2: once a core has acknowledged that it is closed, no write of its clients is under way or
//!   begins until it is opened, but those of the one that holds it.
//! - I3: what is dropped gives up what it has: a place in the queue, the gate, a pass, and an
//!   acknowledgement that is due. So no client waits for a connection or a core that has ended.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Those that wait to close the gate, by ticket.
#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<u64>,
    next: u64,
}

/// The gate, as all cores share it.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    queue: Mutex<Queue>,
    /// The first ticket of the queue, plus one; 0 if none waits.
    first: AtomicU64,
}

impl Gate {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_first(&self, queue: &Queue) {
        let first = queue.waiting.front().map_or(0, |ticket| ticket + 1);
        // ORDERING: releases what the one before has done to the one that reads it.
        self.first.store(first, Ordering::Release);
    }

    /// Takes a place at the end of the queue.
    pub(crate) fn enter(self: &Arc<Self>) -> Place {
        let mut queue = self.queue();
        let ticket = queue.next;
        queue.next += 1;
        queue.waiting.push_back(ticket);
        self.note_first(&queue);
        drop(queue);
        Place {
            gate: Arc::clone(self),
            ticket,
        }
    }
}

/// A place in the queue, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    gate: Arc<Gate>,
    ticket: u64,
}

impl Place {
    /// True once all that came before have given theirs up.
    pub(crate) fn is_first(&self) -> bool {
        // ORDERING: partner of the store in `note_first`.
        self.gate.first.load(Ordering::Acquire) == self.ticket + 1
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queue = self.gate.queue();
        queue.waiting.retain(|&ticket| ticket != self.ticket);
        self.gate.note_first(&queue);
    }
}

/// What a core drops once it is closed.
pub(crate) type Acknowledgement = Arc<()>;

/// What those that write on a core share: whether the gate is closed there, and how many writes of
/// several steps are under way.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    is_shut: Cell<bool>,
    /// No request begins at all, until none is under way.
    drains: Cell<bool>,
    count: Cell<usize>,
}

impl Passes {
    /// True if writes wait. Cost: one load.
    #[inline]
    pub(crate) fn is_shut(&self) -> bool {
        self.is_shut.get()
    }

    /// True if reads wait too.
    pub(crate) fn drains(&self) -> bool {
        self.drains.get()
    }

    pub(crate) fn shut(&self) {
        self.is_shut.set(true);
        self.drains.set(true);
    }

    pub(crate) fn end_drain(&self) {
        self.drains.set(false);
    }

    pub(crate) fn open(&self) {
        self.is_shut.set(false);
        self.drains.set(false);
    }

    /// True if a pass is out.
    pub(crate) fn is_any_out(&self) -> bool {
        self.count.get() > 0
    }

    /// A pass, until it is dropped, if the gate is open or its owner is the one that holds it.
    pub(crate) fn take(self: &Rc<Self>, is_owner: bool) -> Option<Pass> {
        if self.is_shut() && !is_owner {
            return None;
        }
        self.count.set(self.count.get() + 1);
        Some(Pass(Rc::clone(self)))
    }
}

/// A write of several steps: closing the gate waits until it is dropped.
#[derive(Debug)]
#[must_use]
pub(crate) struct Pass(Rc<Passes>);

impl Drop for Pass {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
    }
}

/// Parts of a value of `bytes`, of which the last one, with which it is stored, comes once
/// `may_pass` says so. Until then there are empty parts: more is to come.
pub(crate) fn last_at_gate(
    mut parts: impl Iterator<Item = Vec<u8>>,
    bytes: usize,
    mut may_pass: impl FnMut() -> bool,
) -> impl Iterator<Item = Vec<u8>> {
    let (mut left, mut last) = (bytes, None);
    std::iter::from_fn(move || {
        if last.is_none() {
            let part = parts.next()?;
            left = left.saturating_sub(part.len());
            if left > 0 {
                return Some(part);
            }
            last = Some(part);
        }
        if may_pass() {
            last.take()
        } else {
            Some(Vec::new())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_is_closed_in_the_order_of_arrival() {
        let gate = Arc::<Gate>::default();
        let [first, second, third] = [(); 3].map(|()| gate.enter());
        assert!(first.is_first() && !second.is_first() && !third.is_first());
        // It was given up before its turn.
        drop(second);
        assert!(first.is_first());
        drop(first);
        assert!(third.is_first());
        drop(third);
        assert!(gate.enter().is_first());
    }

    #[test]
    fn the_last_part_of_a_value_waits_for_a_pass() {
        let passes = Rc::new(Passes::default());
        let mut pass = None;
        let parts = vec![b"ab".to_vec(), Vec::new(), b"c".to_vec()];
        passes.shut();
        let mut parts = last_at_gate(parts.into_iter(), 3, || {
            pass = pass.take().or_else(|| passes.take(false));
            pass.is_some()
        });
        for expected in [&b"ab"[..], b"", b"", b""] {
            assert_eq!(parts.next().as_deref(), Some(expected));
        }
        assert!(!passes.is_any_out());
        passes.open();
        assert_eq!(parts.next().as_deref(), Some(&b"c"[..]));
        assert_eq!(parts.next(), None);
        drop(parts);
        assert!(passes.is_any_out());
        drop(pass);
        assert!(!passes.is_any_out());
    }
}
