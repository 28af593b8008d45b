//! How a command that adds elements to a key wakes the clients that wait for it, and waits until
//! they have taken them.

use std::rc::Rc;
use std::sync::Arc;

use farcore::Core;

use crate::cores::message::Message;
use crate::cores::shared::Shared;
use crate::waits::key_queues::{Awaited, ReadyKeys, Served, Waiter};

impl Shared {
    /// Wakes the client that waits longest for a key, if one waits; or all, if what is added is for
    /// all.
    pub(crate) fn wake_waiter(&self, awaited: Awaited, key: &[u8], served: &[Served]) {
        if awaited.is_for_all() {
            for woken in self.waiting.all(awaited, key) {
                self.wake(awaited, key, woken, served);
            }
        } else if let Some(woken) = self.waiting.first(awaited, key) {
            self.wake(awaited, key, woken, served);
        }
    }

    fn wake(
        &self,
        awaited: Awaited,
        key: &[u8],
        (waiter, place): (Waiter, usize),
        served: &[Served],
    ) {
        self.cores[waiter.core].send(Message::Wake {
            waiter,
            awaited,
            key: key.to_vec(),
            place,
            served: served.to_vec(),
        });
    }
}

/// Where a command that adds elements to keys says so.
#[derive(Clone, Debug)]
pub(crate) struct Readiness {
    shared: Arc<Shared>,
    /// Keys for which clients are woken later, if they are.
    later: Option<ReadyKeys>,
}

impl Readiness {
    /// Clients are woken at once.
    pub(crate) fn at_once(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            later: None,
        }
    }

    /// The keys are left here for a later time.
    pub(crate) fn later(shared: Arc<Shared>, keys: ReadyKeys) -> Self {
        Self {
            shared,
            later: Some(keys),
        }
    }

    /// Says that a key holds a value of another key, whatever that is, as [`Readiness::note`].
    pub(crate) async fn note_any(&self, core: &Core, key: &[u8]) {
        for awaited in Awaited::ALL {
            self.note(core, awaited, key).await;
        }
    }

    /// Says that elements were added to a key, and waits until the clients that waited for them
    /// have taken them. The command writes no more.
    pub(crate) async fn note(&self, core: &Core, awaited: Awaited, key: &[u8]) {
        if self.shared.waiting.first(awaited, key).is_none() {
            return;
        }
        // A transaction that has ended meanwhile, with its connection, wakes no client.
        if let Some(later) = self
            .later
            .as_ref()
            .filter(|later| Rc::strong_count(later) > 1)
        {
            return later.borrow_mut().push((awaited, key.to_vec()));
        }
        if core.is_under_section() {
            // Their looks wait for the section.
            return self.shared.wake_waiter(awaited, key, &[]);
        }
        let served = Served::default();
        self.shared
            .wake_waiter(awaited, key, std::slice::from_ref(&served));
        while Arc::strong_count(&served) > 1 {
            core.yield_now().await;
        }
    }
}
