//! `farcore doctor`: checks what this machine lacks to run Farcore well, and prints the remedies.
//!
//! Each module checks one part of the machine from the files under a [`Root`], so tests can check
//! made-up machines. [`probe`] checks what only a trial shows: clock, counters, opening an engine.
//! Nothing on the machine is changed. The command fails only if the engine cannot run.

mod clock;
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

use anyhow::Result;
use clap::Args;

use self::finding::{Finding, Verdict};
use farcore_command::outputs::print;
use farcore_tuning::Root;

/// Flags of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Print a list of JSON objects: what, verdict (fine, unknown, weak or broken), seen, why, mend
    #[arg(long)]
    json: bool,
}

/// Checks the files of a machine.
fn examine(root: &Root) -> Vec<Finding> {
    [
        kernel::check,
        processor::check,
        numa::check,
        clock::check,
        memory::check,
        limits::check,
        network::check,
        perf::check,
        devices::check,
    ]
    .iter()
    .flat_map(|check| check(root))
    .collect()
}

/// Prints all findings. The exit code says whether the engine can run.
///
/// # Errors
/// standard output cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let mut findings = examine(&Root::new("/"));
    findings.extend(probe::check());
    let text = if arguments.json {
        serde_json::to_string_pretty(&findings)?
    } else {
        let lines: Vec<String> = findings.iter().map(Finding::text).collect();
        lines.join("\n")
    };
    print(text)?;
    Ok(
        if findings.iter().any(|one| one.verdict == Verdict::Broken) {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        },
    )
}
