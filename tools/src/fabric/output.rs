//! Output of measurements: a table for stdout, a progress bar on stderr. Nothing is written while a
//! row is measured.

use std::fmt::Display;
use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressStyle};

pub(super) use crate::text::table;

/// `1 queue pair`, `2 queue pairs`.
pub(super) fn count(number: usize, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

/// A length in the largest unit that it is a multiple of.
pub(super) fn length(bytes: u32) -> String {
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
pub(super) struct Progress(Option<ProgressBar>);

impl Progress {
    pub(super) fn new(rows: usize) -> Self {
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
    pub(super) fn begin(&self, row: impl Display) {
        if let Some(bar) = &self.0 {
            bar.set_message(row.to_string());
        }
    }

    /// Ends a row.
    pub(super) fn end(&self) {
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
