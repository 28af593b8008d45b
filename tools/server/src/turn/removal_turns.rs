//! Keys that the engine removes by itself, because they have expired or to make room, as events.
//!
//! While events of such a class are sent, each core has its shard list the keys, and is woken for
//! it. A core that has events to send takes the lists of all shards first, for its requests may
//! have met expired keys of any; else it takes its own shard's. The engine's lists are bounded:
//! what they leave out makes no event, and is counted (`unsent_events`).
//!
//! A record may be removed before the core whose request has stored it has taken the answer. So
//! what is taken is held until each core has sent the events of all answers that were there then:
//!
//! ```text
//! lists -take-> held -- every core has ended two turns since ------------------> sent
//!                   \-- before the events of what a core's requests met, or
//!                       behind those of the request that stored the record ----> sent
//! ```
//!
//! - I1: where no class is selected, a turn costs a load, a store and a branch.
//! - I2: a key that a request has found expired makes `expired` before the request's own events:
//!   lists are taken, and what is due of them is sent to all cores, under one lock
//!   (`Shared::removals_in_order`).
//! - I3: the record of a request makes `expired` behind the request's own events, if these know the
//!   record's version. Those of a transaction, and of tasks other than puts, do not.
//! - I4: what is held is sent within [`HELD_MS_MAX`] of a core's turns, and at most
//!   4 MiB are held.

use farcore::Removal;

use crate::cores::port::CorePort;
use crate::events::classes::EventClasses;
use crate::events::key_events::KeyEvent;
use crate::events::removed_keys::{HeldRemovals, RemovalBatch};
use crate::serving::Serving;

/// How long an event is held for cores whose turns are long, in milliseconds.
const HELD_MS_MAX: u64 = 100;

impl Serving {
    /// True if the core's shard has removed keys by itself that make events. Cost: a load.
    pub(crate) fn has_removed_keys(&self) -> bool {
        self.shared.reporter.has_removals(self.place)
    }

    /// Takes the keys that shards have removed by themselves, and puts the events that are due of
    /// those and of earlier ones before, among or behind those of this turn: what a request has
    /// met, its shard has listed before it has answered. True if some were taken.
    pub(crate) fn take_removed_keys(&mut self, held: &mut HeldRemovals) -> bool {
        let turn = self.events.take();
        let mut keys = std::mem::take(&mut self.removed_keys);
        let mut taken = Vec::new();
        for place in 0..self.shared.cores.len() {
            if !self.shared.reporter.take_removals(place, &mut keys) {
                continue;
            }
            for (removal, key, version) in keys.with_versions() {
                let (class, name) = match removal {
                    Removal::Expired => (EventClasses::EXPIRED, "expired"),
                    Removal::Evicted => (EventClasses::EVICTED, "evicted"),
                };
                if self.events.sends(class) {
                    let event = KeyEvent::new(class, name, key);
                    taken.push(KeyEvent { version, ..event });
                }
            }
            self.counters().unsent_events.add(keys.unlisted());
            if keys.unlisted() > 0 {
                self.forget_tracked();
            }
        }
        self.removed_keys = keys;
        let is_any = !taken.is_empty();
        let cores = &self.shared.cores;
        if is_any && self.events.is_heard() {
            held.add(RemovalBatch {
                turns: cores.iter().map(CorePort::events_turns).collect(),
                taken_ms: self.now_ms,
                events: taken,
            });
        }
        let turn = held.join(turn);
        let now_ms = self.now_ms;
        let mut due = held.take_due(|batch| {
            let mut each = cores.iter().zip(&batch.turns);
            now_ms.saturating_sub(batch.taken_ms) >= HELD_MS_MAX
                || each.all(|(core, turns)| core.has_sent_events_of(*turns))
        });
        self.holds_removed = !held.is_empty();
        due.extend(turn);
        self.events.extend(due);
        is_any
    }

    /// Has the shard list nothing any more.
    pub(crate) fn forget_removed_keys(&self) {
        self.shared.reporter.watch_removals(self.place, &[], None);
    }
}
