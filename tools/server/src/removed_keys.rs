//! Keys that the engine removes by itself, because they have expired or to make room, as events.
//!
//! While events of such a class are sent, each core has its shard list the keys, and is woken for
//! it. A core that has events to send takes the lists of all shards first, for its requests may
//! have met expired keys of any; else it takes its own shard's. The engine's lists are bounded:
//! what they leave out makes no event, and is counted (`unsent_events`).
//!
//! - I1: where no class is selected, a turn costs a load and a branch.
//! - I2: a key that a request has found expired makes `expired` before the request's own events:
//!   lists are taken, and what they make is sent to all cores, under one lock
//!   (`Shared::removals_in_order`).

use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use farcore::{Removal, RemovedKeys};

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
    /// True if the core's shard has removed keys by itself that make events. Cost: a load.
    pub(crate) fn has_removed_keys(&self) -> bool {
        self.shared.reporter.has_removals(self.place)
    }

    /// Leaves the events of the keys that shards have removed by themselves before those of this
    /// turn: what a request has met, its shard has listed before it has answered. True if there are
    /// some.
    pub(crate) fn take_removed_keys(&mut self) -> bool {
        let later = self.events.take();
        let mut keys = std::mem::take(&mut self.removed_keys);
        let mut is_any = false;
        for place in 0..self.shared.cores.len() {
            if self.shared.reporter.take_removals(place, &mut keys) {
                self.leave_removed(&keys);
                is_any = true;
            }
        }
        self.events.extend(later);
        self.removed_keys = keys;
        is_any
    }

    fn leave_removed(&self, keys: &RemovedKeys) {
        for (removal, key) in keys.iter() {
            let (class, name) = match removal {
                Removal::Expired => (EventClasses::EXPIRED, "expired"),
                Removal::Evicted => (EventClasses::EVICTED, "evicted"),
            };
            self.events.notify(class, name, key);
        }
        self.counters().unsent_events.add(keys.unlisted());
    }

    /// Has the shard list nothing any more.
    pub(crate) fn forget_removed_keys(&self) {
        self.shared.reporter.watch_removals(self.place, &[], None);
    }
}
