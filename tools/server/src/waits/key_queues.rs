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

use crate::steps;

/// Locks of each kind of waits; each has the queues of a part of the keys.
const PARTS: usize = 64;

/// What a client waits for. Those that wait for one kind of value are in queues of their own: what
/// wakes them is nothing for the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Awaited {
    List,
    SortedSet,
    Stream,
}

impl Awaited {
    pub(crate) const ALL: [Self; 3] = [Self::List, Self::SortedSet, Self::Stream];

    /// True if what is added is for all that wait: who reads a stream takes nothing away.
    pub(crate) fn is_for_all(self) -> bool {
        self == Self::Stream
    }
}

/// A client that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiter {
    pub(crate) client: u64,
    /// The place of its core.
    pub(crate) core: usize,
    /// Its connection's number there.
    pub(crate) number: usize,
}

/// Places of clients that have left, from which a queue may be moved together.
const LEFT_MAX: usize = 16;

/// A client's place in the queue of a key.
#[derive(Clone, Copy, Debug)]
struct Place {
    /// Greater than that of the place before.
    ticket: u64,
    /// None once the client has left.
    waiter: Option<Waiter>,
    /// The place of the key among those that the client waits for.
    key: usize,
}

/// Clients that wait for a key, in the order in which they entered. One that leaves is found by its
/// ticket, and its place is emptied; queues are moved together when half of their places are empty.
#[derive(Debug, Default)]
struct Queue {
    places: VecDeque<Place>,
    left: usize,
    next_ticket: u64,
}

impl Queue {
    /// Adds a client; returns its ticket.
    fn enter(&mut self, waiter: Waiter, key: usize) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.places.push_back(Place {
            ticket,
            waiter: Some(waiter),
            key,
        });
        ticket
    }

    /// Empties the place of a ticket. False if no client has it.
    fn leave(&mut self, ticket: u64) -> bool {
        let found = self
            .places
            .binary_search_by_key(&ticket, |place| place.ticket);
        let place = found.ok().and_then(|place| self.places.get_mut(place));
        if place.and_then(|place| place.waiter.take()).is_none() {
            return false;
        }
        self.left += 1;
        // The first place is that of a client.
        while self
            .places
            .front()
            .is_some_and(|place| place.waiter.is_none())
        {
            self.places.pop_front();
            self.left -= 1;
        }
        if self.left > LEFT_MAX.max(self.places.len() / 2) {
            steps::count(self.places.len());
            self.places.retain(|place| place.waiter.is_some());
            self.left = 0;
        }
        true
    }

    /// All clients, with the places of the key.
    fn all(&self) -> impl Iterator<Item = (Waiter, usize)> {
        let places = self.places.iter();
        places.filter_map(|place| Some((place.waiter?, place.key)))
    }

    /// The client that waits longest, and the place of the key among those that it waits for.
    fn first(&self) -> Option<(Waiter, usize)> {
        let first = self.places.front()?;
        Some((first.waiter?, first.key))
    }
}

/// The queues of keys.
type Queues = HashMap<Vec<u8>, Queue>;

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
    parts: [[Part; PARTS]; Awaited::ALL.len()],
    hasher: RandomState,
    clients: AtomicUsize,
}

impl Default for Waiting {
    fn default() -> Self {
        Self {
            parts: std::array::from_fn(|_| std::array::from_fn(|_| Part::default())),
            hasher: RandomState::new(),
            clients: AtomicUsize::new(0),
        }
    }
}

impl Waiting {
    fn part(&self, awaited: Awaited, key: &[u8]) -> &Part {
        let parts = PARTS as u64;
        let place = usize::try_from(self.hasher.hash_one(key) % parts).unwrap_or(0);
        &self.parts[awaited as usize][place]
    }

    /// How many clients wait.
    pub(crate) fn clients(&self) -> usize {
        // ORDERING: relaxed, also where it changes; it is a count for figures.
        self.clients.load(Ordering::Relaxed)
    }

    /// Adds a client to the queues of keys, none of which is named twice; returns its tickets, with
    /// which it leaves.
    pub(crate) fn enter(&self, awaited: Awaited, keys: &[Vec<u8>], waiter: Waiter) -> Vec<u64> {
        self.clients.fetch_add(1, Ordering::Relaxed);
        steps::count(keys.len());
        let enter = |(place, key): (usize, &Vec<u8>)| {
            let part = self.part(awaited, key);
            let mut queues = part.queues();
            let queue = queues.entry(key.clone()).or_default();
            let ticket = queue.enter(waiter, place);
            // ORDERING: sequentially consistent, as the load in `first` is, its partner (I1): this
            // comes before the client's last look, that after a command has added elements. If the
            // shard served the look first, the load sees the place.
            part.places.fetch_add(1, Ordering::SeqCst);
            ticket
        };
        keys.iter().enumerate().map(enter).collect()
    }

    /// Removes a client from the queues of keys that it has entered with these tickets.
    pub(crate) fn leave(&self, awaited: Awaited, keys: &[Vec<u8>], tickets: &[u64]) {
        self.clients.fetch_sub(1, Ordering::Relaxed);
        steps::count(keys.len());
        for (key, &ticket) in keys.iter().zip(tickets) {
            let part = self.part(awaited, key);
            let mut queues = part.queues();
            let Some(queue) = queues.get_mut(key) else {
                continue;
            };
            if queue.leave(ticket) {
                // ORDERING: with the load in `first`; one that sees it late takes the lock.
                part.places.fetch_sub(1, Ordering::SeqCst);
            }
            if queue.places.is_empty() {
                queues.remove(key);
            }
        }
    }

    /// The client that waits longest for a key, and the place of the key among those that it waits
    /// for. Cost if no client waits: a hash and a load.
    pub(crate) fn first(&self, awaited: Awaited, key: &[u8]) -> Option<(Waiter, usize)> {
        let part = self.part(awaited, key);
        // ORDERING: partner of the addition in `enter` (I1).
        if part.places.load(Ordering::SeqCst) == 0 {
            return None;
        }
        part.queues().get(key)?.first()
    }
}

impl Waiting {
    /// All clients that wait for a key, as [`Waiting::first`].
    pub(crate) fn all(&self, awaited: Awaited, key: &[u8]) -> Vec<(Waiter, usize)> {
        let part = self.part(awaited, key);
        // ORDERING: as in `first`.
        if part.places.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let queues = part.queues();
        let all = queues.get(key).into_iter().flat_map(Queue::all);
        let all: Vec<_> = all.collect();
        steps::count(all.len());
        all
    }
}

/// What a command that adds elements waits for. Each client that is woken for it holds a reference
/// until it has looked at its keys and has woken the next one.
pub(crate) type Served = Arc<()>;

/// Keys that clients may wait for.
pub(crate) type ReadyKeys = Rc<RefCell<Vec<(Awaited, Vec<u8>)>>>;

/// How a wait ends without what was waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WaitEnd {
    /// Its time is over, or another client says so.
    Timeout,
    /// Another client says so.
    Error,
    /// The server has begun to follow another one.
    Followed,
    /// The slot of its keys has another owner, or soon has.
    Moved(u16),
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
        let enter =
            |names: &[&str], client| waiting.enter(Awaited::List, &keys(names), waiter(client));
        let first = enter(&["a", "b"], 1);
        let second = enter(&["b", "a"], 2);
        let third = enter(&["b"], 3);
        assert_eq!(waiting.clients(), 3);
        let next = |key: &str| {
            let next = waiting.first(Awaited::List, key.as_bytes());
            next.map(|(waiter, place)| (waiter.client, place))
        };
        assert_eq!(
            (next("a"), next("b"), next("c")),
            (Some((1, 0)), Some((1, 1)), None)
        );
        waiting.leave(Awaited::List, &keys(&["a", "b"]), &first);
        assert_eq!((next("a"), next("b")), (Some((2, 1)), Some((2, 0))));
        waiting.leave(Awaited::List, &keys(&["b"]), &third);
        waiting.leave(Awaited::List, &keys(&["b", "a"]), &second);
        assert_eq!((next("a"), next("b")), (None, None));
        assert_eq!(waiting.clients(), 0);
        for part in waiting.parts.as_flattened() {
            assert_eq!(part.places.load(Ordering::SeqCst), 0);
            assert!(part.queues().is_empty());
        }
    }

    #[test]
    fn a_queue_keeps_its_order_and_few_empty_places_when_clients_leave() {
        let mut queue = Queue::default();
        let mut tickets: Vec<_> = (0..1000)
            .map(|client| queue.enter(waiter(client), 0))
            .collect();
        steps::take();
        // All but each tenth leave, the later ones first.
        for ticket in tickets
            .clone()
            .iter()
            .rev()
            .filter(|ticket| *ticket % 10 != 0)
        {
            assert!(queue.leave(*ticket) && !queue.leave(*ticket));
            assert!(queue.left <= LEFT_MAX.max(queue.places.len() / 2));
        }
        assert!(steps::take() < 3000);
        tickets.retain(|ticket| ticket % 10 == 0);
        for ticket in tickets {
            assert_eq!(queue.first().map(|(waiter, _)| waiter.client), Some(ticket));
            assert!(queue.leave(ticket));
        }
        assert!(queue.places.is_empty());
    }
}
