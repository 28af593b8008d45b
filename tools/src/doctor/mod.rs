//! `farcore doctor`: what this machine lacks to run Farcore well, and how to mend it.
//!
//! Each room looks at the files of one part of the machine, under a [`Root`] that it is given;
//! [`probe`] tries what only trying tells. Nothing is changed.

mod clock;
mod cpu_list;
mod devices;
mod finding;
mod kernel;
mod limits;
mod memory;
mod network;
mod numa;
mod perf;
mod probe;
mod processor;
#[cfg(test)]
mod tests;

use std::process::ExitCode;

use clap::Args;

use self::finding::{Finding, Verdict};
use farcore_tuning::Root;

/// Flags of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Print a list of JSON objects: what, verdict (fine, unknown, weak or broken), seen, why, mend
    #[arg(long)]
    json: bool,
}

/// What the files of a machine tell.
fn examine(root: &Root) -> Vec<Finding> {
    [
        kernel::look,
        processor::look,
        numa::look,
        clock::look,
        memory::look,
        limits::look,
        network::look,
        perf::look,
        devices::look,
    ]
    .iter()
    .flat_map(|look| look(root))
    .collect()
}

/// Prints what was found; fails if something keeps the engine from running.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let mut findings = examine(&Root::new("/"));
    findings.extend(probe::look());
    if arguments.json {
        match serde_json::to_string_pretty(&findings) {
            Ok(text) => println!("{text}"),
            Err(error) => {
                eprintln!("farcore doctor: {error}");
                return ExitCode::FAILURE;
            }
        }
    } else {
        for finding in &findings {
            println!("{}", finding.text());
        }
    }
    if findings.iter().any(|one| one.verdict == Verdict::Broken) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
