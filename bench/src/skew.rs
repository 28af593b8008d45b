//! Skewed key choices, drawn before the run so that drawing costs the measured loop nothing.

use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Zipf};

use crate::plan::{Plan, Scenario, Workload};
use crate::record::{below, mix};

/// YCSB's skew.
const EXPONENT: f64 = 0.99;
/// A longer mix goes round this many draws again.
const DRAWS_MAX: u64 = 1 << 22;

/// The stream of one thread: key indexes with Zipf-distributed popularity, scattered over all keys; for YCSB D the
/// distance from the latest key instead; a trace names its keys itself. Cost: 4 bytes a draw, all of them touched.
#[must_use]
pub fn stream(plan: &Plan, thread: u64) -> Arc<[u32]> {
    if matches!(plan.scenario, Scenario::Trace(_)) {
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
    let Ok(zipf) = Zipf::new(keys as f64, EXPONENT) else {
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

#[cfg(test)]
mod tests {
    use farcore_tuning::Profile;

    use super::*;
    use crate::plan::EngineName;

    fn plan(scenario: Scenario) -> Plan {
        Plan {
            engine: EngineName::Farcore,
            cores: vec![0, 1],
            keys_per_core: 5_000,
            local_bytes: 0,
            far_bytes: 0,
            fabric: Vec::new(),
            token_file: None,
            device: None,
            port: None,
            gid_index: None,
            far_nodes: 1,
            far_latency_ns: 0,
            window: 1,
            profile: Profile::default(),
            encrypt: false,
            prefault: false,
            seed: 5,
            watch: crate::watch::Watch::default(),
            record: None,
            scenario,
        }
    }

    #[test]
    fn a_few_keys_take_most_draws() {
        let stream = stream(&plan(Scenario::Contest { hot_ops: 200_000 }), 0);
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
        let plan = plan(Scenario::Contest { hot_ops: 2_000 });
        assert_eq!(stream(&plan, 0), stream(&plan, 0));
        assert_ne!(stream(&plan, 0), stream(&plan, 1));
    }
}
