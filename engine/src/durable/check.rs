//! Reads the files of a data directory through, block by block and entry by entry, without an
//! engine. It changes nothing.

use std::path::{Path, PathBuf};

use super::log_ends::{Ends, common_end};
use super::log_sequence::{LogSequence, check_name};
use super::steps::{Steps, StepsEnd, entries};
use crate::cipher::EncryptionKey;
use crate::error::{Result, StorageError};
use crate::storage::{Chain, Directory, FileKind};

/// What a data directory holds.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DirectoryReport {
    /// When the snapshot was completed, in milliseconds since 1970; 0 if there is none.
    pub snapshot_unix_ms: u64,
    /// Keys that the snapshot counts.
    pub snapshot_keys: u64,
    /// The files of the snapshot, and those of the log in their order.
    pub files: Vec<FileReport>,
}

/// A file of a data directory.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FileReport {
    /// Where it is.
    pub path: PathBuf,
    /// Bytes of the file.
    pub bytes: u64,
    /// Whole entries that were read.
    pub entries: u64,
    /// What the file is worth.
    pub state: FileState,
}

/// What a file is worth.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FileState {
    /// It was finished, and all of it is as it was written.
    Whole,
    /// A log that its process did not finish: all that was promised is there. What follows the
    /// place `at` was never promised, and is left out when it is loaded.
    Unfinished {
        /// Bytes from the beginning of the file that count.
        at: u64,
        /// Bytes behind them.
        cut: u64,
    },
    /// Nothing was written before its process ended.
    Empty,
    /// It does not go on where the logs before end, as that of a snapshot that was not completed:
    /// it is not loaded.
    Unused,
    /// An engine does not open with it.
    Damaged(StorageError),
}

impl DirectoryReport {
    /// Reads all files of a directory through; `key` is that of the engine that wrote them.
    /// `progress` is called with the bytes of a file that were read, and of how many. Blocks, and
    /// takes the directory as an engine does, so none may have it open. Cost: reads the files once.
    ///
    /// # Errors
    /// It is no directory, another process has it, or nothing says which files it should have:
    /// [`Error::Storage`](crate::Error::Storage). Damage of a file is no error, but in its report.
    pub fn read(
        directory: &Path,
        key: Option<&EncryptionKey>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Self> {
        let directory = Directory::open_to_read(directory)?;
        let (manifest, stored) = (directory.manifest()?, directory.files()?);
        match &manifest {
            Some(manifest) => directory.check_logs(manifest, &stored)?,
            None => directory.check_first(&stored)?,
        }
        let base = manifest.as_ref().map_or(0, |manifest| manifest.base);
        let mut report = Self {
            snapshot_unix_ms: 0,
            snapshot_keys: 0,
            files: Vec::new(),
        };
        if let Some(manifest) = manifest.filter(|manifest| manifest.base > 0) {
            report.snapshot_unix_ms = manifest.unix_ms;
            report.snapshot_keys = manifest.keys;
            for (shard, file) in (0..).zip(&manifest.files) {
                let file = (FileKind::Base, base, shard, Some(file.chain));
                let read = read_file(&directory, key, file, &mut progress);
                report.files.push(read);
            }
        }
        let mut sequence = LogSequence::default();
        if base > 0
            && let Ok(first) = directory.reader(&directory.path_of(FileKind::Base, base, 0), key)
        {
            sequence.begin(first.super_block());
        }
        for (&generation, shards) in stored.logs.range(base..) {
            let files = (&directory, key);
            let mut shorter = None;
            let goes_on = match sequence.goes_on(files, base, (generation, shards)) {
                Ok(goes_on) => goes_on,
                // What follows a damaged file is read too.
                Err(error @ StorageError::Missing { .. }) => return Err(error.into()),
                Err(error @ StorageError::Shorter { .. }) => {
                    shorter = Some(error);
                    true
                }
                Err(_) => true,
            };
            let unbroken = sequence.unbroken(shards);
            let mut ends = Ends::new();
            for &shard in shards {
                let file = (FileKind::Log, generation, shard, None);
                let mut read = read_file(&directory, key, file, &mut progress);
                let is_loaded = goes_on && unbroken.contains(&shard);
                match read.state {
                    _ if !is_loaded => {}
                    FileState::Whole => drop(ends.insert(shard, None)),
                    FileState::Unfinished { at, .. } => drop(ends.insert(shard, Some(at))),
                    FileState::Empty | FileState::Unused | FileState::Damaged(_) => {}
                }
                if !is_loaded && !matches!(read.state, FileState::Empty | FileState::Damaged(_)) {
                    read.state = FileState::Unused;
                }
                if let Some(error) = shorter.take() {
                    read.state = FileState::Damaged(error);
                }
                report.files.push(read);
            }
            // Where one of them is damaged, no engine loads what follows.
            if goes_on && let Ok(until) = common_end(&directory, key, (generation, &unbroken)) {
                sequence.add(files, (generation, shards), (until, &ends));
            }
        }
        Ok(report)
    }

    /// The first damage, if there is any: an engine does not open on the directory.
    #[must_use]
    pub fn damage(&self) -> Option<&StorageError> {
        self.files.iter().find_map(|file| match &file.state {
            FileState::Damaged(error) => Some(error),
            _ => None,
        })
    }
}

/// Reads a file through. `chain` is the digest that it must have.
fn read_file(
    directory: &Directory,
    key: Option<&EncryptionKey>,
    (kind, generation, shard, chain): (FileKind, u64, u16, Option<Chain>),
    progress: &mut impl FnMut(u64, u64),
) -> FileReport {
    let path = directory.path_of(kind, generation, shard);
    let bytes = directory.length(&path).unwrap_or(0);
    let mut count = 0;
    let read = directory.reader(&path, key).and_then(|reader| {
        check_name(&reader, (kind, generation, shard), &path)?;
        let mut steps = Steps::new(reader, &path);
        let state = read_entries(&mut steps, &mut count, |read| progress(read, bytes))?;
        match chain {
            Some(chain) if chain != steps.reader().chain() => Err(StorageError::Corrupt {
                path: path.clone(),
                at: 0,
                reason: "it is not the file that the manifest names",
            }),
            _ => Ok(state),
        }
    });
    let state = match read {
        Ok(state) => state,
        Err(StorageError::NotBegun { .. }) if kind == FileKind::Log => FileState::Empty,
        Err(error) => FileState::Damaged(error),
    };
    FileReport {
        path,
        bytes,
        entries: count,
        state,
    }
}

/// Reads a file's entries to its end.
fn read_entries(
    steps: &mut Steps,
    count: &mut u64,
    mut progress: impl FnMut(u64),
) -> std::result::Result<FileState, StorageError> {
    while let Some((_, bytes)) = steps.next()? {
        *count += entries(bytes).count() as u64;
        progress(steps.reader().position());
    }
    Ok(match steps.end() {
        Some(StepsEnd::Torn { at, cut }) => FileState::Unfinished { at, cut },
        Some(StepsEnd::Finished) | None => FileState::Whole,
    })
}
