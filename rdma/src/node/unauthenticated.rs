//! The unauthenticated connections of one executor, in two stages with places of their own: those
//! that have sent nothing, and those that have sent a connect request. When a stage is full, one of
//! its connections is evicted for the next.
//!
//! ```text
//! admit -> silent -> progressed -> requested -> decided (authenticated, or refused)
//! ```
//!
//! Progress wins over age: silent peers, however many, evict no peer that has sent its request. And
//! no address wins over others: the oldest connection of the address with the most places goes.
//! IPv6 addresses count by their first 64 bits, because one host may use all of the rest.
//!
//! - I1: at most `limit` places of a stage are taken, and at least one is available.
//! - I2: a peer whose probation has ended, by success or refusal, is not evicted any more.
//! - I3: `crowds` has each address that holds places of the stage, with their number.
//!
//! Source: the eviction of half-open connections in TCP stacks; shares by address as in the
//! `MaxStartups` and `PerSourceMaxStartups` of OpenSSH.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::rc::Rc;

use crate::executor::Semaphore;

/// What an address counts as: all of IPv4, the first half of IPv6.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Network(IpAddr);

impl Network {
    fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        })
    }
}

/// How far an unauthenticated peer has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// It has sent nothing.
    Silent,
    /// It has sent a connect request.
    Requested,
}

/// The places of one stage.
#[derive(Debug)]
struct Places {
    limit: usize,
    /// By address, the connections in the order in which they came. Closing a semaphore evicts.
    held: HashMap<Network, BTreeMap<u64, Rc<Semaphore>>>,
    /// The addresses by the number of their places.
    crowds: BTreeSet<(usize, Network)>,
    taken: usize,
}

impl Places {
    fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            held: HashMap::new(),
            crowds: BTreeSet::new(),
            taken: 0,
        }
    }

    /// Takes a place, evicting a connection if all are taken.
    fn take(&mut self, network: Network, number: u64, end: Rc<Semaphore>) {
        while self.taken >= self.limit
            && let Some(&(_, largest)) = self.crowds.last()
        {
            let oldest = self.held.get(&largest).and_then(BTreeMap::first_key_value);
            let Some((&oldest, _)) = oldest else { break };
            if let Some(evicted) = self.free(largest, oldest) {
                evicted.close();
            }
        }
        let held = self.held.entry(network).or_default();
        self.crowds.remove(&(held.len(), network));
        held.insert(number, end);
        self.crowds.insert((held.len(), network));
        self.taken += 1;
    }

    /// Frees a place, if it is taken.
    fn free(&mut self, network: Network, number: u64) -> Option<Rc<Semaphore>> {
        let held = self.held.get_mut(&network)?;
        let end = held.remove(&number)?;
        self.crowds.remove(&(held.len() + 1, network));
        self.taken -= 1;
        if held.is_empty() {
            self.held.remove(&network);
        } else {
            self.crowds.insert((held.len(), network));
        }
        Some(end)
    }
}

/// The unauthenticated peers of one executor.
#[derive(Debug)]
pub(super) struct Unauthenticated {
    silent: RefCell<Places>,
    requested: RefCell<Places>,
    next: Cell<u64>,
}

impl Unauthenticated {
    /// Places for this many silent peers, and for this many that have sent a connect request.
    pub(super) fn new(silent: usize, requested: usize) -> Rc<Self> {
        Rc::new(Self {
            silent: RefCell::new(Places::new(silent)),
            requested: RefCell::new(Places::new(requested)),
            next: Cell::new(0),
        })
    }

    fn places(&self, stage: Stage) -> &RefCell<Places> {
        match stage {
            Stage::Silent => &self.silent,
            Stage::Requested => &self.requested,
        }
    }

    /// Admits a peer, which has sent nothing yet.
    pub(super) fn admit(self: &Rc<Self>, address: IpAddr) -> UnauthenticatedPeer {
        let network = Network::of(address);
        let number = self.next.get();
        self.next.set(number + 1);
        // Never gets a permit: it is only closed.
        let end = Rc::new(Semaphore::new(0));
        let mut silent = self.silent.borrow_mut();
        silent.take(network, number, Rc::clone(&end));
        UnauthenticatedPeer {
            all: Rc::clone(self),
            network,
            number,
            stage: Cell::new(Stage::Silent),
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
    stage: Cell<Stage>,
    end: Rc<Semaphore>,
}

impl UnauthenticatedPeer {
    /// Notes that the peer has sent a connect request: silent peers do not evict it any more.
    pub(super) fn progressed(&self) {
        let silent = self.all.silent.borrow_mut().free(self.network, self.number);
        if let Some(end) = silent {
            self.stage.set(Stage::Requested);
            let mut requested = self.all.requested.borrow_mut();
            requested.take(self.network, self.number, end);
        }
    }

    /// Ends the probation: the peer has authenticated itself or was refused. It frees its place and
    /// is not evicted any more.
    pub(super) fn decided(&self) {
        let places = self.all.places(self.stage.get());
        places.borrow_mut().free(self.network, self.number);
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
    use proptest::prelude::*;

    use super::*;

    fn is_evicted(peer: &UnauthenticatedPeer) -> bool {
        block_on(poll_once(pin!(peer.evicted()))).is_some()
    }

    fn host(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    #[test]
    fn the_oldest_makes_room() {
        let unauthenticated = Unauthenticated::new(2, 2);
        let admit = || unauthenticated.admit(host(1));
        let (one, two) = (admit(), admit());
        assert!(!is_evicted(&one) && !is_evicted(&two));
        let three = admit();
        assert!(is_evicted(&one) && !is_evicted(&two) && !is_evicted(&three));
        // A peer that has gone leaves room.
        drop(two);
        let four = admit();
        assert!(!is_evicted(&three) && !is_evicted(&four));
        drop(one);
        assert_eq!(unauthenticated.silent.borrow().taken, 2);
    }

    #[test]
    fn a_peer_whose_probation_ended_is_not_evicted() {
        let unauthenticated = Unauthenticated::new(0, 0);
        let client = unauthenticated.admit(host(1));
        client.decided();
        let next = unauthenticated.admit(host(1));
        assert!(!is_evicted(&client) && !is_evicted(&next));
        drop(client);
        unauthenticated.admit(host(1));
        assert!(is_evicted(&next));
    }

    #[test]
    fn silent_peers_evict_none_that_has_sent_its_request() {
        let unauthenticated = Unauthenticated::new(2, 2);
        let client = unauthenticated.admit(host(1));
        client.progressed();
        let crowd: Vec<_> = (0..100).map(|_| unauthenticated.admit(host(1))).collect();
        assert!(!is_evicted(&client));
        assert_eq!(crowd.iter().filter(|peer| !is_evicted(peer)).count(), 2);
        for peer in &crowd[98..] {
            peer.progressed();
        }
        assert!(is_evicted(&client), "the stage has two places");
    }

    #[test]
    fn an_address_evicts_its_own_before_others() {
        let unauthenticated = Unauthenticated::new(8, 8);
        let quiet: Vec<_> = (1..4)
            .map(|number| unauthenticated.admit(host(number)))
            .collect();
        let crowd: Vec<_> = (0..100).map(|_| unauthenticated.admit(host(9))).collect();
        assert!(quiet.iter().all(|peer| !is_evicted(peer)));
        assert_eq!(crowd.iter().filter(|peer| !is_evicted(peer)).count(), 5);
    }

    #[test]
    fn the_second_half_of_an_address_and_a_mapped_one_make_no_other_network() {
        let network = |text: &str| Network::of(text.parse().unwrap());
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
        assert_ne!(network("10.0.0.1"), network("10.0.0.2"));
    }

    proptest! {
        #[test]
        fn places_agree_with_their_crowds(
            limit in 1usize..6,
            acts in prop::collection::vec((0u8..4, 0u8..4), 0..80),
        ) {
            let unauthenticated = Unauthenticated::new(limit, limit);
            let mut peers: Vec<UnauthenticatedPeer> = Vec::new();
            for (act, number) in acts {
                let some = peers.len().checked_sub(1 + usize::from(number));
                match (act, some) {
                    (1, Some(place)) => peers[place].progressed(),
                    (2, Some(place)) => peers[place].decided(),
                    (3, Some(place)) => drop(peers.remove(place)),
                    _ => peers.push(unauthenticated.admit(host(number))),
                }
                for places in [&unauthenticated.silent, &unauthenticated.requested] {
                    let places = places.borrow();
                    let held: usize = places.held.values().map(BTreeMap::len).sum();
                    prop_assert!(held == places.taken && held <= limit);
                    let crowds: BTreeSet<_> =
                        places.held.iter().map(|(&network, held)| (held.len(), network)).collect();
                    prop_assert_eq!(&crowds, &places.crowds);
                }
            }
            drop(peers);
            prop_assert_eq!(unauthenticated.silent.borrow().taken, 0);
            prop_assert_eq!(unauthenticated.requested.borrow().taken, 0);
        }
    }
}
