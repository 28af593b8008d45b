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
//!   [`HELD_BYTES_MAX`] are.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use farcore::{Removal, Version};

use crate::events::classes::EventClasses;
use crate::events::key_events::KeyEvent;
use crate::shared::Shared;
use crate::turn::core_port::CorePort;
use crate::turn::serving::Serving;

/// How long an event is held for cores whose turns are long, in milliseconds.
const HELD_MS_MAX: u64 = 100;
/// Bytes of keys that are held; above them the first are sent.
const HELD_BYTES_MAX: usize = 4 << 20;

/// What a core has taken at a time.
#[derive(Debug)]
struct Batch {
    /// Turns that each core had ended.
    turns: Vec<u64>,
    taken_ms: u64,
    /// `expired` and `evicted`, each with the version of the record that was removed.
    events: Vec<KeyEvent>,
}

/// Events of removed keys that are not sent yet, in the order in which they were taken.
#[derive(Debug, Default)]
pub(crate) struct HeldRemovals {
    batches: VecDeque<Batch>,
    bytes: usize,
}

impl HeldRemovals {
    fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    fn add(&mut self, batch: Batch) {
        self.bytes += batch.bytes();
        self.batches.push_back(batch);
    }

    /// Takes the events of the first batches that are due.
    fn take_due(&mut self, is_due: impl Fn(&Batch) -> bool) -> Vec<KeyEvent> {
        let mut due = Vec::new();
        while let Some(first) = self.batches.front()
            && (first.events.is_empty() || self.bytes > HELD_BYTES_MAX || is_due(first))
        {
            self.bytes -= first.bytes();
            due.extend(
                self.batches
                    .pop_front()
                    .into_iter()
                    .flat_map(|one| one.events),
            );
        }
        due
    }

    /// Adds the events of removed keys to a turn's events of the same keys: before those of what
    /// came after the removal, and behind those of what stored the record. What the first of a key
    /// has met comes before all events: its command may have some of other keys.
    fn join(&mut self, turn: Vec<KeyEvent>) -> Vec<KeyEvent> {
        if turn.is_empty() || self.is_empty() {
            return turn;
        }
        let keys: HashSet<&[u8]> = turn.iter().map(|event| &event.key[..]).collect();
        let mut latest: HashMap<Vec<u8>, Version> = HashMap::new();
        let mut removed: HashMap<Vec<u8>, VecDeque<KeyEvent>> = HashMap::new();
        for batch in &mut self.batches {
            if !batch
                .events
                .iter()
                .any(|event| keys.contains(&event.key[..]))
            {
                continue;
            }
            self.bytes -= batch.bytes();
            let events = std::mem::take(&mut batch.events);
            for event in events {
                if keys.contains(&event.key[..]) {
                    removed
                        .entry(event.key.clone())
                        .or_default()
                        .push_back(event);
                } else {
                    batch.events.push(event);
                }
            }
            self.bytes += batch.bytes();
        }
        if removed.is_empty() {
            return turn;
        }
        let mut met = Vec::new();
        let mut joined = Vec::with_capacity(turn.len() + removed.len());
        for event in turn {
            if let Some(of_key) = removed.get_mut(&event.key) {
                let is_before = |one: &KeyEvent| event.version == 0 || one.version < event.version;
                let before = match latest.contains_key(&event.key) {
                    true => &mut joined,
                    false => &mut met,
                };
                while of_key.front().is_some_and(is_before) {
                    before.extend(of_key.pop_front());
                }
                let known = latest.entry(event.key.clone()).or_default();
                *known = event.version.max(*known);
            }
            joined.push(event);
        }
        met.append(&mut joined);
        let mut joined = met;
        // Their puts are among the turn's, or those of another core, which come first.
        let mut later = Vec::new();
        for (key, of_key) in removed {
            let known = latest.get(&key).copied().unwrap_or(0);
            for event in of_key {
                if event.version <= known {
                    joined.push(event);
                } else {
                    later.push(event);
                }
            }
        }
        if let Some(last) = self.batches.back_mut() {
            self.bytes += later.iter().map(KeyEvent::held_bytes).sum::<usize>();
            last.events.extend(later);
        }
        joined
    }
}

impl Batch {
    fn bytes(&self) -> usize {
        self.events.iter().map(KeyEvent::held_bytes).sum()
    }
}

/// Wakes a core whose shard has removed a key.
struct CoreWaker {
    // Weak: the engine has the waker, and the server the engine's figures.
    shared: Weak<Shared>,
    place: usize,
}

impl Wake for CoreWaker {
    fn wake(self: Arc<Self>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.cores[self.place].wake();
        }
    }
}

/// Has the shards list the removals that make events of some classes.
pub(crate) fn watch(shared: &Arc<Shared>, classes: EventClasses) {
    let all = [
        (EventClasses::EXPIRED, Removal::Expired),
        (EventClasses::EVICTED, Removal::Evicted),
    ];
    let wanted = all.iter().filter(|(class, _)| classes.sends(*class));
    let wanted: Vec<_> = wanted.map(|&(_, removal)| removal).collect();
    for place in 0..shared.cores.len() {
        let waker = CoreWaker {
            shared: Arc::downgrade(shared),
            place,
        };
        let waker = (!wanted.is_empty()).then(|| Waker::from(Arc::new(waker)));
        shared.reporter.watch_removals(place, &wanted, waker);
    }
}

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
        }
        self.removed_keys = keys;
        let is_any = !taken.is_empty();
        let cores = &self.shared.cores;
        if is_any && self.events.is_heard() {
            held.add(Batch {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &'static str, key: &str, version: Version) -> KeyEvent {
        let event = KeyEvent::new(EventClasses::STRING, name, key.as_bytes());
        KeyEvent { version, ..event }
    }

    fn held(removed: &[(&str, Version)]) -> HeldRemovals {
        let mut held = HeldRemovals::default();
        let events = removed
            .iter()
            .map(|&(key, version)| event("expired", key, version));
        held.add(Batch {
            turns: vec![7],
            taken_ms: 0,
            events: events.collect(),
        });
        held
    }

    fn names(events: &[KeyEvent]) -> Vec<String> {
        let name =
            |event: &KeyEvent| format!("{} {}", event.name, String::from_utf8_lossy(&event.key));
        events.iter().map(name).collect()
    }

    #[test]
    fn a_record_expires_behind_its_put_and_before_the_next() {
        let mut held = held(&[("k", 5), ("other", 6)]);
        let turn = vec![
            event("set", "k", 5),
            event("expire", "k", 5),
            event("set", "k", 9),
        ];
        let joined = held.join(turn);
        assert_eq!(names(&joined), ["set k", "expire k", "expired k", "set k"]);
        // That of a key which the turn has no event of waits.
        assert!(held.take_due(|_| false).is_empty());
        assert_eq!(names(&held.take_due(|_| true)), ["expired other"]);
        assert!(held.is_empty() && held.bytes == 0);
    }

    #[test]
    fn a_record_that_was_stored_last_expires_at_the_end() {
        let mut held = held(&[("k", 5), ("k", 8)]);
        let joined = held.join(vec![event("set", "k", 5), event("incrby", "k", 7)]);
        assert_eq!(names(&joined), ["set k", "expired k", "incrby k"]);
        // The put of version 8 is another core's, which has not sent its events.
        let joined = held.join(vec![event("set", "k", 8)]);
        assert_eq!(names(&joined), ["set k", "expired k"]);
        assert!(held.take_due(|_| false).is_empty() && held.is_empty());
    }

    #[test]
    fn what_a_command_without_a_version_has_met_expires_before() {
        let mut held = held(&[("k", 5)]);
        let joined = held.join(vec![event("sadd", "k", 0)]);
        assert_eq!(names(&joined), ["expired k", "sadd k"]);
    }

    #[test]
    fn what_a_command_has_met_expires_before_its_events_of_other_keys() {
        let mut held = held(&[("k", 5)]);
        let joined = held.join(vec![
            event("rename_from", "other", 0),
            event("rename_to", "k", 0),
        ]);
        assert_eq!(
            names(&joined),
            ["expired k", "rename_from other", "rename_to k"]
        );
    }

    #[test]
    fn few_bytes_are_held() {
        let mut held = HeldRemovals::default();
        let key = "k".repeat(1000);
        let events = HELD_BYTES_MAX / 1000;
        for number in 0..2 {
            held.add(Batch {
                turns: Vec::new(),
                taken_ms: 0,
                events: (0..events)
                    .map(|_| event("expired", &key, number))
                    .collect(),
            });
        }
        assert_eq!(held.take_due(|_| false).len(), 2 * events);
    }
}
