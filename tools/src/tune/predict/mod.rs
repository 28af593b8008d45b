//! `farcore tune --predict`: scaling on paper, calibrated by a real run.

mod machine;

use std::process::ExitCode;

pub(super) use machine::Machine;

/// Predicts for a machine.
pub(super) fn run(machine: &Machine) -> ExitCode {
    println!("{machine}");
    ExitCode::SUCCESS
}
