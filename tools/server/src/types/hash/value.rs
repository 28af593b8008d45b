//! A small hash as the bytes of one record. Fields and values are behind their lengths
//! (`length_prefixed`).
//!
//! ```text
//! | 1:8 | fields:32 | field | value | field | value | ..
//! ```
//!
//! Fields are in the order in which they were added.
//!
//! - I1: no bytes panic, and none that are not a whole hash are read as one.
//! - I2: a hash has each field once, and at least one.

use std::collections::{HashMap, HashSet};

use crate::steps;
use crate::types::kind::{Kind, Structured};
use crate::types::length_prefixed::{self, LENGTH_BYTES_MAX};

/// The version of the encoding.
const VERSION: u8 = Kind::Hash.byte();
/// Bytes before the first field.
const HEAD_BYTES: usize = 5;
/// Fields from which a table finds them faster than a look at each.
const TABLE_FIELDS_MIN: usize = 8;

/// A field with its value.
pub(crate) type Entry<'a> = (&'a [u8], &'a [u8]);

/// A whole hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HashValue<'a> {
    fields: usize,
    entries: &'a [u8],
}

/// The fields of a hash with their values.
#[derive(Clone, Debug)]
pub(crate) struct Entries<'a> {
    rest: &'a [u8],
}

impl<'a> Structured<'a> for HashValue<'a> {
    const KIND: Kind = Kind::Hash;

    fn of(bytes: &'a [u8]) -> Option<Self> {
        let (head, entries) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let [VERSION, fields @ ..] = *head else {
            return None;
        };
        let fields = usize::try_from(u32::from_le_bytes(fields)).ok()?;
        let mut walk = Entries { rest: entries };
        let count = walk.by_ref().count();
        let is_whole = walk.rest.is_empty() && count == fields && fields > 0;
        is_whole.then_some(Self { fields, entries })
    }
}

impl<'a> HashValue<'a> {
    /// How many fields it has.
    pub(crate) fn len(&self) -> usize {
        self.fields
    }

    /// Its fields with their values, in their order.
    pub(crate) fn iter(&self) -> Entries<'a> {
        Entries { rest: self.entries }
    }

    /// The value of a field.
    pub(crate) fn get(&self, field: &[u8]) -> Option<&'a [u8]> {
        let found = self.iter().find(|(known, _)| *known == field);
        found.map(|(_, value)| value)
    }

    /// The values of several fields.
    pub(crate) fn get_all<'f>(
        &self,
        fields: impl ExactSizeIterator<Item = &'f [u8]>,
    ) -> Vec<Option<&'a [u8]>> {
        if fields.len() < TABLE_FIELDS_MIN {
            return fields.map(|field| self.get(field)).collect();
        }
        steps::count(fields.len() + self.fields / 4);
        // A hash may have many more fields than are wanted.
        let fields: Vec<_> = fields.collect();
        let mut values: HashMap<_, _> = fields.iter().map(|field| (*field, None)).collect();
        for (field, value) in self.iter() {
            if let Some(found) = values.get_mut(field) {
                *found = Some(value);
            }
        }
        let value_of = |field: &&[u8]| values.get(*field).copied().flatten();
        fields.iter().map(value_of).collect()
    }

    /// The encoding that Redis would choose, by how many fields a list has at most, and how many
    /// bytes each of them and its value.
    pub(crate) fn encoding(&self, (fields_max, bytes_max): (usize, usize)) -> &'static str {
        let is_short =
            |(field, value): Entry<'_>| field.len() <= bytes_max && value.len() <= bytes_max;
        if self.fields <= fields_max && self.iter().all(is_short) {
            "listpack"
        } else {
            "hashtable"
        }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Entry<'a>;

    /// The next field; `None` at the end and where the bytes are no field, which stay then.
    fn next(&mut self) -> Option<Entry<'a>> {
        let (field, rest) = length_prefixed::split(self.rest)?;
        let (value, rest) = length_prefixed::split(rest)?;
        self.rest = rest;
        Some((field, value))
    }
}

/// The bytes of a hash that is made.
#[derive(Debug)]
struct Builder {
    bytes: Vec<u8>,
    fields: u32,
}

impl Builder {
    fn new(capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.push(VERSION);
        bytes.resize(HEAD_BYTES, 0);
        Self { bytes, fields: 0 }
    }

    fn add(&mut self, (field, value): Entry<'_>) {
        length_prefixed::push(&mut self.bytes, field);
        length_prefixed::push(&mut self.bytes, value);
        self.fields += 1;
    }

    fn finish(mut self) -> Vec<u8> {
        self.bytes[1..HEAD_BYTES].copy_from_slice(&self.fields.to_le_bytes());
        self.bytes
    }
}

/// A hash with some fields set: its bytes, and how many fields are new. The last value of a field
/// counts.
pub(crate) fn with_fields(old: Option<HashValue<'_>>, entries: &[Entry<'_>]) -> (Vec<u8>, usize) {
    let bytes = |&(field, value): &Entry<'_>| field.len() + value.len() + 2 * LENGTH_BYTES_MAX;
    let old_bytes = old.map_or(0, |old| old.entries.len());
    let new_bytes: usize = entries.iter().map(bytes).sum();
    let mut builder = Builder::new(HEAD_BYTES + old_bytes + new_bytes);
    let is_long = entries.len() >= TABLE_FIELDS_MIN;
    let places = entries.iter().enumerate();
    let table: HashMap<_, _> = (places.filter(|_| is_long))
        .map(|(place, &(field, _))| (field, place))
        .collect();
    let last_of = |field: &[u8]| {
        if is_long {
            table.get(field).copied()
        } else {
            entries.iter().rposition(|&(known, _)| known == field)
        }
    };
    let mut is_added = vec![false; entries.len()];
    for (field, value) in old.iter().flat_map(HashValue::iter) {
        let last = last_of(field);
        builder.add((field, last.map_or(value, |place| entries[place].1)));
        if let Some(place) = last {
            is_added[place] = true;
        }
    }
    let before = builder.fields;
    for &(field, _) in entries {
        // Where it comes first.
        if let Some(place) = last_of(field).filter(|&place| !is_added[place]) {
            is_added[place] = true;
            builder.add((field, entries[place].1));
        }
    }
    let added = (builder.fields - before) as usize;
    (builder.finish(), added)
}

/// A hash without some fields: its bytes, none if no field is left, and how many were removed.
pub(crate) fn without_fields<'f>(
    old: HashValue<'_>,
    fields: impl Iterator<Item = &'f [u8]>,
) -> (Option<Vec<u8>>, usize) {
    let fields: HashSet<&[u8]> = fields.collect();
    let mut builder = Builder::new(HEAD_BYTES + old.entries.len());
    for entry in old.iter().filter(|(field, _)| !fields.contains(field)) {
        builder.add(entry);
    }
    let left = builder.fields as usize;
    ((left > 0).then(|| builder.finish()), old.fields - left)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            8 => prop::collection::vec(any::<u8>(), 0..4),
            1 => prop::collection::vec(any::<u8>(), 120..300),
        ]
    }

    /// Fields and values.
    type Owned = Vec<(Vec<u8>, Vec<u8>)>;

    /// A change of a hash: fields that are set, or removed.
    fn change() -> impl Strategy<Value = (bool, Owned)> {
        (
            any::<bool>(),
            prop::collection::vec((text(), text()), 1..12),
        )
    }

    proptest! {
        #[test]
        fn a_hash_is_a_map_in_the_order_of_addition(changes in prop::collection::vec(change(), 1..20)) {
            let mut model = Owned::new();
            let mut bytes: Option<Vec<u8>> = None;
            for (sets, entries) in changes {
                let old = bytes.as_deref().map(|bytes| HashValue::of(bytes).expect("a hash"));
                let before = model.len();
                if sets {
                    for (field, value) in &entries {
                        match model.iter_mut().find(|(known, _)| known == field) {
                            Some((_, held)) => held.clone_from(value),
                            None => model.push((field.clone(), value.clone())),
                        }
                    }
                    let entries: Vec<_> = entries.iter().map(|(field, value)| (&field[..], &value[..])).collect();
                    let (made, added) = with_fields(old, &entries);
                    prop_assert_eq!(added, model.len() - before);
                    bytes = Some(made);
                } else if let Some(old) = old {
                    model.retain(|(known, _)| !entries.iter().any(|(field, _)| field == known));
                    let (made, removed) = without_fields(old, entries.iter().map(|(field, _)| &field[..]));
                    prop_assert_eq!(removed, before - model.len());
                    bytes = made;
                }
                prop_assert_eq!(bytes.is_some(), !model.is_empty());
                let Some(bytes) = &bytes else { continue };
                let hash = HashValue::of(bytes).expect("a hash");
                prop_assert_eq!(hash.len(), model.len());
                let expected: Vec<_> = model.iter().map(|(field, value)| (&field[..], &value[..])).collect();
                prop_assert_eq!(hash.iter().collect::<Vec<_>>(), expected);
                let fields = model.iter().map(|(field, _)| &field[..]);
                let values: Vec<_> = model.iter().map(|(_, value)| Some(&value[..])).collect();
                prop_assert_eq!(hash.get_all(fields.collect::<Vec<_>>().into_iter()), values);
                for (field, value) in &model {
                    prop_assert_eq!(hash.get(field), Some(&value[..]));
                }
                prop_assert_eq!(hash.get(&[7; 400]), None);
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), fields in 0_u8..4) {
            let _ = HashValue::of(&bytes);
            let headed = [&[VERSION, fields, 0, 0, 0], &bytes[..]].concat();
            if let Some(hash) = HashValue::of(&headed) {
                prop_assert_eq!(hash.iter().count(), usize::from(fields));
                let _ = (hash.encoding((2, 9)), hash.get(b"field"));
            }
        }

        #[test]
        fn a_part_of_a_hash_is_none(field in text(), value in text(), more: u8) {
            let (bytes, _) = with_fields(None, &[(&field, &value), (b"other", b"value")]);
            for end in 0..bytes.len() {
                prop_assert_eq!(HashValue::of(&bytes[..end]), None);
            }
            let longer = [&bytes[..], &[more]].concat();
            prop_assert_eq!(HashValue::of(&longer), None);
            let mut wrong = bytes.clone();
            wrong[0] = VERSION + 1;
            prop_assert_eq!(HashValue::of(&wrong), None);
            let mut wrong = bytes;
            wrong[1] = wrong[1].wrapping_add(1 + more % 255);
            prop_assert_eq!(HashValue::of(&wrong), None);
        }
    }

    #[test]
    fn the_bytes_are_as_documented() {
        let long = [b'v'; 130];
        let (bytes, added) = with_fields(None, &[(b"f", &long), (b"", b"x")]);
        let expected = [&[1, 2, 0, 0, 0, 1, b'f', 0x82, 1][..], &long, &[0, 1, b'x']].concat();
        assert_eq!((bytes, added), (expected, 2));
    }

    #[test]
    fn the_last_value_of_a_field_counts_where_it_came_first() {
        let (bytes, added) = with_fields(None, &[(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]);
        let hash = HashValue::of(&bytes).expect("a hash");
        let entries: Vec<Entry<'_>> = hash.iter().collect();
        assert_eq!(added, 2);
        assert_eq!(entries, [(&b"a"[..], &b"3"[..]), (b"b", b"2")]);
    }

    #[test]
    fn an_encoding_is_named_by_the_limits() {
        let encoding = |fields: usize, bytes: usize| {
            let names: Vec<_> = (0..fields).map(|field| field.to_string()).collect();
            let value = vec![b'v'; bytes];
            let entries: Vec<Entry<'_>> = names
                .iter()
                .map(|name| (name.as_bytes(), &value[..]))
                .collect();
            let (bytes, _) = with_fields(None, &entries);
            HashValue::of(&bytes).expect("a hash").encoding((128, 64))
        };
        assert_eq!(encoding(128, 64), "listpack");
        assert_eq!(encoding(129, 1), "hashtable");
        assert_eq!(encoding(1, 65), "hashtable");
    }
}
