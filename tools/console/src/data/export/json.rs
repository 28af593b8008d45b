//! JSON: an array of objects, one a line, with the columns in their order.

use std::fs::File;
use std::io::Write;

use super::spool::{Spool, write_error};
use crate::data::answer::write_cell;
use crate::data::cell::{Cell, Column, RowSink};
use crate::error::ApiResult;

/// A JSON file.
#[derive(Debug)]
pub(in crate::data) struct JsonFile {
    spool: Spool,
    /// The names as JSON, each with what comes before its value.
    names: Vec<Vec<u8>>,
    row: Vec<u8>,
    has_rows: bool,
}

impl JsonFile {
    /// Begins the array.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn create(mut spool: Spool, columns: &[Column]) -> ApiResult<Self> {
        spool.write_all(b"[").map_err(write_error)?;
        let names = columns.iter().enumerate().map(|(place, column)| {
            let mut name = if place == 0 {
                b"{".to_vec()
            } else {
                b",".to_vec()
            };
            serde_json::to_writer(&mut name, &column.name)?;
            name.push(b':');
            Ok(name)
        });
        Ok(Self {
            names: names.collect::<ApiResult<_>>()?,
            spool,
            row: Vec::new(),
            has_rows: false,
        })
    }

    /// Ends the array.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn finish(mut self) -> ApiResult<File> {
        self.spool.write_all(b"\n]\n").map_err(write_error)?;
        self.spool.into_file()
    }
}

impl RowSink for JsonFile {
    fn row(&mut self, row: &[Cell<'_>]) -> ApiResult<()> {
        self.row.clear();
        let separator: &[u8] = if self.has_rows { b",\n" } else { b"\n" };
        self.row.extend_from_slice(separator);
        self.has_rows = true;
        for (&cell, name) in row.iter().zip(&self.names) {
            self.row.extend_from_slice(name);
            write_cell(cell, &mut self.row)?;
        }
        self.row.push(b'}');
        self.spool.write_all(&self.row).map_err(write_error)
    }
}
