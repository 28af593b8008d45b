//! Flags of `trace`, and the plans that they give. The trace is read here, once or twice, because
//! its keys and sizes determine the plan.

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use farcore::constants::VALUE_BYTES_MAX;
use farcore_command::machine::Machine;
use farcore_command::parse_size;

use super::{CommonArgs, SetupArgs};
use crate::engines::Farcore;
use crate::plan::{Plan, Scenario};
use crate::trace::{Format, Input, OnMiss, TraceOptions, choose, keys_per_core};

/// What a put with an expiry takes of the room for its value.
const EXPIRY_BESIDE_BYTES: usize = 32;

/// A factor of times to live, as thousandths.
fn parse_per_mille(text: &str) -> Result<u64, String> {
    let factor = text.parse::<f64>().ok();
    let factor = factor.filter(|factor| (0.001..=1_000.0).contains(factor));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "1 to a million"
    )]
    let per_mille = factor.map(|factor| (factor * 1_000.0).round() as u64);
    per_mille.ok_or_else(|| format!("`{text}` is no factor from 0.001 to 1000"))
}

/// Which part of a trace is replayed, and how.
#[derive(Clone, Debug, Args)]
pub struct TraceSize {
    /// Format of the trace [default: detected from its contents]
    #[arg(long)]
    pub format: Option<Format>,
    /// Most requests read from the trace [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Longest value; longer ones are cut to it [default: farcore's limit with this --local, 1MiB
    /// at most]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub value_bytes_max: Option<u64>,
    /// What follows a get that misses: a put of the stated size, or nothing
    #[arg(long, default_value = "fill")]
    pub on_miss: OnMiss,
    /// Apply the times to live of the trace, counted from each replayed request on and multiplied
    /// by a factor, e.g. =0.001 [default factor: 1]; for farcore only
    #[arg(
        long,
        value_name = "FACTOR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = parse_per_mille
    )]
    pub apply_ttl: Option<u64>,
    /// Memory for the requests, which are read before the clock starts; reading ends when it is
    /// full [default: a quarter of the available memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub trace_memory: Option<u64>,
}

/// Flags of `trace`.
#[derive(Clone, Debug, Args)]
pub struct TraceArgs {
    /// The trace: Twitter's CSV or libCacheSim's oracleGeneral, plain or compressed with zstd or
    /// gzip; `-` reads it from standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Which part, and how.
    #[command(flatten)]
    pub size: TraceSize,
    /// Flags of all comparisons.
    #[command(flatten)]
    pub common: CommonArgs,
}

impl TraceArgs {
    /// One plan for each engine. `input` is that of the file argument, and must last until all runs
    /// have ended. Cost: that of [`TraceSize::plan`].
    ///
    /// # Errors
    /// The trace cannot be replayed, or this machine does not allow a setting.
    pub fn plans(&self, input: &Input, machine: &Machine) -> anyhow::Result<Vec<Plan>> {
        self.common.check_effects(self.common.engines())?;
        let plan = self.size.plan_of(input, machine, &self.common.setup)?;
        Ok(self.common.plans(machine, plan)?)
    }
}

impl TraceSize {
    /// The plan for farcore, not validated. Cost: reads the trace, twice if it has longer values
    /// than farcore takes.
    ///
    /// # Errors
    /// The trace cannot be replayed, or `--value-bytes-max` is out of range.
    pub fn plan(&self, file: &Path, machine: &Machine, setup: &SetupArgs) -> anyhow::Result<Plan> {
        self.plan_of(&file.into(), machine, setup)
    }

    fn plan_of(&self, input: &Input, machine: &Machine, setup: &SetupArgs) -> anyhow::Result<Plan> {
        let most = VALUE_BYTES_MAX as u64;
        let flagged = self.value_bytes_max;
        if let Some(bytes) = flagged
            && !(1..=most).contains(&bytes)
        {
            bail!("--value-bytes-max is {bytes} bytes: it must be 1 to {most}");
        }
        let memory = self.trace_memory;
        let mut options = TraceOptions {
            format: self.format,
            limit: self.limit,
            value_bytes_max: u32::try_from(flagged.unwrap_or(most))?,
            on_miss: self.on_miss,
            lifetimes_per_mille: self.apply_ttl,
            is_stdin: input.is_stdin(),
            ..TraceOptions::new(
                input.file(),
                memory.unwrap_or(machine.memory_available_bytes / 4),
            )
        };
        let plan = read(&options, machine, setup)?;
        let longest = plan.trace().map_or(0, |trace| trace.value_bytes_longest);
        let beside = self.apply_ttl.map_or(0, |_| EXPIRY_BESIDE_BYTES);
        let limit = match Farcore::config(&plan)?.value_bytes_max() {
            Ok(limit) if longest as usize + beside > limit && flagged.is_none() => limit,
            // `Farcore::check` reports errors, and only if farcore is among the engines.
            _ => return Ok(plan),
        };
        options.value_bytes_max = u32::try_from(limit.saturating_sub(beside))?;
        let setup = SetupArgs {
            local: Some(plan.local_bytes),
            ..setup.clone()
        };
        read(&options, machine, &setup)
    }
}

fn read(options: &TraceOptions, machine: &Machine, setup: &SetupArgs) -> anyhow::Result<Plan> {
    let cores = setup.cores(machine);
    let threads = cores.len() as u64;
    let choice = choose(options.clone(), threads, setup.seed)?;
    let keys = keys_per_core(&choice.summary, threads);
    Ok(setup.plan(cores, keys, Scenario::Trace(Box::new(choice))))
}
