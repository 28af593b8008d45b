//! A limited number of places for connections that have not authenticated themselves. When all are
//! taken, one is evicted for the next.
//!
//! No address wins over others: the oldest connection of the address with the most places goes; of
//! several such addresses, that of the oldest connection.
//! IPv6 addresses count by their first 64 bits, because one host may use all of the rest.
//!
//! - I1: at most `limit` places are taken, and at least one is available.
//! - I2: `crowds` has each network that holds places, with their number.
//!
//! Source: the eviction of half-open connections in TCP stacks; shares by address as in the
//! `MaxStartups` and `PerSourceMaxStartups` of OpenSSH.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

/// What an address counts as: all of IPv4, the first half of IPv6.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Network(IpAddr);

impl Network {
    pub(super) fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        })
    }
}

/// A network by the number of its places and the number of its oldest connection, which is greater
/// the later that came.
type Crowd = (usize, Reverse<u64>, Network);

fn crowd<T>(network: Network, held: &BTreeMap<u64, T>) -> Option<Crowd> {
    let (&oldest, _) = held.first_key_value()?;
    Some((held.len(), Reverse(oldest), network))
}

/// Places, and who holds them. Connections have ascending numbers.
#[derive(Debug)]
pub(super) struct Places<T> {
    limit: usize,
    /// By network, the connections in the order in which they came.
    held: HashMap<Network, BTreeMap<u64, T>>,
    /// The networks by the number of their places, and then by the age of their oldest.
    crowds: BTreeSet<Crowd>,
    taken: usize,
}

impl<T> Places<T> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            held: HashMap::new(),
            crowds: BTreeSet::new(),
            taken: 0,
        }
    }

    /// Takes a place. Returns the connection that is evicted for it, with its number.
    pub(super) fn take(&mut self, network: Network, number: u64, one: T) -> Option<(u64, T)> {
        let evicted = if self.taken < self.limit {
            None
        } else {
            self.evict()
        };
        let held = self.held.entry(network).or_default();
        if let Some(before) = crowd(network, held) {
            self.crowds.remove(&before);
        }
        held.insert(number, one);
        self.crowds.extend(crowd(network, held));
        self.taken += 1;
        evicted
    }

    fn evict(&mut self) -> Option<(u64, T)> {
        let &(_, _, largest) = self.crowds.last()?;
        let (&oldest, _) = self.held.get(&largest)?.first_key_value()?;
        self.free(largest, oldest).map(|evicted| (oldest, evicted))
    }

    /// The connection that holds a place.
    pub(super) fn get(&self, network: Network, number: u64) -> Option<&T> {
        self.held.get(&network)?.get(&number)
    }

    /// Frees a place, if it is taken.
    pub(super) fn free(&mut self, network: Network, number: u64) -> Option<T> {
        let held = self.held.get_mut(&network)?;
        let before = crowd(network, held)?;
        let one = held.remove(&number)?;
        self.crowds.remove(&before);
        self.taken -= 1;
        self.crowds.extend(crowd(network, held));
        if held.is_empty() {
            self.held.remove(&network);
        }
        Some(one)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network(text: &str) -> Network {
        Network::of(text.parse().unwrap())
    }

    fn host(number: u8) -> Network {
        Network::of([10, 0, 0, number].into())
    }

    #[test]
    fn the_oldest_makes_room() {
        let mut places = Places::new(2);
        assert_eq!(places.take(host(1), 1, "one"), None);
        assert_eq!(places.take(host(1), 2, "two"), None);
        assert_eq!(places.take(host(1), 3, "three"), Some((1, "one")));
        // A connection that has gone leaves room.
        assert_eq!(places.free(host(1), 2), Some("two"));
        assert_eq!(places.free(host(1), 2), None);
        assert_eq!(places.take(host(1), 4, "four"), None);
        assert_eq!(places.get(host(1), 3), Some(&"three"));
    }

    #[test]
    fn one_place_is_always_available() {
        let mut places = Places::new(0);
        assert_eq!(places.take(host(1), 1, ()), None);
        assert_eq!(places.take(host(1), 2, ()), Some((1, ())));
    }

    #[test]
    fn an_address_evicts_its_own_before_others() {
        let mut places = Places::new(8);
        for number in 0..3 {
            assert_eq!(places.take(host(number), u64::from(number), ()), None);
        }
        for number in 10..100 {
            let evicted = places.take(host(9), number, ());
            assert!(evicted.is_none_or(|(number, ())| number >= 10));
        }
        assert_eq!(places.held[&host(9)].len(), 5);
    }

    #[test]
    fn among_equal_crowds_the_oldest_goes_whatever_its_address() {
        let mut places = Places::new(3);
        for (number, address) in [(1, 5), (2, 9), (3, 1)] {
            assert_eq!(places.take(host(address), number, ()), None);
        }
        assert_eq!(places.take(host(7), 4, ()), Some((1, ())));
        assert_eq!(places.take(host(8), 5, ()), Some((2, ())));
    }

    #[test]
    fn the_second_half_of_an_address_and_a_mapped_one_make_no_other_network() {
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
        assert_ne!(network("10.0.0.1"), network("10.0.0.2"));
    }

    proptest! {
        #[test]
        fn places_agree_with_their_crowds(
            limit in 1usize..6,
            acts in prop::collection::vec((any::<bool>(), 0u8..4), 0..80),
        ) {
            let mut places = Places::new(limit);
            let mut inside: Vec<(Network, u64)> = Vec::new();
            for (number, (leaves, who)) in (0u64..).zip(acts) {
                let some = inside.len().checked_sub(1 + usize::from(who));
                match some.filter(|_| leaves) {
                    Some(place) => {
                        let (network, number) = inside.remove(place);
                        prop_assert!(places.free(network, number).is_some());
                    }
                    None => {
                        if let Some((evicted, ())) = places.take(host(who), number, ()) {
                            inside.retain(|&(_, number)| number != evicted);
                        }
                        inside.push((host(who), number));
                    }
                }
                let held: usize = places.held.values().map(BTreeMap::len).sum();
                prop_assert!(held == places.taken && held == inside.len() && held <= limit);
                let crowds: BTreeSet<_> =
                    places.held.iter().filter_map(|(&network, held)| crowd(network, held)).collect();
                prop_assert_eq!(&crowds, &places.crowds);
            }
        }
    }
}
