//! A trace file of either format, plain or compressed with zstd or gzip, as a stream of
//! requests.
//!
//! Owns the file and its buffers. What the file is shows in its first bytes, not in its name; what
//! is no trace is refused before anything is read from it. Bad lines and records are returned as
//! flaws; only errors of the file or the decoder end the stream. Memory: a few buffers and the
//! window of the zstd frame, 128 MiB at most.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::csv::{self, LINE_BYTES_MAX};
use super::entry::{Entry, Flaw};
use super::foreign;
use super::oracle::{self, RECORD_BYTES};
use super::packing::{self, Packing};

const BUFFER_BYTES: usize = 256 << 10;
/// Bytes that a file is recognised from: more than a line of any other kind takes.
const SAMPLE_BYTES: usize = 256 << 10;
/// The mark that some programs put before UTF-8.
const BYTE_ORDER_MARK: &[u8] = "\u{FEFF}".as_bytes();

/// The format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Lines of Twitter's cache traces.
    Csv,
    /// Records of libCacheSim's oracleGeneral.
    OracleGeneral,
}

impl Format {
    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::OracleGeneral => "oracle-general",
        }
    }

    /// The format of contents that begin with a sample.
    ///
    /// # Errors
    /// They are no trace. A forced format is refused only for what is known to be something else.
    fn of(sample: &[u8], forced: Option<Self>) -> Result<Self, String> {
        if oracle::records(sample).is_some() {
            return Ok(forced.unwrap_or(Self::OracleGeneral));
        }
        if let Some(refusal) = foreign::named(sample) {
            return Err(refusal);
        }
        let text = without_mark(sample);
        match forced {
            Some(Self::Csv) => Ok(Self::Csv),
            _ if text.trim_ascii().is_empty() => Ok(forced.unwrap_or(Self::Csv)),
            Some(Self::OracleGeneral) if foreign::is_text(sample) => {
                let refusal = "it is text, not records: leave --format out, or say --format csv";
                Err(refusal.into())
            }
            Some(Self::OracleGeneral) => Ok(Self::OracleGeneral),
            None if csv::holds_a_request(text) => Ok(Self::Csv),
            None if foreign::is_text(text) => Err(foreign::text(text)),
            None => Err(foreign::unknown(sample)),
        }
    }
}

fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// What a stream begins with, and the stream from its beginning.
fn sampled(mut input: Box<dyn BufRead>) -> io::Result<(Vec<u8>, Box<dyn BufRead>)> {
    let mut sample = Vec::new();
    input
        .by_ref()
        .take(SAMPLE_BYTES as u64)
        .read_to_end(&mut sample)?;
    let stream = Cursor::new(sample.clone()).chain(input);
    Ok((sample, Box::new(stream)))
}

fn refused(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The stream.
pub struct Source {
    input: Box<dyn BufRead>,
    format: Format,
    number: u64,
    line: Vec<u8>,
    decoded: Vec<u8>,
    record: [u8; RECORD_BYTES],
}

impl std::fmt::Debug for Source {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Source")
            .field("format", &self.format)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Source {
    /// Opens a file. Without a format, it is detected from the contents, as compression always is.
    ///
    /// # Errors
    /// Those of the file or of the decoder; or the contents are no trace.
    pub fn open(file: &Path, format: Option<Format>) -> io::Result<Self> {
        Self::new(File::open(file)?, format)
    }

    fn new(input: impl Read + 'static, format: Option<Format>) -> io::Result<Self> {
        let input = Box::new(BufReader::with_capacity(BUFFER_BYTES, input));
        let (mut sample, mut input) = sampled(input)?;
        // The first time of records may be anything, but that it makes a frame of them is chance.
        let are_records = oracle::records(&sample).is_some_and(|count| count > 1);
        let packing = if are_records {
            Packing::Plain
        } else {
            Packing::of(&sample)
        };
        if packing != Packing::Plain {
            (sample, input) = sampled(packing.open(input)?)?;
            if Packing::of(&sample) != Packing::Plain {
                let tool = packing.tool();
                return Err(refused(format!(
                    "it is compressed twice: unpack it once, as in `{tool} FILE | farcore-bench trace -`"
                )));
            }
        }
        let frame = packing::behind_skippable(&sample).unwrap_or(&sample);
        if frame.len() < sample.len()
            && let Some(refusal) = foreign::named(frame)
        {
            return Err(refused(refusal));
        }
        let format = Format::of(&sample, format).map_err(refused)?;
        if format == Format::Csv && sample.starts_with(BYTE_ORDER_MARK) {
            input.consume(BYTE_ORDER_MARK.len());
        }
        Ok(Self {
            input,
            format,
            number: 0,
            line: Vec::with_capacity(LINE_BYTES_MAX),
            decoded: Vec::new(),
            record: [0; RECORD_BYTES],
        })
    }

    /// The format.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// The number of the last line or record, from 1.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next request, or why a line is skipped; `None` at the end.
    ///
    /// # Errors
    /// Those of the file or of the decoder.
    pub fn read(&mut self) -> io::Result<Option<Result<Entry<'_>, Flaw>>> {
        self.number += 1;
        match self.format {
            Format::Csv => {
                let Some(fits) = next_line(&mut *self.input, &mut self.line)? else {
                    return Ok(None);
                };
                if !fits {
                    return Ok(Some(Err(Flaw::LineTooLong)));
                }
                let parsed = csv::parse(&self.line, &mut self.decoded);
                Ok(Some(match parsed {
                    Err(Flaw::Number) if self.number == 1 => Err(Flaw::Header),
                    parsed => parsed,
                }))
            }
            Format::OracleGeneral => Ok(match next_record(&mut *self.input, &mut self.record)? {
                0 => None,
                RECORD_BYTES => Some(Ok(oracle::parse(&self.record))),
                _ => Some(Err(Flaw::Truncated)),
            }),
        }
    }
}

/// Reads a line without its line end. Returns whether it fits; the rest of a longer line is
/// skipped. `None` at the end.
fn next_line(input: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<Option<bool>> {
    line.clear();
    let (mut fits, mut is_empty) = (true, true);
    loop {
        let bytes = input.fill_buf()?;
        if bytes.is_empty() {
            return Ok((!is_empty).then_some(fits));
        }
        is_empty = false;
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let piece = &bytes[..end.unwrap_or(bytes.len())];
        fits &= line.len() + piece.len() <= LINE_BYTES_MAX;
        if fits {
            line.extend_from_slice(piece);
        }
        let used = piece.len() + usize::from(end.is_some());
        input.consume(used);
        if end.is_some() {
            return Ok(Some(fits));
        }
    }
}

/// Reads a record; returns how many of its bytes the file had.
fn next_record(input: &mut dyn BufRead, record: &mut [u8; RECORD_BYTES]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < RECORD_BYTES {
        match input.read(&mut record[filled..]) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests;
