//! Slows down those who guess passwords: counts failures by name and by address.
//!
//! After [`Rule::failures`] failures a name or an address is locked, for a minute first, then twice
//! as long with each further failure up to [`LOCK_MAX`]. A locked one is refused before any
//! password is looked at, the right one included. [`FORGET`] after the last failure all is
//! forgotten; a sign-in that succeeds forgets its name.
//!
//! - I1: the memory is bounded: of more than [`KEYS_MAX`] names or addresses the one whose last
//!   failure is oldest is forgotten.
//! - I2: a try counts as a failure from its beginning until it has succeeded, so that many at once
//!   get no more tries than one after the other.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::ApiError;

/// First lock.
const LOCK: Duration = Duration::from_secs(60);
/// Longest lock.
const LOCK_MAX: Duration = Duration::from_secs(15 * 60);
/// Failures are forgotten so long after the last one.
const FORGET: Duration = Duration::from_secs(30 * 60);
/// Most names, and most addresses, that are remembered.
const KEYS_MAX: usize = 4096;
/// Failures of one name until it is locked.
const NAME_FAILURES: u32 = 5;
/// Failures of one address, with any names.
const ADDRESS_FAILURES: u32 = 20;

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Instant,
    locked_until: Option<Instant>,
}

#[derive(Debug)]
struct Table<K> {
    limit: u32,
    failures: HashMap<K, Failures>,
}

impl<K: Hash + Eq + Clone> Table<K> {
    fn new(limit: u32) -> Self {
        Self {
            limit,
            failures: HashMap::new(),
        }
    }

    /// How long a key is locked yet.
    fn locked<Q>(&self, key: &Q, now: Instant) -> Option<Duration>
    where
        K: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let until = self.failures.get(key)?.locked_until?;
        until
            .checked_duration_since(now)
            .filter(|left| !left.is_zero())
    }

    /// Counts a failure; true if it locks the key.
    fn add(&mut self, key: K, now: Instant) -> bool {
        self.failures
            .retain(|_, one| now.duration_since(one.last) < FORGET);
        if self.failures.len() >= KEYS_MAX && !self.failures.contains_key(&key) {
            let oldest = self.failures.iter().min_by_key(|(_, one)| one.last);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.failures.remove(&oldest);
            }
        }
        let entry = self.failures.entry(key).or_insert(Failures {
            count: 0,
            last: now,
            locked_until: None,
        });
        entry.count = entry.count.saturating_add(1);
        entry.last = now;
        let beyond = entry.count.checked_sub(self.limit);
        if let Some(beyond) = beyond {
            let time = LOCK.saturating_mul(1 << beyond.min(16)).min(LOCK_MAX);
            entry.locked_until = Some(now + time);
        }
        beyond == Some(0)
    }

    fn take_back<Q>(&mut self, key: &Q)
    where
        K: std::borrow::Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        if let Some(entry) = self.failures.get_mut(key) {
            entry.count = entry.count.saturating_sub(1);
            if entry.count < self.limit {
                entry.locked_until = None;
            }
        }
    }
}

/// The failures of names and addresses.
#[derive(Debug)]
pub(crate) struct Throttle {
    names: Mutex<Table<String>>,
    addresses: Mutex<Table<IpAddr>>,
}

/// A try that counts as a failure until it has succeeded.
#[derive(Debug)]
pub(crate) struct Try<'a> {
    throttle: &'a Throttle,
    name: String,
    address: IpAddr,
    /// Whether this failure, if it is one, locks the name.
    pub(crate) locks_name: bool,
    /// Whether it locks the address.
    pub(crate) locks_address: bool,
}

impl Throttle {
    /// Nothing has failed.
    pub(crate) fn new() -> Self {
        Self {
            names: Mutex::new(Table::new(NAME_FAILURES)),
            addresses: Mutex::new(Table::new(ADDRESS_FAILURES)),
        }
    }

    /// Begins a try with a folded name from an address.
    ///
    /// # Errors
    /// One of them is locked.
    pub(crate) fn begin(&self, name: &str, address: IpAddr) -> Result<Try<'_>, ApiError> {
        self.begin_at(name, network(address), Instant::now())
    }

    fn begin_at(&self, name: &str, address: IpAddr, now: Instant) -> Result<Try<'_>, ApiError> {
        let mut names = self.names.lock();
        let mut addresses = self.addresses.lock();
        let locks = [names.locked(name, now), addresses.locked(&address, now)];
        if let Some(left) = locks.into_iter().flatten().max() {
            let seconds = left.as_secs() + 1;
            let message = format!("too many wrong passwords: try again in {seconds} s");
            let status = axum::http::StatusCode::TOO_MANY_REQUESTS;
            return Err(ApiError::new(status, "locked", message).after(left));
        }
        Ok(Try {
            throttle: self,
            locks_name: names.add(name.to_owned(), now),
            locks_address: addresses.add(address, now),
            name: name.to_owned(),
            address,
        })
    }
}

impl Try<'_> {
    /// The password was right: the name starts anew, and the address has one failure less.
    pub(crate) fn succeed(self) {
        self.throttle.names.lock().failures.remove(&self.name);
        self.throttle.addresses.lock().take_back(&self.address);
    }

    /// The password was not looked at: the try does not count.
    pub(crate) fn give_up(self) {
        self.throttle.names.lock().take_back(&self.name);
        self.throttle.addresses.lock().take_back(&self.address);
    }
}

/// What counts as one address: of IPv6 the network of 64 bits, which one host chooses from.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = address.to_bits() & (u128::MAX << 64);
            IpAddr::V6(bits.into())
        }
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn fail(
        throttle: &Throttle,
        name: &str,
        address: IpAddr,
        now: Instant,
    ) -> Result<(), ApiError> {
        throttle.begin_at(name, address, now).map(|_| ())
    }

    #[test]
    fn a_name_is_locked_longer_with_each_failure_and_forgotten() {
        let throttle = Throttle::new();
        let mut now = Instant::now();
        for _ in 0..NAME_FAILURES {
            fail(&throttle, "ann", HERE, now).unwrap();
        }
        assert_eq!(
            fail(&throttle, "ann", HERE, now).unwrap_err().code(),
            "locked"
        );
        fail(&throttle, "bob", HERE, now).unwrap();
        now += LOCK;
        fail(&throttle, "ann", HERE, now).unwrap();
        fail(&throttle, "ann", HERE, now + LOCK).unwrap_err();
        fail(&throttle, "ann", HERE, now + 2 * LOCK).unwrap();
        now += FORGET + 3 * LOCK;
        for _ in 0..NAME_FAILURES {
            fail(&throttle, "ann", HERE, now).unwrap();
        }
    }

    #[test]
    fn an_address_is_locked_whatever_the_names() {
        let throttle = Throttle::new();
        let now = Instant::now();
        for number in 0..ADDRESS_FAILURES {
            fail(&throttle, &number.to_string(), HERE, now).unwrap();
        }
        fail(&throttle, "another", HERE, now).unwrap_err();
        fail(&throttle, "another", "192.0.2.1".parse().unwrap(), now).unwrap();
    }

    #[test]
    fn success_forgets_and_the_last_try_counts_while_it_runs() {
        let throttle = Throttle::new();
        let now = Instant::now();
        for _ in 0..100 {
            throttle.begin_at("ann", HERE, now).unwrap().succeed();
        }
        for _ in 0..NAME_FAILURES - 1 {
            fail(&throttle, "ann", HERE, now).unwrap();
        }
        let last = throttle.begin_at("ann", HERE, now).unwrap();
        assert!(last.locks_name);
        fail(&throttle, "ann", HERE, now).unwrap_err();
        last.give_up();
        fail(&throttle, "ann", HERE, now).unwrap();
    }

    #[test]
    fn memory_is_bounded() {
        let throttle = Throttle::new();
        let now = Instant::now();
        for number in 0..2 * KEYS_MAX {
            let address = IpAddr::V4(u32::try_from(number).unwrap().into());
            fail(&throttle, &number.to_string(), address, now).unwrap();
        }
        assert_eq!(throttle.names.lock().failures.len(), KEYS_MAX);
        assert_eq!(throttle.addresses.lock().failures.len(), KEYS_MAX);
    }

    #[test]
    fn a_host_does_not_escape_by_its_other_addresses() {
        let one = network("2001:db8::1".parse().unwrap());
        assert_eq!(one, network("2001:db8::ffff:2".parse().unwrap()));
        assert_ne!(one, network("2001:db8:0:1::1".parse().unwrap()));
        assert_eq!(
            network("::ffff:192.0.2.1".parse().unwrap()),
            "192.0.2.1".parse::<IpAddr>().unwrap()
        );
    }
}
