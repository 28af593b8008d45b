//! A limited number of places for connections that have not authenticated themselves. When all are
//! taken, one is evicted for the next.
//!
//! No address wins over others: the site with the most places loses the oldest connection of its
//! network with the most places; of several such sites or networks, that of the oldest connection.
//! A site is an IPv4 address or 48 bits of IPv6, which one customer of a provider may have; a
//! network is an IPv4 address or 64 bits of IPv6, of which one host may use all addresses.
//!
//! - I1: at most `limit` places are taken, and at least one is available.
//! - I2: `sites` has each site that holds places, with their number, and each site has its networks
//!   likewise.
//!
//! Source: the eviction of half-open connections in TCP stacks; shares by address as in the
//! `MaxStartups` and `PerSourceMaxStartups` of OpenSSH; RFC 6177 for the lengths of prefixes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::net::IpAddr;

/// What an address counts as within its site: all of IPv4, the first half of IPv6.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Network(IpAddr);

/// What an address counts as first: all of IPv4, 48 bits of IPv6.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Site(IpAddr);

fn prefix(address: IpAddr, bits: u32) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let rest = 128 - bits;
            IpAddr::V6((address.to_bits() >> rest << rest).into())
        }
    }
}

impl Network {
    /// The network of an address.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        Self(prefix(address, 64))
    }

    fn site(self) -> Site {
        Site(prefix(self.0, 48))
    }
}

/// A number of places, and the number of the oldest connection there, which is greater the later
/// that came.
type Size = (usize, Reverse<u64>);

/// Keys by their sizes.
#[derive(Debug)]
struct Sizes<K> {
    of: HashMap<K, Size>,
    ordered: BTreeSet<(Size, K)>,
}

impl<K: Copy + Ord + Hash> Sizes<K> {
    fn new() -> Self {
        Self {
            of: HashMap::new(),
            ordered: BTreeSet::new(),
        }
    }

    /// Sets a key's size; `None` removes it.
    fn set(&mut self, key: K, size: Option<Size>) {
        let before = match size {
            Some(size) => self.of.insert(key, size),
            None => self.of.remove(&key),
        };
        if let Some(before) = before {
            self.ordered.remove(&(before, key));
        }
        self.ordered.extend(size.map(|size| (size, key)));
    }

    fn largest(&self) -> Option<K> {
        self.ordered.last().map(|&(_, key)| key)
    }
}

/// The connections of one network by their numbers.
type Held<T> = BTreeMap<u64, T>;

fn size<T>(held: &Held<T>) -> Option<Size> {
    let (&oldest, _) = held.first_key_value()?;
    Some((held.len(), Reverse(oldest)))
}

/// The networks of one site.
#[derive(Debug)]
struct Crowd {
    /// The numbers of all its connections.
    numbers: BTreeSet<u64>,
    networks: Sizes<Network>,
}

impl Crowd {
    fn size(&self) -> Option<Size> {
        let &oldest = self.numbers.first()?;
        Some((self.numbers.len(), Reverse(oldest)))
    }
}

/// Places, and who holds them. Connections have ascending numbers.
#[derive(Debug)]
pub struct Places<T> {
    limit: usize,
    held: HashMap<Network, Held<T>>,
    crowds: HashMap<Site, Crowd>,
    sites: Sizes<Site>,
    taken: usize,
}

impl<T> Places<T> {
    /// The given number of free places, but at least one.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            held: HashMap::new(),
            crowds: HashMap::new(),
            sites: Sizes::new(),
            taken: 0,
        }
    }

    /// Whether the next one needs [`Places::next_evicted`] to leave.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.taken >= self.limit
    }

    /// Takes a place. The caller has made room.
    pub fn take(&mut self, network: Network, number: u64, one: T) {
        debug_assert!(!self.is_full(), "no room was made");
        let held = self.held.entry(network).or_default();
        held.insert(number, one);
        let crowd = self.crowds.entry(network.site()).or_insert_with(|| Crowd {
            numbers: BTreeSet::new(),
            networks: Sizes::new(),
        });
        crowd.numbers.insert(number);
        crowd.networks.set(network, size(held));
        self.sites.set(network.site(), crowd.size());
        self.taken += 1;
    }

    /// The connection that leaves if another needs a place.
    #[must_use]
    pub fn next_evicted(&self) -> Option<(Network, u64)> {
        let site = self.sites.largest()?;
        let network = self.crowds.get(&site)?.networks.largest()?;
        let (&oldest, _) = self.held.get(&network)?.first_key_value()?;
        Some((network, oldest))
    }

    /// The connection that holds a place.
    #[must_use]
    pub fn get(&self, network: Network, number: u64) -> Option<&T> {
        self.held.get(&network)?.get(&number)
    }

    /// Frees a place, if it is taken.
    pub fn free(&mut self, network: Network, number: u64) -> Option<T> {
        let held = self.held.get_mut(&network)?;
        let one = held.remove(&number)?;
        self.taken -= 1;
        let site = network.site();
        if let Some(crowd) = self.crowds.get_mut(&site) {
            crowd.numbers.remove(&number);
            crowd.networks.set(network, size(held));
            let size = crowd.size();
            self.sites.set(site, size);
            if size.is_none() {
                self.crowds.remove(&site);
            }
        }
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

    /// Takes a place, and returns who was evicted for it.
    fn take<T>(places: &mut Places<T>, network: Network, number: u64, one: T) -> Option<(u64, T)> {
        let mut evicted = None;
        if places.is_full()
            && let Some((network, number)) = places.next_evicted()
        {
            evicted = places.free(network, number).map(|one| (number, one));
        }
        places.take(network, number, one);
        evicted
    }

    #[test]
    fn the_oldest_makes_room() {
        let mut places = Places::new(2);
        assert_eq!(take(&mut places, host(1), 1, "one"), None);
        assert_eq!(take(&mut places, host(1), 2, "two"), None);
        assert_eq!(take(&mut places, host(1), 3, "three"), Some((1, "one")));
        // A connection that has gone leaves room.
        assert_eq!(places.free(host(1), 2), Some("two"));
        assert_eq!(places.free(host(1), 2), None);
        assert_eq!(take(&mut places, host(1), 4, "four"), None);
        assert_eq!(places.get(host(1), 3), Some(&"three"));
    }

    #[test]
    fn one_place_is_always_available() {
        let mut places = Places::new(0);
        assert_eq!(take(&mut places, host(1), 1, ()), None);
        assert_eq!(take(&mut places, host(1), 2, ()), Some((1, ())));
    }

    #[test]
    fn an_address_evicts_its_own_before_others() {
        let mut places = Places::new(8);
        for number in 0..3 {
            assert_eq!(take(&mut places, host(number), u64::from(number), ()), None);
        }
        for number in 10..100 {
            let evicted = take(&mut places, host(9), number, ());
            assert!(evicted.is_none_or(|(number, ())| number >= 10));
        }
        assert_eq!(places.held[&host(9)].len(), 5);
    }

    #[test]
    fn among_equal_crowds_the_oldest_goes_whatever_its_address() {
        let mut places = Places::new(3);
        for (number, address) in [(1, 5), (2, 9), (3, 1)] {
            assert_eq!(take(&mut places, host(address), number, ()), None);
        }
        assert_eq!(take(&mut places, host(7), 4, ()), Some((1, ())));
        assert_eq!(take(&mut places, host(8), 5, ()), Some((2, ())));
    }

    #[test]
    fn many_networks_of_one_site_evict_their_own() {
        let mut places = Places::new(6);
        let other = network("2001:db8:1::1");
        let neighbour = network("2001:db8:2:ffff::1");
        take(&mut places, other, 0, ());
        take(&mut places, host(1), 1, ());
        take(&mut places, neighbour, 2, ());
        for number in 3..100 {
            // Each from a network of its own, all of one site.
            let own = network(&format!("2001:db8:2:{number}::1"));
            take(&mut places, own, number, ());
        }
        assert!(places.held.contains_key(&other) && places.held.contains_key(&host(1)));
        // Within a site, the network with the most places loses.
        let mut places = Places::new(6);
        take(&mut places, neighbour, 0, ());
        for number in 1..100 {
            take(&mut places, network("2001:db8:2:1::1"), number, ());
        }
        assert!(places.held.contains_key(&neighbour));
    }

    #[test]
    fn the_second_half_of_an_address_and_a_mapped_one_make_no_other_network() {
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("::ffff:10.0.0.1"), network("10.0.0.1"));
        assert_ne!(network("10.0.0.1"), network("10.0.0.2"));
        let site = |text| network(text).site();
        assert_eq!(site("2001:db8::1"), site("2001:db8:0:1::1"));
        assert_ne!(site("2001:db8::1"), site("2001:db8:1::1"));
    }

    /// Sizes counted anew.
    fn counted<K: Copy + Eq + Hash>(
        places: &Places<()>,
        key: impl Fn(Network) -> K,
    ) -> HashMap<K, Size> {
        let mut counted: HashMap<K, Size> = HashMap::new();
        for (&network, held) in &places.held {
            for &number in held.keys() {
                let one = counted.entry(key(network)).or_insert((0, Reverse(number)));
                *one = (one.0 + 1, one.1.max(Reverse(number)));
            }
        }
        counted
    }

    proptest! {
        #[test]
        fn places_agree_with_their_crowds(
            limit in 1usize..6,
            acts in prop::collection::vec((any::<bool>(), 0u8..6), 0..80),
        ) {
            let address = |who: u8| network(&format!("2001:db8:{}:{}::1", who / 3, who % 3));
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
                        if let Some((evicted, ())) = take(&mut places, address(who), number, ()) {
                            inside.retain(|&(_, number)| number != evicted);
                        }
                        inside.push((address(who), number));
                    }
                }
                let held: usize = places.held.values().map(BTreeMap::len).sum();
                prop_assert!(held == places.taken && held == inside.len() && held <= limit);
                prop_assert_eq!(&counted(&places, Network::site), &places.sites.of);
                prop_assert_eq!(places.sites.of.len(), places.sites.ordered.len());
                let mut networks = HashMap::new();
                for crowd in places.crowds.values() {
                    prop_assert_eq!(crowd.networks.of.len(), crowd.networks.ordered.len());
                    networks.extend(&crowd.networks.of);
                }
                let counted = counted(&places, |network| network);
                prop_assert_eq!(counted.iter().collect::<HashMap<_, _>>(), networks);
            }
        }
    }
}
