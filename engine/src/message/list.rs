//! Requests about a shard rather than a key: list records, read one where it lies, count, clear.
//!
//! ```text
//! list:     key   | from:64 |           value | until:64 | entries:32 | values:8 |
//! read at:  key   | address:64 |        value: | hash:64 | address:64 | .. | of records after it;
//!           the request's hash finds the first slot
//! answer:   version: how many records, from the first on, follow in the value
//!
//! list's:   version: where to go on; `END` if nothing is left
//!           value | unreadable:64 | 0:64 | entry | entry | ..
//! entry:    a record, or its header, key and padding
//!           | 0:128 | hash:64 | address:64 | order:64 | 0:64 |    a record that must be read at its
//!                                                                 address
//! ```
//!
//! `from`, `until` and `order` are places in the order of the index. All entries of one place are
//! in one answer; if one of them must be read at its address, all must. A list of one place alone
//! also names what was lost there, which its read then reports.

use crate::constants::UNIT_BYTES;
use crate::message::hash::IndexHash;
use crate::message::operation::{OperationKind, RequestParts};

/// The longest answer to a list, in bytes.
pub(crate) const LIST_BYTES: usize = 16 << 10;
/// The longest record that a list carries, in bytes.
pub(crate) const LISTED_BYTES_MAX: usize = 2 << 10;
/// Bytes of an answer before its entries.
pub(crate) const LIST_HEAD_BYTES: usize = UNIT_BYTES;
/// Bytes of an entry for a record that must be read at its address.
pub(crate) const REFERENCE_BYTES: usize = 3 * UNIT_BYTES;
/// Bytes of an address as a key.
pub(crate) const ADDRESS_BYTES: usize = 8;
/// Where to go on, if nothing is left.
pub(crate) const END: u64 = u64::MAX;

const VALUE_BYTES: usize = 13;

/// A request to list records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct List {
    /// Where it begins.
    pub(crate) from: u64,
    /// Where it ends, exclusive.
    pub(crate) until: u64,
    /// Entries after which it stops; it may exceed them by those of one place.
    pub(crate) entries: u32,
    /// List values too.
    pub(crate) values: bool,
}

impl List {
    /// The parts of the request, encoded in `scratch`.
    pub(crate) fn parts<'a>(&self, scratch: &'a mut Vec<u8>) -> RequestParts<'a> {
        scratch.clear();
        scratch.extend(self.from.to_le_bytes());
        scratch.extend(self.until.to_le_bytes());
        scratch.extend(self.entries.to_le_bytes());
        scratch.push(u8::from(self.values));
        let (key, value) = scratch.split_at(ADDRESS_BYTES);
        RequestParts {
            kind: OperationKind::List,
            key,
            value,
            expected: 0,
        }
    }

    /// A request from its key and value.
    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Option<Self> {
        let (until, rest) = value.split_first_chunk()?;
        let (entries, rest) = rest.split_first_chunk()?;
        debug_assert!(value.len() == VALUE_BYTES);
        Some(Self {
            from: u64::from_le_bytes(*key.first_chunk()?),
            until: u64::from_le_bytes(*until),
            entries: u32::from_le_bytes(*entries),
            values: rest.first().is_some_and(|&values| values != 0),
        })
    }
}

/// A record that must be read at its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reference {
    /// A hash that finds its slot.
    pub(crate) hash: IndexHash,
    pub(crate) address: u64,
    pub(crate) order: u64,
}

impl Reference {
    pub(crate) fn encode(&self) -> [u8; REFERENCE_BYTES] {
        let mut bytes = [0; REFERENCE_BYTES];
        let words = [self.hash.0, self.address, self.order];
        for (place, word) in bytes[UNIT_BYTES..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The reference at the start of `bytes`; `None` if a record is there.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<UNIT_BYTES>()?;
        let word = |place: usize| {
            let bytes = rest.get(place * 8..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        if *head != [0; UNIT_BYTES] {
            return None;
        }
        Some(Self {
            hash: IndexHash(word(0)?),
            address: word(1)?,
            order: word(2)?,
        })
    }
}

/// Records that one request reads, at most.
pub(crate) const READ_TOGETHER_MAX: usize = 64;
/// Bytes of a record after the first in a request.
const LATER_BYTES: usize = 16;

/// Adds a record after the first to a request's value.
pub(crate) fn add_later(value: &mut Vec<u8>, later: &Reference) {
    value.extend(later.hash.0.to_le_bytes());
    value.extend(later.address.to_le_bytes());
}

/// Hashes and addresses of the records after the first.
pub(crate) fn later_of(value: &[u8]) -> impl Iterator<Item = (IndexHash, u64)> + Clone {
    let (pairs, _) = value.as_chunks::<LATER_BYTES>();
    pairs.iter().map(|pair| {
        let word = u128::from_le_bytes(*pair);
        #[expect(clippy::cast_possible_truncation, reason = "splits the two halves")]
        let (hash, address) = (word as u64, (word >> 64) as u64);
        (IndexHash(hash), address)
    })
}

/// The parts of a request that reads records at addresses, their values or not.
pub(crate) fn parts_at<'a>(
    address: &'a [u8; ADDRESS_BYTES],
    later: &'a [u8],
    value: bool,
) -> RequestParts<'a> {
    RequestParts {
        kind: if value {
            OperationKind::ReadAt
        } else {
            OperationKind::ReadHeadAt
        },
        key: address,
        value: later,
        expected: 0,
    }
}

/// The parts of a request about a whole shard.
pub(crate) fn parts_of_shard(kind: OperationKind) -> RequestParts<'static> {
    RequestParts {
        kind,
        // A request has a key.
        key: &[0],
        value: &[],
        expected: 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_list_and_a_reference_read_back(from: u64, until: u64, entries: u32, values: bool, hash: u64, address: u64) {
            let list = List { from, until, entries, values };
            let mut scratch = vec![9; 4];
            let parts = list.parts(&mut scratch);
            prop_assert_eq!(List::decode(parts.key, parts.value), Some(list));
            let reference = Reference { hash: IndexHash(hash), address, order: from };
            prop_assert_eq!(Reference::decode(&reference.encode()), Some(reference));
        }
    }

    #[test]
    fn any_bytes_are_a_reference_or_none() {
        let reference = Reference {
            hash: IndexHash(1),
            address: 2,
            order: 3,
        };
        farcore_fuzz::Target::new("list")
            .seed(reference.encode())
            .run(|bytes| {
                if let Some(reference) = Reference::decode(bytes) {
                    let encoded = reference.encode();
                    assert!(bytes.starts_with(&encoded[..UNIT_BYTES + 3 * 8]));
                }
                let mut later = Vec::new();
                for (hash, address) in later_of(bytes) {
                    let order = 0;
                    let reference = Reference {
                        hash,
                        address,
                        order,
                    };
                    add_later(&mut later, &reference);
                }
                assert!(bytes.starts_with(&later) && bytes.len() - later.len() < LATER_BYTES);
                let whole = ADDRESS_BYTES + VALUE_BYTES;
                let Some((key, value)) = bytes.get(..whole).map(|all| all.split_at(ADDRESS_BYTES))
                else {
                    return;
                };
                let list = List::decode(key, value).expect("all bytes are one");
                let mut scratch = Vec::new();
                let parts = list.parts(&mut scratch);
                assert_eq!(List::decode(parts.key, parts.value), Some(list));
            });
    }

    #[test]
    fn a_record_is_no_reference() {
        let mut entry = [0; REFERENCE_BYTES];
        entry[3] = 1;
        assert_eq!(Reference::decode(&entry), None);
        assert_eq!(Reference::decode(&entry[..8]), None);
    }
}
