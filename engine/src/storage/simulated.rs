//! Writer and reader for a simulated world, which has disks of its own.

use std::path::Path;

use super::reader::{FileReader, ReadOutcome};
use super::super_block::{FREE_BYTES, FileKind, SuperBlock};
use super::writer::FileWriter;
use crate::cipher::EncryptionKey;
use crate::disk::{Disk, DiskError};
use crate::error::StorageError;

/// Writes a log to a disk.
#[derive(Debug)]
pub struct SimulatedLog<D>(FileWriter<D>);

impl<D: Disk> SimulatedLog<D> {
    /// Begins a log on an empty disk.
    #[must_use]
    pub fn new(disk: D, salt: [u8; 16], key: Option<&EncryptionKey>) -> Self {
        let super_block = SuperBlock {
            kind: FileKind::Log,
            generation: 1,
            shard: 0,
            shards: 1,
            salt,
            unix_ms: 0,
            seed: 0,
            hash_tags: false,
            free: [0; FREE_BYTES],
        };
        Self(FileWriter::new(disk, &super_block, key, 3))
    }

    /// Appends as many bytes as there is room for, and returns how many.
    pub fn append(&mut self, bytes: &[u8]) -> usize {
        self.0.append(bytes)
    }

    /// Has what was appended written.
    pub fn flush(&mut self) {
        self.0.flush();
    }

    /// Has what was appended made durable, and returns its end.
    pub fn sync(&mut self) -> u64 {
        self.0.sync()
    }

    /// Submits and completes requests.
    pub fn poll(&mut self) -> usize {
        self.0.poll()
    }

    /// Bytes that are durable.
    #[must_use]
    pub fn synced(&self) -> u64 {
        self.0.synced()
    }

    /// Why a request has failed.
    #[must_use]
    pub fn error(&self) -> Option<&DiskError> {
        self.0.error()
    }

    /// Whether the file was given up.
    #[must_use]
    pub fn needs_new_file(&self) -> bool {
        self.0.needs_new_file()
    }

    /// Has what failed written again.
    pub fn retry(&mut self) {
        self.0.retry();
    }

    /// Ends the file.
    pub fn finish(&mut self) {
        self.0.finish();
    }

    /// Whether the file is whole.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// The disk.
    pub fn disk_mut(&mut self) -> &mut D {
        self.0.disk_mut()
    }
}

/// Reads a file: its bytes, and whether it was finished.
///
/// # Errors
/// It was never begun, or is damaged.
pub fn read_simulated(
    path: &Path,
    key: Option<&EncryptionKey>,
) -> Result<(Vec<u8>, bool), StorageError> {
    let mut reader = FileReader::open(path, key)?;
    let mut bytes = Vec::new();
    loop {
        match reader.read(&mut bytes)? {
            ReadOutcome::More => {}
            ReadOutcome::End => return Ok((bytes, true)),
            ReadOutcome::Torn { .. } => return Ok((bytes, false)),
        }
    }
}
