//! `farcore-bench`: parses the command line, makes the plans and runs the command. An error is the
//! last line on stderr and the exit status is 1.

use std::process::ExitCode;

use clap::Parser;
use farcore_bench::cli::{Cli, Command};
use farcore_bench::machine::Machine;
use farcore_bench::{child, compare, fairness};
use farcore_tuning::log_to_stderr;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let log = log_to_stderr(cli.log_format, "info");
    let outcome = run(cli.command);
    // The error is the last line.
    log.end();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("farcore-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Contest(args) => {
            let machine = Machine::here();
            let plans = args.plans(&machine)?;
            compare::compare(machine, &plans, &args.common)
        }
        Command::Ycsb(args) => {
            let machine = Machine::here();
            let plans = args.plans(&machine)?;
            compare::compare(machine, &plans, &args.common)
        }
        Command::Trace(args) => {
            let machine = Machine::here();
            let plans = args.plans(&machine)?;
            compare::compare(machine, &plans, &args.common)
        }
        Command::Fairness(args) => {
            let machine = Machine::here();
            let plan = args.plan(&machine)?;
            fairness::command(machine, &plan, &args)
        }
        Command::RunOne => child::serve(),
    }
}
