//! Elements of hashes and sets (fields, members) as the engine's trees hold them.
//!
//! ```text
//! key:    | place:53 | 0:11 | 0:8 | element |            value: | value |
//! key:    | place:53 | 0:11 | 1:8 | SHA-256 of it:256 |  value: | bytes:32 | element | value |
//! ```
//!
//! A place is big endian. It comes first, so that the first bytes of two keys tell them apart: a
//! search in a node of the tree then looks at nothing else.
//!
//! An element's place is made of its hash value. So a tree has its elements in the order of the
//! cursors of `HSCAN` and `SSCAN`, and what other clients add or remove moves none to another
//! place. An element of more than [`INLINE_BYTES_MAX`] bytes is too long for a key of a tree: its
//! digest stands for it there, and it lies before its value.
//!
//! - E1: each element has one key, and no two elements have the same, as far as SHA-256 tells them
//!   apart.
//! - E2: a place is never 0, which begins and ends a scan, and has 53 bits, which clients keep
//!   whose numbers are doubles or signed words.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::ops::Range;

use farcore::TreeChange;
use sha2::{Digest, Sha256};

/// Bytes of the longest element that lies in its key.
pub(crate) const INLINE_BYTES_MAX: usize = 900;
/// Bytes of a key before what tells the element.
const HEAD_BYTES: usize = PLACE_BYTES + 1;
const PLACE_BYTES: usize = size_of::<u64>();
/// Bytes of the length of an element that lies before its value.
const LENGTH_BYTES: usize = size_of::<u32>();
/// What tells the element: its bytes, or its digest.
const INLINE: u8 = 0;
const DIGEST: u8 = 1;
/// Bits of a place.
const PLACE_BITS: u32 = f64::MANTISSA_DIGITS;
/// Bits of a key behind a place that are none of it.
const PLACE_SHIFT: u32 = u64::BITS - PLACE_BITS;

/// An element with its value; the members of a set have empty values.
pub(crate) type Entry<'a> = (&'a [u8], &'a [u8]);

/// Where an element stands in the order of its tree and of scans: always the same, since the hasher
/// has no random key. Few elements have a place together.
pub(crate) fn place_of(element: &[u8]) -> u64 {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    (hasher.hash_one(element) >> (u64::BITS - PLACE_BITS)).max(1)
}

/// The least key of a place; of a number that is no place, the one behind all.
pub(crate) fn start_of(place: u64) -> [u8; PLACE_BYTES] {
    let key = match place >> PLACE_BITS {
        0 => place << PLACE_SHIFT,
        _ => u64::MAX,
    };
    key.to_be_bytes()
}

/// The place in a key.
pub(crate) fn place_in(key: &[u8]) -> u64 {
    key.first_chunk()
        .map_or(0, |place| u64::from_be_bytes(*place) >> PLACE_SHIFT)
}

/// True if an element lies before its value.
pub(crate) fn is_long(element: &[u8]) -> bool {
    element.len() > INLINE_BYTES_MAX
}

/// True if the element of a key lies before its value.
pub(crate) fn is_long_key(key: &[u8]) -> bool {
    key.get(PLACE_BYTES) == Some(&DIGEST)
}

/// Bytes of what is stored as an element's value.
pub(crate) fn stored_bytes(element: &[u8], value: &[u8]) -> usize {
    let beside = if is_long(element) {
        LENGTH_BYTES + element.len()
    } else {
        0
    };
    beside + value.len()
}

/// Writes the key of an element.
fn write_key(element: &[u8], into: &mut Vec<u8>) {
    into.extend_from_slice(&start_of(place_of(element)));
    if is_long(element) {
        into.push(DIGEST);
        into.extend_from_slice(&Sha256::digest(element));
    } else {
        into.push(INLINE);
        into.extend_from_slice(element);
    }
}

/// The value of an element as its tree has it, behind the element if that lies there; `None` if it
/// is not whole.
pub(crate) fn value_in(stored: &[u8], is_long: bool) -> Option<&[u8]> {
    if is_long {
        split_long(stored).map(|(_, value)| value)
    } else {
        Some(stored)
    }
}

fn split_long(stored: &[u8]) -> Option<Entry<'_>> {
    let (bytes, rest) = stored.split_first_chunk()?;
    let bytes = usize::try_from(u32::from_le_bytes(*bytes)).ok()?;
    rest.split_at_checked(bytes)
}

/// An element of a tree, by its key and what is stored as its value; `None` if it is not whole.
pub(crate) fn entry_of<'a>((key, stored): (&'a [u8], &'a [u8])) -> Option<Entry<'a>> {
    match *key.get(PLACE_BYTES)? {
        INLINE => Some((&key[HEAD_BYTES..], stored)),
        DIGEST => split_long(stored),
        _ => None,
    }
}

/// Keys of elements and what is stored as their values, in one buffer.
#[derive(Debug, Default)]
pub(crate) struct ElementKeys {
    bytes: Vec<u8>,
    parts: Vec<Part>,
}

#[derive(Clone, Debug)]
struct Part {
    key: Range<usize>,
    /// What is stored, if that is not the value alone.
    stored: Option<Range<usize>>,
}

impl ElementKeys {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.parts.clear();
    }

    /// Adds an element, and its value if that is to be stored.
    pub(crate) fn add(&mut self, element: &[u8], value: Option<&[u8]>) {
        let start = self.bytes.len();
        write_key(element, &mut self.bytes);
        let key = start..self.bytes.len();
        let stored = value.filter(|_| is_long(element)).map(|value| {
            let start = self.bytes.len();
            let length = u32::try_from(element.len()).unwrap_or(u32::MAX);
            self.bytes.extend_from_slice(&length.to_le_bytes());
            self.bytes.extend_from_slice(element);
            self.bytes.extend_from_slice(value);
            start..self.bytes.len()
        });
        self.parts.push(Part { key, stored });
    }

    /// The key of the element at a place.
    pub(crate) fn key(&self, place: usize) -> &[u8] {
        &self.bytes[self.parts[place].key.clone()]
    }

    /// What is stored for the element at a place, whose value is given.
    pub(crate) fn stored<'a>(&'a self, place: usize, value: &'a [u8]) -> &'a [u8] {
        match &self.parts[place].stored {
            Some(stored) => &self.bytes[stored.clone()],
            None => value,
        }
    }

    /// The change that stores the element at a place with its value, or removes it.
    pub(crate) fn change<'a>(&'a self, place: usize, value: Option<&'a [u8]>) -> TreeChange<'a> {
        TreeChange {
            key: self.key(place),
            value: value.map(|value| self.stored(place, value)),
        }
    }

    /// Gives memory beyond these bytes back.
    pub(crate) fn shrink_to(&mut self, bytes: usize) {
        if self.bytes.capacity() > bytes {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn element() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => prop::collection::vec(any::<u8>(), 0..20),
            1 => (850usize..950, any::<u8>()).prop_map(|(bytes, byte)| vec![byte; bytes]),
        ]
    }

    proptest! {
        #[test]
        fn an_element_is_read_as_it_was_written(
            element in element(),
            value in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut keys = ElementKeys::default();
            keys.add(b"before", None);
            keys.add(&element, Some(&value));
            let TreeChange { key, value: stored } = keys.change(1, Some(&value));
            let stored = stored.expect("it is stored");
            prop_assert_eq!(stored.len(), stored_bytes(&element, &value));
            prop_assert_eq!(entry_of((key, stored)), Some((&element[..], &value[..])));
            prop_assert_eq!(value_in(stored, is_long(&element)), Some(&value[..]));
            prop_assert_eq!(is_long_key(key), is_long(&element));
            prop_assert!(key.len() <= HEAD_BYTES + INLINE_BYTES_MAX);
            prop_assert_eq!(place_in(key), place_of(&element));
            prop_assert!(key >= &start_of(place_of(&element))[..]);
            prop_assert!(key < &start_of(place_of(&element) + 1)[..]);
            prop_assert_eq!(keys.change(1, None), TreeChange { key, value: None });
        }

        #[test]
        fn elements_have_keys_of_their_own(one in element(), other in element()) {
            let mut keys = ElementKeys::default();
            keys.add(&one, None);
            keys.add(&other, None);
            prop_assert_eq!(keys.key(0) == keys.key(1), one == other);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(
            key in prop::collection::vec(any::<u8>(), 0..40),
            stored in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let _ = (entry_of((&key, &stored)), value_in(&stored, true), place_in(&key));
            let digest = [&[0; 8][..], &[DIGEST], &key].concat();
            let _ = entry_of((&digest, &stored));
        }
    }

    #[test]
    fn the_bytes_are_as_documented() {
        let mut keys = ElementKeys::default();
        let long = [b'm'; INLINE_BYTES_MAX + 1];
        keys.add(b"f", Some(b"v"));
        keys.add(&long, Some(b"v"));
        let place = (place_of(b"f") << 11).to_be_bytes();
        assert_eq!(keys.key(0), [&place[..], &[0, b'f']].concat());
        assert_eq!(keys.stored(0, b"v"), b"v");
        let (place, digest) = (start_of(place_of(&long)), Sha256::digest(long));
        assert_eq!(keys.key(1), [&place[..], &[1], &digest[..]].concat());
        let stored = [&[133, 3, 0, 0][..], &long, b"v"].concat();
        assert_eq!(keys.stored(1, b"v"), stored);
        assert!(place_of(b"f") >> PLACE_BITS == 0 && place_of(b"f") > 0);
    }

    #[test]
    fn a_number_that_is_no_place_is_behind_all() {
        let last = (1 << PLACE_BITS) - 1;
        assert!(start_of(last) < start_of(last + 1));
        assert_eq!(start_of(last + 1), start_of(u64::MAX));
    }

    #[test]
    fn the_first_bytes_of_keys_tell_nearly_all_elements_apart() {
        let mut firsts: Vec<_> = (0..10_000u32)
            .map(|number| {
                let mut keys = ElementKeys::default();
                keys.add(&number.to_le_bytes(), None);
                keys.key(0)[..4].to_vec()
            })
            .collect();
        firsts.sort();
        firsts.dedup();
        assert!(firsts.len() > 9_990, "{}", firsts.len());
    }
}
