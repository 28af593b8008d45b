//! A file on its way out: buffered, of limited size, without a name.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::data::limits::{size, unprocessable};
use crate::data::upload::failed;
use crate::error::{ApiError, ApiResult};

/// Bytes that are written at once.
const BLOCK_BYTES: usize = 128 << 10;

/// The file.
#[derive(Debug)]
pub(super) struct Spool {
    file: BufWriter<File>,
    length: u64,
    limit: u64,
}

/// The error of a write: that of the system, or that of the limit.
pub(super) fn write_error(error: io::Error) -> ApiError {
    let limit = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<TooLong>());
    match limit {
        Some(TooLong { limit }) => {
            let limit = size(*limit);
            unprocessable(
                "export_too_large",
                format!(
                    "the file has more than {limit}: filter more, or export pages with limit and offset"
                ),
            )
        }
        None => failed(error),
    }
}

/// The file is too long.
#[derive(Debug, thiserror::Error)]
#[error("longer than {limit} bytes")]
struct TooLong {
    limit: u64,
}

impl Spool {
    /// A file of a folder, of at most `limit` bytes.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn create(folder: &Path, limit: u64) -> ApiResult<Self> {
        let file = tempfile::tempfile_in(folder).map_err(failed)?;
        Ok(Self {
            file: BufWriter::with_capacity(BLOCK_BYTES, file),
            length: 0,
            limit,
        })
    }

    /// The file, written.
    ///
    /// # Errors
    /// Its end cannot be written.
    pub(super) fn into_file(self) -> ApiResult<File> {
        let file = self.file.into_inner();
        file.map_err(|error| failed(error.into_error()))
    }
}

impl Write for Spool {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let limit = self.limit;
        if self.length + bytes.len() as u64 > limit {
            return Err(io::Error::other(TooLong { limit }));
        }
        let count = self.file.write(bytes)?;
        self.length += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
