//! The connections of one executor that have sent a connect request and have not authenticated
//! themselves. When all places are taken, one of them is evicted for the next.
//!
//! Progress wins over age: silent connections wait in the [lobby](super::lobby), and evict none of
//! these.
//!
//! - I1: a peer whose probation has ended, by success or refusal, is not evicted any more.

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

use super::places::{Network, Places};
use crate::executor::Semaphore;

/// The unauthenticated peers of one executor.
#[derive(Debug)]
pub(super) struct Unauthenticated {
    /// Closing a semaphore evicts.
    places: RefCell<Places<Rc<Semaphore>>>,
    next: Cell<u64>,
}

impl Unauthenticated {
    /// Places for this many peers.
    pub(super) fn new(limit: usize) -> Rc<Self> {
        Rc::new(Self {
            places: RefCell::new(Places::new(limit)),
            next: Cell::new(0),
        })
    }

    /// Admits a peer, and evicts another if all places are taken.
    pub(super) fn admit(self: &Rc<Self>, address: IpAddr) -> UnauthenticatedPeer {
        let network = Network::of(address);
        let number = self.next.get();
        self.next.set(number + 1);
        // Never gets a permit: it is only closed.
        let end = Rc::new(Semaphore::new(0));
        let mut places = self.places.borrow_mut();
        if let Some((_, evicted)) = places.take(network, number, Rc::clone(&end)) {
            evicted.close();
        }
        UnauthenticatedPeer {
            all: Rc::clone(self),
            network,
            number,
            end,
        }
    }
}

/// One peer that has not authenticated itself. Dropping this frees its place.
#[derive(Debug)]
pub(super) struct UnauthenticatedPeer {
    all: Rc<Unauthenticated>,
    network: Network,
    number: u64,
    end: Rc<Semaphore>,
}

impl UnauthenticatedPeer {
    /// Ends the probation: the peer has authenticated itself or was refused. It frees its place and
    /// is not evicted any more.
    pub(super) fn decided(&self) {
        let mut places = self.all.places.borrow_mut();
        places.free(self.network, self.number);
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
    fn a_peer_whose_probation_ended_is_not_evicted() {
        let unauthenticated = Unauthenticated::new(1);
        let admit = || unauthenticated.admit([10, 0, 0, 1].into());
        let client = admit();
        client.decided();
        let next = admit();
        assert!(!is_evicted(&client) && !is_evicted(&next));
        drop(client);
        assert!(!is_evicted(&admit()) && is_evicted(&next));
        // A peer that has gone leaves room.
        drop(next);
        let last = admit();
        assert!(!is_evicted(&last));
    }
}
