//! The unauthenticated connections of one executor: their number is limited, and the oldest is
//! evicted for the next.
//!
//! A silent peer soon becomes the oldest, while a client that proceeds at once has authenticated
//! itself long before. So silent peers, however many, lock no client out.
//!
//! - I1: at most `limit` places are taken, and at least one is available.
//! - I2: a peer whose probation has ended, by success or refusal, is not evicted any more.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::executor::Semaphore;

/// The unauthenticated peers of one executor.
#[derive(Debug)]
pub(super) struct Unauthenticated {
    limit: usize,
    /// By number in ascending order: the first is the oldest. Closing a semaphore evicts its peer.
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

    /// Admits a peer, evicting the oldest if all places are taken.
    pub(super) fn admit(self: &Rc<Self>) -> UnauthenticatedPeer {
        let mut places = self.places.borrow_mut();
        while places.len() >= self.limit
            && let Some((_, oldest)) = places.pop_first()
        {
            oldest.close();
        }
        let number = self.next.get();
        self.next.set(number + 1);
        // Never gets a permit: it is only closed.
        let end = Rc::new(Semaphore::new(0));
        places.insert(number, Rc::clone(&end));
        UnauthenticatedPeer {
            all: Rc::clone(self),
            number,
            end,
        }
    }
}

/// One peer that has not authenticated itself. Dropping this frees its place.
#[derive(Debug)]
pub(super) struct UnauthenticatedPeer {
    all: Rc<Unauthenticated>,
    number: u64,
    end: Rc<Semaphore>,
}

impl UnauthenticatedPeer {
    /// Ends the probation: the peer has authenticated itself or was refused. It frees its place and
    /// is not evicted any more.
    pub(super) fn decided(&self) {
        self.all.places.borrow_mut().remove(&self.number);
    }

    /// Waits until the peer is evicted.
    pub(super) async fn evicted(&self) {
        let _ = self.end.acquire(1).await;
    }
}

impl Drop for UnauthenticatedPeer {
    fn drop(&mut self) {
        self.decided();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_lite::future::{block_on, poll_once};

    use super::*;

    fn is_evicted(peer: &UnauthenticatedPeer) -> bool {
        block_on(poll_once(pin!(peer.evicted()))).is_some()
    }

    #[test]
    fn the_oldest_makes_room() {
        let unauthenticated = Unauthenticated::new(2);
        let (one, two) = (unauthenticated.admit(), unauthenticated.admit());
        assert!(!is_evicted(&one) && !is_evicted(&two));
        let three = unauthenticated.admit();
        assert!(is_evicted(&one) && !is_evicted(&two) && !is_evicted(&three));
        // A peer that has gone leaves room.
        drop(two);
        let four = unauthenticated.admit();
        assert!(!is_evicted(&three) && !is_evicted(&four));
        drop(one);
        assert_eq!(unauthenticated.places.borrow().len(), 2);
    }

    #[test]
    fn a_peer_whose_probation_ended_is_not_evicted() {
        let unauthenticated = Unauthenticated::new(0);
        let client = unauthenticated.admit();
        client.decided();
        let next = unauthenticated.admit();
        assert!(!is_evicted(&client) && !is_evicted(&next));
        drop(client);
        unauthenticated.admit();
        assert!(is_evicted(&next));
    }
}
