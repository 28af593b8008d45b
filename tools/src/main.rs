//! The `farcore` command: operate and inspect Farcore.

mod device;
mod doctor;
mod fabric;
mod memnode;
mod text;
mod top;
mod tune;
mod watch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use farcore_tuning::{LogFormat, LogGuard, log_to_stderr};

#[derive(Debug, Parser)]
#[command(name = "farcore", version, about = "Operate and inspect Farcore")]
struct Arguments {
    /// How the log on stderr is written: text or json
    #[arg(long, global = true, value_name = "FORMAT", env = LogFormat::VARIABLE, default_value_t)]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Tell what this machine lacks to run Farcore well, and how to mend it.
    Doctor(doctor::Arguments),
    /// Measure the way to memory nodes, and list the devices that lead there.
    #[command(subcommand)]
    Fabric(fabric::Command),
    /// Lend this machine's memory to engines elsewhere.
    Memnode(memnode::Arguments),
    /// Watch a running engine: cores, latencies, memory nodes, hot keys.
    Top(top::Arguments),
    /// Find the settings that serve a workload best, or say what another machine would do.
    Tune(Box<tune::Arguments>),
    /// Runs one plan given as JSON on standard input and answers on standard output.
    #[command(hide = true)]
    RunOne,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let log = match arguments.command {
        // A log would be written into the view.
        Command::Top(_) => None,
        Command::Memnode(_) => Some(log_to_stderr(arguments.log_format, "info")),
        _ => Some(log_to_stderr(arguments.log_format, "warn")),
    };
    match arguments.command {
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Fabric(command) => fabric::run(&command),
        Command::Memnode(arguments) => memnode::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::RunOne => run_one(log),
    }
}

/// A run of the benchmark, for a command that started this process.
fn run_one(log: Option<LogGuard>) -> ExitCode {
    let outcome = farcore_bench::child::serve();
    // The error is the last line.
    if let Some(log) = log {
        log.end();
    }
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
