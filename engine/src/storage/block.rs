//! A block of a file: a header, bytes of the stream, and zeros up to a multiple of 4 KiB.
//!
//! ```text
//! | salt:8 | number:8 | place:8 | position:8 | durable:8 | bytes:4 | flags:4 | tag:16 | payload | zeros |
//! ```
//!
//! `place` is where it lies in the file, `position` where its payload lies in the stream, and
//! `durable` the count of blocks, the super block among them, that were durable when it was sealed.
//! An end block's payload is no part of the stream: its length:8, the digest of all tags:16, and
//! the count of blocks:8.
//!
//! In the clear the tag is the XXH3-128 of the whole block with the file's salt in place of the
//! tag. Encrypted it is that of AES-GCM over the header and all behind it, which is ciphertext.
//!
//! - I1: a block verifies in its own file and at its own place alone.
//! - I2: a nonce is a block's number, and 0 that of the super block. A block is sealed once, and
//!   written again as it is.

use xxhash_rust::xxh3::{xxh3_128, xxh3_128_with_seed};

use super::{field, u32_at, u64_at};
use crate::cipher::gcm::{Gcm, Nonce, Tag};
use crate::cipher::{EncryptionKey, Salt, storage_gcm};
use crate::disk::DISK_BLOCK_BYTES;

/// The longest block, in bytes.
pub(crate) const BLOCK_BYTES_MAX: usize = 256 << 10;
/// Bytes before the payload.
pub(super) const HEADER_BYTES: usize = 64;
/// The longest payload, in bytes.
pub(crate) const PAYLOAD_BYTES_MAX: usize = BLOCK_BYTES_MAX - HEADER_BYTES;
/// The payload of an end block, in bytes.
pub(super) const END_BYTES: usize = 32;

/// The flag of the last block.
const END: u32 = 1;
const TAG_AT: usize = 48;

/// What stands before a block's payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BlockHeader {
    /// From 1 on; 0 is the super block.
    pub(super) number: u64,
    pub(super) place: u64,
    pub(super) position: u64,
    pub(super) durable: u64,
    pub(super) bytes: u32,
    pub(super) is_end: bool,
}

impl BlockHeader {
    fn write(&self, salt: &Salt, target: &mut [u8]) {
        target[..8].copy_from_slice(&salt[..8]);
        target[8..16].copy_from_slice(&self.number.to_le_bytes());
        target[16..24].copy_from_slice(&self.place.to_le_bytes());
        target[24..32].copy_from_slice(&self.position.to_le_bytes());
        target[32..40].copy_from_slice(&self.durable.to_le_bytes());
        target[40..44].copy_from_slice(&self.bytes.to_le_bytes());
        let flags = if self.is_end { END } else { 0 };
        target[44..TAG_AT].copy_from_slice(&flags.to_le_bytes());
    }

    /// The header of a block that may lie at this place, unverified.
    fn read(salt: &Salt, place: u64, block: &[u8]) -> Option<Self> {
        let header = Self {
            number: u64_at(block, 8),
            place: u64_at(block, 16),
            position: u64_at(block, 24),
            durable: u64_at(block, 32),
            bytes: u32_at(block, 40),
            is_end: u32_at(block, 44) == END,
        };
        let is_known = block.get(..8) == Some(&salt[..8]) && u32_at(block, 44) <= END;
        let fits = header.payload_bytes() <= PAYLOAD_BYTES_MAX && header.number > 0;
        (is_known && fits && header.place == place).then_some(header)
    }

    pub(super) fn payload_bytes(&self) -> usize {
        usize::try_from(self.bytes).unwrap_or(usize::MAX)
    }

    /// The bytes of its block.
    pub(super) fn block_bytes(&self) -> usize {
        block_bytes(self.payload_bytes())
    }
}

/// The bytes of a block with this many bytes of payload.
pub(super) fn block_bytes(payload: usize) -> usize {
    payload
        .saturating_add(HEADER_BYTES)
        .next_multiple_of(DISK_BLOCK_BYTES)
}

/// A digest of all tags of a file's blocks, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Chain(pub(crate) u128);

impl Chain {
    pub(super) fn add(&mut self, tag: &Tag) {
        let mut both = [0; 32];
        both[..16].copy_from_slice(&self.0.to_le_bytes());
        both[16..].copy_from_slice(tag);
        self.0 = xxh3_128(&both);
    }
}

/// What the last block says of its file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileEnd {
    /// Bytes of the stream.
    pub(super) length: u64,
    /// Of the blocks before.
    pub(super) chain: Chain,
    /// Blocks before, the super block among them.
    pub(super) blocks: u64,
}

impl FileEnd {
    pub(super) fn to_payload(self) -> [u8; END_BYTES] {
        let mut payload = [0; END_BYTES];
        payload[..8].copy_from_slice(&self.length.to_le_bytes());
        payload[8..24].copy_from_slice(&self.chain.0.to_le_bytes());
        payload[24..].copy_from_slice(&self.blocks.to_le_bytes());
        payload
    }

    pub(super) fn from_payload(payload: &[u8]) -> Option<Self> {
        let payload: &[u8; END_BYTES] = payload.try_into().ok()?;
        Some(Self {
            length: u64_at(payload, 0),
            chain: Chain(u128::from_le_bytes(field(payload, 8))),
            blocks: u64_at(payload, 24),
        })
    }
}

/// Seals and opens the blocks of one file.
#[derive(Clone, Debug)]
pub(super) struct Sealer {
    salt: Salt,
    mode: u8,
    gcm: Option<Gcm>,
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = Nonce::default();
    nonce[4..].copy_from_slice(&number.to_be_bytes());
    nonce
}

impl Sealer {
    pub(super) fn new(key: Option<&EncryptionKey>, salt: Salt) -> Self {
        Self {
            salt,
            mode: match key {
                None => 0,
                Some(EncryptionKey::Aes128(_)) => 1,
                Some(EncryptionKey::Aes256(_)) => 2,
            },
            gcm: key.map(|key| storage_gcm(key, &salt)),
        }
    }

    /// As a super block names it: 0 is in the clear.
    pub(super) fn mode(&self) -> u8 {
        self.mode
    }

    /// The tag of a super block.
    pub(super) fn seal_super(&self, bytes: &[u8]) -> Tag {
        let gcm = self.gcm.as_ref();
        gcm.map_or(Tag::default(), |gcm| gcm.authenticate(&nonce(0), bytes))
    }

    /// The tag of a block in the clear.
    fn sum(&self, block: &mut [u8]) -> Tag {
        block[TAG_AT..HEADER_BYTES].copy_from_slice(&self.salt);
        xxh3_128_with_seed(block, u64_at(&self.salt, 8)).to_le_bytes()
    }

    /// Seals a whole block whose payload and zeros lie in their places.
    pub(super) fn seal(&self, header: &BlockHeader, block: &mut [u8]) -> Tag {
        header.write(&self.salt, block);
        let tag = match &self.gcm {
            None => self.sum(block),
            Some(gcm) => {
                let (front, rest) = block.split_at_mut(HEADER_BYTES);
                gcm.seal_beside(&nonce(header.number), &front[..TAG_AT], rest)
            }
        };
        block[TAG_AT..HEADER_BYTES].copy_from_slice(&tag);
        tag
    }

    /// Opens the block at the start of some bytes, which lie at this place of the file. `None`, and
    /// the bytes are as they were, unless it is one of this file that was sealed for this place.
    pub(super) fn open(&self, place: u64, bytes: &mut [u8]) -> Option<(BlockHeader, Tag)> {
        let header = BlockHeader::read(&self.salt, place, bytes)?;
        let block = bytes.get_mut(..header.block_bytes())?;
        let tag: Tag = field(block, TAG_AT);
        let is_whole = match &self.gcm {
            None => {
                let made = self.sum(block);
                block[TAG_AT..HEADER_BYTES].copy_from_slice(&tag);
                made == tag
            }
            Some(gcm) => {
                let (front, rest) = block.split_at_mut(HEADER_BYTES);
                gcm.open_beside(&nonce(header.number), &front[..TAG_AT], rest, &tag)
            }
        };
        is_whole.then_some((header, tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: Salt = [6; 16];

    fn sealed(number: u64, payload: &[u8], is_end: bool) -> Vec<u8> {
        let mut block = vec![0; block_bytes(payload.len())];
        block[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(payload);
        let header = BlockHeader {
            number,
            place: 4096,
            position: 9,
            durable: 1,
            bytes: u32::try_from(payload.len()).unwrap(),
            is_end,
        };
        Sealer::new(None, SALT).seal(&header, &mut block);
        block
    }

    #[test]
    fn any_bytes_with_a_right_tag_are_one_block_or_none() {
        let sealer = Sealer::new(None, SALT);
        let last = sealed(2, &[5; END_BYTES], true);
        farcore_fuzz::Target::new("block")
            .seeds([
                sealed(1, &[3; 90], false),
                sealed(7, &[4; 5000], false),
                last,
            ])
            .longest(9000)
            .run(|bytes| {
                let mut memory = bytes.to_vec();
                assert!(sealer.open(0, &mut memory).is_none(), "of another place");
                assert!(memory == bytes, "what is no block stays");
                memory.resize(bytes.len().max(DISK_BLOCK_BYTES), 0);
                memory[..8].copy_from_slice(&SALT[..8]);
                memory[16..24].copy_from_slice(&4096u64.to_le_bytes());
                let Some(header) = BlockHeader::read(&SALT, 4096, &memory) else {
                    assert!(sealer.open(4096, &mut memory).is_none());
                    return;
                };
                assert!(header.payload_bytes() <= PAYLOAD_BYTES_MAX);
                assert!(header.block_bytes() <= BLOCK_BYTES_MAX);
                let Some(block) = memory.get_mut(..header.block_bytes()) else {
                    assert!(sealer.open(4096, &mut memory).is_none());
                    return;
                };
                let before = block.to_vec();
                let tag = sealer.sum(block);
                block[TAG_AT..HEADER_BYTES].copy_from_slice(&tag);
                assert_eq!(sealer.open(4096, &mut memory), Some((header, tag)));
                let mut again = before.clone();
                assert_eq!(sealer.seal(&header, &mut again), tag);
                assert!(again == memory[..again.len()], "it is sealed again alike");
                let end = FileEnd::from_payload(&before[HEADER_BYTES..][..END_BYTES]);
                let payload = end.map(FileEnd::to_payload);
                assert_eq!(payload.as_ref().map(|bytes| &bytes[..]), before.get(64..96));
            });
    }
}
