//! CSV files (RFC 4180), their delimiter and header found by looking.
//!
//! - I1: every record has as many fields as the first; one that has not is named by its line.
//! - I2: types fit every cell of the file, not only the first rows.

use std::fs::File;

use serde::Deserialize;

use super::classify::{Class, Seen, cell, classify};
use super::records::Records;
use super::{Input, Source, text};
use crate::data::cell::{Cell, Column, ColumnType, RowSink};
use crate::data::limits::{DataLimits, ROWS_BETWEEN_CHECKS, broken, unprocessable};
use crate::data::names::ColumnNames;
use crate::error::ApiResult;

/// Bytes at the start of a file in which the delimiter is looked for.
const LOOK_BYTES: usize = 64 << 10;

/// Whether the first record names the columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Header {
    /// If it has a text, and no number.
    #[default]
    Auto,
    /// It does.
    Yes,
    /// It is a row.
    No,
}

/// What separates fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Delimiter {
    /// The one that the first line has most of.
    #[default]
    Auto,
    /// `,`
    Comma,
    /// `;`
    Semicolon,
    /// A tab.
    Tab,
}

/// How a CSV file is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct CsvOptions {
    /// Whether the first record names the columns.
    pub(crate) header: Header,
    /// What separates fields.
    pub(crate) delimiter: Delimiter,
}

/// The delimiter that a first line has most of, outside quotes; a comma if there is none.
fn delimiter(start: &[u8]) -> u8 {
    let mut counts = [(b',', 0), (b';', 0), (b'\t', 0)];
    let mut is_quoted = false;
    for &byte in start {
        match byte {
            b'"' => is_quoted = !is_quoted,
            b'\n' | b'\r' if !is_quoted => break,
            _ if is_quoted => {}
            _ => {
                let counted = counts.iter_mut().find(|(known, _)| *known == byte);
                if let Some((_, count)) = counted {
                    *count += 1;
                }
            }
        }
    }
    let mut best = counts[0];
    for other in counts {
        if other.1 > best.1 {
            best = other;
        }
    }
    best.0
}

/// The first bytes of a file.
fn start(mut file: &File) -> ApiResult<Vec<u8>> {
    use std::io::Read;
    let mut start = Vec::new();
    let limited = (&mut file).take(LOOK_BYTES as u64).read_to_end(&mut start);
    limited.map_err(super::unreadable)?;
    Ok(start)
}

/// A CSV file whose columns are known.
pub(super) struct CsvSource<'a> {
    input: &'a Input<'a>,
    delimiter: u8,
    has_header: bool,
    columns: Vec<Column>,
}

fn is_header(options: CsvOptions, records: &Records<&File>) -> ApiResult<bool> {
    match options.header {
        Header::Yes => return Ok(true),
        Header::No => return Ok(false),
        Header::Auto => {}
    }
    let mut has_text = false;
    for place in 0..records.count() {
        match classify(records.field(place)?) {
            Class::Empty => {}
            Class::Text => has_text = true,
            _ => return Ok(false),
        }
    }
    Ok(has_text)
}

fn ragged(records: &Records<&File>, expected: usize) -> ApiResult<()> {
    if records.count() == expected {
        return Ok(());
    }
    Err(unprocessable(
        "ragged_row",
        format!(
            "line {} has {} fields, and the first has {expected}: quote fields that hold the delimiter, and fill the missing ones",
            records.line(),
            records.count()
        ),
    ))
}

impl<'a> CsvSource<'a> {
    /// Finds delimiter, header, columns and types; reads the whole file once.
    ///
    /// # Errors
    /// The file is broken or too large.
    pub(super) fn open(input: &'a Input<'a>) -> ApiResult<Self> {
        let delimiter = match input.csv.delimiter {
            Delimiter::Auto => delimiter(&start(text(input.file)?)?),
            Delimiter::Comma => b',',
            Delimiter::Semicolon => b';',
            Delimiter::Tab => b'\t',
        };
        let mut records = Records::new(text(input.file)?, delimiter, input.limits);
        if !records.next()? {
            return Err(broken(
                "the file is empty: a CSV file has at least one line",
            ));
        }
        let count = records.count();
        let has_header = is_header(input.csv, &records)?;
        let mut names = ColumnNames::default();
        let mut named = Vec::with_capacity(count);
        for place in 0..count {
            let raw = if has_header {
                records.field(place)?
            } else {
                ""
            };
            named.push(names.add(raw, place)?);
        }
        let mut seen = vec![Seen::default(); count];
        let mut is_row = !has_header;
        let mut rows = 0;
        while is_row || records.next()? {
            is_row = false;
            rows += 1;
            check_rows(rows, &input.limits, input)?;
            ragged(&records, count)?;
            for (place, seen) in seen.iter_mut().enumerate() {
                seen.add(classify(records.field(place)?));
            }
        }
        let columns = named.into_iter().zip(&seen);
        Ok(Self {
            input,
            delimiter,
            has_header,
            columns: columns
                .map(|(name, seen)| Column::new(name, seen.kind()))
                .collect(),
        })
    }
}

/// Checks the number of a row, and now and then whether to stop.
pub(super) fn check_rows(rows: u64, limits: &DataLimits, input: &Input<'_>) -> ApiResult<()> {
    if rows > limits.rows {
        return Err(limits.too_many_rows());
    }
    if rows.is_multiple_of(ROWS_BETWEEN_CHECKS) {
        input.stop.check()?;
    }
    Ok(())
}

impl Source for CsvSource<'_> {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn read(&mut self, sink: &mut dyn RowSink) -> ApiResult<()> {
        let file = text(self.input.file)?;
        let mut records = Records::new(file, self.delimiter, self.input.limits);
        if self.has_header {
            records.next()?;
        }
        let kinds: Vec<ColumnType> = self.columns.iter().map(|column| column.kind).collect();
        while records.next()? {
            ragged(&records, kinds.len())?;
            let cells = kinds.iter().enumerate();
            let row = cells.map(|(place, &kind)| Ok(cell(records.field(place)?, kind)));
            sink.row(&row.collect::<ApiResult<Vec<Cell<'_>>>>()?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delimiters_are_found_outside_quotes() {
        for (line, found) in [
            ("a,b;c,d\n;;;;", b','),
            ("\"a,b,c\";d\n", b';'),
            ("a\tb\tc,d", b'\t'),
            ("a", b','),
            ("", b','),
            ("a,b;c", b','),
        ] {
            assert_eq!(delimiter(line.as_bytes()), found, "{line:?}");
        }
    }
}
