//! A set as the bytes of one record.
//!
//! ```text
//! | 2:8 | members:32 | member | member | .. | offset:32 | offset:32 | .. |
//!
//! member: behind its length (`length_prefixed`)
//! offset: of every 16th member from the first on, where it begins behind the head
//! ```
//!
//! Members are sorted by their bytes, so sets are merged in one pass, and a member is found by a
//! binary search of the offsets and a look at 16 members at most. A read copies the record in any
//! case, but that costs a tenth of a walk over all members.
//!
//! - I1: no bytes panic, and none that are not a whole set are read as one, except by
//!   [`SetLookup`].
//! - I2: a set has each member once, and at least one.

use crate::types::encoding_limits::SetLimits;
use crate::types::kind::{Kind, Structured};
use crate::types::length_prefixed::{self, LENGTH_BYTES_MAX};
use crate::words::parsed_integer;

/// The version of the encoding.
const VERSION: u8 = Kind::Set.byte();
/// Bytes before the first member.
const HEAD_BYTES: usize = 5;
/// Members from one offset to the next.
const STRIDE: usize = 16;
/// Bytes of an offset.
const OFFSET_BYTES: usize = 4;

/// A whole set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SetValue<'a> {
    count: usize,
    members: &'a [u8],
    offsets: &'a [[u8; OFFSET_BYTES]],
}

/// A set of which only the head was examined: for a look at few members. Of bytes that are no whole
/// set it finds any of them, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SetLookup<'a>(SetValue<'a>);

/// The members of a set.
#[derive(Clone, Debug)]
pub(crate) struct Members<'a> {
    rest: &'a [u8],
}

impl<'a> Structured<'a> for SetLookup<'a> {
    const KIND: Kind = Kind::Set;

    fn of(record: &'a [u8]) -> Option<Self> {
        let (head, rest) = record.split_first_chunk::<HEAD_BYTES>()?;
        let [VERSION, count @ ..] = *head else {
            return None;
        };
        let count = usize::try_from(u32::from_le_bytes(count)).ok()?;
        let offset_bytes = count.div_ceil(STRIDE).checked_mul(OFFSET_BYTES)?;
        let member_bytes = rest.len().checked_sub(offset_bytes)?;
        let (members, offsets) = rest.split_at_checked(member_bytes)?;
        let (offsets, _) = offsets.as_chunks();
        (count > 0).then_some(Self(SetValue {
            count,
            members,
            offsets,
        }))
    }
}

impl<'a> Structured<'a> for SetValue<'a> {
    const KIND: Kind = Kind::Set;

    fn of(record: &'a [u8]) -> Option<Self> {
        let SetLookup(set) = SetLookup::of(record)?;
        let mut walk = set.iter();
        let (mut place, mut start) = (0, 0);
        let mut before: Option<&[u8]> = None;
        while let Some(member) = walk.next() {
            let is_noted = place % STRIDE != 0 || set.offset(place / STRIDE) == Some(start);
            if !is_noted || before.is_some_and(|before| before >= member) {
                return None;
            }
            before = Some(member);
            place += 1;
            start = set.members.len() - walk.rest.len();
        }
        (walk.rest.is_empty() && place == set.count).then_some(set)
    }
}

impl<'a> SetLookup<'a> {
    /// How many members it has.
    pub(crate) fn len(&self) -> usize {
        self.0.count
    }

    /// True if it has a member. Cost: a look at some 16 members, and at a few offsets.
    pub(crate) fn contains(&self, member: &[u8]) -> bool {
        self.0.contains(member)
    }

    /// The member at a place.
    pub(crate) fn get(&self, place: usize) -> Option<&'a [u8]> {
        self.0.members_from(place / STRIDE)?.nth(place % STRIDE)
    }
}

impl<'a> SetValue<'a> {
    /// How many members it has.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Its members, in their order.
    pub(crate) fn iter(&self) -> Members<'a> {
        Members { rest: self.members }
    }

    fn offset(&self, place: usize) -> Option<usize> {
        let offset = u32::from_le_bytes(*self.offsets.get(place)?);
        usize::try_from(offset).ok()
    }

    /// The members from an offset on.
    fn members_from(&self, place: usize) -> Option<Members<'a>> {
        let rest = self.members.get(self.offset(place)?..)?;
        Some(Members { rest })
    }

    /// True if it has a member. Cost: a look at some 16 members, and at a few offsets.
    pub(crate) fn contains(&self, member: &[u8]) -> bool {
        let (mut low, mut high) = (0, self.offsets.len());
        // The first offset whose member comes behind the one that is searched.
        while low < high {
            let middle = low.midpoint(high);
            let first = self.members_from(middle).and_then(|mut from| from.next());
            if first.is_some_and(|first| first <= member) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let from = low
            .checked_sub(1)
            .and_then(|place| self.members_from(place));
        from.is_some_and(|from| from.take(STRIDE).any(|known| known == member))
    }

    /// The encoding that Redis would choose.
    pub(crate) fn encoding(&self, limits: SetLimits) -> &'static str {
        let is_integer = |member: &[u8]| parsed_integer(member).is_some();
        if self.count <= limits.integers && self.iter().all(is_integer) {
            "intset"
        } else if self.count <= limits.members
            && self.iter().all(|member| member.len() <= limits.bytes)
        {
            "listpack"
        } else {
            "hashtable"
        }
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = &'a [u8];

    /// The next member; `None` at the end and where the bytes are no member, which stay then.
    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let (member, rest) = length_prefixed::split(self.rest)?;
        self.rest = rest;
        Some(member)
    }
}

/// The record of a set of members that are sorted, each once; none if there are none. Also how
/// many there are.
pub(crate) fn of_sorted<'m>(members: impl Iterator<Item = &'m [u8]>) -> (Option<Vec<u8>>, usize) {
    let mut builder = Builder::new(0);
    for member in members {
        builder.add(member);
    }
    (builder.finish(), builder.count)
}

/// A set with some members added: its record, none if it had all of them, and how many are new.
pub(crate) fn with_members<'m>(
    old: Option<SetValue<'m>>,
    members: impl Iterator<Item = &'m [u8]>,
) -> (Option<Vec<u8>>, usize) {
    let is_new = |member: &&[u8]| !old.is_some_and(|old| old.contains(member));
    let mut new: Vec<_> = members.filter(is_new).collect();
    new.sort_unstable();
    new.dedup();
    if new.is_empty() {
        return (None, 0);
    }
    let new_bytes: usize = new
        .iter()
        .map(|member| member.len() + LENGTH_BYTES_MAX)
        .sum();
    let mut builder = Builder::new(old.map_or(0, |old| old.members.len()) + new_bytes);
    let added = new.len();
    let mut new = new.into_iter().peekable();
    for member in old.iter().flat_map(SetValue::iter) {
        while let Some(new) = new.next_if(|new| *new < member) {
            builder.add(new);
        }
        builder.add(member);
    }
    for member in new {
        builder.add(member);
    }
    (builder.finish(), added)
}

/// A set without some members: its record, none if no member is left, and how many were removed.
pub(crate) fn without_members<'m>(
    old: SetValue<'_>,
    members: impl Iterator<Item = &'m [u8]>,
) -> (Option<Vec<u8>>, usize) {
    let mut gone: Vec<_> = members.collect();
    gone.sort_unstable();
    let mut builder = Builder::new(old.members.len());
    for member in old.iter() {
        if gone.binary_search(&member).is_err() {
            builder.add(member);
        }
    }
    (builder.finish(), old.count - builder.count)
}

/// The bytes of a set that is made.
#[derive(Debug)]
struct Builder {
    bytes: Vec<u8>,
    offsets: Vec<u8>,
    count: usize,
}

impl Builder {
    /// One with room for about `member_bytes` of members.
    fn new(member_bytes: usize) -> Self {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + member_bytes);
        bytes.push(VERSION);
        bytes.resize(HEAD_BYTES, 0);
        Self {
            bytes,
            offsets: Vec::new(),
            count: 0,
        }
    }

    /// Adds a member, which comes behind all others.
    fn add(&mut self, member: &[u8]) {
        if self.count.is_multiple_of(STRIDE) {
            let offset = u32::try_from(self.bytes.len() - HEAD_BYTES).unwrap_or(u32::MAX);
            self.offsets.extend(offset.to_le_bytes());
        }
        length_prefixed::push(&mut self.bytes, member);
        self.count += 1;
    }

    /// The record; none if the set is empty. It is taken from the builder.
    fn finish(&mut self) -> Option<Vec<u8>> {
        if self.count == 0 {
            return None;
        }
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        self.bytes[1..HEAD_BYTES].copy_from_slice(&count.to_le_bytes());
        self.bytes.append(&mut self.offsets);
        Some(std::mem::take(&mut self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const LIMITS: SetLimits = SetLimits {
        integers: 512,
        members: 128,
        bytes: 64,
    };

    fn member() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            8 => prop::collection::vec(0_u8..3, 0..5),
            4 => any::<i16>().prop_map(|number| number.to_string().into_bytes()),
            1 => prop::collection::vec(any::<u8>(), 120..300),
        ]
    }

    /// A change of a set: members that are added, or removed.
    fn change() -> impl Strategy<Value = (bool, Vec<Vec<u8>>)> {
        (
            prop::bool::weighted(0.7),
            prop::collection::vec(member(), 1..40),
        )
    }

    fn record_of(members: &[Vec<u8>]) -> Vec<u8> {
        let (record, _) = with_members(None, members.iter().map(Vec::as_slice));
        record.expect("there are members")
    }

    proptest! {
        #[test]
        fn a_set_is_a_sorted_set(changes in prop::collection::vec(change(), 1..20)) {
            let mut model = BTreeSet::new();
            let mut record: Option<Vec<u8>> = None;
            for (adds, members) in changes {
                let old = record.as_deref().map(|record| SetValue::of(record).expect("a set"));
                let before = model.len();
                let slices = members.iter().map(Vec::as_slice);
                if adds {
                    model.extend(members.iter().cloned());
                    let (made, added) = with_members(old, slices);
                    prop_assert_eq!(added, model.len() - before);
                    prop_assert_eq!(made.is_some(), added > 0);
                    record = made.or(record);
                } else if let Some(old) = old {
                    model.retain(|known| !members.contains(known));
                    let (made, removed) = without_members(old, slices);
                    prop_assert_eq!(removed, before - model.len());
                    record = made;
                }
                prop_assert_eq!(record.is_some(), !model.is_empty());
                let Some(record) = &record else { continue };
                let set = SetValue::of(record).expect("a set");
                let lookup = SetLookup::of(record).expect("a set");
                prop_assert_eq!((set.len(), lookup.len()), (model.len(), model.len()));
                let expected: Vec<_> = model.iter().map(Vec::as_slice).collect();
                prop_assert_eq!(set.iter().collect::<Vec<_>>(), expected.clone());
                for (place, member) in expected.into_iter().enumerate() {
                    prop_assert_eq!(lookup.get(place), Some(member));
                }
                prop_assert_eq!(lookup.get(model.len()), None);
                for member in members.iter().chain(&model) {
                    prop_assert_eq!(set.contains(member), model.contains(member));
                    prop_assert_eq!(lookup.contains(member), model.contains(member));
                }
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(
            bytes in prop::collection::vec(prop_oneof![0_u8..4, any::<u8>()], 0..200),
            count in 0_u8..40,
        ) {
            let headed = [&[VERSION, count, 0, 0, 0], &bytes[..]].concat();
            for record in [&bytes, &headed] {
                if let Some(lookup) = SetLookup::of(record) {
                    let _ = (lookup.contains(b"member"), lookup.contains(&[2]));
                    let _ = (0..40).filter_map(|place| lookup.get(place)).count();
                }
                if let Some(set) = SetValue::of(record) {
                    prop_assert_eq!(set.iter().count(), set.len());
                    prop_assert!(set.iter().all(|member| set.contains(member)));
                    let _ = set.encoding(LIMITS);
                }
            }
        }

        #[test]
        fn bytes_that_differ_from_a_set_in_one_are_another_set_or_none(
            members in prop::collection::vec(member(), 1..40),
            place in any::<prop::sample::Index>(),
            other in 1_u8..,
        ) {
            let record = record_of(&members);
            for end in 0..record.len().min(40) {
                prop_assert_eq!(SetValue::of(&record[..end]), None);
            }
            let longer = [&record[..], &[other]].concat();
            prop_assert_eq!(SetValue::of(&longer), None);
            let mut changed = record.clone();
            let place = place.index(changed.len());
            changed[place] ^= other;
            if let Some(set) = SetValue::of(&changed) {
                let whole = SetValue::of(&record).expect("a set");
                prop_assert_eq!(set.len(), whole.len());
                prop_assert!(set.iter().is_sorted_by(|one, next| one < next));
            }
        }
    }

    #[test]
    fn the_bytes_are_as_documented() {
        let members: Vec<_> = (0..17).map(|number| vec![b'a' + number]).collect();
        let record = record_of(&members);
        let mut expected = vec![2, 17, 0, 0, 0];
        for number in 0..17 {
            expected.extend([1, b'a' + number]);
        }
        expected.extend([0, 0, 0, 0, 32, 0, 0, 0]);
        assert_eq!(record, expected);
    }

    #[test]
    fn members_that_are_not_sorted_or_twice_there_are_no_set() {
        let sorted = [2, 2, 0, 0, 0, 1, b'a', 1, b'b', 0, 0, 0, 0];
        assert!(SetValue::of(&sorted).is_some());
        let mut turned = sorted;
        turned.swap(6, 8);
        assert_eq!(SetValue::of(&turned), None);
        let mut twice = sorted;
        twice[8] = b'a';
        assert_eq!(SetValue::of(&twice), None);
        let mut elsewhere = sorted;
        elsewhere[9] = 2;
        assert_eq!(SetValue::of(&elsewhere), None);
    }

    #[test]
    fn an_encoding_is_named_by_the_limits() {
        let encoding = |members: Vec<Vec<u8>>| {
            let record = record_of(&members);
            SetValue::of(&record).expect("a set").encoding(LIMITS)
        };
        let numbers = |count: usize| (0..count).map(|number| number.to_string().into_bytes());
        let texts = |count: usize| (0..count).map(|number| format!("x{number}").into_bytes());
        assert_eq!(encoding(numbers(512).collect()), "intset");
        assert_eq!(encoding(numbers(513).collect()), "hashtable");
        assert_eq!(encoding(numbers(127).chain(texts(1)).collect()), "listpack");
        assert_eq!(encoding(texts(128).collect()), "listpack");
        assert_eq!(encoding(texts(129).collect()), "hashtable");
        assert_eq!(encoding(vec![vec![b'x'; 64]]), "listpack");
        assert_eq!(encoding(vec![vec![b'x'; 65]]), "hashtable");
    }
}
