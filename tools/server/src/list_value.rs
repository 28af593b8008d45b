//! A list as the bytes of one record.
//!
//! ```text
//! | 3:8 | elements:32 | element | element | ..
//! element: | length | bytes | length, backwards |
//! length:  7 bits a byte, the lowest first; the highest bit of a byte says that more follow
//! ```
//!
//! The second length of an element has the bytes of the first in reverse order, so a list is walked
//! from its end as it is from its start.
//!
//! - I1: no bytes panic, and none that are not a whole list are read as one.
//! - I2: a list has at least one element.

use std::ops::Range;

use crate::kind::{Kind, Structured};
use crate::length_prefixed::{self, LENGTH_BYTES_MAX};

/// The version of the encoding.
const VERSION: u8 = Kind::List.byte();
/// Bytes before the first element.
const HEAD_BYTES: usize = 5;

/// A whole list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListValue<'a> {
    count: usize,
    elements: &'a [u8],
}

/// The end of a list at which elements are added or removed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// The head, where the first element is.
    Left,
    /// The tail.
    Right,
}

/// Which occurrences of an element are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Occurrences {
    /// The first one that counts, from 1 on; from the tail if it is negative.
    pub(crate) rank: i64,
    /// How many, at most.
    pub(crate) count: usize,
    /// Elements that are compared, at most.
    pub(crate) compared: usize,
}

/// Elements of a list, from either end.
#[derive(Clone, Debug)]
pub(crate) struct Elements<'a> {
    rest: &'a [u8],
    left: usize,
}

impl<'a> Structured<'a> for ListValue<'a> {
    const KIND: Kind = Kind::List;

    fn of(bytes: &'a [u8]) -> Option<Self> {
        let (head, elements) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let [VERSION, count @ ..] = *head else {
            return None;
        };
        let count = usize::try_from(u32::from_le_bytes(count)).ok()?;
        let mut walk = Elements {
            rest: elements,
            left: count,
        };
        let found = walk.by_ref().count();
        let is_whole = walk.rest.is_empty() && found == count && count > 0;
        is_whole.then_some(Self { count, elements })
    }
}

impl<'a> ListValue<'a> {
    /// How many elements it has.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Its elements, from the head on.
    pub(crate) fn iter(&self) -> Elements<'a> {
        Elements {
            rest: self.elements,
            left: self.count,
        }
    }

    /// The elements at some places.
    pub(crate) fn elements(&self, places: Range<usize>) -> Elements<'a> {
        let (start, end) = (self.offset(places.start), self.offset(places.end));
        Elements {
            rest: self.elements.get(start..end).unwrap_or_default(),
            left: places.len(),
        }
    }

    /// Where the element at a place begins among the bytes. Cost: a walk from the nearer end.
    fn offset(&self, place: usize) -> usize {
        let mut walk = self.iter();
        if place <= self.count / 2 {
            walk.by_ref().take(place).for_each(drop);
            self.elements.len() - walk.rest.len()
        } else {
            (walk.by_ref().rev())
                .take(self.count.saturating_sub(place))
                .for_each(drop);
            walk.rest.len()
        }
    }

    /// The place that an index means, which counts from the tail if it is negative.
    pub(crate) fn place(&self, index: i64) -> Option<usize> {
        let index = isize::try_from(index).ok()?;
        let place = if index < 0 {
            self.count.checked_sub(index.unsigned_abs())?
        } else {
            index.unsigned_abs()
        };
        (place < self.count).then_some(place)
    }

    /// The element at an index.
    pub(crate) fn element(&self, index: i64) -> Option<&'a [u8]> {
        let place = self.place(index)?;
        self.elements(place..place + 1).next()
    }

    /// The places from one index to another, both included.
    pub(crate) fn places(&self, start: i64, end: i64) -> Range<usize> {
        let count = i64::try_from(self.count).unwrap_or(i64::MAX);
        let from_head = |index: i64| if index < 0 { index + count } else { index };
        let start = usize::try_from(from_head(start).max(0)).unwrap_or(usize::MAX);
        let end = usize::try_from(from_head(end).saturating_add(1)).unwrap_or(0);
        let end = end.min(self.count);
        if start < end { start..end } else { 0..0 }
    }

    /// The places of `count` elements at an end, or of all if there are fewer.
    pub(crate) fn end(&self, side: Side, count: usize) -> Range<usize> {
        let count = count.min(self.count);
        match side {
            Side::Left => 0..count,
            Side::Right => self.count - count..self.count,
        }
    }

    /// Copies of `count` elements at an end, the outermost first.
    pub(crate) fn outermost(&self, side: Side, count: usize) -> Vec<Vec<u8>> {
        let elements = self.elements(self.end(side, count));
        match side {
            Side::Left => elements.map(<[u8]>::to_vec).collect(),
            Side::Right => elements.rev().map(<[u8]>::to_vec).collect(),
        }
    }

    /// The bytes of the list that has only the elements at some places; `None` if these are none.
    pub(crate) fn part(&self, places: Range<usize>) -> Option<Vec<u8>> {
        let elements = self.elements(places);
        let mut builder = Builder::new(elements.rest.len());
        builder.add_all(&elements);
        builder.finish()
    }

    /// The same without `count` elements at an end.
    pub(crate) fn without_end(&self, side: Side, count: usize) -> Option<Vec<u8>> {
        let removed = self.end(side, count);
        self.part(match side {
            Side::Left => removed.end..self.count,
            Side::Right => 0..removed.start,
        })
    }

    /// The bytes of the list without occurrences of an element, and how many were removed: at most
    /// `count` from the head on, or from the tail on if it is negative, or all if it is 0.
    pub(crate) fn without(&self, element: &[u8], count: i64) -> (Option<Vec<u8>>, usize) {
        let found = self.iter().filter(|one| *one == element).count();
        let most = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        let removed = if count == 0 { found } else { most.min(found) };
        // Occurrences that stay before the first one that is removed.
        let spared = if count < 0 { found - removed } else { 0 };
        let mut builder = Builder::new(self.elements.len());
        let mut seen = 0;
        for one in self.iter() {
            let is_found = one == element;
            if !is_found || !(spared..spared + removed).contains(&seen) {
                builder.add(one);
            }
            seen += usize::from(is_found);
        }
        (builder.finish(), removed)
    }

    /// The places of occurrences of an element, in the order in which they are found.
    pub(crate) fn find(&self, element: &[u8], search: Occurrences) -> Vec<usize> {
        let before = usize::try_from(search.rank.unsigned_abs().saturating_sub(1));
        let before = before.unwrap_or(usize::MAX);
        let collect = |found: &mut dyn Iterator<Item = (usize, &[u8])>| {
            (found.take(search.compared))
                .filter(|(_, one)| *one == element)
                .map(|(place, _)| place)
                .skip(before)
                .take(search.count)
                .collect()
        };
        let mut all = self.iter().enumerate();
        if search.rank < 0 {
            collect(&mut all.rev())
        } else {
            collect(&mut all)
        }
    }

    /// The encoding that Redis would choose by `list-max-listpack-size`: so many elements, or so
    /// many KiB in powers of 2 from 4 on if it is negative.
    pub(crate) fn encoding(&self, size: i64) -> &'static str {
        let (count_max, bytes_max) = match size {
            0.. => (usize::try_from(size.max(1)).unwrap_or(usize::MAX), 8 << 10),
            _ => (
                usize::MAX,
                (2 << 10) << size.unsigned_abs().min(LISTPACK_SIZES),
            ),
        };
        if self.count <= count_max && LISTPACK_BYTES + self.elements.len() <= bytes_max {
            "listpack"
        } else {
            "quicklist"
        }
    }
}

/// Bytes of a listpack beside its elements, which take about as much there as here.
const LISTPACK_BYTES: usize = 7;
/// Sizes in bytes that `list-max-listpack-size` can name.
const LISTPACK_SIZES: u64 = 5;

impl<'a> Iterator for Elements<'a> {
    type Item = &'a [u8];

    /// The next element; `None` at the end and where the bytes are no element, which stay then.
    fn next(&mut self) -> Option<Self::Item> {
        let left = self.left.checked_sub(1)?;
        let (element, rest) = split_first(self.rest)?;
        (self.rest, self.left) = (rest, left);
        Some(element)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl DoubleEndedIterator for Elements<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let left = self.left.checked_sub(1)?;
        let (rest, element) = split_last(self.rest)?;
        (self.rest, self.left) = (rest, left);
        Some(element)
    }
}

// Those of a whole list are as many as it says.
impl ExactSizeIterator for Elements<'_> {}

/// The bytes of a list that is made.
#[derive(Debug)]
struct Builder {
    bytes: Vec<u8>,
    count: usize,
}

impl Builder {
    /// No elements yet, with room for some bytes of them.
    fn new(capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + capacity);
        bytes.push(VERSION);
        bytes.resize(HEAD_BYTES, 0);
        Self { bytes, count: 0 }
    }

    fn add(&mut self, element: &[u8]) {
        let start = self.bytes.len();
        length_prefixed::push(&mut self.bytes, element);
        let end = self.bytes.len() - element.len();
        for place in (start..end).rev() {
            self.bytes.push(self.bytes[place]);
        }
        self.count += 1;
    }

    /// Adds elements as they are.
    fn add_all(&mut self, elements: &Elements<'_>) {
        self.bytes.extend_from_slice(elements.rest);
        self.count += elements.left;
    }

    /// The bytes; `None` if there is no element.
    fn finish(mut self) -> Option<Vec<u8>> {
        // More elements than this are no record.
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        self.bytes[1..HEAD_BYTES].copy_from_slice(&count.to_le_bytes());
        (count > 0).then_some(self.bytes)
    }
}

/// The bytes of a list in which others stand for the elements at some places; `None` if no element
/// is left. Without a list there are only the others.
pub(crate) fn with_replaced<'e>(
    old: Option<ListValue<'_>>,
    places: Range<usize>,
    others: impl Iterator<Item = &'e [u8]> + Clone,
) -> Option<Vec<u8>> {
    let new_bytes = |one: &[u8]| one.len() + 2 * LENGTH_BYTES_MAX;
    let new_bytes: usize = others.clone().map(new_bytes).sum();
    let old_bytes = old.map_or(0, |old| old.elements.len());
    let mut builder = Builder::new(old_bytes + new_bytes);
    if let Some(old) = &old {
        builder.add_all(&old.elements(0..places.start));
    }
    others.for_each(|one| builder.add(one));
    if let Some(old) = &old {
        builder.add_all(&old.elements(places.end..old.count));
    }
    builder.finish()
}

/// The bytes of a list to which elements were added at an end, one after the other; `None` if there
/// is no element.
pub(crate) fn with_added<'e>(
    old: Option<ListValue<'_>>,
    side: Side,
    added: impl DoubleEndedIterator<Item = &'e [u8]> + Clone,
) -> Option<Vec<u8>> {
    match side {
        // The last one comes to the head.
        Side::Left => with_replaced(old, 0..0, added.rev()),
        Side::Right => {
            let count = old.map_or(0, |old| old.count);
            with_replaced(old, count..count, added)
        }
    }
}

/// The element at the start of some bytes, and what follows.
fn split_first(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (element, rest) = length_prefixed::split(bytes)?;
    let length = &bytes[..bytes.len() - rest.len() - element.len()];
    let (backwards, rest) = rest.split_at_checked(length.len())?;
    let is_whole = length.iter().eq(backwards.iter().rev());
    is_whole.then_some((element, rest))
}

/// What comes before the element at the end of some bytes, and that element.
fn split_last(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0_usize;
    let backwards = bytes.iter().rev().take(LENGTH_BYTES_MAX);
    let mut own_bytes = 0;
    for (place, byte) in backwards.enumerate() {
        length |= usize::from(byte & 0x7F) << (7 * place);
        if byte & 0x80 == 0 {
            own_bytes = place + 1;
            break;
        }
    }
    let start = bytes.len().checked_sub(length + 2 * own_bytes)?;
    let (rest, last) = bytes.split_at(start);
    match split_first(last)? {
        (element, []) if own_bytes > 0 => Some((rest, element)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    type Model = VecDeque<Vec<u8>>;

    /// Few different elements, so that they repeat; some whose lengths take several bytes.
    fn element() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            8 => prop::collection::vec(0_u8..3, 0..2),
            1 => prop::collection::vec(any::<u8>(), 120..300),
        ]
    }

    fn side() -> impl Strategy<Value = Side> {
        prop_oneof![Just(Side::Left), Just(Side::Right)]
    }

    #[derive(Clone, Debug)]
    enum Edit {
        Push(Side, Vec<Vec<u8>>),
        Pop(Side, usize),
        Set(i64, Vec<u8>),
        Insert(usize, Vec<u8>),
        Remove(Vec<u8>, i64),
        Trim(i64, i64),
    }

    fn edit() -> impl Strategy<Value = Edit> {
        prop_oneof![
            4 => (side(), prop::collection::vec(element(), 1..5)).prop_map(|(side, all)| Edit::Push(side, all)),
            2 => (side(), 0_usize..4).prop_map(|(side, count)| Edit::Pop(side, count)),
            1 => (-9_i64..9, element()).prop_map(|(index, one)| Edit::Set(index, one)),
            1 => (0_usize..9, element()).prop_map(|(place, one)| Edit::Insert(place, one)),
            1 => (element(), -3_i64..3).prop_map(|(one, count)| Edit::Remove(one, count)),
            1 => (-20_i64..20, -20_i64..20).prop_map(|(start, end)| Edit::Trim(start, end)),
        ]
    }

    /// The places of a range, one by one.
    fn model_places(count: usize, start: i64, end: i64) -> Vec<usize> {
        let count_signed = i64::try_from(count).expect("a short list");
        let at = |index: i64| {
            if index < 0 {
                index + count_signed
            } else {
                index
            }
        };
        (0..count)
            .filter(|&place| {
                let place = i64::try_from(place).expect("a short list");
                at(start) <= place && place <= at(end)
            })
            .collect()
    }

    /// Makes an edit of a deque, and of the bytes of a list with the same elements.
    fn make(edit: &Edit, model: &mut Model, bytes: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let old = bytes
            .as_deref()
            .map(|bytes| ListValue::of(bytes).expect("a list"));
        let Some(list) = old else {
            let Edit::Push(side, all) = edit else {
                return None;
            };
            for one in all {
                push(model, *side, one.clone());
            }
            return with_added(None, *side, all.iter().map(Vec::as_slice));
        };
        match edit {
            Edit::Push(side, all) => {
                for one in all {
                    push(model, *side, one.clone());
                }
                with_added(old, *side, all.iter().map(Vec::as_slice))
            }
            &Edit::Pop(side, count) => {
                let popped: Vec<_> = (0..count).map_while(|_| pop(model, side)).collect();
                assert_eq!(list.outermost(side, count), popped);
                list.without_end(side, count)
            }
            Edit::Set(index, one) => {
                let signed = i64::try_from(model.len()).expect("a short list");
                let place = if *index < 0 { index + signed } else { *index };
                let place = usize::try_from(place)
                    .ok()
                    .filter(|place| *place < model.len());
                assert_eq!(list.place(*index), place);
                let Some(place) = place else { return bytes };
                model[place].clone_from(one);
                with_replaced(old, place..place + 1, std::iter::once(&one[..]))
            }
            Edit::Insert(place, one) => {
                let place = (*place).min(model.len());
                model.insert(place, one.clone());
                with_replaced(old, place..place, std::iter::once(&one[..]))
            }
            Edit::Remove(one, count) => {
                let before = model.len();
                remove(model, one, *count);
                let (made, removed) = list.without(one, *count);
                assert_eq!(removed, before - model.len());
                made
            }
            &Edit::Trim(start, end) => {
                let places = model_places(model.len(), start, end);
                *model = places.iter().map(|&place| model[place].clone()).collect();
                list.part(list.places(start, end))
            }
        }
    }

    /// Removes occurrences as the documentation of `LREM` has it.
    fn remove(model: &mut Model, one: &[u8], count: i64) {
        let most = usize::try_from(count.unsigned_abs()).expect("few");
        let mut left = if count == 0 { usize::MAX } else { most };
        let keeps = |known: &Vec<u8>| {
            let removes = known == one && left > 0;
            left -= usize::from(removes);
            !removes
        };
        if count < 0 {
            let reversed = std::mem::take(model).into_iter().rev();
            let kept: Vec<_> = reversed.filter(keeps).collect();
            *model = kept.into_iter().rev().collect();
        } else {
            model.retain(keeps);
        }
    }

    fn push(model: &mut Model, side: Side, one: Vec<u8>) {
        match side {
            Side::Left => model.push_front(one),
            Side::Right => model.push_back(one),
        }
    }

    fn pop(model: &mut Model, side: Side) -> Option<Vec<u8>> {
        match side {
            Side::Left => model.pop_front(),
            Side::Right => model.pop_back(),
        }
    }

    /// The places of an element that a search finds, as the documentation of `LPOS` has it.
    fn model_find(model: &Model, element: &[u8], search: Occurrences) -> Vec<usize> {
        let mut places: Vec<_> = (0..model.len()).collect();
        if search.rank < 0 {
            places.reverse();
        }
        places.truncate(search.compared);
        places.retain(|&place| model[place] == element);
        let skipped = usize::try_from(search.rank.unsigned_abs() - 1).expect("few");
        places.drain(..skipped.min(places.len()));
        places.truncate(search.count);
        places
    }

    proptest! {
        #[test]
        fn a_list_is_a_deque(edits in prop::collection::vec(edit(), 1..30)) {
            let mut model = Model::new();
            let mut bytes = None;
            for edit in &edits {
                bytes = make(edit, &mut model, bytes);
                prop_assert_eq!(bytes.is_some(), !model.is_empty());
                let Some(bytes) = &bytes else { continue };
                let list = ListValue::of(bytes).expect("a list");
                prop_assert_eq!(list.len(), model.len());
                prop_assert_eq!(list.iter().len(), model.len());
                prop_assert!(list.iter().eq(model.iter()));
                prop_assert!(list.iter().rev().eq(model.iter().rev()));
            }
        }

        #[test]
        fn parts_are_walked_from_both_ends(
            all in prop::collection::vec(element(), 1..20), start in -25_i64..25, end in -25_i64..25, turns: u32,
        ) {
            let bytes = with_added(None, Side::Right, all.iter().map(Vec::as_slice)).expect("elements");
            let list = ListValue::of(&bytes).expect("a list");
            let places = list.places(start, end);
            let mut expected: VecDeque<_> = model_places(all.len(), start, end).into_iter().map(|place| &all[place]).collect();
            prop_assert_eq!(places.len(), expected.len());
            let mut elements = list.elements(places);
            for turn in 0..expected.len() + 1 {
                if turns >> (turn % 32) & 1 == 0 {
                    prop_assert_eq!(elements.next(), expected.pop_front().map(Vec::as_slice));
                } else {
                    prop_assert_eq!(elements.next_back(), expected.pop_back().map(Vec::as_slice));
                }
            }
        }

        #[test]
        fn occurrences_are_found_as_documented(
            all in prop::collection::vec(element(), 1..20), wanted in element(),
            rank in prop_oneof![-4_i64..0, 1_i64..5], count in 0_usize..4, compared in 0_usize..25,
        ) {
            let bytes = with_added(None, Side::Right, all.iter().map(Vec::as_slice)).expect("elements");
            let list = ListValue::of(&bytes).expect("a list");
            let search = Occurrences { rank, count, compared };
            let model = all.into_iter().collect();
            prop_assert_eq!(list.find(&wanted, search), model_find(&model, &wanted, search));
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), count in 0_u8..4) {
            let _ = ListValue::of(&bytes);
            let headed = [&[VERSION, count, 0, 0, 0], &bytes[..]].concat();
            if let Some(list) = ListValue::of(&headed) {
                prop_assert_eq!(list.iter().count(), usize::from(count));
                prop_assert_eq!(list.iter().rev().count(), usize::from(count));
            }
            let (mut forwards, mut backwards) = (Elements { rest: &bytes, left: 9 }, Elements { rest: &bytes, left: 9 });
            while forwards.next().is_some() {}
            while backwards.next_back().is_some() {}
        }

        #[test]
        fn changed_bytes_are_no_list_or_one_that_is_walked_both_ways(
            all in prop::collection::vec(element(), 1..6), place: prop::sample::Index, byte: u8,
        ) {
            let mut bytes = with_added(None, Side::Right, all.iter().map(Vec::as_slice)).expect("elements");
            let place = place.index(bytes.len());
            bytes[place] = byte;
            if let Some(list) = ListValue::of(&bytes) {
                let forwards: Vec<_> = list.iter().collect();
                let mut backwards: Vec<_> = list.iter().rev().collect();
                backwards.reverse();
                prop_assert_eq!(forwards, backwards);
            }
        }

        #[test]
        fn a_part_of_a_list_is_none(one in element(), more: u8) {
            let bytes = with_added(None, Side::Left, [&one[..], b"other"].into_iter()).expect("elements");
            for end in 0..bytes.len() {
                prop_assert_eq!(ListValue::of(&bytes[..end]), None);
            }
            let longer = [&bytes[..], &[more]].concat();
            prop_assert_eq!(ListValue::of(&longer), None);
            let mut wrong = bytes.clone();
            wrong[0] = VERSION + 1;
            prop_assert_eq!(ListValue::of(&wrong), None);
            let mut wrong = bytes;
            wrong[1] = wrong[1].wrapping_add(1 + more % 255);
            prop_assert_eq!(ListValue::of(&wrong), None);
        }
    }

    #[test]
    fn the_bytes_are_as_documented() {
        let long = [b'v'; 130];
        let bytes = with_added(None, Side::Right, [&long[..], b"", b"x"].into_iter());
        let elements = [&[0x82, 1][..], &long, &[1, 0x82, 0, 0, 1, b'x', 1]].concat();
        assert_eq!(bytes, Some([&[3, 3, 0, 0, 0][..], &elements].concat()));
    }

    #[test]
    fn indices_beyond_any_list_are_outside() {
        let bytes = with_added(None, Side::Right, [&b"a"[..], b"b"].into_iter()).expect("elements");
        let list = ListValue::of(&bytes).expect("a list");
        for index in [i64::MIN, -3, 2, i64::MAX] {
            assert_eq!(list.place(index), None);
        }
        assert_eq!(list.places(i64::MIN, i64::MAX), 0..2);
        assert_eq!(list.places(i64::MAX, i64::MAX), 0..0);
        assert_eq!(list.places(i64::MIN, i64::MIN), 0..0);
        assert_eq!(list.places(1, 0), 0..0);
        assert_eq!(list.places(0, -100), 0..0);
    }

    #[test]
    fn an_encoding_is_named_by_the_limit() {
        let encoding = |count: usize, bytes: usize, size| {
            let element = vec![b'v'; bytes];
            let all = std::iter::repeat_n(&element[..], count);
            let bytes = with_added(None, Side::Right, all.collect::<Vec<_>>().into_iter());
            ListValue::of(&bytes.expect("elements"))
                .expect("a list")
                .encoding(size)
        };
        assert_eq!(encoding(16, 10, 16), "listpack");
        assert_eq!(encoding(17, 10, 16), "quicklist");
        assert_eq!(encoding(1, 9000, 16), "quicklist");
        assert_eq!(encoding(1, 10, 0), "listpack");
        assert_eq!(encoding(2, 10, 0), "quicklist");
        assert_eq!(encoding(1, 4000, -1), "listpack");
        assert_eq!(encoding(1, 4096, -1), "quicklist");
        assert_eq!(encoding(2, 4000, -2), "listpack");
        assert_eq!(encoding(3, 4000, -2), "quicklist");
        assert_eq!(encoding(1, 65_000, -5), "listpack");
        assert_eq!(encoding(1, 65_000, i64::MIN), "listpack");
        assert_eq!(encoding(1, 66_000, -5), "quicklist");
    }
}
