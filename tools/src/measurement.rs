//! Measurements of commands: their progress, where and by what they were made, how they end.
//! Nothing is written while a row is measured.

use std::fmt::Display;
use std::io::{self, IsTerminal};

use anyhow::{Context, Error, Result};
use farcore_command::machine::Machine;
use farcore_command::origin::Origin;
use farcore_command::outputs::complain;
use farcore_command::stop;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

/// `1 queue pair`, `2 queue pairs`.
pub(crate) fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

/// A length in the largest unit that it is a multiple of.
pub(crate) fn length(bytes: u32) -> String {
    match bytes {
        0 => "0 B".to_owned(),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

/// The progress in rows: a bar if stderr is a terminal, else nothing. It moves only between rows,
/// so it disturbs no measurement.
#[derive(Debug)]
pub(crate) struct Progress(Option<ProgressBar>);

impl Progress {
    pub(crate) fn new(rows: usize) -> Self {
        if !io::stderr().is_terminal() {
            return Self(None);
        }
        let bar = ProgressBar::new(rows as u64);
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg} {elapsed}") {
            bar.set_style(style);
        }
        Self(Some(bar))
    }

    /// Starts a row.
    pub(crate) fn begin(&self, row: impl Display) {
        if let Some(bar) = &self.0 {
            bar.set_message(row.to_string());
        }
    }

    /// Ends a row.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.0 {
            bar.inc(1);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// How a measurement of some rows ends, which an error may have ended early.
pub(crate) fn ending(failed: Option<Error>, rows: usize) -> Result<()> {
    match failed {
        None => Ok(()),
        Some(error) if rows == 0 => Err(error),
        Some(error) => Err(error.context("partial")),
    }
}

/// Where and by what a measurement was made.
#[derive(Debug, Serialize)]
pub(crate) struct Circumstances {
    pub(crate) origin: Origin,
    machine: Machine,
}

impl Circumstances {
    /// Those of this process. From here on a signal ends the measurement early.
    ///
    /// # Errors
    /// The signals cannot be caught.
    pub(crate) fn begin() -> Result<Self> {
        stop::forward_signals().context("signals cannot be caught")?;
        Ok(Self {
            origin: Origin::here(),
            machine: Machine::here(),
        })
    }

    /// Notes whether a signal or an error has ended the measurement, and says so of a signal: the
    /// error ends the command. False if nothing was measured.
    pub(crate) fn end(&mut self, command: &str, rows: usize, failed: Option<&Error>) -> bool {
        self.origin.end(failed);
        match self.origin.note() {
            _ if failed.is_some() => {}
            Some(_) if rows == 0 => {
                complain(format_args!(
                    "farcore {command}: a signal ended it before anything was measured"
                ));
            }
            Some(note) => complain(format_args!("farcore {command}: {note}")),
            None => {}
        }
        rows > 0
    }
}
