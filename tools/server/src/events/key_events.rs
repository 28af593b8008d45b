//! Events of keys (`notify-keyspace-events`): where commands leave them, and how they reach the
//! subscribers of `__keyspace@0__:KEY` and `__keyevent@0__:EVENT`.
//!
//! ```text
//! requests of the engine: Noted --answer--> EventSink \
//! expired and evicted: removed_keys -------> EventSink --\
//! tasks: TaskOutput::notify -----------------------> EventSink -- end of turn --> each core with
//!                                                                                 subscribers
//! ```
//!
//! **How a command emits.** One that is a request of the engine (`Call::request`, `Call::requests`)
//! does nothing: `operation_events` derives its events from the operation and the answer, in
//! `MULTI` too. One that is a task calls `output.notify(EventClasses::SET, "sadd", &key)` once the
//! engine has answered that the change has happened, and before it ends; several events of a key in
//! the order of Redis, e.g. `hdel` and then `del` of the generic class. If the key was absent
//! before it was written, `output.notify(EventClasses::NEW, "new", &key)` comes first; if a command
//! that only reads has found none, `output.notify(EventClasses::MISSED, "keymiss", &key)` does.
//! Keys are those under which the engine stores them. What is not selected costs a load and a
//! branch.
//!
//! - I1: an event is left only when its change has happened.
//! - I2: events of one key are sent in the order of its changes, as far as requests of one core
//!   made them, and `expired` behind those of the request that stored the record (`removed_keys`)
//!   and before those of what has met the expired key. Those of several keys in one pipeline, and
//!   of commands of several cores or steps that run at one time, may be sent in another order.
//! - I3: at most [`EVENT_BYTES_MAX`] and one turn's events of each core are on their way to a core.
//!   Those beyond are not sent there, and are counted.
//! - I4: where no class is selected, a request of the engine costs one load and a branch more, and
//!   its answer nothing.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use crate::events::classes::EventClasses;
use crate::events::subscriptions::{Message, Payload};
use crate::shared::Shared;
use crate::turn::core_port::Message as PortMessage;
use crate::turn::serving::Serving;
use crate::words::shown_key;

/// Bytes of events that are on their way to a core, above which it gets no more: it is slower than
/// the cores that make them.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// An event of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct KeyEvent {
    pub(crate) class: EventClasses,
    pub(crate) name: &'static str,
    /// As it is stored.
    pub(crate) key: Vec<u8>,
    /// The version under which the key's record was stored, if the event is of that; else 0.
    pub(crate) version: u64,
}

impl KeyEvent {
    pub(crate) fn new(class: EventClasses, name: &'static str, key: &[u8]) -> Self {
        Self {
            class,
            name,
            key: key.to_vec(),
            version: 0,
        }
    }

    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.key.len()
    }
}

/// A turn's events on their way to a core.
#[derive(Debug)]
pub(crate) struct SentEvents {
    events: Arc<[KeyEvent]>,
    classes: EventClasses,
    bytes: usize,
}

/// Where the commands of a core leave events.
#[derive(Clone, Debug)]
pub(crate) struct EventSink {
    shared: Arc<Shared>,
    /// Those that are not sent.
    events: Rc<RefCell<Vec<KeyEvent>>>,
}

impl EventSink {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            events: Rc::default(),
        }
    }

    /// What all cores share.
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The classes that are selected.
    pub(crate) fn classes(&self) -> EventClasses {
        self.shared.event_classes.load()
    }

    /// True if a class is selected. Cost: one load.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.shared.event_classes.is_any()
    }

    /// True if events of some of these classes are sent. Cost: one load.
    #[inline]
    pub(crate) fn sends(&self, classes: EventClasses) -> bool {
        self.shared.event_classes.load().sends(classes)
    }

    /// True if there are none that are not sent.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.events.borrow().is_empty()
    }

    /// Leaves an event of a key, if its class is selected and there is a subscriber.
    #[inline]
    pub(crate) fn notify(&self, class: EventClasses, name: &'static str, key: &[u8]) {
        self.notify_stored(0, class, name, key);
    }

    /// The same of a key whose record was stored under a version.
    #[inline]
    pub(crate) fn notify_stored(
        &self,
        version: u64,
        class: EventClasses,
        name: &'static str,
        key: &[u8],
    ) {
        if self.sends(class) {
            self.leave(version, class, name, key);
        }
    }

    /// True if there is a subscriber.
    pub(crate) fn is_heard(&self) -> bool {
        let mut cores = self.shared.cores.iter();
        cores.any(|core| core.subscriptions.load(Ordering::Acquire) > 0)
    }

    /// Takes the events that are not sent.
    pub(crate) fn take(&self) -> Vec<KeyEvent> {
        self.events.take()
    }

    /// Leaves events that were taken.
    pub(crate) fn extend(&self, events: Vec<KeyEvent>) {
        self.events.borrow_mut().extend(events);
    }

    #[cold]
    fn leave(&self, version: u64, class: EventClasses, name: &'static str, key: &[u8]) {
        if self.is_heard() {
            let event = KeyEvent::new(class, name, key);
            self.events.borrow_mut().push(KeyEvent { version, ..event });
        }
    }
}

/// The messages that an event makes: that of its key's channel, and that of its own.
pub(crate) fn messages(event: &KeyEvent, classes: EventClasses) -> impl Iterator<Item = Message> {
    let (name, key) = (event.name.as_bytes(), shown_key(&event.key));
    let message = |prefix: &str, channel: &[u8], payload: &[u8]| Message {
        is_sharded: false,
        channel: [prefix.as_bytes(), channel].concat(),
        payload: Payload::Short(payload.to_vec()),
        charge: None,
    };
    let of_key =
        (classes.any_of(EventClasses::KEYSPACE)).then(|| message("__keyspace@0__:", key, name));
    let of_event =
        (classes.any_of(EventClasses::KEYEVENT)).then(|| message("__keyevent@0__:", name, key));
    of_key.into_iter().chain(of_event)
}

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
            self.send_left_events(classes);
            return false;
        }
        let held = shared.removals_in_order.lock();
        let mut held = held.unwrap_or_else(PoisonError::into_inner);
        let is_any = self.take_removed_keys(&mut held);
        self.send_left_events(classes);
        is_any || self.holds_removed
    }

    fn send_left_events(&mut self, classes: EventClasses) {
        let events = self.events.take();
        if events.is_empty() {
            return;
        }
        let shared = Arc::clone(&self.shared);
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
                core.send(PortMessage::Run(Box::new(Self::receive_key_events)));
            }
        }
    }

    /// Has the events delivered that cores have sent to this one, in the order in which they were
    /// sent: those of this core as well.
    fn receive_key_events(&mut self) {
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
    fn an_event_goes_to_the_channels_that_are_selected() {
        let event = KeyEvent::new(EventClasses::STRING, "set", b"a key");
        let channels = |text: &str| {
            let classes = EventClasses::parse(text.as_bytes()).expect(text);
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
            messages(&event, classes)
                .map(|message| {
                    let Payload::Short(payload) = message.payload else {
                        unreachable!("events are short");
                    };
                    (text(message.channel), text(payload))
                })
                .collect::<Vec<_>>()
        };
        let of_key = ("__keyspace@0__:a key".to_owned(), "set".to_owned());
        let of_event = ("__keyevent@0__:set".to_owned(), "a key".to_owned());
        let both = [of_key, of_event];
        assert_eq!(channels("KEA"), both);
        assert_eq!(channels("KA"), both[..1]);
        assert_eq!(channels("EA"), both[1..]);
    }

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
            while let Some(PortMessage::Run(take)) = slow_core.receive() {
                take(&mut slow);
            }
            while slow.deliveries_turn() {}
            assert_eq!(slow_core.event_bytes.load(Ordering::Relaxed), 0);
            let before = unsent();
            turn();
            assert_eq!((slow_core.message_count(), unsent()), (1, before));
        });
    }
}
