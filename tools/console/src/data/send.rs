//! An exported file on its way to its client.
//!
//! - I1: a file that is being made or sent has a place of few. Its place, and its room on the disk,
//!   are free again when it has been sent, when its client goes, and when its client reads nothing
//!   for [`DataLimits::send_pause`] or does not end within [`TIME_MAX`].
//! - I2: a file that is not sent whole ends as an error, not as the end of the file.

use std::fs::File;
use std::io;
use std::time::Duration;

use axum::body::Body;
use futures_lite::stream;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

use super::limits::DataLimits;
use crate::error::{ApiError, ApiResult};

/// Bytes of a file that are sent at once.
const BLOCK_BYTES: usize = 64 << 10;
/// Longest time for a file.
const TIME_MAX: Duration = Duration::from_secs(3_600);

/// A file that is to be sent.
#[derive(Debug)]
pub(super) struct Exported {
    /// The file. It has no name: it is gone once it is closed.
    pub(super) file: File,
    /// The name of its dataset.
    pub(super) name: String,
    /// Its place among those that are made or sent.
    pub(super) turn: OwnedSemaphorePermit,
}

/// A file that is being sent.
#[derive(Debug)]
pub(super) struct Sent {
    /// Its bytes, as they come.
    pub(super) body: Body,
    /// How many there are.
    pub(super) length: u64,
}

/// Gives the pieces of a file to a reader, which learns of an early end from the missing bytes.
async fn give(
    mut file: tokio::fs::File,
    pieces: mpsc::Sender<io::Result<Vec<u8>>>,
    pause: Duration,
) {
    loop {
        let mut piece = vec![0; BLOCK_BYTES];
        let read = file.read(&mut piece).await;
        let is_last = !matches!(read, Ok(1..));
        let piece = match read {
            Ok(0) => return,
            Ok(count) => {
                piece.truncate(count);
                Ok(piece)
            }
            Err(error) => Err(error),
        };
        match timeout(pause, pieces.send(piece)).await {
            Ok(Ok(())) if !is_last => {}
            _ => return,
        }
    }
}

/// What is left of a file that is being sent.
struct Rest {
    pieces: mpsc::Receiver<io::Result<Vec<u8>>>,
    left: u64,
}

async fn next(mut rest: Rest) -> io::Result<Option<(Vec<u8>, Rest)>> {
    if rest.left == 0 {
        return Ok(None);
    }
    let Some(piece) = rest.pieces.recv().await else {
        let message = "the client read too slowly, and the file was given up";
        return Err(io::Error::new(io::ErrorKind::TimedOut, message));
    };
    let piece = piece?;
    rest.left = rest.left.saturating_sub(piece.len() as u64);
    Ok(Some((piece, rest)))
}

impl Exported {
    /// Sends the file from its start. A task of its own holds it: that of the connection sleeps
    /// while its client does not read.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) async fn send(self, limits: &DataLimits) -> ApiResult<Sent> {
        let Self { file, turn, .. } = self;
        let mut file = tokio::fs::File::from_std(file);
        file.rewind().await.map_err(ApiError::internal)?;
        let length = file.metadata().await.map_err(ApiError::internal)?.len();
        let (sender, pieces) = mpsc::channel(1);
        let pause = limits.send_pause;
        tokio::spawn(async move {
            let _turn = turn;
            if timeout(TIME_MAX, give(file, sender, pause)).await.is_err() {
                tracing::debug!("an export took too long to send");
            }
        });
        let rest = Rest {
            pieces,
            left: length,
        };
        Ok(Sent {
            body: Body::from_stream(stream::try_unfold(rest, next)),
            length,
        })
    }
}
