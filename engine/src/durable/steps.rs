//! Reads the steps of a file, of which each is whole.

use std::path::{Path, PathBuf};

use crate::error::StorageError;
use crate::journal::{Entry, EntryBody};
use crate::message::operation::Version;
use crate::storage::{FileReader, ReadOutcome, SuperBlock};

/// How a file ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StepsEnd {
    /// It was finished.
    Finished,
    /// A log that was not finished: where it ends, and how many bytes of the file follow.
    Torn { at: u64, cut: u64 },
}

/// The steps of a file, in their order.
#[derive(Debug)]
pub(super) struct Steps {
    reader: FileReader,
    path: PathBuf,
    /// What was read of the file; whole steps at its start were returned.
    bytes: Vec<u8>,
    returned: usize,
    /// Where the block begins that was read last, or could not be.
    block_at: u64,
    end: Option<StepsEnd>,
}

impl Steps {
    pub(super) fn new(reader: FileReader, path: &Path) -> Self {
        Self {
            reader,
            path: path.to_owned(),
            bytes: Vec::new(),
            returned: 0,
            block_at: 0,
            end: None,
        }
    }

    /// The entries of the next steps, one behind the other, and where the block begins that the
    /// last of them ends in; `None` at the end of the file.
    ///
    /// # Errors
    /// It cannot be read, or is damaged.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &[u8])>, StorageError> {
        loop {
            self.bytes.drain(..std::mem::take(&mut self.returned));
            if self.end.is_some() {
                return Ok(None);
            }
            self.block_at = self.reader.place();
            let outcome = self.reader.read(&mut self.bytes)?;
            let whole = self.whole()?;
            self.end = match outcome {
                ReadOutcome::More => None,
                ReadOutcome::End if whole == self.bytes.len() => Some(StepsEnd::Finished),
                ReadOutcome::End => return Err(self.damaged()),
                ReadOutcome::Torn { at, cut, .. } => {
                    let cut = cut + (self.bytes.len() - whole) as u64;
                    Some(StepsEnd::Torn { at, cut })
                }
            };
            if whole > 0 {
                self.returned = whole;
                return Ok(Some((self.block_at, &self.bytes[..whole])));
            }
        }
    }

    /// How it has ended, once [`Steps::next`] has returned `None`.
    pub(super) fn end(&self) -> Option<StepsEnd> {
        self.end
    }

    /// Where a log ends that was not finished, once it was read to its end.
    pub(super) fn torn_at(&self) -> Option<u64> {
        match self.end? {
            StepsEnd::Torn { at, .. } => Some(at),
            StepsEnd::Finished => None,
        }
    }

    /// True if the file was read to its end, and was finished.
    pub(super) fn is_finished(&self) -> bool {
        self.end == Some(StepsEnd::Finished)
    }

    /// Where the block begins that was read last, or could not be.
    pub(super) fn block_at(&self) -> u64 {
        self.block_at
    }

    pub(super) fn reader(&self) -> &FileReader {
        &self.reader
    }

    fn damaged(&self) -> StorageError {
        StorageError::Corrupt {
            path: self.path.clone(),
            at: self.reader.position(),
            reason: "no entry of a journal is there",
        }
    }

    /// Bytes of the whole steps at the start, whose entries are what they say.
    fn whole(&self) -> Result<usize, StorageError> {
        let (mut whole, mut at) = (0, 0);
        loop {
            match Entry::parse(&self.bytes[at..]) {
                Ok(Some((entry, length))) if entry.body().is_ok() => {
                    at += length;
                    if !entry.has_more || farcore_tuning::mutated!("step-loaded-in-part") {
                        whole = at;
                    }
                }
                Ok(None) => return Ok(whole),
                Ok(Some(_)) | Err(_) => return Err(self.damaged()),
            }
        }
    }
}

/// The entries of steps that [`Steps::next`] has returned, taken apart.
pub(super) fn entries(steps: &[u8]) -> impl Iterator<Item = (Entry<'_>, EntryBody<'_>)> {
    let mut rest = steps;
    std::iter::from_fn(move || {
        let (entry, length) = Entry::parse(rest).ok().flatten()?;
        rest = &rest[length..];
        Some((entry, entry.body().ok()?))
    })
}

/// Of a base: the version of its shard when its generation began.
pub(super) fn since_of(of: &SuperBlock) -> Version {
    let bytes = of.free.first_chunk();
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
