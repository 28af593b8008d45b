//! `farcore card`: simulates the metadata of a network card, to try placements and policies.
//!
//! `run` is one simulation or, with `--one-tier`, an exact count of misses; `sweep` varies
//! settings; `fit` finds how many objects fit; `trace` makes, shows and converts traces. [`flags`]
//! turns flags into settings, [`one_tier`] counts, [`columns`] has the figures of tables and files,
//! [`file`] writes CSV and Parquet, and [`plot`] draws. The simulator is
//! [`farcore_card::simulator`].
//!
//! - I1: an error is one line on stderr with the remedy, and exit code 1. Flags and outputs are
//!   checked before anything runs.

mod columns;
mod file;
mod fit;
mod flags;
mod number;
mod one_tier;
#[cfg(feature = "parquet")]
mod parquet;
mod plot;
mod run;
mod sweep;
mod trace;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::given::Given;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Simulate a card, or count the misses of policies with --one-tier.
    Run(Box<run::Arguments>),
    /// Simulate with every combination of some settings, several times each.
    Sweep(Box<sweep::Arguments>),
    /// Find how many queue pairs or regions fit, with each of some policies, and why no more.
    Fit(Box<fit::Arguments>),
    /// Make, show and convert traces.
    #[command(subcommand)]
    Trace(trace::Command),
}

impl Command {
    /// The words that name the command, for errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Run(_) => "card run",
            Self::Sweep(_) => "card sweep",
            Self::Fit(_) => "card fit",
            Self::Trace(command) => command.name(),
        }
    }
}

/// Runs the command.
///
/// # Errors
/// A flag is wrong, a trace cannot be read, or an output cannot be written.
pub(crate) fn run(command: &Command, given: &Given) -> Result<ExitCode> {
    match command {
        Command::Run(arguments) => run::run(arguments, given),
        Command::Sweep(arguments) => sweep::run(arguments, given),
        Command::Fit(arguments) => fit::run(arguments, given),
        Command::Trace(command) => trace::run(command).map(|()| ExitCode::SUCCESS),
    }
}
