//! The sizes of the contest and of YCSB: flags, defaults that fit the machine, and the plans that
//! they give.

use clap::Args;
use farcore_command::machine::Machine;

use super::{SetupArgs, parse_milliseconds};
use crate::plan::{Plan, Scenario, Workload};
use crate::record::VALUE_BYTES_MAX;
use crate::skew::Skew;

/// Default of each thread's records in one of many short runs.
const TRIAL_KEYS_PER_CORE: u64 = 250_000;
/// Default of the contest's records, all threads together.
pub(super) const KEYS: u64 = 2_000_000;
/// Default of each thread's records at least.
const KEYS_PER_CORE_MIN: u64 = 500_000;
/// Memory that a default record takes in the engine that takes most, farcore with three times the
/// data in far memory, and in the driver.
const KEY_MEMORY_BYTES: u64 = 800;
/// A contest whose number of keys is given has one hot request for three of them.
const KEYS_PER_HOT_OP: u64 = 3;
/// A contest without flags has fewer: `locked-lru`, which reads a page for most of them, would take
/// longer for these than all engines for all other phases.
const KEYS_PER_HOT_OP_DEFAULT: u64 = 10;

/// The size of the contest.
#[derive(Clone, Debug, Args)]
pub struct ContestSize {
    /// Keys of each thread [default: 2000000 in all, at least 500000 each; 250000 each in a trial
    /// of `farcore tune`; fewer if memory is short]
    #[arg(long, value_name = "N")]
    pub keys_per_core: Option<u64>,
    /// Requests of the hot mix, all threads together [default: a third of the keys; a tenth in a
    /// contest of the default size]
    #[arg(long, value_name = "N")]
    pub hot_ops: Option<u64>,
    /// Skew of the hot mix: the exponent of a Zipf distribution; 0 requests all keys alike
    #[arg(
        long,
        value_name = "EXPONENT",
        default_value_t = Skew::default().zipf,
        allow_negative_numbers = true
    )]
    pub zipf: f64,
    /// Request only keys of the first core's shard in the hot mix, where an engine has shards
    #[arg(long)]
    pub one_shard: bool,
}

/// The size of a YCSB workload.
#[derive(Clone, Debug, Args)]
pub struct YcsbSize {
    /// Records loaded before the transactions, all threads together
    #[arg(long, value_name = "N", default_value_t = 400_000)]
    pub records: u64,
    /// Transactions, all threads together
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub operations: u64,
    /// Bytes of each value
    #[arg(long, value_name = "N", default_value_t = VALUE_BYTES_MAX)]
    pub value_bytes: usize,
    /// Time to live of each write, e.g. 10s; for farcore only [default: for ever]
    #[arg(long, value_name = "DURATION", value_parser = parse_milliseconds)]
    pub ttl: Option<u64>,
}

/// `wanted` keys a thread, or as many as fit: all engines stay below half of the available memory.
fn fitting(machine: &Machine, threads: u64, wanted: u64) -> u64 {
    let fitting = machine.memory_available_bytes / 2 / KEY_MEMORY_BYTES / threads.max(1);
    wanted.min(fitting).max(1)
}

impl ContestSize {
    /// This size for a contest of its own, which has more keys by default than a trial.
    #[must_use]
    pub fn of_contest(&self, machine: &Machine, setup: &SetupArgs) -> Self {
        let threads = setup.cores(machine).len() as u64;
        let wanted = KEYS.div_ceil(threads.max(1)).max(KEYS_PER_CORE_MIN);
        let keys_per_core = self
            .keys_per_core
            .unwrap_or_else(|| fitting(machine, threads, wanted));
        let hot_ops = match (self.hot_ops, self.keys_per_core) {
            (None, None) => Some((keys_per_core * threads / KEYS_PER_HOT_OP_DEFAULT).max(1)),
            (given, _) => given,
        };
        Self {
            keys_per_core: Some(keys_per_core),
            hot_ops,
            ..self.clone()
        }
    }

    /// The plan for farcore, not validated; of a trial's size by default.
    #[must_use]
    pub fn plan(&self, machine: &Machine, setup: &SetupArgs) -> Plan {
        let cores = setup.cores(machine);
        let threads = cores.len() as u64;
        let keys_per_core = self
            .keys_per_core
            .unwrap_or_else(|| fitting(machine, threads, TRIAL_KEYS_PER_CORE));
        let keys = keys_per_core.saturating_mul(cores.len() as u64);
        let hot_ops = self.hot_ops.unwrap_or((keys / KEYS_PER_HOT_OP).max(1));
        let skew = self.skew();
        setup.plan(cores, keys_per_core, Scenario::Contest { hot_ops, skew })
    }

    /// Which keys the hot mix requests.
    #[must_use]
    pub fn skew(&self) -> Skew {
        Skew {
            zipf: self.zipf,
            one_shard: self.one_shard,
        }
    }
}

impl YcsbSize {
    /// The plan for farcore, not validated.
    #[must_use]
    pub fn plan(
        &self,
        workload: Workload,
        skew: Skew,
        machine: &Machine,
        setup: &SetupArgs,
    ) -> Plan {
        let cores = setup.cores(machine);
        let scenario = Scenario::Ycsb {
            workload,
            operations: self.operations,
            value_bytes: self.value_bytes,
            skew,
            ttl_ms: self.ttl,
        };
        let keys_per_core = self.records.div_ceil((cores.len() as u64).max(1));
        setup.plan(cores, keys_per_core, scenario)
    }
}
