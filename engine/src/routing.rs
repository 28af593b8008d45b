//! Routing: one hash of the key, two independent halves.
//!
//! ```text
//! xxh3_128(key, seed) = | high 64: picks the shard | low 64: serves the index |
//! low half, bit 0 least significant:  | root group 63..32 | free 31..22 | tag 21..8 | bucket 7..0 |
//! ```
//!
//! The shard comes from the half that the index never sees: with one half for both, a shard would meet only the
//! hashes that route to it and most of its buckets would stay empty.

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The half of a key's hash that the index works with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct IndexHash(pub(crate) u64);

/// Both halves of a key's hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyHash {
    high: u64,
    /// The half for the index.
    pub(crate) index: IndexHash,
}

impl KeyHash {
    /// The shard of the key, among `shards`.
    #[inline]
    pub(crate) fn shard(self, shards: u16) -> u16 {
        #[expect(clippy::cast_possible_truncation, reason = "less than `shards`")]
        let shard = ((u128::from(self.high) * u128::from(shards)) >> 64) as u16;
        shard
    }
}

/// Hashes keys with the engine's seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hasher128 {
    seed: u64,
}

impl Hasher128 {
    /// A hasher of one engine; the seed should be random, so that nobody can choose colliding keys.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Hashes a key.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "takes the two halves apart"
    )]
    pub(crate) fn hash(self, key: &[u8]) -> KeyHash {
        let both = xxh3_128_with_seed(key, self.seed);
        KeyHash {
            high: (both >> 64) as u64,
            index: IndexHash(both as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUCKETS: usize = 256;
    const SHARDS: u16 = 8;

    /// Chi-squared of the bucket use inside one shard, when `half` picks the shard.
    fn chi_squared(shard_of: impl Fn(KeyHash) -> u16) -> f64 {
        let hasher = Hasher128::new(42);
        let mut counts = [0u32; BUCKETS];
        let mut total = 0u32;
        for key in 0..400_000u64 {
            let hash = hasher.hash(&key.to_le_bytes());
            if shard_of(hash) == 0 {
                // The top bits pick the index's root group, the hardest case for tied halves.
                counts[(hash.index.0 >> 56) as usize] += 1;
                total += 1;
            }
        }
        let expected = f64::from(total) / BUCKETS as f64;
        counts
            .iter()
            .map(|&count| (f64::from(count) - expected).powi(2) / expected)
            .sum()
    }

    #[test]
    fn buckets_are_used_evenly_inside_a_shard() {
        // 255 degrees of freedom: 99.99 % of uniform samples stay below 350.
        assert!(chi_squared(|hash| hash.shard(SHARDS)) < 350.0);
    }

    #[test]
    fn tying_both_halves_together_is_noticed() {
        let tied = |hash: KeyHash| {
            KeyHash {
                high: hash.index.0,
                ..hash
            }
            .shard(SHARDS)
        };
        assert!(chi_squared(tied) > 10_000.0);
    }

    #[test]
    fn shards_are_used_evenly() {
        let hasher = Hasher128::new(7);
        let mut counts = [0u32; 3];
        for key in 0..90_000u32 {
            counts[hasher.hash(&key.to_le_bytes()).shard(3) as usize] += 1;
        }
        assert!(
            counts
                .iter()
                .all(|&count| (29_000..31_000).contains(&count)),
            "{counts:?}"
        );
    }
}
