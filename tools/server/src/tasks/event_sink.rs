//! Where commands leave events of keys (`notify-keyspace-events`), until the end of the turn sends
//! them to the cores with subscribers (`turn/event_sending.rs`).
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
//! - I3: at most 1 MiB and one turn's events of each core are on their way to a core.
//!   Those beyond are not sent there, and are counted.
//! - I4: where no class is selected, a request of the engine costs one load and a branch more, and
//!   its answer nothing.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cores::shared::Shared;
use crate::events::classes::EventClasses;
use crate::events::key_events::KeyEvent;

/// Where the commands of a core leave events.
#[derive(Clone, Debug)]
pub(crate) struct EventSink {
    shared: Arc<Shared>,
    /// Those that are not sent.
    events: Rc<RefCell<Vec<KeyEvent>>>,
    /// The client whose events are left; 0 if it is none.
    client: u64,
}

impl EventSink {
    /// None yet.
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            events: Rc::default(),
            client: 0,
        }
    }

    /// Notes whose events come.
    #[inline]
    pub(crate) fn note_client(&mut self, client: u64) {
        self.client = client;
    }

    /// What all cores share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
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

    /// Leaves an event of a key whose record was stored under a version.
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
        cores.any(|core| {
            core.subscriptions.load(Ordering::Acquire) > 0
                || core.trackers.load(Ordering::Acquire) > 0
        })
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
            let client = self.client;
            self.events.borrow_mut().push(KeyEvent {
                version,
                client,
                ..event
            });
        }
    }
}
