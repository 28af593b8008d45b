//! The flags of `contest`, and its plans: of a size of its own, or of the contest as it is held.

use clap::Args;
use farcore_command::machine::Machine;

use super::{CommonArgs, ContestSize, parse_nanoseconds};
use crate::plan::{Plan, PlanError, Scale, Scenario};

/// Flags of `contest`.
#[derive(Clone, Debug, Args)]
pub struct ContestArgs {
    /// Run the contest by its rules: `official`, with 16 workers, 8 GiB of local and 32 GiB of far
    /// memory, or a number of workers with memory by ratio
    ///
    /// Each worker has 12 million keys (--keys-per-core for fewer, with memory by ratio). Values
    /// have the lengths of the rules, 30 GB in all for 16 workers. Workers may be more than cores.
    /// An untimed pass with encryption checks a hundredth of the keys first. Hot reads are skewed,
    /// hot writes are not. Before anything runs, a forecast compares what the records need with
    /// --local and --far, and with the machine's memory.
    #[arg(long, value_name = "official|N")]
    pub scale: Option<Scale>,
    /// End each run after this time of all phases together, e.g. 9m, and name what is unfinished
    #[arg(long, value_name = "DURATION", value_parser = parse_nanoseconds)]
    pub time_limit: Option<u64>,
    /// The size.
    #[command(flatten)]
    pub size: ContestSize,
    /// Flags of all comparisons.
    #[command(flatten)]
    pub common: CommonArgs,
}

impl ContestArgs {
    /// One plan for each engine.
    ///
    /// # Errors
    /// A setting that this machine does not allow, or memory that the contest does not fit in.
    pub fn plans(&self, machine: &Machine) -> Result<Vec<Plan>, PlanError> {
        let setup = &self.common.setup;
        let mut plan = match self.scale {
            Some(scale) => self.plan_by_rules(scale, machine),
            None => self.size.of_contest(machine, setup).plan(machine, setup),
        };
        plan.time_limit_ns = self.time_limit;
        let plans = self.common.plans(machine, plan)?;
        self.check_one_shard(&plans)?;
        Ok(plans)
    }

    /// The plan for farcore by the rules; flags of sizes replace theirs.
    fn plan_by_rules(&self, scale: Scale, machine: &Machine) -> Plan {
        let setup = &self.common.setup;
        let scale = Scale {
            keys_per_worker: self.size.keys_per_core.unwrap_or(scale.keys_per_worker),
            ..scale
        };
        let workers = usize::try_from(scale.workers).unwrap_or(usize::MAX);
        let first = || machine.cores.iter().copied().take(workers).collect();
        let given = setup.cores.as_ref().map(|list| list.0.clone());
        let scenario = Scenario::Contest {
            hot_ops: self.size.hot_ops.unwrap_or_else(|| scale.hot_ops()),
            skew: self.size.skew(),
        };
        let plan = setup.plan(given.unwrap_or_else(first), scale.keys_per_worker, scenario);
        Plan {
            workers: Some(workers),
            local_bytes: setup.local.unwrap_or_else(|| scale.local_bytes()),
            far_bytes: setup.far.unwrap_or_else(|| scale.far_bytes()),
            by_rules: true,
            ..plan
        }
    }
}
