//! CSV for people and spreadsheets.
//!
//! A spreadsheet runs a text that begins with `=`, `+`, `-`, `@`, a tab or a line's end as a
//! formula. Such texts, and such names of columns, begin with an apostrophe in the file. Numbers
//! are written as they are. CSV cannot tell a missing text from an empty one: both are empty.
//!
//! Source: OWASP, CSV Injection; RFC 4180.

use std::borrow::Cow;
use std::fs::File;

use super::spool::{Spool, write_error};
use crate::data::cell::{Cell, Column, RowSink, number_text};
use crate::error::{ApiError, ApiResult};

/// First characters of formulas, the wide forms of Chinese and Japanese keyboards included.
const FORMULA: [char; 12] = [
    '=', '+', '-', '@', '\t', '\r', '\n', '\0', '＝', '＋', '－', '＠',
];

/// A text that no spreadsheet takes for a formula.
pub(super) fn harmless(text: &str) -> Cow<'_, str> {
    if text.starts_with(FORMULA) {
        Cow::Owned(format!("'{text}"))
    } else {
        Cow::Borrowed(text)
    }
}

/// A CSV file.
pub(in crate::data) struct CsvFile {
    writer: csv::Writer<Spool>,
}

fn failed(error: csv::Error) -> ApiError {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => write_error(error),
        other => ApiError::internal(format!("a CSV file cannot be written: {other:?}")),
    }
}

impl CsvFile {
    /// Writes the header.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn create(spool: Spool, columns: &[Column]) -> ApiResult<Self> {
        let mut writer = csv::WriterBuilder::new().from_writer(spool);
        for column in columns {
            let name = harmless(&column.name);
            writer.write_field(name.as_ref()).map_err(failed)?;
        }
        writer.write_record(None::<&[u8]>).map_err(failed)?;
        Ok(Self { writer })
    }

    /// Ends the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn finish(self) -> ApiResult<File> {
        let spool = self.writer.into_inner();
        let spool = spool.map_err(|error| write_error(error.into_error()))?;
        spool.into_file()
    }
}

impl RowSink for CsvFile {
    fn row(&mut self, row: &[Cell<'_>]) -> ApiResult<()> {
        for cell in row {
            let written = match *cell {
                Cell::Null => self.writer.write_field(""),
                Cell::Integer(value) => self.writer.write_field(value.to_string()),
                Cell::Number(value) => self.writer.write_field(number_text(value)),
                Cell::Text(text) => self.writer.write_field(harmless(text).as_ref()),
            };
            written.map_err(failed)?;
        }
        self.writer.write_record(None::<&[u8]>).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_become_texts() {
        for text in ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "＝1"] {
            assert_eq!(harmless(text), format!("'{text}"));
        }
        for text in ["", "a=1", "'=1", " =1", "1-1"] {
            assert_eq!(harmless(text), text);
        }
    }
}
