//! Connections that have proved nothing yet, on one executor: only so many may be at it, and the
//! oldest makes room.
//!
//! Whoever keeps silent is the oldest soon; a client that goes on at once has proved itself long
//! before. So silence keeps nobody out, however many keep it.
//!
//! - I1: at most `limit` places are taken, and at least one can be.
//! - I2: who was judged, for good or ill, is never told to go any more.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::executor::Semaphore;

/// One executor's places.
#[derive(Debug)]
pub(super) struct Unauthenticated {
    limit: usize,
    /// By number, which counts up: the first is the oldest. What is closed tells its stranger to
    /// go.
    places: RefCell<BTreeMap<u64, Rc<Semaphore>>>,
    next: Cell<u64>,
}

impl Unauthenticated {
    pub(super) fn new(limit: usize) -> Rc<Self> {
        Rc::new(Self {
            limit: limit.max(1),
            places: RefCell::default(),
            next: Cell::new(0),
        })
    }

    /// Takes a place, the oldest's if there is no other.
    pub(super) fn admit(self: &Rc<Self>) -> UnauthenticatedPeer {
        let mut places = self.places.borrow_mut();
        while places.len() >= self.limit
            && let Some((_, oldest)) = places.pop_first()
        {
            oldest.close();
        }
        let number = self.next.get();
        self.next.set(number + 1);
        // Nobody takes from it: it is only closed.
        let end = Rc::new(Semaphore::new(0));
        places.insert(number, Rc::clone(&end));
        UnauthenticatedPeer {
            all: Rc::clone(self),
            number,
            end,
        }
    }
}

/// A place among the strangers; it is given back when this is dropped.
#[derive(Debug)]
pub(super) struct UnauthenticatedPeer {
    all: Rc<Unauthenticated>,
    number: u64,
    end: Rc<Semaphore>,
}

impl UnauthenticatedPeer {
    /// It has proved itself, or was refused: it gives its place back, and is not told to go any
    /// more.
    pub(super) fn judged(&self) {
        self.all.places.borrow_mut().remove(&self.number);
    }

    /// Waits until it must make room.
    pub(super) async fn evicted(&self) {
        let _ = self.end.acquire(1).await;
    }
}

impl Drop for UnauthenticatedPeer {
    fn drop(&mut self) {
        self.judged();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_lite::future::{block_on, poll_once};

    use super::*;

    fn must_go(peer: &UnauthenticatedPeer) -> bool {
        block_on(poll_once(pin!(peer.evicted()))).is_some()
    }

    #[test]
    fn the_oldest_makes_room() {
        let unauthenticated = Unauthenticated::new(2);
        let (one, two) = (unauthenticated.admit(), unauthenticated.admit());
        assert!(!must_go(&one) && !must_go(&two));
        let three = unauthenticated.admit();
        assert!(must_go(&one) && !must_go(&two) && !must_go(&three));
        // Who has gone anyway leaves room.
        drop(two);
        let four = unauthenticated.admit();
        assert!(!must_go(&three) && !must_go(&four));
        drop(one);
        assert_eq!(unauthenticated.places.borrow().len(), 2);
    }

    #[test]
    fn who_was_judged_stays() {
        let unauthenticated = Unauthenticated::new(0);
        let client = unauthenticated.admit();
        client.judged();
        let next = unauthenticated.admit();
        assert!(!must_go(&client) && !must_go(&next));
        drop(client);
        unauthenticated.admit();
        assert!(must_go(&next));
    }
}
