//! The result of a query as the JSON of an answer, of limited size.
//!
//! - I1: no more is kept than the limit and one cell. The first row of an answer is no exception.
//!
//! Integers are written whole. JavaScript reads those beyond 2^53 as the nearest double.

use super::cell::{Cell, Column, RowSink};
use super::limits::{size, unprocessable};
use crate::error::{ApiError, ApiResult};

/// Writes a cell as JSON.
///
/// # Errors
/// Those of the library, which has none for cells.
pub(super) fn write_cell(cell: Cell<'_>, output: &mut Vec<u8>) -> serde_json::Result<()> {
    match cell {
        Cell::Null => {
            output.extend_from_slice(b"null");
            Ok(())
        }
        Cell::Integer(value) => serde_json::to_writer(output, &value),
        Cell::Number(value) => serde_json::to_writer(output, &value),
        Cell::Text(text) => serde_json::to_writer(output, text),
    }
}

/// Collects rows up to a page and up to a number of bytes.
#[derive(Debug)]
pub(super) struct Answer {
    rows: Vec<u8>,
    count: u64,
    page: u64,
    bytes_max: usize,
    has_more: bool,
}

impl Answer {
    /// Collects at most `page` rows of at most `bytes_max` bytes together.
    pub(super) fn new(page: u64, bytes_max: usize) -> Self {
        Self {
            rows: Vec::new(),
            count: 0,
            page,
            bytes_max,
            has_more: false,
        }
    }

    /// The error of a row that no page can hold.
    fn row_too_long(&self) -> ApiError {
        let limit = size(self.bytes_max as u64);
        unprocessable(
            "row_too_long",
            format!(
                "row {} of the answer has more than {limit}, the most of an answer: group by fewer columns, or export the rows",
                self.count + 1
            ),
        )
    }

    /// The answer: `{"columns": .., "rows": [[..], ..], "more": ..}`.
    ///
    /// # Errors
    /// Those of the library.
    pub(super) fn finish(self, columns: &[Column]) -> ApiResult<Vec<u8>> {
        let mut text = b"{\"columns\":".to_vec();
        serde_json::to_writer(&mut text, columns)?;
        text.extend_from_slice(b",\"rows\":[");
        text.extend_from_slice(&self.rows);
        text.extend_from_slice(b"],\"more\":");
        serde_json::to_writer(&mut text, &self.has_more)?;
        text.push(b'}');
        Ok(text)
    }
}

impl RowSink for Answer {
    fn row(&mut self, row: &[Cell<'_>]) -> ApiResult<()> {
        if self.has_more || self.count == self.page {
            self.has_more = true;
            return Ok(());
        }
        let before = self.rows.len();
        if self.count > 0 {
            self.rows.push(b',');
        }
        self.rows.push(b'[');
        for (place, &cell) in row.iter().enumerate() {
            if place > 0 {
                self.rows.push(b',');
            }
            write_cell(cell, &mut self.rows)?;
            if self.rows.len() >= self.bytes_max {
                if self.count == 0 {
                    return Err(self.row_too_long());
                }
                self.rows.truncate(before);
                self.has_more = true;
                return Ok(());
            }
        }
        self.rows.push(b']');
        self.count += 1;
        Ok(())
    }
}
