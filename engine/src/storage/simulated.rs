//! Writer and reader for a simulated world, which has disks of its own.

use std::io;
use std::path::Path;

use super::reader::{FileReader, ReadOutcome};
use super::super_block::{FREE_BYTES, FileKind, SuperBlock};
use super::writer::FileWriter;
use crate::cipher::EncryptionKey;
use crate::disk::{Disk, DiskError};
use crate::error::StorageError;

/// What a simulated disk has in place of a file system: one directory, whose files are known by
/// their names.
pub trait SimulatedMedium: std::fmt::Debug + Send + Sync {
    /// The names that there are.
    ///
    /// # Errors
    /// As `readdir`.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Bytes that a file has.
    ///
    /// # Errors
    /// As `stat`.
    fn length(&self, name: &str) -> io::Result<u64>;

    /// Makes an empty file that is not there.
    ///
    /// # Errors
    /// As `open`.
    fn create(&self, name: &str) -> io::Result<()>;

    /// Makes a file anew that has these bytes, which are durable.
    ///
    /// # Errors
    /// As `open`, `write` and `fsync`.
    fn write_whole(&self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Reads bytes from a place on; how many.
    ///
    /// # Errors
    /// As `pread`.
    fn read_at(&self, name: &str, into: &mut [u8], at: u64) -> io::Result<usize>;

    /// Opens a file to write it.
    ///
    /// # Errors
    /// As `open`.
    fn disk(&self, name: &str, depth: u16) -> io::Result<Box<dyn Disk + Send>>;

    /// Makes what a file holds durable.
    ///
    /// # Errors
    /// As `fsync`.
    fn sync(&self, name: &str) -> io::Result<()>;

    /// Gives a file a second name.
    ///
    /// # Errors
    /// As `link`.
    fn link(&self, from: &str, to: &str) -> io::Result<()>;

    /// Gives a file another name.
    ///
    /// # Errors
    /// As `rename`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name.
    ///
    /// # Errors
    /// As `unlink`.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes all names durable.
    ///
    /// # Errors
    /// As `fsync` of a directory.
    fn sync_names(&self) -> io::Result<()>;
}

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
