//! Every limit on files, datasets and queries, and the errors that name them.
//!
//! - I1: an error of a limit says what was too much, the limit, and what to do.

use std::time::Duration;

use axum::http::StatusCode;

use crate::error::ApiError;

/// Longest name of a column or dataset, in characters.
pub(super) const NAME_CHARACTERS_MAX: usize = 120;
/// Rows between two looks at whether the work shall stop.
pub(super) const ROWS_BETWEEN_CHECKS: u64 = 1_024;

/// Limits on files, datasets and queries. Tests make them small.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataLimits {
    /// Bytes of an imported file.
    pub(crate) file_bytes: u64,
    /// Rows of a dataset.
    pub(crate) rows: u64,
    /// Columns of a dataset.
    pub(crate) columns: usize,
    /// Bytes of a text.
    pub(crate) cell_bytes: usize,
    /// Bytes of a dataset, as [`Cell::bytes`](super::cell::Cell::bytes) counts them. Pages of a
    /// Parquet file may not have more together either.
    pub(crate) dataset_bytes: u64,
    /// Datasets at a time.
    pub(crate) datasets: u64,
    /// Bytes of all datasets.
    pub(crate) total_bytes: u64,
    /// Rows in the answer to a query.
    pub(crate) answer_rows: u64,
    /// Bytes of the answer to a query; further rows are left for the next page.
    pub(crate) answer_bytes: usize,
    /// Bytes of an exported file.
    pub(crate) export_bytes: u64,
    /// Time in which the client of an exported file reads a piece of it.
    pub(crate) send_pause: Duration,
    /// Values that the percentiles of a query hold at a time, 8 bytes each.
    pub(crate) percentile_values: usize,
    /// Time for a query whose answer is shown, and time that it waits for its turn.
    pub(crate) query_time: Duration,
    /// Time for a query whose result is saved or exported, and time that it waits for its turn.
    pub(crate) save_time: Duration,
}

impl Default for DataLimits {
    fn default() -> Self {
        Self {
            file_bytes: 256 << 20,
            rows: 5_000_000,
            columns: 256,
            cell_bytes: 64 << 10,
            dataset_bytes: 1 << 30,
            datasets: 1_000,
            total_bytes: 16 << 30,
            answer_rows: 10_000,
            answer_bytes: 8 << 20,
            export_bytes: 2 << 30,
            send_pause: Duration::from_secs(60),
            percentile_values: 16 << 20,
            query_time: Duration::from_secs(10),
            save_time: Duration::from_secs(120),
        }
    }
}

impl DataLimits {
    /// 413: the file is too long.
    pub(super) fn file_too_long(&self) -> ApiError {
        let limit = size(self.file_bytes);
        let message = format!(
            "the file is longer than {limit}: import a part of it, or start the console with a larger --import-limit"
        );
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "file_too_long", message)
    }

    /// More rows than a dataset may have.
    pub(super) fn too_many_rows(&self) -> ApiError {
        let limit = self.rows;
        unprocessable(
            "too_many_rows",
            format!("there are more than {limit} rows, the most of a dataset: keep fewer"),
        )
    }

    /// More columns than a dataset may have; `place` says where, `count` how many are known of.
    pub(super) fn too_many_columns(&self, place: &str, count: usize) -> ApiError {
        let limit = self.columns;
        unprocessable(
            "too_many_columns",
            format!(
                "{place} has {count} columns or more, and a dataset has at most {limit}: keep fewer"
            ),
        )
    }

    /// A text that is too long; `length` is in bytes.
    pub(super) fn text_too_long(&self, place: &str, length: usize) -> ApiError {
        let limit = self.cell_bytes;
        unprocessable(
            "text_too_long",
            format!(
                "{place} has a text of {length} bytes or more, and a cell has at most {limit}: shorten it"
            ),
        )
    }

    /// A dataset that is too large.
    pub(super) fn dataset_too_large(&self) -> ApiError {
        let limit = size(self.dataset_bytes);
        unprocessable(
            "dataset_too_large",
            format!(
                "the values take more than {limit} once unpacked, the most of a dataset: keep fewer rows or columns"
            ),
        )
    }
}

/// 422 with a code.
pub(super) fn unprocessable(code: &'static str, message: impl Into<String>) -> ApiError {
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, message)
}

/// A file that is broken; `what` says where and how.
pub(super) fn broken(what: impl Into<String>) -> ApiError {
    unprocessable("broken_file", what)
}

/// A file of a kind that is not read; `what` says why and what to do.
pub(super) fn unsupported(what: impl Into<String>) -> ApiError {
    unprocessable("unsupported_file", what)
}

/// A number of bytes for people.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        1_048_576.. if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        1_024.. if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} bytes"),
    }
}
