//! `farcore pool`: remote memory that programs allocate: what its nodes lend, what can be done with
//! it, and how fast it is.
//!
//! `status` lists the nodes of a pool, `demo` shows each operation once, `bench` measures them. All
//! open a pool as a program does, through `farcore-pool`.
//!
//! - I1: an error is one line on stderr with the remedy, and exit code 1.
//! - I2: SIGINT, SIGTERM and SIGHUP end a measurement early. What was measured is printed and
//!   written, marked partial; the exit code is 128 + the signal's number.

mod bench;
mod demo;
mod status;
mod target;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use farcore_command::outputs::complain;
use farcore_command::stop;

use crate::text::line;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the memory nodes of a pool: what they lend, and what is free.
    Status(status::Arguments),
    /// Show each operation of a pool once, on memory nodes or without any.
    Demo(demo::Arguments),
    /// Measure a pool: allocations, reads, writes, atomics and look-ups.
    Bench(bench::Arguments),
}

impl Command {
    /// The words that name the command, for errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Status(_) => "pool status",
            Self::Demo(_) => "pool demo",
            Self::Bench(_) => "pool bench",
        }
    }
}

/// Runs the command.
///
/// # Errors
/// A flag is wrong, a node does not answer, or an output cannot be written.
pub(crate) fn run(command: &Command) -> Result<ExitCode> {
    let ended = match command {
        Command::Status(arguments) => status::run(arguments),
        Command::Demo(arguments) => demo::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
    };
    let Some(status) = stop::status() else {
        return ended.map(|()| ExitCode::SUCCESS);
    };
    if let Err(error) = ended {
        complain(format_args!("farcore {}: {}", command.name(), line(&error)));
    }
    Ok(ExitCode::from(status))
}
