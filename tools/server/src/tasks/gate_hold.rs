//! The gate for writes while it is closed: from the compare of an `EXEC` to its last write.
//!
//! - I1: dropped, it opens the gate on every core, and then gives its place in the queue up.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use farcore::Core;

use crate::cores::message::Message;
use crate::cores::shared::Shared;
use crate::exec::gate::{Acknowledgement, Place};

/// How long one `EXEC` may keep others from writing. What is queued has at most 64 MiB.
pub(crate) const HELD_MAX: Duration = Duration::from_secs(5);

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

    /// Takes the gate, and waits for it no longer than a time.
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
            core.send(Message::CloseGate(one));
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

    /// This one, as if it were held for too long already.
    #[cfg(test)]
    pub(crate) fn overdue(mut self) -> Self {
        self.limit = Duration::ZERO;
        self
    }

    /// Counts and logs that the gate opens though its command has not ended.
    pub(crate) fn note_overrun(&self, reason: &str) {
        self.shared.counters[self.core].gate_overruns.add(1);
        let held_ms = self.since.elapsed().as_millis();
        tracing::warn!(
            held_ms,
            reason,
            "a command that kept others from writing is given up"
        );
    }
}

impl Drop for GateHold {
    fn drop(&mut self) {
        for core in &self.shared.cores {
            core.send(Message::OpenGate);
        }
        let counters = &self.shared.counters[self.core];
        counters.gate_closings.add(1);
        let held_us = u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX);
        let longest_us = &counters.gate_longest_us;
        longest_us.set(held_us.max(longest_us.get()));
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_lite::future::poll_once;

    use super::*;
    use crate::by_hand::on_first_core;

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
