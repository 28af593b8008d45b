//! Keys that the engine removes by itself, because they have expired or to make room, as events.
//!
//! While events of such a class are sent, each core has its shard list the keys, takes the list in
//! its turns, and is woken for it. The engine's list is bounded: what it leaves out makes no event,
//! and is counted (`unsent_events`).
//!
//! - I1: where no class is selected, a turn costs a load and a branch.
//! - I2: a key that a request has found expired makes `expired` before the request's own events.

use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use farcore::Removal;

use crate::event_classes::EventClasses;
use crate::serving::Serving;
use crate::shared::Shared;

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
    /// Leaves the events of the keys that the core's shard has removed by itself. True if there are
    /// some.
    #[inline]
    pub(crate) fn take_removed_keys(&mut self) -> bool {
        self.shared.event_classes.is_any() && self.take_removed_keys_now()
    }

    #[cold]
    fn take_removed_keys_now(&mut self) -> bool {
        let mut keys = std::mem::take(&mut self.removed_keys);
        let is_any = self.shared.reporter.take_removals(self.place, &mut keys);
        if !is_any {
            self.removed_keys = keys;
            return false;
        }
        // What a request has met is removed before the request changes the key.
        let later = self.events.take();
        for (removal, key) in keys.iter() {
            let (class, name) = match removal {
                Removal::Expired => (EventClasses::EXPIRED, "expired"),
                Removal::Evicted => (EventClasses::EVICTED, "evicted"),
            };
            self.events.notify(class, name, key);
        }
        self.events.extend(later);
        self.counters().unsent_events.add(keys.unlisted());
        self.removed_keys = keys;
        true
    }

    /// Has the shard list nothing any more.
    pub(crate) fn forget_removed_keys(&self) {
        self.shared.reporter.watch_removals(self.place, &[], None);
    }
}
