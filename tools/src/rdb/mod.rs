//! `farcore rdb`: files in Redis's RDB format, such as `dump.rdb`.

mod check;
mod connection;
mod export;
mod import;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Read a whole file, count what it holds, and report the first damage with its place.
    Check(check::Arguments),
    /// Store what a file holds in a running server, which may be a Redis.
    Import(import::Arguments),
    /// Write all that a running server holds, which may be a Redis, to a file.
    Export(export::Arguments),
}

impl Command {
    /// The words that name the command, for errors.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Check(_) => "rdb check",
            Self::Import(_) => "rdb import",
            Self::Export(_) => "rdb export",
        }
    }
}

/// Runs the command.
///
/// # Errors
/// A file cannot be read or written, or is damaged; a server cannot be reached, or refuses.
pub(crate) fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Check(arguments) => check::run(arguments),
        Command::Import(arguments) => import::run(arguments),
        Command::Export(arguments) => export::run(arguments),
    }?;
    Ok(ExitCode::SUCCESS)
}
