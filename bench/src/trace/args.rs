//! Flags of `trace`, and the plans that come of them.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use farcore::constants::VALUE_BYTES_MAX;

use super::{Format, OnMiss, Wish, keys_per_core, scenario};
use crate::cli::{CommonArgs, parse_size};
use crate::engines::Farcore;
use crate::machine::Machine;
use crate::plan::{Plan, Scenario};

/// Flags of `trace`.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// The trace: Twitter's CSV or libCacheSim's oracleGeneral, plain or compressed with zstd
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Its format [default: as its name or its contents say]
    #[arg(long)]
    pub format: Option<Format>,
    /// Requests taken from it [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Longest value; longer ones are cut to it [default: what the engine takes with this --local, 1MiB at most]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub value_bytes_max: Option<u64>,
    /// What follows a get of an absent key: a put of the stated size, or nothing
    #[arg(long, default_value = "fill")]
    pub on_miss: OnMiss,
    /// Memory for the requests, read before the clock starts; reading ends where it is full [default: a quarter of what is free]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub trace_memory: Option<u64>,
    /// The others.
    #[command(flatten)]
    pub common: CommonArgs,
}

impl TraceArgs {
    /// One plan for each engine. Cost: reads the trace, twice if it has longer values than the engine takes.
    ///
    /// # Errors
    /// The trace is of no use, or a wish that this machine cannot grant.
    pub fn plans(&self, machine: &Machine) -> anyhow::Result<Vec<Plan>> {
        let most = VALUE_BYTES_MAX as u64;
        let wished = self.value_bytes_max;
        if let Some(bytes) = wished
            && !(1..=most).contains(&bytes)
        {
            bail!("--value-bytes-max is {bytes} bytes: it must be 1 to {most}");
        }
        let free = machine.memory_available_bytes;
        let mut wish = Wish {
            format: self.format,
            limit: self.limit,
            value_bytes_max: u32::try_from(wished.unwrap_or(most))?,
            on_miss: self.on_miss,
            ..Wish::new(&self.file, self.trace_memory.unwrap_or(free / 4))
        };
        let plans = self.read(&wish, self.common.local, machine)?;
        let Some((longest, limit)) = shortfall(&plans)? else {
            return Ok(plans);
        };
        if wished.is_some() {
            bail!(
                "the longest value has {longest} bytes and the engine takes {limit} with this --local: raise --local or \
                 lower --value-bytes-max"
            );
        }
        wish.value_bytes_max = u32::try_from(limit)?;
        let local_bytes = plans.first().map(|plan| plan.local_bytes);
        self.read(&wish, local_bytes, machine)
    }

    fn read(
        &self,
        wish: &Wish,
        local: Option<u64>,
        machine: &Machine,
    ) -> anyhow::Result<Vec<Plan>> {
        let cores = self.common.cores(machine);
        let threads = cores.len() as u64;
        let scenario = scenario(wish.clone(), threads, self.common.seed)?;
        let Scenario::Trace(choice) = &scenario else {
            bail!("a trace made another scenario");
        };
        let keys = keys_per_core(&choice.summary, threads);
        let common = CommonArgs {
            local,
            ..self.common.clone()
        };
        Ok(common.plans(machine, cores, keys, scenario)?)
    }
}

/// The longest value and the limit of an engine that does not take it.
fn shortfall(plans: &[Plan]) -> anyhow::Result<Option<(u64, u64)>> {
    for plan in plans {
        if let (true, Some(trace)) = (plan.engine.records(), plan.trace()) {
            let config = Farcore::config(plan)?;
            let limit = config.value_bytes_max().context("--local or --far")? as u64;
            let longest = u64::from(trace.value_bytes_longest);
            if longest > limit {
                return Ok(Some((longest, limit)));
            }
        }
    }
    Ok(None)
}
