//! Events of keys that the engine has removed by itself, held until those of the requests that
//! stored the keys are sent.
//!
//! ```text
//! lists -take-> held -- every core has ended two turns since ------------------> sent
//!                   \-- before the events of what a core's requests met, or
//!                       behind those of the request that stored the record ----> sent
//! ```
//!
//! Who takes the lists, and when: `turn/removal_turns.rs`.
//!
//! - I1: at most [`HELD_BYTES_MAX`] are held.

use std::collections::{HashMap, HashSet, VecDeque};

use farcore::Version;

use crate::events::key_events::KeyEvent;

/// Bytes of keys that are held; above them the first are sent.
const HELD_BYTES_MAX: usize = 4 << 20;

/// What a core has taken at a time.
#[derive(Debug)]
pub(crate) struct RemovalBatch {
    /// Turns that each core had ended.
    pub(crate) turns: Vec<u64>,
    pub(crate) taken_ms: u64,
    /// `expired` and `evicted`, each with the version of the record that was removed.
    pub(crate) events: Vec<KeyEvent>,
}

/// Events of removed keys that are not sent yet, in the order in which they were taken.
#[derive(Debug, Default)]
pub(crate) struct HeldRemovals {
    batches: VecDeque<RemovalBatch>,
    bytes: usize,
}

impl HeldRemovals {
    pub(crate) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    pub(crate) fn add(&mut self, batch: RemovalBatch) {
        self.bytes += batch.bytes();
        self.batches.push_back(batch);
    }

    /// Takes the events of the first batches that are due.
    pub(crate) fn take_due(&mut self, is_due: impl Fn(&RemovalBatch) -> bool) -> Vec<KeyEvent> {
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
    pub(crate) fn join(&mut self, turn: Vec<KeyEvent>) -> Vec<KeyEvent> {
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

impl RemovalBatch {
    fn bytes(&self) -> usize {
        self.events.iter().map(KeyEvent::held_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::classes::EventClasses;

    fn event(name: &'static str, key: &str, version: Version) -> KeyEvent {
        let event = KeyEvent::new(EventClasses::STRING, name, key.as_bytes());
        KeyEvent { version, ..event }
    }

    fn held(removed: &[(&str, Version)]) -> HeldRemovals {
        let mut held = HeldRemovals::default();
        let events = removed
            .iter()
            .map(|&(key, version)| event("expired", key, version));
        held.add(RemovalBatch {
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
            held.add(RemovalBatch {
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
