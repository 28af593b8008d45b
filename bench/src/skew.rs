//! Skewed key choices, drawn before the run so that drawing costs the measured loop nothing.

use std::fmt;
use std::iter;
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};
use serde::{Deserialize, Serialize};

use crate::plan::{Plan, Scenario, Workload};
use crate::record::{below, mix};

/// The largest exponent: beyond it nearly all draws are of one key.
pub const ZIPF_MAX: f64 = 4.0;
/// Keys that are tried for one of the shard.
const TRIES_MAX: u64 = 1 << 12;
/// A longer mix goes round this many draws again.
const DRAWS_MAX: u64 = 1 << 22;

/// Which keys the hot mix asks for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Skew {
    /// The exponent of a Zipf distribution: 0 asks for all keys alike.
    pub zipf: f64,
    /// Only those of the first core's shard, where an engine has shards.
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

/// The stream of one thread: key indexes with Zipf-distributed popularity, scattered over all keys;
/// for YCSB D the distance from the latest key instead; a trace names its keys itself, and so does
/// the fairness command. Cost: 4 bytes a draw, all of them touched.
#[must_use]
pub fn stream(plan: &Plan, thread: u64) -> Arc<[u32]> {
    if matches!(plan.scenario, Scenario::Trace(_) | Scenario::Fairness(_)) {
        return Arc::from([0]);
    }
    let latest = matches!(
        plan.scenario,
        Scenario::Ycsb {
            workload: Workload::D,
            ..
        }
    );
    let keys = if latest {
        plan.keys_per_core
    } else {
        plan.keys()
    };
    let draws = plan
        .mixed_ops()
        .div_ceil(plan.threads())
        .clamp(1, DRAWS_MAX);
    let exponent = match plan.scenario {
        Scenario::Contest { skew, .. } | Scenario::Ycsb { skew, .. } => skew.zipf,
        Scenario::Trace(_) | Scenario::Fairness(_) => Skew::default().zipf,
    };
    let Ok(zipf) = Zipf::new(keys as f64, exponent) else {
        return Arc::from([0]);
    };
    let mut random = SmallRng::seed_from_u64(mix(plan.seed ^ mix(thread + 1)));
    (0..draws)
        .map(|_| {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "1 to keys"
            )]
            let rank = (zipf.sample(&mut random) as u64).clamp(1, keys) - 1;
            let index = if latest {
                rank
            } else {
                below(mix(rank ^ plan.seed), keys)
            };
            u32::try_from(index).unwrap_or(u32::MAX)
        })
        .collect()
}

/// The same stream with every key of another shard replaced by one that `belongs`: always the same
/// for the same, so that what is popular stays so. Keys to which no such key is found soon stay as
/// they are.
#[must_use]
pub fn within(plan: &Plan, stream: &[u32], belongs: impl Fn(u64) -> bool) -> Arc<[u32]> {
    let keys = plan.keys();
    let settle = |index: &u32| {
        let drawn = u64::from(*index);
        let others = (1..TRIES_MAX).map(|other| below(mix(drawn ^ mix(plan.seed ^ other)), keys));
        let found = iter::once(drawn)
            .chain(others)
            .find(|&index| belongs(index));
        found
            .and_then(|index| u32::try_from(index).ok())
            .unwrap_or(*index)
    };
    stream.iter().map(settle).collect()
}

#[cfg(test)]
mod tests {
    use farcore_tuning::Profile;

    use super::*;
    use crate::plan::{Encryption, EngineName};

    fn plan(scenario: Scenario) -> Plan {
        Plan {
            engine: EngineName::Farcore,
            cores: vec![0, 1],
            keys_per_core: 5_000,
            local_bytes: 0,
            far_bytes: 0,
            fabric: Vec::new(),
            token_file: None,
            nodes_min: None,
            device: None,
            port: None,
            gid_index: None,
            far_nodes: 1,
            far_latency_ns: 0,
            window: 1,
            profile: Profile::default(),
            encrypt: Encryption::Off,
            prefault: false,
            seed: 5,
            watch: crate::watch::Watch::default(),
            record: None,
            scenario,
        }
    }

    fn contest(hot_ops: u64) -> Scenario {
        Scenario::Contest {
            hot_ops,
            skew: Skew::default(),
        }
    }

    #[test]
    fn keys_of_one_shard_keep_their_popularity() {
        let plan = plan(contest(50_000));
        let drawn = stream(&plan, 0);
        let within = within(&plan, &drawn, |index| index % 3 == 0);
        assert!(within.iter().all(|index| index % 3 == 0));
        for (index, other) in drawn.iter().zip(&*within) {
            assert!(index % 3 != 0 || index == other);
        }
        let most = |stream: &[u32]| {
            let mut counts = vec![0_u32; 10_000];
            stream.iter().for_each(|&index| counts[index as usize] += 1);
            counts.into_iter().max()
        };
        assert!(most(&within) >= most(&drawn));
    }

    #[test]
    fn without_skew_all_keys_are_alike() {
        let skew = Skew {
            zipf: 0.0,
            one_shard: false,
        };
        let stream = stream(
            &plan(Scenario::Contest {
                hot_ops: 400_000,
                skew,
            }),
            0,
        );
        let mut counts = vec![0_u32; 10_000];
        stream.iter().for_each(|&index| counts[index as usize] += 1);
        // 20 of each rank on average, and a few ranks fall on the same key.
        assert!(counts.iter().all(|&count| count < 200));
    }

    #[test]
    fn a_few_keys_take_most_draws() {
        let stream = stream(&plan(contest(200_000)), 0);
        let mut counts = vec![0_u32; 10_000];
        for &index in stream.iter() {
            counts[index as usize] += 1;
        }
        counts.sort_unstable_by(|one, other| other.cmp(one));
        let top: u32 = counts[..100].iter().sum();
        // The first 100 of 10 000 ranks hold about 53 % at exponent 0.99.
        assert!((45..65).contains(&(top * 100 / 100_000)), "{top}");
    }

    #[test]
    fn threads_draw_differently_and_repeatably() {
        let plan = plan(contest(2_000));
        assert_eq!(stream(&plan, 0), stream(&plan, 0));
        assert_ne!(stream(&plan, 0), stream(&plan, 1));
    }
}
