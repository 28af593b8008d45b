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

use crate::types::kind::{Kind, Structured};
use crate::types::length_prefixed::{self, LENGTH_BYTES_MAX};

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

    /// This list without `count` elements at an end.
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

    /// The encoding that Redis would choose by `list-max-listpack-size`: the most
    /// elements, or the most KiB in powers of 2 from 4 on if it is negative.
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
mod tests;
