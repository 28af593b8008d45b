//! Writes rows as a file: CSV, JSON, Parquet.
//!
//! A file is written whole before its first byte is sent, into the folder of uploads and without a
//! name there: an error is an answer of its own and never a file that is cut off.
//!
//! - I1: rows are written as they come. Memory holds one block, or one row group of Parquet.
//! - I2: a file has at most the limit's bytes.

mod csv;
mod json;
mod parquet;
mod spool;

use std::fs::File;
use std::path::Path;

use serde::Deserialize;

use self::csv::CsvFile;
use self::json::JsonFile;
use self::parquet::ParquetFile;
use self::spool::Spool;
use super::cell::{Cell, Column, RowSink};
use super::limits::DataLimits;
use crate::error::ApiResult;

/// The format of an exported file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExportFormat {
    /// Comma-separated values (RFC 4180) with a header. Texts that a spreadsheet would take for a
    /// formula begin with an apostrophe.
    Csv,
    /// An array of objects.
    Json,
    /// Apache Parquet with Snappy.
    Parquet,
}

impl ExportFormat {
    /// The end of the file's name.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Json => "json",
            Self::Parquet => "parquet",
        }
    }

    /// The media type.
    pub(super) fn media_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Json => "application/json",
            Self::Parquet => "application/vnd.apache.parquet",
        }
    }
}

/// A file that is being written.
pub(super) enum Export {
    /// CSV.
    Csv(Box<CsvFile>),
    /// JSON.
    Json(Box<JsonFile>),
    /// Parquet.
    Parquet(Box<ParquetFile>),
}

impl Export {
    /// Begins a file without a name in a folder.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn create(
        format: ExportFormat,
        folder: &Path,
        columns: &[Column],
        limits: &DataLimits,
    ) -> ApiResult<Self> {
        let spool = Spool::create(folder, limits.export_bytes)?;
        Ok(match format {
            ExportFormat::Csv => Self::Csv(Box::new(CsvFile::create(spool, columns)?)),
            ExportFormat::Json => Self::Json(Box::new(JsonFile::create(spool, columns)?)),
            ExportFormat::Parquet => Self::Parquet(Box::new(ParquetFile::create(spool, columns)?)),
        })
    }

    /// Ends the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn finish(self) -> ApiResult<File> {
        match self {
            Self::Csv(file) => file.finish(),
            Self::Json(file) => file.finish(),
            Self::Parquet(file) => file.finish(),
        }
    }
}

impl RowSink for Export {
    fn row(&mut self, row: &[Cell<'_>]) -> ApiResult<()> {
        match self {
            Self::Csv(file) => file.row(row),
            Self::Json(file) => file.row(row),
            Self::Parquet(file) => file.row(row),
        }
    }
}
