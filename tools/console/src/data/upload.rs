//! Receives a file into the folder of uploads.
//!
//! - I1: a file that did not arrive as a whole is removed: when its guard is dropped, or by the
//!   next start.
//! - I2: no more than the limit is ever written.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use http_body::Body as _;
use http_body_util::BodyExt;
use tempfile::NamedTempFile;
use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::limits::DataLimits;
use crate::error::{ApiError, ApiResult};

/// Longest time for a file. Pauses have a limit of their own.
const TIME_MAX: Duration = Duration::from_secs(3_600);

/// An error of writing: a full disk is named, anything else is internal.
pub(super) fn failed(error: io::Error) -> ApiError {
    if error.kind() == io::ErrorKind::StorageFull {
        let message = "the disk of the console is full: delete datasets or runs, or make room";
        return ApiError::new(StatusCode::INSUFFICIENT_STORAGE, "disk_full", message);
    }
    ApiError::internal(format!("a file cannot be written: {error}"))
}

async fn write(mut body: Body, file: std::fs::File, limits: &DataLimits) -> ApiResult<()> {
    let mut file = tokio::fs::File::from_std(file);
    let mut length = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| {
            ApiError::malformed("the file did not arrive as a whole: send it again")
        })?;
        let Ok(piece) = frame.into_data() else {
            continue;
        };
        length += piece.len() as u64;
        if length > limits.file_bytes {
            return Err(limits.file_too_long());
        }
        file.write_all(&piece).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)
}

/// Receives a body into a file of the folder.
///
/// # Errors
/// It is too long, does not arrive as a whole, or cannot be written.
pub(super) async fn receive(
    body: Body,
    folder: &Path,
    limits: &DataLimits,
) -> ApiResult<NamedTempFile> {
    // What the header says is enough to refuse; what comes is counted.
    if body.size_hint().lower() > limits.file_bytes {
        return Err(limits.file_too_long());
    }
    let folder: PathBuf = folder.to_owned();
    let made = tokio::task::spawn_blocking(move || {
        let file = NamedTempFile::new_in(folder)?;
        let writer = file.as_file().try_clone()?;
        Ok((file, writer))
    });
    let (file, writer) = made.await.map_err(ApiError::internal)?.map_err(failed)?;
    let written = timeout(TIME_MAX, write(body, writer, limits)).await;
    written.map_err(|_| {
        let message = "the file took too long to arrive: send a part of it";
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message)
    })??;
    Ok(file)
}
