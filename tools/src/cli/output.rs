//! Standard output of `farcore cli`: results as text or JSON.
//!
//! - I1: once the reader is gone, nothing more is written, and that is no error.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Stdout, Write};

use anyhow::{Context, Result};
use farcore_command::outputs::complain;

use super::answer::{Answer, Ending};

/// Where results go.
#[derive(Debug)]
pub(super) struct Output {
    out: BufWriter<Stdout>,
    pub(super) json: bool,
    /// The command's name if there is one only: outcomes that are none go to stderr then.
    single: Option<&'static str>,
    is_closed: bool,
}

impl Output {
    /// For one command.
    pub(super) fn single(name: &'static str, json: bool) -> Self {
        Self {
            single: Some(name),
            ..Self::of_lines(json)
        }
    }

    /// For commands of lines: each has its result on standard output.
    pub(super) fn of_lines(json: bool) -> Self {
        Self {
            out: BufWriter::new(io::stdout()),
            json,
            single: None,
            is_closed: false,
        }
    }

    /// Whether there is one command, which may read standard input and write raw bytes.
    pub(super) fn is_single(&self) -> bool {
        self.single.is_some()
    }

    /// Whether the reader is gone.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Writes a result; returns how the command ended by it.
    pub(super) fn answer(&mut self, answer: &Answer) -> Result<Ending> {
        let ending = answer.ending();
        match (self.single, answer) {
            _ if self.json => self.line(&answer.json().to_string())?,
            (Some(name), _) if ending != Ending::Done => {
                complain(format_args!("farcore {name}: {}", answer.text()));
            }
            (Some(_), Answer::Value(found)) if !io::stdout().is_terminal() => {
                let written = self.out.write_all(&found.value);
                self.heed(written)?;
            }
            _ => self.line(&answer.text())?,
        }
        Ok(ending)
    }

    /// Writes a line.
    pub(super) fn line(&mut self, text: &str) -> Result<()> {
        let written = writeln!(self.out, "{text}");
        self.heed(written)
    }

    /// Writes what is buffered.
    pub(super) fn flush(&mut self) -> Result<()> {
        let written = if self.is_closed {
            Ok(())
        } else {
            self.out.flush()
        };
        self.heed(written)
    }

    fn heed(&mut self, written: io::Result<()>) -> Result<()> {
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            other => other.context("standard output cannot be written"),
        }
    }
}
