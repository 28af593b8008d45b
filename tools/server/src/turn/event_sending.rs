//! The end of a turn for events of keys: they are sent to the cores that have subscribers, behind
//! those of keys that shards have removed by themselves.
//!
//! - I1: at most [`EVENT_BYTES_MAX`] and one turn's events of each core are on their way to a core.
//!   Those beyond are not sent there, and are counted.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::cores::message::Message;
use crate::events::classes::EventClasses;
use crate::events::key_events::{KeyEvent, SentEvents};
use crate::serving::Serving;

/// Bytes of events that are on their way to a core, above which it gets no more: it is slower than
/// the cores that make them.
const EVENT_BYTES_MAX: usize = 1 << 20;

impl Serving {
    /// Sends the events of this turn to the cores that have subscribers, behind those of the keys
    /// that shards have removed by themselves. True if some have. Cost without events: three loads
    /// and a branch.
    #[inline]
    pub(crate) fn send_key_events(&mut self) -> bool {
        let is_any = self.shared.event_classes.is_any() || !self.events.is_empty();
        (is_any || self.holds_removed) && self.end_events_turn()
    }

    #[cold]
    fn end_events_turn(&mut self) -> bool {
        let is_busy = self.send_key_events_now();
        self.shared.cores[self.place].note_events_turn();
        is_busy
    }

    fn send_key_events_now(&mut self) -> bool {
        if self.events.is_empty() && !self.has_removed_keys() && !self.holds_removed {
            return false;
        }
        let shared = Arc::clone(&self.shared);
        let classes = shared.event_classes.load();
        let sends_removed = classes.sends(EventClasses::EXPIRED.and(EventClasses::EVICTED));
        if !sends_removed && !self.holds_removed {
            self.send_left_events();
            return false;
        }
        let held = shared.removals_in_order.lock();
        let mut held = held.unwrap_or_else(PoisonError::into_inner);
        let is_any = self.take_removed_keys(&mut held);
        self.send_left_events();
        is_any || self.holds_removed
    }

    fn send_left_events(&mut self) {
        let mut events = self.events.take();
        if events.is_empty() {
            return;
        }
        let shared = Arc::clone(&self.shared);
        if shared.event_classes.load().any_of(EventClasses::TRACKED) {
            self.send_changed(&events);
        }
        let classes = shared.event_classes.selected();
        events.retain(|event| classes.sends(event.class));
        if events.is_empty() {
            return;
        }
        let events: Arc<[KeyEvent]> = events.into();
        let bytes = events.iter().map(KeyEvent::held_bytes).sum();
        for (place, core) in shared.cores.iter().enumerate() {
            if core.subscriptions.load(Ordering::Acquire) == 0 {
                continue;
            }
            // ORDERING: it is a count, which orders nothing.
            if core.event_bytes.fetch_add(bytes, Ordering::Relaxed) > EVENT_BYTES_MAX {
                core.event_bytes.fetch_sub(bytes, Ordering::Relaxed);
                self.counters().unsent_events.add(events.len() as u64);
                continue;
            }
            core.key_events.push(SentEvents {
                events: Arc::clone(&events),
                classes,
                bytes,
            });
            if place == self.place {
                self.receive_key_events();
            } else {
                core.send(Message::DeliverKeyEvents);
            }
        }
    }

    /// Has the events delivered that cores have sent to this one, in the order in which they were
    /// sent: those of this core as well.
    pub(super) fn receive_key_events(&mut self) {
        while let Some(sent) = self.shared.cores[self.place].key_events.pop() {
            self.deliver_events(sent.events, sent.classes, sent.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::by_hand::on_first_core;

    #[test]
    fn a_core_that_takes_no_events_gets_so_many_and_others_are_counted() {
        const EVENTS: usize = 100;
        const TURNS: usize = 100;
        on_first_core(2, |bench| async move {
            let (shared, mut serving) = (&bench.shared, bench.serving(0));
            let slow_core = &shared.cores[1];
            shared
                .event_classes
                .store(EventClasses::parse(b"EA").expect("classes"));
            slow_core.subscriptions.store(1, Ordering::Release);
            let key = [b'k'; 1000];
            let turn_bytes = EVENTS * (size_of::<KeyEvent>() + key.len());
            let mut turn = || {
                for _ in 0..EVENTS {
                    serving.events.notify(EventClasses::STRING, "set", &key);
                }
                serving.send_key_events();
            };
            let unsent = || shared.counters[0].unsent_events.get();
            (0..TURNS).for_each(|_| turn());
            let sent = slow_core.message_count();
            let under_way = slow_core.event_bytes.load(Ordering::Relaxed);
            assert_eq!(under_way, sent * turn_bytes);
            assert!(under_way > EVENT_BYTES_MAX && under_way <= EVENT_BYTES_MAX + turn_bytes);
            assert_eq!(unsent(), (EVENTS * (TURNS - sent)) as u64);
            // Once it has taken them it gets more.
            let mut slow = bench.serving(1);
            while let Some(message) = slow_core.receive() {
                slow.take_message(message);
            }
            while slow.deliveries_turn() {}
            assert_eq!(slow_core.event_bytes.load(Ordering::Relaxed), 0);
            let before = unsent();
            turn();
            assert_eq!((slow_core.message_count(), unsent()), (1, before));
        });
    }
}
