//! Reads a file from its beginning to its end, or to where it was torn. It blocks.
//!
//! ```text
//! block whole ---------------------------------------------------------> More
//! end block, its digest right, nothing behind -------------------------> End
//! no whole block: a later one says that it was durable, or a base -----> Corrupt
//!                 else                                             ----> Torn
//! ```
//!
//! Writes reach a disk in any order. So after a crash a whole block can lie behind one that never
//! came, and that alone is no damage. Each block says how many were durable when it was sealed: one
//! that was and is not whole has been damaged.
//!
//! - I1: what is read is a beginning of what was written. Only what no later block calls durable
//!   is left out, and only at the end of a log that was not finished.

use std::path::{Path, PathBuf};

use super::block::{BLOCK_BYTES_MAX, BlockHeader, Chain, FileEnd, HEADER_BYTES, Sealer};
use super::medium::{Medium, Source};
use super::super_block::{FileKind, SUPER_BYTES, SuperBlock};
use crate::cipher::EncryptionKey;
use crate::cipher::gcm::Tag;
use crate::disk::DISK_BLOCK_BYTES;
use crate::error::StorageError;

/// Bytes that are read at once.
const WINDOW_BYTES: usize = 1 << 20;

/// What a read has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadOutcome {
    /// Bytes were read, and there may be more.
    More,
    /// The file was finished, and this is its end.
    End,
    /// A log that was not finished ends here.
    Torn {
        /// The place in the file, in bytes.
        at: u64,
        /// Bytes of the file behind it, which hold no promise.
        cut: u64,
        /// Whole blocks among them.
        blocks: u64,
    },
}

/// Reads one file.
#[derive(Debug)]
pub(crate) struct FileReader {
    path: PathBuf,
    file: Source,
    length: u64,
    super_block: SuperBlock,
    sealer: Sealer,
    /// What was read of the file, and from where on.
    window: Vec<u8>,
    window_at: u64,
    /// The place, number and position of the next block.
    at: u64,
    number: u64,
    position: u64,
    chain: Chain,
    ended: Option<Result<ReadOutcome, StorageError>>,
}

impl FileReader {
    /// Opens a file of the system.
    ///
    /// # Errors
    /// It cannot be read, was never begun, or is of another format, mode or key.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn open(path: &Path, key: Option<&EncryptionKey>) -> Result<Self, StorageError> {
        Self::open_on(&Medium::System, path, key)
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As [`FileReader::open`].
    pub(super) fn open_on(
        medium: &Medium,
        path: &Path,
        key: Option<&EncryptionKey>,
    ) -> Result<Self, StorageError> {
        let failed = |call| move |error| StorageError::io(path, call, &error);
        let (file, length) = medium.source(path).map_err(failed("open"))?;
        let mut window = Vec::with_capacity(WINDOW_BYTES);
        fill(&file, 0, &mut window).map_err(failed("read"))?;
        let (super_block, sealer) = SuperBlock::parse(path, &window, length, key)?;
        Ok(Self {
            path: path.to_owned(),
            file,
            length,
            super_block,
            sealer,
            window,
            window_at: 0,
            at: SUPER_BYTES as u64,
            number: 1,
            position: 0,
            chain: Chain::default(),
            ended: None,
        })
    }

    /// What the file says of itself.
    pub(crate) fn super_block(&self) -> &SuperBlock {
        &self.super_block
    }

    /// Bytes of the stream that were read.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Where the next block begins in the file.
    pub(crate) fn place(&self) -> u64 {
        self.at
    }

    /// Bytes that the file has.
    #[cfg(test)]
    pub(crate) fn file_bytes(&self) -> u64 {
        self.length
    }

    /// The digest of the tags of all blocks that were read; after the end, of all of the file's.
    pub(crate) fn chain(&self) -> Chain {
        self.chain
    }

    /// Appends the bytes of the next block.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged. Nothing was appended, and each later read says it
    /// again.
    pub(crate) fn read(&mut self, into: &mut Vec<u8>) -> Result<ReadOutcome, StorageError> {
        if let Some(ended) = &self.ended {
            return ended.clone();
        }
        let outcome = self.next(into);
        if outcome != Ok(ReadOutcome::More) {
            self.ended = Some(outcome.clone());
        }
        outcome
    }

    fn next(&mut self, into: &mut Vec<u8>) -> Result<ReadOutcome, StorageError> {
        let Some((header, tag)) = self.open_at(self.at)? else {
            return self.tail();
        };
        if header.number != self.number || header.position != self.position {
            return Err(self.corrupt(self.at, "a block of another number lies here"));
        }
        let bytes = header.payload_bytes();
        let start = self.offset(self.at) + HEADER_BYTES;
        let end = self.at + header.block_bytes() as u64;
        let Some(payload) = self.window.get(start..start + bytes) else {
            return Err(self.corrupt(self.at, "a block is longer than the file"));
        };
        let outcome = if header.is_end {
            let said = FileEnd {
                length: self.position,
                chain: self.chain,
                blocks: self.number,
            };
            if FileEnd::from_payload(payload) != Some(said) {
                return Err(self.corrupt(self.at, "its end block is of other blocks"));
            }
            if end != self.length {
                return Err(self.corrupt(end, "there are bytes behind its end block"));
            }
            ReadOutcome::End
        } else {
            into.extend_from_slice(payload);
            self.position += u64::from(header.bytes);
            ReadOutcome::More
        };
        self.chain.add(&tag);
        self.at = end;
        self.number += 1;
        Ok(outcome)
    }

    /// What a place without a whole block means.
    fn tail(&mut self) -> Result<ReadOutcome, StorageError> {
        if self.super_block.kind == FileKind::Base {
            return Err(self.corrupt(self.at, "a base has no whole block here and no end block"));
        }
        let (step, mut blocks) = (DISK_BLOCK_BYTES as u64, 0);
        let mut place = self.at + step;
        while place < self.length {
            if let Some((header, _)) = self.open_at(place)? {
                if header.durable > self.number {
                    return Err(self.corrupt(self.at, "a block that was durable is not whole"));
                }
                blocks += 1;
                place += header.block_bytes() as u64;
            } else {
                place += step;
            }
        }
        Ok(ReadOutcome::Torn {
            at: self.at,
            cut: self.length.saturating_sub(self.at),
            blocks,
        })
    }

    fn corrupt(&self, at: u64, reason: &'static str) -> StorageError {
        StorageError::Corrupt {
            path: self.path.clone(),
            at,
            reason,
        }
    }

    /// Where a place of the file lies in the window.
    fn offset(&self, place: u64) -> usize {
        usize::try_from(place.saturating_sub(self.window_at)).unwrap_or(usize::MAX)
    }

    /// Opens the block at a place, if a whole one of this file lies there.
    fn open_at(&mut self, place: u64) -> Result<Option<(BlockHeader, Tag)>, StorageError> {
        let read_to = self.window_at + self.window.len() as u64;
        let needed = place.saturating_add(BLOCK_BYTES_MAX as u64);
        if place < self.window_at || needed.min(self.length) > read_to {
            fill(&self.file, place, &mut self.window)
                .map_err(|error| StorageError::io(&self.path, "read", &error))?;
            self.window_at = place;
        }
        let start = self.offset(place);
        let rest = self.window.get_mut(start..).unwrap_or_default();
        Ok(self.sealer.open(place, rest))
    }
}

/// Reads a window of a file, less at its end.
fn fill(file: &Source, at: u64, window: &mut Vec<u8>) -> std::io::Result<()> {
    window.resize(WINDOW_BYTES, 0);
    let mut read = 0;
    while read < window.len() {
        match file.read_at(&mut window[read..], at.saturating_add(read as u64)) {
            Ok(0) => break,
            Ok(bytes) => read += bytes,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    window.truncate(read);
    Ok(())
}
