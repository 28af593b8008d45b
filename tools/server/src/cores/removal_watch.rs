//! Has the engine's shards list the keys that they remove by themselves, and wake their cores for
//! it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Wake, Waker};

use farcore::Removal;

use crate::cores::shared::Shared;
use crate::events::classes::EventClasses;

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

/// Has changes go to clients that cache keys, or no more if there is none.
pub(crate) fn track(shared: &Arc<Shared>) {
    let has_clients = || shared.tracking.clients.load(Ordering::Relaxed) > 0;
    shared.event_classes.track(has_clients);
    watch(shared, shared.event_classes.load());
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
