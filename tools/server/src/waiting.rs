//! Clients of all cores that wait for keys, and which of them is served next.
//!
//! ```text
//! waits:   enter -> look at the keys -> nothing there: parked
//! changes: add elements -> wake the first client of the key
//! woken:   look at the keys -> take, leave, wake the next one
//!                           -> nothing there: parked again
//! ```
//!
//! A lock guards the queues of some keys. It is taken only when a client begins or ends to wait,
//! and by a command that adds elements to such a key: others see from a count that no client waits.
//!
//! - I1: a client enters before it looks at its keys for the last time, and a command looks for
//!   clients after it has added elements. Both pass through the key's shard, so one sees the other.
//! - I2: clients that wait for a key are woken in the order in which they entered.
//! - I3: a wake is not lost: a client that leaves after it was woken wakes the next one.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farcore::Core;

use crate::port::Message;
use crate::shared::Shared;
use crate::tasks::TaskOutput;

/// Locks; each has the queues of a part of the keys.
const PARTS: usize = 64;

/// A client that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiter {
    pub(crate) client: u64,
    /// The place of its core.
    pub(crate) core: usize,
    /// Its connection's number there.
    pub(crate) number: usize,
}

/// Clients in the order in which they entered, by key.
type Queues = HashMap<Vec<u8>, VecDeque<Waiter>>;

#[derive(Debug, Default)]
struct Part {
    /// Places in the queues.
    places: AtomicUsize,
    queues: Mutex<Queues>,
}

impl Part {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Clients that wait for keys.
#[derive(Debug)]
pub(crate) struct Waiting {
    parts: [Part; PARTS],
    hasher: RandomState,
    clients: AtomicUsize,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            parts: std::array::from_fn(|_| Part::default()),
            hasher: RandomState::new(),
            clients: AtomicUsize::new(0),
        }
    }
}

impl Waiting {
    fn part(&self, key: &[u8]) -> &Part {
        let parts = PARTS as u64;
        let place = usize::try_from(self.hasher.hash_one(key) % parts).unwrap_or(0);
        &self.parts[place]
    }

    /// How many clients wait.
    pub(crate) fn clients(&self) -> usize {
        // ORDERING: relaxed, also where it changes; it is a count for figures.
        self.clients.load(Ordering::Relaxed)
    }

    /// Adds a client to the queues of keys, none of which is named twice.
    pub(crate) fn enter(&self, keys: &[Vec<u8>], waiter: Waiter) {
        self.clients.fetch_add(1, Ordering::Relaxed);
        for key in keys {
            let part = self.part(key);
            let mut queues = part.queues();
            let queue = queues.entry(key.clone()).or_default();
            queue.push_back(waiter);
            // ORDERING: sequentially consistent, as the load in `first` is, its partner (I1): this
            // comes before the client's last look, that after a command has added elements. If the
            // shard served the look first, the load sees the place.
            part.places.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Removes a client from the queues of keys.
    pub(crate) fn leave(&self, keys: &[Vec<u8>], waiter: Waiter) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
        for key in keys {
            let part = self.part(key);
            let mut queues = part.queues();
            let Some(queue) = queues.get_mut(key) else {
                continue;
            };
            if let Some(place) = queue.iter().position(|one| *one == waiter) {
                queue.remove(place);
                // ORDERING: with the load in `first`; one that sees it late takes the lock.
                part.places.fetch_sub(1, Ordering::SeqCst);
            }
            if queue.is_empty() {
                queues.remove(key);
            }
        }
    }

    /// The client that waits longest for a key. Cost if no client waits: a hash and a load.
    pub(crate) fn first(&self, key: &[u8]) -> Option<Waiter> {
        let part = self.part(key);
        // ORDERING: partner of the addition in `enter` (I1).
        if part.places.load(Ordering::SeqCst) == 0 {
            return None;
        }
        part.queues().get(key)?.front().copied()
    }
}

/// What a command that adds elements waits for. Each client that is woken for it holds a reference
/// until it has looked at its keys and has woken the next one.
pub(crate) type Served = Arc<()>;

impl Shared {
    /// Wakes the client that waits longest for a key, if one waits.
    pub(crate) fn wake_waiter(&self, key: &[u8], served: &[Served]) {
        let Some(waiter) = self.waiting.first(key) else {
            return;
        };
        let (key, served) = (key.to_vec(), served.to_vec());
        self.cores[waiter.core].send(Message::Run(Box::new(move |serving| {
            serving.wake(waiter, &key, served);
        })));
    }
}

/// Where a command that adds elements to keys says so.
#[derive(Clone, Debug)]
pub(crate) struct Readiness {
    shared: Arc<Shared>,
    /// Keys for which clients are woken later, if they are.
    later: Option<ReadyKeys>,
}

/// Keys that clients may wait for.
pub(crate) type ReadyKeys = Rc<RefCell<Vec<Vec<u8>>>>;

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

    /// Says that elements were added to a key, and waits until the clients that waited for them
    /// have taken them. The command writes no more.
    pub(crate) async fn note(&self, core: &Core, output: &TaskOutput, key: &[u8]) {
        if self.shared.waiting.first(key).is_none() {
            return;
        }
        // A transaction that has ended meanwhile, with its connection, wakes no client.
        if let Some(later) = self
            .later
            .as_ref()
            .filter(|later| Rc::strong_count(later) > 1)
        {
            return later.borrow_mut().push(key.to_vec());
        }
        // A look writes too: it may wait for the gate, and that for this command.
        output.end_pass();
        let served = Served::default();
        self.shared.wake_waiter(key, std::slice::from_ref(&served));
        while Arc::strong_count(&served) > 1 {
            core.yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(client: u64) -> Waiter {
        Waiter {
            client,
            core: 0,
            number: 0,
        }
    }

    fn keys(names: &[&str]) -> Vec<Vec<u8>> {
        names.iter().map(|name| name.as_bytes().to_vec()).collect()
    }

    #[test]
    fn clients_are_served_in_the_order_in_which_they_entered() {
        let waiting = Waiting::default();
        waiting.enter(&keys(&["a", "b"]), waiter(1));
        waiting.enter(&keys(&["b", "a"]), waiter(2));
        waiting.enter(&keys(&["b"]), waiter(3));
        assert_eq!(waiting.clients(), 3);
        let first = |key: &str| waiting.first(key.as_bytes()).map(|waiter| waiter.client);
        assert_eq!(
            (first("a"), first("b"), first("c")),
            (Some(1), Some(1), None)
        );
        waiting.leave(&keys(&["a", "b"]), waiter(1));
        assert_eq!((first("a"), first("b")), (Some(2), Some(2)));
        waiting.leave(&keys(&["b"]), waiter(3));
        waiting.leave(&keys(&["b", "a"]), waiter(2));
        assert_eq!((first("a"), first("b")), (None, None));
        assert_eq!(waiting.clients(), 0);
        for part in &waiting.parts {
            assert_eq!(part.places.load(Ordering::SeqCst), 0);
            assert!(part.queues().is_empty());
        }
    }
}
