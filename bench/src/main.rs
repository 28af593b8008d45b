//! The benchmark's command.

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use farcore_bench::cli::{Cli, Command};
use farcore_bench::machine::Machine;
use farcore_bench::{child, compare};
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    match run(cli.command) {
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
        Command::RunOne => child::serve(),
    }
}
