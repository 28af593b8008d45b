//! `farcore rdb`: files in Redis's RDB format, such as `dump.rdb`.

mod check;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Read a whole file, count what it holds, and report the first damage with its place.
    Check(check::Arguments),
}

impl Command {
    /// The words that name the command, for errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Check(_) => "rdb check",
        }
    }
}

/// Runs the command.
///
/// # Errors
/// A file cannot be read, or is damaged.
pub(crate) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Check(arguments) => check::run(arguments),
    }?;
    Ok(ExitCode::SUCCESS)
}
