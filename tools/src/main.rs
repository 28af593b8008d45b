//! The `farcore` command: operates and inspects Farcore.
//!
//! One module a command: `doctor`, `fabric`, `memnode`, `top`, `tune`. Each parses its flags,
//! reports an error as one line on stderr, and returns the exit code. `watch` reads reports of
//! running engines; `device` and `text` hold flags and formats that commands share.

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
    /// Format of the log on stderr: text or json
    #[arg(long, global = true, value_name = "FORMAT", env = LogFormat::VARIABLE, default_value_t)]
    log_format: LogFormat,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check what this machine lacks to run Farcore well, and print the remedies.
    Doctor(doctor::Arguments),
    /// Measure the latency and bandwidth of far memory, and list RDMA devices.
    #[command(subcommand)]
    Fabric(fabric::Command),
    /// Lend this machine's memory to engines elsewhere.
    Memnode(memnode::Arguments),
    /// Show a running engine: cores, latencies, memory nodes, hot keys.
    Top(top::Arguments),
    /// Find the best settings for a workload, or predict the throughput of another machine.
    Tune(Box<tune::Arguments>),
    /// Runs one plan given as JSON on standard input and writes the outcome to standard output.
    #[command(hide = true)]
    RunOne,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let log = match arguments.command {
        // A log would corrupt the view.
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

/// Runs a plan of the benchmark for the parent process.
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
