//! The gate for writes: an `EXEC` that watches keys and cannot be carried out at once closes it, so
//! that no other client writes from its compare of the versions to its last write.
//!
//! ```text
//! EXEC: queue -> first: closes -> each core: holds new requests until none is under way,
//!                                            then only writes; waits until no pass is out
//!                              -> all cores have acknowledged: compare, replay, open
//! ```
//!
//! What a core does stands in `gate_turns`. A closed gate concerns the clients of the server: who
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
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use farcore::Core;

use crate::shared::Shared;
use crate::turn::core_port::Message;
use crate::turn::serving::Serving;

/// How long one `EXEC` may keep others from writing. What is queued has at most 64 MiB.
pub(crate) const HELD_MAX: Duration = Duration::from_secs(5);

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

    fn enter(self: &Arc<Self>) -> Place {
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
struct Place {
    gate: Arc<Gate>,
    ticket: u64,
}

impl Place {
    fn is_first(&self) -> bool {
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

/// The closed gate; dropped, it opens.
#[derive(Debug)]
#[must_use]
pub(crate) struct GateHold {
    shared: Arc<Shared>,
    /// The core of the one that holds it.
    core: usize,
    pub(crate) since: Instant,
    /// How long it may be held.
    limit: Duration,
    /// Given up after all cores were told to open (I1).
    _place: Place,
}

impl GateHold {
    /// Waits until no other holds the gate, then closes it, and waits until no write is under way
    /// anywhere. `None` if one does not end in time; then it is open again.
    pub(crate) async fn take(core: &Core, shared: &Arc<Shared>, place: usize) -> Option<Self> {
        Self::take_for(core, (shared, place), HELD_MAX).await
    }

    /// The same for no longer than a time.
    async fn take_for(
        core: &Core,
        (shared, place): (&Arc<Shared>, usize),
        limit: Duration,
    ) -> Option<Self> {
        let ticket = shared.gate.enter();
        while !ticket.is_first() {
            core.yield_now().await;
        }
        let hold = Self {
            shared: Arc::clone(shared),
            core: place,
            since: Instant::now(),
            limit,
            _place: ticket,
        };
        let all = Acknowledgement::default();
        for core in &shared.cores {
            let one = Acknowledgement::clone(&all);
            core.send(Message::Run(Box::new(move |serving| {
                serving.close_gate(one);
            })));
        }
        while Arc::strong_count(&all) > 1 {
            if hold.is_overdue() {
                hold.note_overrun("writes that were under way have not ended");
                return None;
            }
            core.yield_now().await;
        }
        // ORDERING: what cores did before they dropped theirs has happened.
        fence(Ordering::Acquire);
        Some(hold)
    }

    /// True once others have been kept from writing for too long.
    pub(crate) fn is_overdue(&self) -> bool {
        self.since.elapsed() > self.limit
    }

    /// Counts and logs that the gate opens though its `EXEC` has not ended.
    pub(crate) fn note_overrun(&self, reason: &str) {
        self.shared.counters[self.core].gate_overruns.add(1);
        let held_ms = self.since.elapsed().as_millis();
        tracing::warn!(
            held_ms,
            reason,
            "a transaction with watched keys is given up: it kept others from writing"
        );
    }
}

impl Drop for GateHold {
    fn drop(&mut self) {
        for core in &self.shared.cores {
            core.send(Message::Run(Box::new(Serving::open_gate)));
        }
        let counters = &self.shared.counters[self.core];
        counters.gate_closings.add(1);
        let held_us = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        let longest_us = &counters.gate_longest_us;
        longest_us.set(held_us.max(longest_us.get()));
    }
}

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

/// JoinedReply of a value of so many bytes, of which the last one, with which it is stored, comes
/// once `may_pass` says so. Until then there are empty parts: more is to come.
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
    use std::pin::pin;

    use futures_lite::future::poll_once;

    use super::*;
    use crate::by_hand::on_first_core;

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

    #[test]
    fn closing_waits_for_writes_and_the_drop_of_the_hold_opens() {
        on_first_core(2, |bench| async move {
            let (core, shared) = (&bench.core, &bench.shared);
            let mut serving = bench.serving(0);
            // The other core has ended.
            shared.cores[1].end();
            serving.gate_turn(core);
            let pass = serving.passes.take(false).expect("it is open");
            let mut closing = pin!(GateHold::take(core, shared, 0));
            let mut next = pin!(GateHold::take(core, shared, 0));
            assert!(poll_once(closing.as_mut()).await.is_none());
            assert!(poll_once(next.as_mut()).await.is_none());
            bench.receive(&mut serving);
            for _ in 0..3 {
                serving.gate_turn(core);
                assert!(poll_once(closing.as_mut()).await.is_none());
            }
            assert!(serving.passes.is_shut() && serving.passes.take(false).is_none());
            drop(pass);
            serving.gate_turn(core);
            let hold = poll_once(closing.as_mut()).await.flatten().expect("closed");
            // The holder's own tasks pass.
            drop(serving.passes.take(true).expect("a pass"));
            assert!(poll_once(next.as_mut()).await.is_none());
            drop(hold);
            assert!(poll_once(next.as_mut()).await.is_none());
            bench.receive(&mut serving);
            // What was held is served before the next closing.
            assert!(!serving.passes.is_shut());
            serving.gate_turn(core);
            assert!(!serving.passes.is_shut());
            serving.gate_turn(core);
            assert!(serving.passes.is_shut());
            let hold = poll_once(next.as_mut()).await.flatten().expect("closed");
            drop(hold);
            bench.receive(&mut serving);
            assert!(!serving.passes.is_shut());
            assert_eq!(shared.counters[0].gate_closings.get(), 2);
        });
    }

    #[test]
    fn a_write_that_does_not_end_in_time_lets_others_go_on() {
        on_first_core(1, |bench| async move {
            let (core, shared) = (&bench.core, &bench.shared);
            let mut serving = bench.serving(0);
            let pass = serving.passes.take(false).expect("it is open");
            let late = GateHold::take_for(core, (shared, 0), Duration::ZERO);
            let mut late = pin!(late);
            let mut next = pin!(GateHold::take(core, shared, 0));
            // The clock is past its limit when it looks the first time.
            assert!(poll_once(late.as_mut()).await.expect("an end").is_none());
            assert_eq!(shared.counters[0].gate_overruns.get(), 1);
            bench.receive(&mut serving);
            serving.gate_turn(core);
            drop(serving.passes.take(false).expect("it is open"));
            assert!(poll_once(next.as_mut()).await.is_none());
            drop(pass);
            for _ in 0..2 {
                bench.receive(&mut serving);
                serving.gate_turn(core);
            }
            let hold = poll_once(next.as_mut()).await.flatten().expect("closed");
            assert!(!hold.is_overdue());
        });
    }
}
