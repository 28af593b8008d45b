//! Streams of key indexes with Zipf-distributed popularity.
//!
//! They are drawn before the run, so that drawing costs the measured loop nothing. A stream depends
//! only on [`KeyDraws`] and the thread's number; runs of all engines request the same keys.

use std::fmt;
use std::iter;
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};
use serde::{Deserialize, Serialize};

use crate::record::{below, mix};

/// The largest exponent: beyond it nearly all draws are of one key.
pub const ZIPF_MAX: f64 = 4.0;
/// Candidates tried before a key of another shard is kept.
const TRIES_MAX: u64 = 1 << 12;
/// Longest stream; a longer phase repeats it.
const DRAWS_MAX: u64 = 1 << 22;

/// Which keys the hot mix requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skew {
    /// The exponent of a Zipf distribution; 0 for all keys alike.
    pub zipf: f64,
    /// Whether only keys of the first core's shard are requested, where an engine has shards.
    pub one_shard: bool,
}

impl Default for Skew {
    fn default() -> Self {
        Self {
            // YCSB's skew.
            zipf: 0.99,
            one_shard: false,
        }
    }
}

impl fmt::Display for Skew {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "(Zipf {}", self.zipf)?;
        if self.one_shard {
            write!(formatter, ", keys of one shard where there are shards")?;
        }
        write!(formatter, ")")
    }
}

/// How the keys of a mixed phase are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyDraws {
    /// Every index is below this.
    pub keys: u64,
    /// Draws that each thread needs.
    pub count: u64,
    /// The exponent of the Zipf distribution.
    pub zipf: f64,
    /// Whether popular ranks are scattered over all keys; otherwise the rank is the index.
    pub scattered: bool,
    /// The run's seed.
    pub seed: u64,
}

/// The stream of a scenario that draws no keys.
#[must_use]
pub fn no_stream() -> Arc<[u32]> {
    Arc::from([0])
}

/// Bytes of the stream of one thread.
#[must_use]
pub fn stream_bytes(draws: &KeyDraws) -> u64 {
    draws.count.clamp(1, DRAWS_MAX) * size_of::<u32>() as u64
}

/// The stream of one thread. Memory: 4 bytes a draw, at most 16 MiB.
#[must_use]
pub fn stream(draws: &KeyDraws, thread: u64) -> Arc<[u32]> {
    let KeyDraws { keys, seed, .. } = *draws;
    let Ok(zipf) = Zipf::new(keys as f64, draws.zipf) else {
        return no_stream();
    };
    let mut random = SmallRng::seed_from_u64(mix(seed ^ mix(thread + 1)));
    (0..draws.count.clamp(1, DRAWS_MAX))
        .map(|_| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "1 to keys"
            )]
            let rank = (zipf.sample(&mut random) as u64).clamp(1, keys) - 1;
            let index = if draws.scattered {
                below(mix(rank ^ seed), keys)
            } else {
                rank
            };
            u32::try_from(index).unwrap_or(u32::MAX)
        })
        .collect()
}

/// Replaces every key of another shard by one for which `belongs` is true. Equal keys get equal
/// replacements, so popularity is kept. A key stays if no replacement is found in 4096 tries.
#[must_use]
pub fn within(draws: &KeyDraws, stream: &[u32], belongs: impl Fn(u64) -> bool) -> Arc<[u32]> {
    let KeyDraws { keys, seed, .. } = *draws;
    let replace = |index: &u32| {
        let drawn = u64::from(*index);
        let others = (1..TRIES_MAX).map(|other| below(mix(drawn ^ mix(seed ^ other)), keys));
        let found = iter::once(drawn)
            .chain(others)
            .find(|&index| belongs(index));
        found
            .and_then(|index| u32::try_from(index).ok())
            .unwrap_or(*index)
    };
    stream.iter().map(replace).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(count: u64) -> KeyDraws {
        KeyDraws {
            keys: 10_000,
            count,
            zipf: Skew::default().zipf,
            scattered: true,
            seed: 5,
        }
    }

    fn counts(stream: &[u32]) -> Vec<u32> {
        let mut counts = vec![0; 10_000];
        stream.iter().for_each(|&index| counts[index as usize] += 1);
        counts
    }

    #[test]
    fn keys_of_one_shard_keep_their_popularity() {
        let draws = draws(25_000);
        let drawn = stream(&draws, 0);
        let within = within(&draws, &drawn, |index| index % 3 == 0);
        assert!(within.iter().all(|index| index % 3 == 0));
        for (index, other) in drawn.iter().zip(&*within) {
            assert!(index % 3 != 0 || index == other);
        }
        let most = |stream: &[u32]| counts(stream).into_iter().max();
        assert!(most(&within) >= most(&drawn));
    }

    #[test]
    fn without_skew_all_keys_are_alike() {
        let draws = KeyDraws {
            zipf: 0.0,
            ..draws(200_000)
        };
        // 20 of each rank on average, and a few ranks map to the same key.
        let counts = counts(&stream(&draws, 0));
        assert!(counts.iter().all(|&count| count < 200));
    }

    #[test]
    fn a_few_keys_take_most_draws() {
        let mut counts = counts(&stream(&draws(100_000), 0));
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let top: u32 = counts[..100].iter().sum();
        // The first 100 of 10 000 ranks hold about 53 % at exponent 0.99.
        assert!((45..65).contains(&(top * 100 / 100_000)), "{top}");
    }

    #[test]
    fn threads_draw_differently_and_repeatably() {
        let draws = draws(1_000);
        assert_eq!(stream(&draws, 0), stream(&draws, 0));
        assert_ne!(stream(&draws, 0), stream(&draws, 1));
    }
}
