//! The records of a CSV file, with their lines, in bounded memory.
//!
//! - I1: the buffers hold one block of the file and one record of at most
//!   [`RECORD_BYTES_MAX`] bytes; a longer one, as after a missing quote, is an error.

use std::io::Read;

use csv_core::ReadRecordResult;

use super::unreadable;
use crate::data::limits::{DataLimits, broken, size, unprocessable};
use crate::error::{ApiError, ApiResult};

/// Most bytes of a record.
const RECORD_BYTES_MAX: usize = 4 << 20;
const BLOCK_BYTES: usize = 64 << 10;

/// Reads records.
pub(super) struct Records<R> {
    input: R,
    core: csv_core::Reader,
    block: Vec<u8>,
    at: usize,
    filled: usize,
    /// Newlines before `at`.
    newlines: u64,
    limits: DataLimits,
    /// The bytes of the record's fields, one after the other, and where each ends.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    count: usize,
    line: u64,
}

impl<R: Read> Records<R> {
    /// Records whose fields a byte separates.
    pub(super) fn new(input: R, delimiter: u8, limits: DataLimits) -> Self {
        Self {
            input,
            core: csv_core::ReaderBuilder::new().delimiter(delimiter).build(),
            block: vec![0; BLOCK_BYTES],
            at: 0,
            filled: 0,
            newlines: 0,
            limits,
            bytes: vec![0; 4 << 10],
            // One more than is allowed, so that a record that has too many is seen.
            ends: vec![0; limits.columns + 1],
            count: 0,
            line: 0,
        }
    }

    /// The line on which the record starts, from 1.
    pub(super) fn line(&self) -> u64 {
        self.line
    }

    /// The number of fields of the record.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Reads more of the file; false at its end.
    fn fill(&mut self) -> ApiResult<bool> {
        self.at = 0;
        self.filled = self.input.read(&mut self.block).map_err(unreadable)?;
        Ok(self.filled > 0)
    }

    fn consume(&mut self, count: usize) {
        let consumed = &self.block[self.at..self.at + count];
        self.newlines += consumed.iter().filter(|&&byte| byte == b'\n').count() as u64;
        self.at += count;
    }

    /// Skips empty lines and the rest of a line's end.
    fn skip_ends(&mut self) -> ApiResult<()> {
        loop {
            let rest = &self.block[self.at..self.filled];
            let ends = rest
                .iter()
                .take_while(|&&byte| byte == b'\n' || byte == b'\r');
            let count = ends.count();
            let is_all = count == rest.len();
            self.consume(count);
            if !is_all || !self.fill()? {
                return Ok(());
            }
        }
    }

    fn grow(&mut self) -> ApiResult<()> {
        if self.bytes.len() >= RECORD_BYTES_MAX {
            let limit = size(RECORD_BYTES_MAX as u64);
            return Err(unprocessable(
                "record_too_long",
                format!(
                    "line {}: the record is longer than {limit}: close its quotes, or shorten it",
                    self.line
                ),
            ));
        }
        let longer = self.bytes.len() * 2;
        self.bytes.resize(longer.min(RECORD_BYTES_MAX), 0);
        Ok(())
    }

    /// Reads the next record; false after the last.
    ///
    /// # Errors
    /// It is too long, it has too many fields, or the file cannot be read.
    pub(super) fn next(&mut self) -> ApiResult<bool> {
        self.skip_ends()?;
        self.line = self.newlines + 1;
        let (mut bytes, mut ends) = (0, 0);
        loop {
            if self.at == self.filled {
                self.fill()?;
            }
            let input = &self.block[self.at..self.filled];
            let (result, read, written, ended) =
                self.core
                    .read_record(input, &mut self.bytes[bytes..], &mut self.ends[ends..]);
            self.consume(read);
            bytes += written;
            ends += ended;
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull => self.grow()?,
                ReadRecordResult::OutputEndsFull => return Err(self.too_many(ends)),
                ReadRecordResult::End => return Ok(false),
                ReadRecordResult::Record => break,
            }
        }
        if ends > self.limits.columns {
            return Err(self.too_many(ends));
        }
        self.count = ends;
        Ok(true)
    }

    fn too_many(&self, count: usize) -> ApiError {
        let place = format!("line {}", self.line);
        self.limits.too_many_columns(&place, count)
    }

    /// The text of a field, by its place from 0.
    ///
    /// # Errors
    /// It is too long, or not text.
    pub(super) fn field(&self, place: usize) -> ApiResult<&str> {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        let bytes = &self.bytes[start..self.ends[place]];
        let here = || format!("line {}, column {}", self.line, place + 1);
        if bytes.len() > self.limits.cell_bytes {
            return Err(self.limits.text_too_long(&here(), bytes.len()));
        }
        if bytes.contains(&0) {
            return Err(broken(format!(
                "{}: there is a NUL: save the file as UTF-8 text",
                here()
            )));
        }
        std::str::from_utf8(bytes)
            .map_err(|_| broken(format!("{}: not UTF-8: save the file as UTF-8", here())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8]) -> ApiResult<Vec<(u64, Vec<String>)>> {
        let mut records = Records::new(text, b',', DataLimits::default());
        let mut found = Vec::new();
        while records.next()? {
            let fields = (0..records.count()).map(|at| records.field(at).map(str::to_owned));
            found.push((records.line(), fields.collect::<ApiResult<_>>()?));
        }
        Ok(found)
    }

    #[test]
    fn records_know_their_lines() {
        for end in ["\n", "\r\n"] {
            let text = ["a,b", "", "\"x\"\"y", "z\",2", "3,4", ""].join(end);
            let records = all(text.as_bytes()).unwrap();
            let lines: Vec<_> = records.iter().map(|record| record.0).collect();
            assert_eq!(lines, [1, 3, 5], "{end:?}");
            assert_eq!(records[1].1, [format!("x\"y{end}z"), "2".to_owned()]);
        }
        assert_eq!(all(b"").unwrap(), []);
        assert_eq!(all(b"a").unwrap(), [(1, vec!["a".to_owned()])]);
        assert_eq!(all(b"a,\n").unwrap()[0].1, ["a", ""]);
    }

    #[test]
    fn long_files_are_read_in_blocks() {
        let lines = (0..50_000).map(|at| format!("{at},\"{}\"", at * 7));
        let text = lines.collect::<Vec<_>>().join("\r\n");
        let records = all(text.as_bytes()).unwrap();
        assert_eq!(records.len(), 50_000);
        for (at, (line, fields)) in records.iter().enumerate() {
            assert_eq!(*line, at as u64 + 1);
            assert_eq!(fields, &[at.to_string(), (at * 7).to_string()]);
        }
    }

    #[test]
    fn a_missing_quote_does_not_fill_the_memory() {
        let mut text = b"a,b\n1,\"".to_vec();
        text.resize(5 << 20, b'x');
        let error = all(&text).unwrap_err();
        assert_eq!(error.code(), "record_too_long");
        assert!(error.message().contains("line 2"), "{error:?}");
        text.truncate(100_000);
        assert_eq!(all(&text).unwrap_err().code(), "text_too_long");
    }

    #[test]
    fn a_million_columns_are_refused() {
        let text = vec![b','; 1_000_000];
        let error = all(&text).unwrap_err();
        assert_eq!(error.code(), "too_many_columns");
        assert!(error.message().contains("at most 256"), "{error:?}");
        assert_eq!(all(&vec![b','; 255]).unwrap()[0].1.len(), 256);
        assert_eq!(
            all(&vec![b','; 256]).unwrap_err().code(),
            "too_many_columns"
        );
    }

    #[test]
    fn bytes_that_are_no_text_are_named() {
        let error = all(b"a\nb\n\xff\n").unwrap_err();
        assert!(
            error.message().contains("line 3, column 1: not UTF-8"),
            "{error:?}"
        );
        let error = all(b"a,b\nc,d\0").unwrap_err();
        assert!(error.message().contains("line 2, column 2"), "{error:?}");
    }
}
