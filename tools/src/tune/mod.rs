//! `farcore tune`: what to set, and what another machine would do.
//!
//! [`predict`] answers from a queueing model that is calibrated by a real run. Otherwise the engine is tuned for a
//! workload: [`tuner`] is the command, [`knob`] what can be turned, [`search`] how, [`trial`] the runs that are compared,
//! [`report`] and [`chart`] what is shown.

mod chart;
mod knob;
mod predict;
mod report;
mod search;
mod trial;
mod tuner;

use std::process::ExitCode;

use clap::Args;

use crate::text;

/// Flags of `tune`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Say what another machine would do and what saturates first, e.g. cores=64,nodes=8,link=200Gb
    #[arg(long, value_name = "MACHINE")]
    predict: Option<predict::Machine>,
    #[command(flatten)]
    tuner: tuner::TunerArgs,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match &arguments.predict {
        Some(machine) => predict::run(machine),
        None => tuner::run(&arguments.tuner),
    }
}

/// One of the runs that are compared, in a process of its own.
pub(crate) fn run_one() -> ExitCode {
    match farcore_bench::child::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", text::line(&error));
            ExitCode::FAILURE
        }
    }
}
