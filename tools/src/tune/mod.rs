//! `farcore tune`: what to set, and what another machine would do.
//!
//! [`predict`] answers from a queueing model that is calibrated by a real run.

mod predict;

use std::process::ExitCode;

use clap::Args;

/// Flags of `tune`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Say what another machine would do and what saturates first, e.g. cores=64,nodes=8,link=200Gb
    #[arg(long, value_name = "MACHINE")]
    predict: predict::Machine,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    predict::run(&arguments.predict)
}
