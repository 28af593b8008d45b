//! Who has guessed passwords, and how long it waits for it (`turn/password_delays.rs`).
//!
//! After a wrong password nothing of the connection is received or run for a while, which doubles
//! each time. And while an address fails often, each password from there waits before it is looked
//! at, so that a connection for each guess is no way around. Both are bounded, so a right password
//! is served from any address. A delay is a time in a set: it holds no thread and no core.
//!
//! - I1: a connection that waits is in `Delays` with the time that it has in its `Guesses`.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use farcore_rdma::Network;

/// The delay after the first wrong password of a connection; each later one doubles it.
const DELAY_FIRST: Duration = Duration::from_millis(10);
/// The longest delay of a connection.
const DELAY_MAX: Duration = Duration::from_secs(5);
/// Wrong passwords of an address that delay no other connection.
const FREE_FAILURES: u32 = 8;
/// How much each further one delays those from there.
const DELAY_A_FAILURE: Duration = Duration::from_millis(2);
/// The longest delay of an address.
const ADDRESS_DELAY_MAX: Duration = Duration::from_secs(1);
/// Time in which half of an address's failures are forgotten.
const HALF_LIFE: Duration = Duration::from_secs(10);
/// Addresses that are kept; of more, the one that failed longest ago is forgotten.
const ADDRESSES_MAX: usize = 4096;

#[derive(Clone, Copy, Debug)]
struct Failing {
    failures: u32,
    at: Instant,
}

impl Failing {
    /// The failures that count now.
    fn at(self, now: Instant) -> u32 {
        let passed = now.saturating_duration_since(self.at).as_secs() / HALF_LIFE.as_secs();
        let halvings = u32::try_from(passed).unwrap_or(u32::MAX);
        self.failures.checked_shr(halvings).unwrap_or(0)
    }
}

/// The addresses that have given wrong passwords lately, of all cores.
#[derive(Debug, Default)]
pub(crate) struct FailingAddresses {
    is_any: AtomicBool,
    by_network: Mutex<HashMap<Network, Failing>>,
}

impl FailingAddresses {
    /// Notes a wrong password.
    pub(crate) fn note(&self, network: Network, now: Instant) {
        let all = self.by_network.lock();
        let mut all = all.unwrap_or_else(PoisonError::into_inner);
        if all.len() >= ADDRESSES_MAX && !all.contains_key(&network) {
            all.retain(|_, failing| failing.at(now) > 0);
            let oldest = all.iter().min_by_key(|(_, failing)| failing.at);
            if let Some(oldest) = oldest.map(|(network, _)| *network)
                && all.len() >= ADDRESSES_MAX
            {
                all.remove(&oldest);
            }
        }
        let failing = all.entry(network).or_insert(Failing {
            failures: 0,
            at: now,
        });
        *failing = Failing {
            failures: failing.at(now).saturating_add(1),
            at: now,
        };
        // ORDERING: relaxed; the map is behind its lock, and a delay that is missed once is no
        // harm.
        self.is_any.store(true, Ordering::Relaxed);
    }

    /// How long a password from there waits.
    pub(crate) fn delay(&self, network: Network, now: Instant) -> Duration {
        // ORDERING: relaxed; see `note`.
        if !self.is_any.load(Ordering::Relaxed) {
            return Duration::ZERO;
        }
        let all = self.by_network.lock();
        let all = all.unwrap_or_else(PoisonError::into_inner);
        let failures = all.get(&network).map_or(0, |failing| failing.at(now));
        let counted = failures.saturating_sub(FREE_FAILURES);
        DELAY_A_FAILURE
            .saturating_mul(counted)
            .min(ADDRESS_DELAY_MAX)
    }
}

/// The delay after `failures` wrong passwords of one connection.
pub(crate) fn delay_after(failures: u32) -> Duration {
    let doubled = 1_u32
        .checked_shl(failures.saturating_sub(1))
        .unwrap_or(u32::MAX);
    DELAY_FIRST.saturating_mul(doubled).min(DELAY_MAX)
}

/// What a connection has guessed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Guesses {
    pub(crate) failures: u32,
    /// Until when it waits, in milliseconds since 1970.
    pub(crate) until_ms: Option<u64>,
    /// It has waited, so that its next password is looked at.
    pub(crate) has_waited: bool,
}

impl Guesses {
    pub(crate) fn waits(&self) -> bool {
        self.until_ms.is_some()
    }
}

/// Connections that wait, by time.
#[derive(Debug, Default)]
pub(crate) struct Delays(pub(crate) BTreeSet<(u64, usize)>);

impl Delays {
    /// When the next delay ends, in milliseconds since 1970.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.0.first().map(|&(until_ms, _)| until_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(number: u32) -> Network {
        Network::of(std::net::Ipv4Addr::from(number).into())
    }

    #[test]
    fn a_connection_waits_twice_as_long_each_time_up_to_a_limit() {
        let delays: Vec<_> = (1..4).map(|count| delay_after(count).as_millis()).collect();
        assert_eq!(delays, [10, 20, 40]);
        for failures in [10, 31, 32, 33, 64, u32::MAX] {
            assert_eq!(delay_after(failures), DELAY_MAX);
        }
    }

    #[test]
    fn an_address_that_fails_often_is_delayed_others_are_not_and_it_is_forgotten() {
        let (all, now) = (FailingAddresses::default(), Instant::now());
        for _ in 0..FREE_FAILURES {
            all.note(host(1), now);
        }
        assert_eq!(all.delay(host(1), now), Duration::ZERO);
        all.note(host(1), now);
        assert_eq!(all.delay(host(1), now), DELAY_A_FAILURE);
        for _ in 0..1_000_000 {
            all.note(host(1), now);
        }
        assert_eq!(all.delay(host(1), now), ADDRESS_DELAY_MAX);
        assert_eq!(all.delay(host(2), now), Duration::ZERO);
        assert_eq!(all.delay(host(1), now + 40 * HALF_LIFE), Duration::ZERO);
    }

    #[test]
    fn addresses_are_bounded_and_the_one_that_failed_longest_ago_is_forgotten() {
        let (all, start) = (FailingAddresses::default(), Instant::now());
        for number in 0..2 * 4096_u32 {
            all.note(
                host(number),
                start + Duration::from_micros(u64::from(number)),
            );
        }
        let kept = all.by_network.lock().unwrap();
        assert_eq!(kept.len(), ADDRESSES_MAX);
        assert!(!kept.contains_key(&host(0)) && kept.contains_key(&host(8191)));
    }
}
