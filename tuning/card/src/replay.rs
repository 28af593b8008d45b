//! Replays accesses against one tier and counts exactly: what a policy alone is worth.
//!
//! No time passes and nothing is in flight: an access either finds its key or puts it into the
//! tier. The counts of LRU, FIFO, LFU, CLOCK, SIEVE, S3-FIFO and Belady equal those of libCacheSim
//! to the last miss (`tuning/tests/oracle.rs`).

use serde::{Deserialize, Serialize};

use super::policy::{
    Belady, Clock, Fifo, Hybrid, HybridWeights, Lfu, Lru, NEVER, PolicyName, Replacement, S3Fifo,
    Sieve, Use,
};
use farcore_tuning::{Histogram, HistogramSnapshot};

/// No place.
const ABSENT: u32 = u32::MAX;
/// Points of the series of a replay.
const POINTS: usize = 100;

/// What a replay counted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReplayCounts {
    /// Accesses.
    pub accesses: u64,
    /// Accesses that found their key.
    pub hits: u64,
    /// Accesses that did not.
    pub misses: u64,
    /// Misses of keys that were never accessed before: no policy avoids them.
    pub first: u64,
    /// Keys that left for others.
    pub evictions: u64,
    /// Accesses from a key's insertion to its eviction.
    pub stays: HistogramSnapshot,
    /// Uses of a key from its insertion to its eviction, the first included.
    pub uses: HistogramSnapshot,
    /// The hit ratio of each hundredth of the accesses.
    pub series: Vec<f64>,
}

impl ReplayCounts {
    /// The share of accesses that missed; 0 without accesses.
    #[must_use]
    pub fn miss_ratio(&self) -> f64 {
        self.misses as f64 / self.accesses.max(1) as f64
    }
}

/// Replays accesses to keys, numbered from 0 to `keys`, against a tier of this many places.
///
/// Cost: 4 bytes a key, 40 bytes a place, and for Belady 8 bytes an access.
///
/// # Panics
/// A key is not below `keys`, or there is no place.
#[must_use]
pub fn replay(
    policy: PolicyName,
    places: u32,
    keys: u32,
    accesses: &[u32],
    weights: HybridWeights,
) -> ReplayCounts {
    assert!(places > 0, "a tier has places");
    let mut tier = Tier::new(places, keys, accesses.len());
    // A loop for each policy, so that its calls are inlined.
    match policy {
        PolicyName::Lru => tier.run(Lru::new(places), accesses, |_| NEVER),
        PolicyName::Fifo => tier.run(Fifo::new(places), accesses, |_| NEVER),
        PolicyName::Lfu => tier.run(Lfu::new(places), accesses, |_| NEVER),
        PolicyName::Clock => tier.run(Clock::new(places), accesses, |_| NEVER),
        PolicyName::Sieve => tier.run(Sieve::new(places), accesses, |_| NEVER),
        PolicyName::S3Fifo => tier.run(S3Fifo::new(places, keys), accesses, |_| NEVER),
        PolicyName::Hybrid => tier.run(Hybrid::new(places, weights), accesses, |_| NEVER),
        PolicyName::Belady => {
            let next = super::policy::next_accesses(keys, accesses);
            tier.run(Belady::new(places), accesses, |time| next[time]);
        }
    }
    tier.counts(accesses.len())
}

#[derive(Clone, Copy, Default)]
struct Held {
    key: u32,
    since: u64,
    uses: u64,
}

struct Tier {
    place_of: Vec<u32>,
    held: Vec<Held>,
    places: u32,
    seen: Vec<bool>,
    first: u64,
    hits: u64,
    evictions: u64,
    stays: Histogram,
    uses: Histogram,
    /// Hits up to the end of each point of the series.
    hits_at: Vec<(usize, u64)>,
    every: usize,
}

impl Tier {
    fn new(places: u32, keys: u32, accesses: usize) -> Self {
        Self {
            place_of: vec![ABSENT; keys as usize],
            held: Vec::with_capacity(places as usize),
            places,
            seen: vec![false; keys as usize],
            first: 0,
            hits: 0,
            evictions: 0,
            stays: Histogram::default(),
            uses: Histogram::default(),
            hits_at: Vec::with_capacity(POINTS + 1),
            every: accesses.div_ceil(POINTS).max(1),
        }
    }

    fn run<R: Replacement>(
        &mut self,
        mut policy: R,
        accesses: &[u32],
        next: impl Fn(usize) -> u64,
    ) {
        let mut done = 0;
        for part in accesses.chunks(self.every) {
            for &key in part {
                let access = Use {
                    key,
                    time: done as u64,
                    next: next(done),
                };
                done += 1;
                let place = self.place_of[key as usize];
                if place == ABSENT {
                    self.miss(&mut policy, access);
                } else {
                    self.hits += 1;
                    self.held[place as usize].uses += 1;
                    policy.hit(place, access);
                }
            }
            self.hits_at.push((part.len(), self.hits));
        }
    }

    fn miss<R: Replacement>(&mut self, policy: &mut R, access: Use) {
        let key = access.key as usize;
        if !std::mem::replace(&mut self.seen[key], true) {
            self.first += 1;
        }
        policy.missed(access.key);
        let held = Held {
            key: access.key,
            since: access.time,
            uses: 1,
        };
        let place = if self.held.len() < self.places as usize {
            self.held.push(held);
            // Below the number of places.
            u32::try_from(self.held.len() - 1).unwrap_or(ABSENT)
        } else {
            let Some(place) = policy.victim() else {
                unreachable!("a full tier has a victim");
            };
            let left = std::mem::replace(&mut self.held[place as usize], held);
            self.place_of[left.key as usize] = ABSENT;
            self.evictions += 1;
            self.stays.record(access.time - left.since);
            self.uses.record(left.uses);
            place
        };
        self.place_of[key] = place;
        policy.insert(place, access);
    }

    fn counts(&self, accesses: usize) -> ReplayCounts {
        let mut before = 0;
        let series = self.hits_at.iter().map(|&(count, hits)| {
            let ratio = (hits - before) as f64 / count as f64;
            before = hits;
            ratio
        });
        ReplayCounts {
            accesses: accesses as u64,
            hits: self.hits,
            misses: accesses as u64 - self.hits,
            first: self.first,
            evictions: self.evictions,
            stays: self.stays.snapshot(),
            uses: self.uses.snapshot(),
            series: series.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn misses(policy: PolicyName, places: u32, accesses: &[u32]) -> u64 {
        replay(policy, places, 64, accesses, HybridWeights::default()).misses
    }

    #[test]
    fn counts_add_up() {
        let accesses = [0, 1, 2, 0, 3, 0, 1];
        let counts = replay(PolicyName::Lru, 3, 4, &accesses, HybridWeights::default());
        assert_eq!((counts.accesses, counts.hits, counts.misses), (7, 2, 5));
        assert_eq!((counts.first, counts.evictions), (4, 2));
        assert_eq!(counts.stays.count(), 2);
        assert_eq!(counts.series.len(), 7);
        let empty = replay(PolicyName::Belady, 3, 4, &[], HybridWeights::default());
        assert_eq!((empty.misses, empty.miss_ratio()), (0, 0.0));
    }

    /// Fewest misses of any sequence of evictions, by trying all.
    fn fewest(places: usize, accesses: &[u32], held: &[u32]) -> u64 {
        let Some((&key, rest)) = accesses.split_first() else {
            return 0;
        };
        if held.contains(&key) {
            return fewest(places, rest, held);
        }
        let mut with: Vec<u32> = held.to_vec();
        with.push(key);
        if with.len() <= places {
            return 1 + fewest(places, rest, &with);
        }
        let without = (0..held.len()).map(|at| {
            let mut kept = with.clone();
            kept.remove(at);
            fewest(places, rest, &kept)
        });
        1 + without.min().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn belady_is_the_least_of_all(accesses in proptest::collection::vec(0..5_u32, 1..12)) {
            let least = fewest(2, &accesses, &[]);
            prop_assert_eq!(misses(PolicyName::Belady, 2, &accesses), least);
        }

        #[test]
        fn no_policy_is_better_than_belady(accesses in proptest::collection::vec(0..64_u32, 1..600), places in 1..40_u32) {
            let bound = misses(PolicyName::Belady, places, &accesses);
            for policy in PolicyName::ALL {
                let counts = replay(policy, places, 64, &accesses, HybridWeights::default());
                prop_assert!(counts.misses >= bound, "{policy}");
                prop_assert!(counts.misses >= counts.first);
                let left = counts.misses - counts.evictions;
                prop_assert!(left <= u64::from(places) && counts.stays.count() == counts.evictions);
            }
        }
    }
}
