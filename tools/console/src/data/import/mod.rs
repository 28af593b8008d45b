//! Reads files as rows of typed columns: CSV, JSON, Parquet, traces of cards.
//!
//! A file lies on the disk when it is read: types of CSV and JSON are found by a first pass, rows
//! by a second one.
//!
//! - I1: files are untrusted. Memory does not grow with the file, but for a trace's messages, whose
//!   number is limited: no declared size is believed before it is checked.
//! - I2: an error names the line, row or column, the limit if there is one, and what to do.
//! - I3: nothing in a file makes the process panic or abort; a panic of a library is an error.

mod classify;
mod csv;
mod json;
mod parquet;
mod records;
mod string_guard;
mod trace;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::{Deserialize, Serialize};

pub(super) use self::classify::{Class, classify};
pub(super) use self::csv::{CsvOptions, Delimiter, Header};
use super::cell::{Column, RowSink};
use super::limits::{DataLimits, broken};
use super::stop::Stop;
use crate::error::{ApiError, ApiResult};

/// What a file is, or where a dataset came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Format {
    /// What its first bytes say: see [`found`].
    #[default]
    Auto,
    /// Comma-separated values (RFC 4180), or with semicolons or tabs.
    Csv,
    /// An array of flat objects, or one object a line.
    Json,
    /// Apache Parquet without nested columns.
    Parquet,
    /// A trace of a card as text: `farcore_card::trace`.
    Trace,
}

impl Format {
    /// The name in interfaces and the catalogue.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Parquet => "parquet",
            Self::Trace => "trace",
        }
    }
}

/// A file whose columns are known.
trait Source {
    /// The columns, in order.
    fn columns(&self) -> &[Column];

    /// Gives every row to a sink.
    ///
    /// # Errors
    /// The file is broken or too large, or the sink's.
    fn read(&mut self, sink: &mut dyn RowSink) -> ApiResult<()>;
}

/// A file to read.
#[derive(Debug)]
pub(super) struct Input<'a> {
    /// The file.
    pub(super) file: &'a File,
    /// What it is.
    pub(super) format: Format,
    /// How a CSV file is read.
    pub(super) csv: CsvOptions,
    /// Limits on it.
    pub(super) limits: DataLimits,
    /// Whether to stop between rows.
    pub(super) stop: &'a Stop,
}

/// The error of a file that the system does not read.
fn unreadable(error: std::io::Error) -> ApiError {
    ApiError::internal(format!("an uploaded file cannot be read: {error}"))
}

/// The file from its first byte, without a byte order mark.
///
/// # Errors
/// It is UTF-16, or it cannot be read.
fn text(mut file: &File) -> ApiResult<&File> {
    let mut start = [0; 3];
    file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
    let mut count = 0;
    while count < start.len() {
        match file.read(&mut start[count..]).map_err(unreadable)? {
            0 => break,
            more => count += more,
        }
    }
    if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
        return Err(broken("the file is UTF-16: save it as UTF-8"));
    }
    let mark = if start == [0xef, 0xbb, 0xbf] { 3 } else { 0 };
    file.seek(SeekFrom::Start(mark)).map_err(unreadable)?;
    Ok(file)
}

/// Bytes at the start of a file by which its format is found.
const LOOK_BYTES: u64 = 4 << 10;
/// What a Parquet file begins with.
const PARQUET_MAGIC: &[u8] = b"PAR1";
/// What a trace of any version begins with.
const HEADING_WORD: &[u8] = b"farcore-card-trace ";

/// What the first bytes of a file say that it is. A text that is neither a trace nor JSON is CSV.
fn format_of(start: &[u8]) -> Format {
    if start.starts_with(PARQUET_MAGIC) {
        return Format::Parquet;
    }
    let text = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    let text = text.trim_ascii_start();
    if text.starts_with(HEADING_WORD) {
        return Format::Trace;
    }
    match text.first() {
        Some(b'[' | b'{') => Format::Json,
        _ => Format::Csv,
    }
}

/// The format of a file, which is looked at if it is not given.
///
/// # Errors
/// The file cannot be read.
pub(super) fn found(mut file: &File, given: Format) -> ApiResult<Format> {
    if given != Format::Auto {
        return Ok(given);
    }
    file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
    let mut start = Vec::new();
    let limited = file.take(LOOK_BYTES).read_to_end(&mut start);
    limited.map_err(unreadable)?;
    Ok(format_of(&start))
}

/// Reads a file into the sink that is made for its columns.
///
/// # Errors
/// The file is broken or too large, or the sink's.
pub(super) fn read<S: RowSink>(
    input: &Input<'_>,
    open: impl FnOnce(&[Column]) -> ApiResult<S>,
) -> ApiResult<S> {
    let read = || {
        let mut source: Box<dyn Source + '_> = match input.format {
            Format::Auto | Format::Csv => Box::new(csv::CsvSource::open(input)?),
            Format::Json => Box::new(json::JsonSource::open(input)?),
            Format::Parquet => Box::new(parquet::ParquetSource::open(input)?),
            Format::Trace => Box::new(trace::TraceSource::open(input)?),
        };
        let mut sink = open(source.columns())?;
        source.read(&mut sink)?;
        Ok(sink)
    };
    // Decoders of Parquet panic on some broken files. What they hold is not used afterwards.
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| {
        Err(broken(
            "the file is broken in a way that its reader did not expect: write it again",
        ))
    })
}

#[cfg(test)]
mod tests {
    use farcore_card::trace::HEADING;

    use super::*;

    #[test]
    fn the_first_bytes_say_the_format() {
        for (start, format) in [
            (&b"PAR1\x15\x04"[..], Format::Parquet),
            (b"\xef\xbb\xbf  [{\"a\": 1}]", Format::Json),
            (b"{\"a\": 1}\n{\"a\": 2}\n", Format::Json),
            (HEADING.as_bytes(), Format::Trace),
            (b"\xef\xbb\xbffarcore-card-trace 2\n", Format::Trace),
            (b"a,b\n1,2\n", Format::Csv),
            (b"", Format::Csv),
        ] {
            assert_eq!(format_of(start), format, "{start:?}");
        }
        assert!(HEADING.as_bytes().starts_with(HEADING_WORD));
    }
}
