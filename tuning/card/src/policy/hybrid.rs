//! The hybrid of frequency and recency: `score = frequency + alpha * recency`, lowest leaves.
//!
//! Frequency counts uses since the insertion and is halved every half-life (Robinson and
//! Devarakonda, "Data Cache Management Using Frequency-Based Replacement", 1990). Recency falls
//! from 1 at a use to 0 a window later. A victim is the lowest of a few random places, as a
//! maintenance engine on a card or Redis samples: an exact minimum would need an order that every
//! use changes. Time is counted in accesses.

use serde::{Deserialize, Serialize};

use super::{Replacement, Use};
use crate::random::Random;

/// A score of one use.
const ONE: u64 = 1 << 8;
const SAMPLES_MAX: u32 = 64;

/// The weights of a hybrid policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HybridWeights {
    /// How many uses a use just now is worth.
    pub alpha: u32,
    /// Accesses until recency is 0, as a multiple of the places.
    pub window: u32,
    /// Accesses until frequencies are halved, as a multiple of the places.
    pub half_life: u32,
    /// Places among which a victim is chosen, 1 to 64.
    pub samples: u32,
}

impl Default for HybridWeights {
    fn default() -> Self {
        Self {
            // The best of a scan over the patterns of `docs/card.md`.
            alpha: 2,
            window: 16,
            half_life: 64,
            samples: 16,
        }
    }
}

#[derive(Clone, Copy, Default, Debug)]
struct Entry {
    last: u64,
    uses: u32,
    /// The half-life in which `uses` was counted.
    age: u32,
}

/// Evicts the lowest score of a sample.
#[derive(Clone, Debug)]
pub struct Hybrid {
    entries: Vec<Entry>,
    /// The places that are held, in no order, and where each stands there.
    held: Vec<u32>,
    held_at: Vec<u32>,
    random: Random,
    now: u64,
    alpha: u64,
    /// The window and the half-life, as powers of two.
    window_bits: u32,
    half_life_bits: u32,
    samples: u32,
}

impl Hybrid {
    /// For places below this number.
    #[must_use]
    pub fn new(places: u32, weights: HybridWeights) -> Self {
        let bits = |factor: u32| {
            let accesses = u64::from(places) * u64::from(factor.max(1));
            accesses.next_power_of_two().ilog2()
        };
        Self {
            entries: vec![Entry::default(); places as usize],
            held: Vec::with_capacity(places as usize),
            held_at: vec![0; places as usize],
            random: Random::new(0, 0),
            now: 0,
            alpha: u64::from(weights.alpha) * ONE,
            window_bits: bits(weights.window),
            half_life_bits: bits(weights.half_life),
            samples: weights.samples.clamp(1, SAMPLES_MAX),
        }
    }

    /// The current half-life.
    fn age(&self) -> u32 {
        // 2^32 half-lives do not come.
        u32::try_from(self.now >> self.half_life_bits).unwrap_or(u32::MAX)
    }

    fn score(&self, entry: &Entry) -> u64 {
        let halved = (self.age() - entry.age).min(31);
        let frequency = u64::from(entry.uses >> halved) * ONE;
        let window = 1_u64 << self.window_bits;
        let left = window.saturating_sub(self.now - entry.last);
        frequency + ((self.alpha * left) >> self.window_bits)
    }
}

impl Replacement for Hybrid {
    fn insert(&mut self, place: u32, access: Use) {
        self.now = self.now.max(access.time);
        self.entries[place as usize] = Entry {
            last: self.now,
            uses: 1,
            age: self.age(),
        };
        // There are at most 2^32 places.
        self.held_at[place as usize] = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        self.held.push(place);
    }

    #[inline]
    fn hit(&mut self, place: u32, access: Use) {
        self.now = self.now.max(access.time);
        let age = self.age();
        let entry = &mut self.entries[place as usize];
        let halved = (age - entry.age).min(31);
        *entry = Entry {
            last: self.now,
            uses: (entry.uses >> halved).saturating_add(1),
            age,
        };
    }

    fn victim(&mut self) -> Option<u32> {
        let count = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        let mut lowest = None;
        // All, if there are no more than the sample.
        let all = count <= self.samples;
        for sample in 0..self.samples.min(count) {
            let at = if all {
                sample
            } else {
                self.random.below(count)
            };
            let place = self.held[at as usize];
            let score = self.score(&self.entries[place as usize]);
            if lowest.is_none_or(|(least, _)| score < least) {
                lowest = Some((score, place));
            }
        }
        let (_, place) = lowest?;
        self.remove(place);
        Some(place)
    }

    fn remove(&mut self, place: u32) {
        let at = self.held_at[place as usize];
        self.held.swap_remove(at as usize);
        if let Some(&moved) = self.held.get(at as usize) {
            self.held_at[moved as usize] = at;
        }
    }
}
