//! A page: its header, its records, and the directory that lists them.
//!
//! ```text
//! open:    | header, 4 units | records ->            ...            <- directory |
//! sealed:  | header, 4 units | records | directory, in the order of the records |
//! ```
//!
//! The header stays in the clear, because it holds the sequence number that the ciphertext depends
//! on.

#![allow(unsafe_code)] // reads directory entries in frames

use xxhash_rust::xxh3::xxh3_64;

use super::class::SizeClass;
use crate::cipher::gcm::{TAG_BYTES, Tag};
use crate::constants::UNIT_BYTES;
use crate::message::hash::IndexHash;

/// Bytes of a page's header.
pub(crate) const HEADER_BYTES: usize = 64;
/// Bytes of one directory entry.
pub(crate) const DIRECTORY_ENTRY_BYTES: usize = 12;

const MAGIC: u32 = 0x4643_5047;
const FORMAT: u16 = 1;
const UNIT_BITS: u32 = 24;
/// Offset of the header's flags.
const FLAGS_AT: usize = 38;
/// The header ends in a tag instead of a checksum.
const HAS_TAG: u8 = 1;

const _: () = assert!(HEADER_BYTES.is_multiple_of(UNIT_BYTES));
const _: () = assert!(crate::constants::PAGE_BYTES_MAX / UNIT_BYTES <= 1 << UNIT_BITS);

/// The fields of a page's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageHeader {
    pub(crate) epoch: u32,
    pub(crate) shard: u16,
    pub(crate) sequence: u64,
    /// Units in use, header included, directory not.
    pub(crate) units: u32,
    pub(crate) records: u32,
    pub(crate) directory_unit: u32,
}

impl PageHeader {
    /// Encodes the header with its checksum.
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = self.fields();
        let check = xxh3_64(&bytes[..HEADER_BYTES - 8]);
        bytes[HEADER_BYTES - 8..].copy_from_slice(&check.to_le_bytes());
        bytes
    }

    /// Encodes the header with a tag in place of the checksum.
    pub(crate) fn encode_with_tag(&self, tag: impl FnOnce(&[u8]) -> Tag) -> [u8; HEADER_BYTES] {
        let mut bytes = self.fields();
        bytes[FLAGS_AT] = HAS_TAG;
        let (fields, place) = bytes.split_at_mut(HEADER_BYTES - TAG_BYTES);
        place.copy_from_slice(&tag(fields));
        bytes
    }

    fn fields(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.shard.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.units.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.records.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.directory_unit.to_le_bytes());
        bytes
    }

    /// Decodes a header with a checksum; `None` if it is invalid.
    #[cfg(test)]
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        let short = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let whole = xxh3_64(&bytes[..HEADER_BYTES - 8]) == long(HEADER_BYTES - 8);
        (whole && bytes[FLAGS_AT] & HAS_TAG == 0 && word(0) == MAGIC && short(4) == FORMAT).then(
            || Self {
                epoch: word(8),
                shard: short(6),
                sequence: long(16),
                units: word(12),
                records: word(24),
                directory_unit: word(28),
            },
        )
    }
}

/// One record of a page's directory: its hash, its unit, and its class when it was appended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DirectoryEntry {
    pub(crate) hash: IndexHash,
    pub(crate) unit: u32,
    pub(crate) class: SizeClass,
}

impl DirectoryEntry {
    /// Encodes the entry.
    #[inline]
    pub(crate) fn encode(&self) -> [u8; DIRECTORY_ENTRY_BYTES] {
        let mut bytes = [0; DIRECTORY_ENTRY_BYTES];
        #[expect(clippy::cast_possible_truncation, reason = "a class has 6 bits")]
        let packed = self.unit | (self.class.raw() as u32) << UNIT_BITS;
        bytes[..8].copy_from_slice(&self.hash.0.to_le_bytes());
        bytes[8..].copy_from_slice(&packed.to_le_bytes());
        bytes
    }

    /// Decodes an entry; all bytes are valid.
    #[inline]
    pub(crate) fn decode(bytes: &[u8; DIRECTORY_ENTRY_BYTES]) -> Self {
        let (mut hash, mut packed) = ([0; 8], [0; 4]);
        hash.copy_from_slice(&bytes[..8]);
        packed.copy_from_slice(&bytes[8..]);
        let packed = u32::from_le_bytes(packed);
        Self {
            hash: IndexHash(u64::from_le_bytes(hash)),
            unit: packed & ((1 << UNIT_BITS) - 1),
            class: SizeClass::from_raw(u64::from(packed >> UNIT_BITS)),
        }
    }
}

/// Bytes of the directory for this many records.
pub(crate) fn directory_bytes(records: u32) -> usize {
    records as usize * DIRECTORY_ENTRY_BYTES
}

/// Bytes of a directory in far memory: whole units, and its tag if it has one.
pub(crate) fn far_directory_bytes(records: u32, has_tag: bool) -> usize {
    let tag = if has_tag { TAG_BYTES } else { 0 };
    directory_bytes(records).next_multiple_of(UNIT_BYTES) + tag
}

/// Reads the directory entry at `pointer`.
///
/// # Safety
/// Twelve readable bytes lie there.
#[inline]
pub(crate) unsafe fn entry_at(pointer: *const u8) -> DirectoryEntry {
    // SAFETY: by this function's contract; a byte array has no alignment.
    DirectoryEntry::decode(unsafe { &*pointer.cast::<[u8; DIRECTORY_ENTRY_BYTES]>() })
}

/// Moves the directory of an open page, which grew down from the page's end, behind its records, in
/// their order.
pub(crate) fn seal(page: &mut [u8], units: u32, records: u32) {
    let length = directory_bytes(records);
    let start = page.len() - length;
    // The last record's entry comes first: reverse the entries, then move them.
    let (entries, _) = page[start..].as_chunks_mut::<DIRECTORY_ENTRY_BYTES>();
    entries.reverse();
    page.copy_within(start.., units as usize * UNIT_BYTES);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn headers_read_back(epoch: u32, shard: u16, sequence: u64, units: u32, records: u32, directory_unit: u32, at in 0..HEADER_BYTES) {
            let header = PageHeader { epoch, shard, sequence, units, records, directory_unit };
            let mut bytes = header.encode();
            prop_assert_eq!(PageHeader::decode(&bytes), Some(header));
            bytes[at] ^= 4;
            prop_assert_eq!(PageHeader::decode(&bytes), None);
        }

        #[test]
        fn garbage_is_no_header(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(PageHeader::decode(&bytes), None);
        }

        #[test]
        fn entries_read_back(hash: u64, unit in 0u32..1 << UNIT_BITS, class in 0u64..64) {
            let entry = DirectoryEntry { hash: IndexHash(hash), unit, class: SizeClass::from_raw(class) };
            prop_assert_eq!(DirectoryEntry::decode(&entry.encode()), entry);
        }

        #[test]
        fn sealing_keeps_the_order(records in 1u32..50, spare in 0usize..9) {
            let mut page = vec![0u8; 100 * UNIT_BYTES + (spare + 50) * UNIT_BYTES];
            let length = page.len();
            let entry = |at: u32| DirectoryEntry { hash: IndexHash(u64::from(at)), unit: at, class: SizeClass::for_units(3) };
            for at in 0..records {
                let place = length - (at as usize + 1) * DIRECTORY_ENTRY_BYTES;
                page[place..place + DIRECTORY_ENTRY_BYTES].copy_from_slice(&entry(at).encode());
            }
            seal(&mut page, 100, records);
            for at in 0..records {
                let place = 100 * UNIT_BYTES + at as usize * DIRECTORY_ENTRY_BYTES;
                let bytes = page[place..].first_chunk().unwrap();
                prop_assert_eq!(DirectoryEntry::decode(bytes), entry(at));
            }
        }
    }

    #[test]
    fn any_bytes_make_directory_entries() {
        let entry = DirectoryEntry {
            hash: IndexHash(7),
            unit: 9,
            class: SizeClass::for_units(3),
        };
        farcore_fuzz::Target::new("directory")
            .seed(entry.encode())
            .run(|bytes| {
                for bytes in bytes.as_chunks().0 {
                    let entry = DirectoryEntry::decode(bytes);
                    assert!(entry.unit >> UNIT_BITS == 0 && entry.class.raw() < 64);
                    assert_eq!(DirectoryEntry::decode(&entry.encode()), entry);
                }
            });
    }
}
