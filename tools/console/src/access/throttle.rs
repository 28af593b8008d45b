//! Slows down those who guess passwords: counts failures of a name at an address, of an address
//! with any names, and of a device.
//!
//! After some failures such a key is locked, for a minute first, then twice as long with each
//! further failure up to [`LOCK_MAX`]. A locked one is refused before any password is looked at,
//! the right one included. [`FORGET`] after the last failure all is forgotten; a sign-in that
//! succeeds forgets its name at this address, or its device.
//!
//! - I1: the memory is bounded: of more than [`KEYS_MAX`] keys of a table the one whose last
//!   failure is oldest is forgotten, and of a name [`NAME_MAX`] characters are kept.
//! - I2: a try counts as a failure from its beginning until it has succeeded, so that many at once
//!   get no more tries than one after the other.
//! - I3: failures of unknown devices lock no known one: its tries are counted by itself alone. A
//!   client that guesses from many addresses has [`NAME_FAILURES`] tries at each.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::device::Device;
use crate::error::ApiError;

/// First lock.
const LOCK: Duration = Duration::from_secs(60);
/// Longest lock.
const LOCK_MAX: Duration = Duration::from_secs(15 * 60);
/// Time after the last failure until all are forgotten.
const FORGET: Duration = Duration::from_secs(30 * 60);
/// Most keys of a table.
const KEYS_MAX: usize = 4096;
/// Characters of a name that count. No user has a longer one.
const NAME_MAX: usize = 64;
/// Failures of one name at one address, or of one device, until it is locked.
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
    fn locked(&self, key: &K, now: Instant) -> Option<Duration> {
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

    fn take_back(&mut self, key: &K) {
        if let Some(entry) = self.failures.get_mut(key) {
            entry.count = entry.count.saturating_sub(1);
            if entry.count < self.limit {
                entry.locked_until = None;
            }
        }
    }
}

/// A folded name at an address.
type Pair = (String, IpAddr);

/// The failures of unknown and of known devices.
#[derive(Debug)]
pub(crate) struct Throttle {
    pairs: Mutex<Table<Pair>>,
    addresses: Mutex<Table<IpAddr>>,
    devices: Mutex<Table<Device>>,
}

/// Whose failure a try is.
#[derive(Debug)]
enum Trier {
    Stranger(Pair),
    Known(Device),
}

/// A try that counts as a failure until it has succeeded.
#[derive(Debug)]
pub(crate) struct Try<'a> {
    throttle: &'a Throttle,
    trier: Trier,
    /// Whether this failure, if it is one, locks who tries.
    pub(crate) locks: bool,
}

fn locked(left: Duration) -> ApiError {
    let seconds = left.as_secs() + 1;
    let message = format!("too many wrong passwords: try again in {seconds} s");
    let status = axum::http::StatusCode::TOO_MANY_REQUESTS;
    ApiError::new(status, "locked", message).after(left)
}

impl Throttle {
    /// Nothing has failed.
    pub(crate) fn new() -> Self {
        Self {
            pairs: Mutex::new(Table::new(NAME_FAILURES)),
            addresses: Mutex::new(Table::new(ADDRESS_FAILURES)),
            devices: Mutex::new(Table::new(NAME_FAILURES)),
        }
    }

    /// Begins a try with a folded name from an address, or from a device that is known to be one
    /// of the user of this name.
    ///
    /// # Errors
    /// The name at this address or the address is locked, or of a known device the device.
    pub(crate) fn begin(
        &self,
        name: &str,
        address: IpAddr,
        device: Option<Device>,
    ) -> Result<Try<'_>, ApiError> {
        let now = Instant::now();
        match device {
            Some(device) => self.begin_known(device, now),
            None => self.begin_at(name, network(address), now),
        }
    }

    fn begin_known(&self, device: Device, now: Instant) -> Result<Try<'_>, ApiError> {
        let mut devices = self.devices.lock();
        if let Some(left) = devices.locked(&device, now) {
            return Err(locked(left));
        }
        Ok(Try {
            throttle: self,
            locks: devices.add(device, now),
            trier: Trier::Known(device),
        })
    }

    fn begin_at(&self, name: &str, address: IpAddr, now: Instant) -> Result<Try<'_>, ApiError> {
        let pair: Pair = (name.chars().take(NAME_MAX).collect(), address);
        let mut pairs = self.pairs.lock();
        let mut addresses = self.addresses.lock();
        let locks = [pairs.locked(&pair, now), addresses.locked(&address, now)];
        if let Some(left) = locks.into_iter().flatten().max() {
            return Err(locked(left));
        }
        let locks_pair = pairs.add(pair.clone(), now);
        let locks_address = addresses.add(address, now);
        Ok(Try {
            throttle: self,
            trier: Trier::Stranger(pair),
            locks: locks_pair || locks_address,
        })
    }
}

impl Try<'_> {
    /// The password was right: the name at this address or the device starts anew, and the address
    /// has one failure less.
    pub(crate) fn succeed(self) {
        match &self.trier {
            Trier::Stranger(pair) => {
                self.throttle.pairs.lock().failures.remove(pair);
                self.throttle.addresses.lock().take_back(&pair.1);
            }
            Trier::Known(device) => {
                self.throttle.devices.lock().failures.remove(device);
            }
        }
    }

    /// The password was not looked at: the try does not count.
    pub(crate) fn give_up(self) {
        match &self.trier {
            Trier::Stranger(pair) => {
                self.throttle.pairs.lock().take_back(pair);
                self.throttle.addresses.lock().take_back(&pair.1);
            }
            Trier::Known(device) => self.throttle.devices.lock().take_back(device),
        }
    }
}

/// What counts as one address: of IPv6 the network of 64 bits, which one host chooses from. The
/// address of this machine itself stays.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let bits = address.to_bits() & (u128::MAX << 64);
            IpAddr::V6(bits.into())
        }
        address => address,
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
    fn a_name_is_locked_at_one_address() {
        let throttle = Throttle::new();
        let now = Instant::now();
        for _ in 0..NAME_FAILURES {
            fail(&throttle, "ann", HERE, now).unwrap();
        }
        fail(&throttle, "ann", HERE, now).unwrap_err();
        fail(&throttle, "ann", "192.0.2.1".parse().unwrap(), now).unwrap();
    }

    #[test]
    fn strangers_lock_no_device_and_a_device_locks_itself() {
        let throttle = Throttle::new();
        let mut now = Instant::now();
        let [one, other] = ["one", "other"].map(Device::of);
        for number in 0..ADDRESS_FAILURES {
            fail(&throttle, &format!("name {}", number / 4), HERE, now).unwrap();
        }
        fail(&throttle, "ann", HERE, now).unwrap_err();
        for _ in 0..NAME_FAILURES - 1 {
            assert!(!throttle.begin_known(one, now).unwrap().locks);
        }
        throttle.begin_known(one, now).unwrap().give_up();
        assert!(throttle.begin_known(one, now).unwrap().locks);
        assert_eq!(throttle.begin_known(one, now).unwrap_err().code(), "locked");
        throttle.begin_known(other, now).unwrap().succeed();
        now += LOCK;
        throttle.begin_known(one, now).unwrap().succeed();
        assert!(throttle.devices.lock().failures.is_empty());
    }

    #[test]
    fn of_a_name_its_first_characters_count() {
        let throttle = Throttle::new();
        let now = Instant::now();
        for number in 0..NAME_FAILURES {
            let name = format!("{}{number}", "字".repeat(NAME_MAX));
            fail(&throttle, &name, HERE, now).unwrap();
        }
        fail(&throttle, &"字".repeat(1 << 16), HERE, now).unwrap_err();
        let pairs = throttle.pairs.lock();
        assert!(
            pairs
                .failures
                .keys()
                .all(|(name, _)| name.chars().count() == NAME_MAX)
        );
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
        assert!(last.locks);
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
        assert_eq!(throttle.pairs.lock().failures.len(), KEYS_MAX);
        assert_eq!(throttle.addresses.lock().failures.len(), KEYS_MAX);
    }

    #[test]
    fn a_host_does_not_escape_by_its_other_addresses() {
        let one = network("2001:db8::1".parse().unwrap());
        assert_eq!(one, network("2001:db8::ffff:2".parse().unwrap()));
        assert_ne!(one, network("2001:db8:0:1::1".parse().unwrap()));
        assert!(network("::1".parse().unwrap()).is_loopback());
        assert_eq!(
            network("::ffff:192.0.2.1".parse().unwrap()),
            "192.0.2.1".parse::<IpAddr>().unwrap()
        );
    }
}
