//! `farcore tune`: finds the best settings for a workload, or predicts another machine.
//!
//! With `--predict`, [`predict`] computes a prediction from a queueing model that real runs
//! calibrate. Otherwise [`tuner`] searches settings: [`knob`] lists them, [`search`] is the
//! algorithm, [`trial`] makes the runs, [`report`] and [`chart`] show the findings. [`idle`]
//! refuses flags without effect, [`fault`] words errors of the engine by flags. No setting of this
//! machine is changed.

mod chart;
mod fault;
mod idle;
mod knob;
mod predict;
mod report;
mod search;
mod trial;
mod tuner;

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use farcore_bench::cli::{ContestSize, SetupArgs};

use crate::given::Given;

/// Default of runs of each kind for a prediction.
const PREDICTION_RUNS: u32 = 5;

/// Flags of `tune`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Predict the throughput of another machine and what saturates first, e.g.
    /// cores=64,nodes=8,link=200Gb
    #[arg(long, value_name = "MACHINE")]
    predict: Option<predict::Machine>,
    #[command(flatten)]
    prediction: predict::Options,
    #[command(flatten)]
    tuner: tuner::TunerArgs,
    #[command(flatten)]
    runs: RunArgs,
}

/// The runs, for tuning and for predictions.
#[derive(Debug, Args)]
struct RunArgs {
    /// Pairs of runs of a proof, 6 to 100 [default: 12]; with --predict, runs of each kind, of
    /// which the medians are used [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: Option<u32>,
    #[command(flatten)]
    contest: ContestSize,
    #[command(flatten)]
    setup: SetupArgs,
}

/// Runs the command.
///
/// # Errors
/// A flag is wrong, a run failed, or an output cannot be written.
pub(crate) fn run(arguments: &Arguments, given: &Given) -> Result<ExitCode> {
    idle::check(arguments, given)?;
    let Arguments {
        predict,
        prediction,
        tuner,
        runs,
    } = arguments;
    let Some(machine) = predict else {
        return tuner::run(tuner, runs);
    };
    let repeats = runs.repeats.unwrap_or(PREDICTION_RUNS);
    predict::run(machine, prediction, &runs.setup, &runs.contest, repeats)?;
    Ok(ExitCode::SUCCESS)
}
