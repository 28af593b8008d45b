//! Connections that have not proved what the server wants of its clients: the password, or, where
//! none is set and clients must show a certificate, that one.
//!
//! ```text
//! accepted -> unauthenticated -> AUTH, HELLO with AUTH, or the end of the handshake -> a client
//!                    '-- evicted for the next one or for memory, or late
//! ```
//!
//! What a core does about them stands in `turn/admitting.rs`.
//!
//! They are many and worth little, so they never cost a client anything:
//!
//! - I1: their memory is counted in `bytes`, and not in that of the clients. It is at most
//!   `bytes_max` at the end of a turn: above it only they are evicted, first the one that takes
//!   most.
//! - I2: a part of the places of clients is out of their reach. When theirs are taken, one makes
//!   room for the next: the oldest of the network with the most ([`Places`]).
//! - I3: one whose bytes have arrived is spared once, so that they are looked at.
//! - I4: while a reply to one is not sent, nothing more of it is received or run.
//! - I5: one that has not proved anything in `Options::authentication_limit` is closed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use farcore_rdma::{Network, Places};

use crate::options::Options;

/// Their share of the memory for clients: one of this many parts.
const MEMORY_PARTS: usize = 16;
/// The least share of a core: a few handshakes of encrypted connections.
const MEMORY_BYTES_MIN: usize = 128 << 10;
/// The part of the places for clients that is out of their reach: one of this many parts.
const PLACES_PARTS: usize = 8;
/// Bytes that are received at once from one.
pub(crate) const RECEIVE_BYTES: usize = 4 << 10;

/// What a core's unauthenticated connections may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Shares {
    pub(crate) places: usize,
    pub(crate) bytes: usize,
    /// Memory that is left for clients.
    pub(crate) client_bytes: usize,
}

impl Shares {
    /// Those of one core of `cores`.
    pub(crate) fn of(options: &Options, cores: usize) -> Self {
        let all = options.client_bytes / cores.max(1);
        if !options.has_unauthenticated() {
            return Self {
                places: 1,
                bytes: 0,
                client_bytes: all,
            };
        }
        let kept = (options.clients_max / PLACES_PARTS).max(1);
        let bytes = (all / MEMORY_PARTS).max(MEMORY_BYTES_MIN).min(all / 2);
        Self {
            places: (options.clients_max.saturating_sub(kept) / cores.max(1)).max(1),
            bytes,
            client_bytes: all - bytes,
        }
    }
}

/// A connection among the unauthenticated ones.
#[derive(Debug)]
pub(crate) struct Stay {
    network: Network,
    /// Its number among all, which is greater the later it came, and that of its place, which is
    /// greater if it was spared.
    arrival: u64,
    number: u64,
    bytes: usize,
    pub(crate) is_spared: bool,
}

/// The unauthenticated connections of a core.
#[derive(Debug)]
pub(crate) struct Unauthenticated {
    /// The numbers of the connections.
    places: Places<usize>,
    /// When each came, and its connection.
    by_age: BTreeMap<u64, (Instant, usize)>,
    /// The oldest of those that take most is last.
    by_bytes: BTreeSet<(usize, Reverse<u64>)>,
    bytes: usize,
    bytes_max: usize,
    next: u64,
}

impl Unauthenticated {
    pub(crate) fn new(shares: Shares) -> Self {
        Self {
            places: Places::new(shares.places),
            by_age: BTreeMap::new(),
            by_bytes: BTreeSet::new(),
            bytes: 0,
            bytes_max: shares.bytes,
            next: 0,
        }
    }

    /// True if they take more than their share.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.bytes > self.bytes_max
    }

    /// True if no place is left.
    pub(crate) fn is_full(&self) -> bool {
        self.places.is_full()
    }

    /// Bytes that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes a place for a connection. The caller has made room.
    pub(crate) fn enter(&mut self, peer: SocketAddr, connection: usize, since: Instant) -> Stay {
        let network = Network::of(peer.ip());
        self.next += 1;
        let number = self.next;
        self.places.take(network, number, connection);
        self.by_age.insert(number, (since, connection));
        self.by_bytes.insert((0, Reverse(number)));
        Stay {
            network,
            arrival: number,
            number,
            bytes: 0,
            is_spared: false,
        }
    }

    /// Notes how many bytes one takes.
    pub(crate) fn note_bytes(&mut self, stay: &mut Stay, bytes: usize) {
        if stay.bytes != bytes {
            self.by_bytes.remove(&(stay.bytes, Reverse(stay.arrival)));
            self.by_bytes.insert((bytes, Reverse(stay.arrival)));
            self.bytes = self.bytes + bytes - stay.bytes;
            stay.bytes = bytes;
        }
    }

    pub(crate) fn leave(&mut self, stay: &Stay) {
        self.places.free(stay.network, stay.number);
        self.by_age.remove(&stay.arrival);
        self.by_bytes.remove(&(stay.bytes, Reverse(stay.arrival)));
        self.bytes -= stay.bytes;
    }

    /// Has the place of one be as if it had come now.
    pub(crate) fn renew(&mut self, stay: &mut Stay) {
        if let Some(connection) = self.places.free(stay.network, stay.number) {
            self.next += 1;
            stay.number = self.next;
            self.places.take(stay.network, stay.number, connection);
        }
    }

    /// The connection that makes room for the next.
    pub(crate) fn next_for_place(&self) -> Option<usize> {
        let (network, number) = self.places.next_evicted()?;
        self.places.get(network, number).copied()
    }

    /// The connection that is evicted for memory: the one that takes most, unless all take about
    /// the same.
    pub(crate) fn next_for_memory(&self) -> Option<usize> {
        let (least, _) = self.by_bytes.first()?;
        let (most, Reverse(number)) = self.by_bytes.last()?;
        if *most > 2 * least {
            return self.by_age.get(number).map(|&(_, connection)| connection);
        }
        self.next_for_place()
    }

    /// A connection that came longer ago than this.
    pub(crate) fn late(&self, limit: Duration) -> Option<usize> {
        let (_, (since, connection)) = self.by_age.first_key_value()?;
        (since.elapsed() > limit).then_some(*connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(host: u8) -> SocketAddr {
        ([10, 0, 0, host], 1).into()
    }

    fn few() -> Unauthenticated {
        Unauthenticated::new(Shares {
            places: 3,
            bytes: 1000,
            client_bytes: 0,
        })
    }

    #[test]
    fn shares_add_up_and_leave_places_to_clients() {
        let mut options = Options::new(([127, 0, 0, 1], 0).into());
        options.client_bytes = 16 << 20;
        let none = Shares::of(&options, 2);
        assert_eq!((none.bytes, none.client_bytes), (0, 8 << 20));
        options.password = Some("secret".to_owned().into());
        let some = Shares::of(&options, 2);
        assert_eq!(some.bytes, 512 << 10);
        assert_eq!(some.bytes + some.client_bytes, 8 << 20);
        assert_eq!(some.places, (options.clients_max - 1250) / 2);
        for (clients_max, client_bytes, cores) in [(1, 1 << 20, 64), (2, 1, 1), (9, 1 << 20, 2)] {
            (options.clients_max, options.client_bytes) = (clients_max, client_bytes);
            let some = Shares::of(&options, cores);
            assert!(some.places >= 1, "a client can come in");
            assert_eq!(some.bytes + some.client_bytes, client_bytes / cores);
        }
    }

    #[test]
    fn the_one_that_takes_most_is_evicted_for_memory_and_of_equals_the_oldest() {
        let (mut all, now) = (few(), Instant::now());
        let mut stays: Vec<_> = (0..3).map(|at| all.enter(peer(1), at, now)).collect();
        for stay in &mut stays {
            all.note_bytes(stay, 100);
        }
        assert_eq!(all.next_for_memory(), Some(0));
        all.note_bytes(&mut stays[1], 900);
        assert_eq!((all.next_for_memory(), all.bytes()), (Some(1), 1100));
        assert_eq!(all.next_for_place(), Some(0));
        for stay in &stays {
            all.leave(stay);
        }
        assert_eq!((all.bytes(), all.next_for_place()), (0, None));
        assert!(all.by_age.is_empty() && all.by_bytes.is_empty());
    }

    #[test]
    fn the_oldest_is_late_first() {
        let mut all = few();
        let first = all.enter(peer(1), 7, Instant::now());
        let _second = all.enter(peer(2), 8, Instant::now());
        assert_eq!(all.late(Duration::from_hours(1)), None);
        assert_eq!(all.late(Duration::ZERO), Some(7));
        all.leave(&first);
        assert_eq!(all.late(Duration::ZERO), Some(8));
    }
}
