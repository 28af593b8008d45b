//! Flags of `trace`, and the plans that come of them.

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use farcore::constants::VALUE_BYTES_MAX;

use super::{Format, OnMiss, Wish, keys_per_core, scenario};
use crate::cli::{CommonArgs, SetupArgs, parse_size};
use crate::engines::Farcore;
use crate::machine::Machine;
use crate::plan::{Plan, Scenario};

/// How much of a trace is replayed, and how.
#[derive(Clone, Debug, Args)]
pub struct TraceSize {
    /// The trace's format [default: as its name or its contents say]
    #[arg(long)]
    pub format: Option<Format>,
    /// Requests taken from the trace [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Longest value; longer ones are cut to it [default: what farcore takes with this --local,
    /// 1MiB at most]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub value_bytes_max: Option<u64>,
    /// What follows a get of an absent key: a put of the stated size, or nothing
    #[arg(long, default_value = "fill")]
    pub on_miss: OnMiss,
    /// Memory for the requests, which are read before the clock starts; reading ends where it is
    /// full [default: a quarter of what is free]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub trace_memory: Option<u64>,
}

/// Flags of `trace`.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// The trace: Twitter's CSV or libCacheSim's oracleGeneral, plain or compressed with zstd
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// How much.
    #[command(flatten)]
    pub size: TraceSize,
    /// The others.
    #[command(flatten)]
    pub common: CommonArgs,
}

impl TraceArgs {
    /// One plan for each engine. Cost: that of [`TraceSize::plan`].
    ///
    /// # Errors
    /// The trace is of no use, or a wish that this machine cannot grant.
    pub fn plans(&self, machine: &Machine) -> anyhow::Result<Vec<Plan>> {
        let plan = self.size.plan(&self.file, machine, &self.common.setup)?;
        Ok(self.common.plans(machine, plan)?)
    }
}

impl TraceSize {
    /// The plan of this project's engine. Cost: reads the trace, twice if it has longer values than
    /// the engine takes.
    ///
    /// # Errors
    /// The trace is of no use. Whether the engine can run the plan is not checked yet.
    pub fn plan(&self, file: &Path, machine: &Machine, setup: &SetupArgs) -> anyhow::Result<Plan> {
        let most = VALUE_BYTES_MAX as u64;
        let wished = self.value_bytes_max;
        if let Some(bytes) = wished
            && !(1..=most).contains(&bytes)
        {
            bail!("--value-bytes-max is {bytes} bytes: it must be 1 to {most}");
        }
        let memory = self.trace_memory;
        let mut wish = Wish {
            format: self.format,
            limit: self.limit,
            value_bytes_max: u32::try_from(wished.unwrap_or(most))?,
            on_miss: self.on_miss,
            ..Wish::new(file, memory.unwrap_or(machine.memory_available_bytes / 4))
        };
        let plan = read(&wish, machine, setup)?;
        let longest = plan.trace().map_or(0, |trace| trace.value_bytes_longest);
        let limit = match Farcore::config(&plan)?.value_bytes_max() {
            Ok(limit) if longest as usize > limit && wished.is_none() => limit,
            // What is wrong is told by `Farcore::check`, and only if the engine is wished for.
            _ => return Ok(plan),
        };
        wish.value_bytes_max = u32::try_from(limit)?;
        let setup = SetupArgs {
            local: Some(plan.local_bytes),
            ..setup.clone()
        };
        read(&wish, machine, &setup)
    }
}

fn read(wish: &Wish, machine: &Machine, setup: &SetupArgs) -> anyhow::Result<Plan> {
    let cores = setup.cores(machine);
    let threads = cores.len() as u64;
    let scenario = scenario(wish.clone(), threads, setup.seed)?;
    let keys = match &scenario {
        Scenario::Trace(choice) => keys_per_core(&choice.summary, threads),
        _ => 0,
    };
    Ok(setup.plan(cores, keys, scenario))
}
