//! Files that are written over a disk in memory, crashed, damaged and read back.

mod damage;
mod directory;
mod disk;
mod streams;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use self::disk::MemoryDisk;
use super::block::BLOCK_BYTES_MAX;
use super::reader::{FileReader, ReadOutcome};
use super::super_block::{FREE_BYTES, FileKind, SuperBlock};
use super::writer::FileWriter;
use crate::cipher::EncryptionKey;
use crate::error::StorageError;

/// Polls within which a disk in memory has done everything.
const POLLS: usize = 100_000;

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("farcore-storage-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.join("file");
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Numbers that look random, from a seed.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % below as u64).unwrap()
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let bytes = (0..count).map(|_| self.next(256).to_le_bytes()[0]);
        bytes.collect()
    }
}

fn key(byte: u8) -> EncryptionKey {
    EncryptionKey::Aes128([byte; 16])
}

fn super_block(kind: FileKind, salt: u8) -> SuperBlock {
    SuperBlock {
        kind,
        generation: 7,
        shard: 2,
        shards: 5,
        salt: [salt; 16],
        unix_ms: 1_700_000_000_000,
        seed: 0x1234_5678_9ABC_DEF0,
        hash_tags: true,
        free: [9; FREE_BYTES],
    }
}

fn writer(
    disk: &MemoryDisk,
    kind: FileKind,
    key: Option<&EncryptionKey>,
) -> FileWriter<MemoryDisk> {
    FileWriter::new(disk.clone(), &super_block(kind, 3), key, 3)
}

/// Polls until nothing is left to do.
fn settle(writer: &mut FileWriter<MemoryDisk>) {
    for _ in 0..POLLS {
        writer.poll();
        if writer.is_idle() {
            return;
        }
    }
    panic!("the writer is not idle: {writer:?}");
}

/// Appends all of some bytes.
fn append(writer: &mut FileWriter<MemoryDisk>, mut bytes: &[u8]) {
    for _ in 0..POLLS {
        let room = writer.room();
        let count = writer.append(bytes);
        assert_eq!(count, room.min(bytes.len()));
        bytes = &bytes[count..];
        if bytes.is_empty() {
            return;
        }
        writer.poll();
    }
    panic!("the writer takes nothing: {writer:?}");
}

/// Reads a file to its end.
fn read(
    path: &Path,
    key: Option<&EncryptionKey>,
) -> Result<(Vec<u8>, ReadOutcome), (Vec<u8>, StorageError)> {
    let mut bytes = Vec::new();
    let mut reader = match FileReader::open(path, key) {
        Ok(reader) => reader,
        Err(error) => return Err((bytes, error)),
    };
    loop {
        let before = bytes.len();
        match reader.read(&mut bytes) {
            Ok(ReadOutcome::More) => assert!(bytes.len() - before < BLOCK_BYTES_MAX),
            Ok(outcome) => {
                assert_eq!(reader.read(&mut bytes), Ok(outcome));
                assert_eq!(reader.position(), bytes.len() as u64);
                return Ok((bytes, outcome));
            }
            Err(error) => {
                assert_eq!(reader.read(&mut bytes), Err(error.clone()));
                return Err((bytes, error));
            }
        }
    }
}
