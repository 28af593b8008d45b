//! The first 4 KiB of a file: what it is, of which store and shard, and its salt.
//!
//! ```text
//! | magic:8 | format:4 | kind:1 | mode:1 | flags:1 | 0:1 | generation:8 | shard:2 | shards:2 | 0:4 |
//! | salt:16 | unix ms:8 | seed:8 | free:64 | seal:16 | zeros | checksum:16 |       all little endian
//! ```
//!
//! The seal is the tag of what stands before it, under the file's key; zeros without one. So
//! another key is noticed at once. Nothing here is secret but the free area's meaning.
//!
//! - I1: a super block is durable before a block behind it is written. A file without a whole one
//!   that is no longer than it was never begun.

use std::path::Path;

use xxhash_rust::xxh3::xxh3_128;

use super::block::Sealer;
use super::{field, u16_at, u32_at, u64_at};
use crate::cipher::{EncryptionKey, Salt};
use crate::disk::DISK_BLOCK_BYTES;
use crate::error::StorageError;

/// Bytes of a super block.
pub(crate) const SUPER_BYTES: usize = DISK_BLOCK_BYTES;
/// Bytes that the owner of a file's contents may fill.
pub(crate) const FREE_BYTES: usize = 64;

const MAGIC: [u8; 8] = *b"FARCORE1";
const FORMAT: u32 = 1;
const HASH_TAGS: u8 = 1;
const SEAL_AT: usize = 128;
const CHECKSUM_AT: usize = SUPER_BYTES - 16;

/// What a file holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum FileKind {
    /// A shard's keys as they were at one moment. It is whole or of no use.
    Base,
    /// Changes, in their order. It may end anywhere.
    Log,
}

/// What a file says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SuperBlock {
    pub(crate) kind: FileKind,
    pub(crate) generation: u64,
    pub(crate) shard: u16,
    /// How many shards the store had.
    pub(crate) shards: u16,
    /// Random for each file: under one key no file has another's nonces, and no block of another
    /// file is taken for one of this.
    pub(crate) salt: Salt,
    pub(crate) unix_ms: u64,
    /// The seed of the key hash.
    pub(crate) seed: u64,
    pub(crate) hash_tags: bool,
    /// In the clear.
    pub(crate) free: [u8; FREE_BYTES],
}

impl SuperBlock {
    /// Writes it into its place.
    pub(super) fn write(&self, sealer: &Sealer, target: &mut [u8; SUPER_BYTES]) {
        target.fill(0);
        target[..8].copy_from_slice(&MAGIC);
        target[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        target[12] = match self.kind {
            FileKind::Base => 1,
            FileKind::Log => 2,
        };
        target[13] = sealer.mode();
        target[14] = if self.hash_tags { HASH_TAGS } else { 0 };
        target[16..24].copy_from_slice(&self.generation.to_le_bytes());
        target[24..26].copy_from_slice(&self.shard.to_le_bytes());
        target[26..28].copy_from_slice(&self.shards.to_le_bytes());
        target[32..48].copy_from_slice(&self.salt);
        target[48..56].copy_from_slice(&self.unix_ms.to_le_bytes());
        target[56..64].copy_from_slice(&self.seed.to_le_bytes());
        target[64..SEAL_AT].copy_from_slice(&self.free);
        let seal = sealer.seal_super(&target[..SEAL_AT]);
        target[SEAL_AT..SEAL_AT + 16].copy_from_slice(&seal);
        let checksum = xxh3_128(&target[..CHECKSUM_AT]).to_le_bytes();
        target[CHECKSUM_AT..].copy_from_slice(&checksum);
    }

    /// Reads the first bytes of a file of this length, and what opens its blocks.
    pub(super) fn parse(
        path: &Path,
        bytes: &[u8],
        length: u64,
        key: Option<&EncryptionKey>,
    ) -> Result<(Self, Sealer), StorageError> {
        let path = || path.to_owned();
        let corrupt = |at: usize, reason| StorageError::Corrupt {
            path: path(),
            at: at as u64,
            reason,
        };
        let whole = bytes.get(..SUPER_BYTES);
        let sums = |bytes: &[u8]| {
            xxh3_128(&bytes[..CHECKSUM_AT]).to_le_bytes() == field(bytes, CHECKSUM_AT)
        };
        let Some(bytes) = whole.filter(|bytes| sums(bytes)) else {
            if length <= SUPER_BYTES as u64 {
                return Err(StorageError::NotBegun { path: path() });
            }
            return Err(corrupt(0, "its super block has a wrong checksum"));
        };
        if bytes[..8] != MAGIC {
            return Err(StorageError::Foreign { path: path() });
        }
        let (format, known) = (u32_at(bytes, 8), FORMAT);
        if format != known {
            return Err(StorageError::Format {
                path: path(),
                format,
                known,
            });
        }
        let kind = match bytes[12] {
            1 => FileKind::Base,
            2 => FileKind::Log,
            _ => return Err(corrupt(12, "its kind is unknown")),
        };
        let salt = field(bytes, 32);
        let sealer = Sealer::new(key, salt);
        match (bytes[13], sealer.mode()) {
            (0, 0) => {}
            (0, _) => return Err(StorageError::KeyNotNeeded { path: path() }),
            (_, 0) => return Err(StorageError::KeyNeeded { path: path() }),
            _ if sealer.seal_super(&bytes[..SEAL_AT]) == field(bytes, SEAL_AT) => {}
            _ => return Err(StorageError::WrongKey { path: path() }),
        }
        let read = Self {
            kind,
            generation: u64_at(bytes, 16),
            shard: u16_at(bytes, 24),
            shards: u16_at(bytes, 26),
            salt,
            unix_ms: u64_at(bytes, 48),
            seed: u64_at(bytes, 56),
            hash_tags: bytes[14] & HASH_TAGS != 0,
            free: field(bytes, 64),
        };
        Ok((read, sealer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_with_a_right_checksum_are_a_super_block_or_none() {
        let super_block = SuperBlock {
            kind: FileKind::Log,
            generation: 1,
            shard: 2,
            shards: 3,
            salt: [4; 16],
            unix_ms: 5,
            seed: 6,
            hash_tags: true,
            free: [7; FREE_BYTES],
        };
        let mut seed = [0; SUPER_BYTES];
        super_block.write(&Sealer::new(None, super_block.salt), &mut seed);
        farcore_fuzz::Target::new("super block")
            .seeds([seed[..SEAL_AT].to_vec(), seed.to_vec()])
            .longest(SUPER_BYTES)
            .run(|bytes| {
                let path = Path::new("file");
                let parsed = |bytes: &[u8]| SuperBlock::parse(path, bytes, 8192, None);
                assert!(parsed(bytes).is_err() || bytes[..SUPER_BYTES] == seed);
                let mut memory = [0; SUPER_BYTES];
                let count = bytes.len().min(CHECKSUM_AT);
                memory[..count].copy_from_slice(&bytes[..count]);
                let checksum = xxh3_128(&memory[..CHECKSUM_AT]).to_le_bytes();
                memory[CHECKSUM_AT..].copy_from_slice(&checksum);
                if let Ok((read, sealer)) = parsed(&memory) {
                    let mut again = [0; SUPER_BYTES];
                    read.write(&sealer, &mut again);
                    let (found, _) = parsed(&again).unwrap();
                    assert_eq!(found, read);
                    assert_eq!(again[32..SEAL_AT], memory[32..SEAL_AT]);
                }
            });
    }
}
