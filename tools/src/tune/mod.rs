//! `farcore tune`: what to set, and what another machine would do.
//!
//! [`predict`] answers from a queueing model that is calibrated by a real run.

mod predict;

use std::process::ExitCode;

use clap::Args;
use farcore_bench::cli::{ContestSize, SetupArgs};

use crate::text::line;

/// Flags of `tune`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Say what another machine would do and what saturates first, e.g. cores=64,nodes=8,link=200Gb
    #[arg(long, value_name = "MACHINE")]
    predict: predict::Machine,
    #[command(flatten)]
    prediction: predict::Options,
    #[command(flatten)]
    setup: SetupArgs,
    #[command(flatten)]
    size: ContestSize,
    /// Runs of each kind; medians count
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repeats: u32,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let Arguments {
        predict,
        prediction,
        setup,
        size,
        repeats,
    } = arguments;
    match predict::run(predict, prediction, setup, size, *repeats) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("farcore tune: {}", line(&error));
            ExitCode::FAILURE
        }
    }
}
