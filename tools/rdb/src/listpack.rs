//! Listpacks: the elements of small collections in one string.
//!
//! ```text
//! bytes:32 | count:16 | element .. | 255
//! element: encoding, content | length of both, backwards, in groups of 7 bits
//!   0ddddddd                 an integer of 7 bits
//!   10llllll                 a string of up to 63 bytes
//!   110ddddd dddddddd        an integer of 13 bits
//!   1110llll llllllll        a string of up to 4095 bytes
//!   11110000 l:32            a string
//!   11110001 .. 11110100     an integer of 16, 24, 32, 64 bits
//! ```

use std::ops::Range;

use crate::error::Problem;
use crate::text::{Text, integer};

const HEAD_BYTES: usize = 6;
const END: u8 = 255;
/// A count that is not known.
const UNKNOWN: u16 = u16::MAX;
/// Bytes of an encoding with a length of 32 bits.
const LONG_HEAD: usize = 5;

/// An element of a blob; a range is of the blob.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Element {
    Bytes(Range<usize>),
    Integer(i64),
}

impl Element {
    pub(crate) fn text<'a>(&self, blob: &'a [u8]) -> Text<'a> {
        match self {
            Self::Bytes(range) => Text::Bytes(blob.get(range.clone()).unwrap_or_default()),
            Self::Integer(number) => Text::of_integer(*number),
        }
    }
}

/// Checks the head and the end; returns where the elements begin, and how many there are if that is
/// known.
pub(crate) fn begin(blob: &[u8]) -> Result<(usize, Option<u64>), Problem> {
    let head: [u8; HEAD_BYTES] = *blob.first_chunk().ok_or(Problem::Listpack)?;
    let [a, b, c, d, e, f] = head;
    let bytes = u32::from_le_bytes([a, b, c, d]);
    let has_end = blob.len() > HEAD_BYTES && blob.last() == Some(&END);
    if u64::from(bytes) != blob.len() as u64 || !has_end {
        return Err(Problem::Listpack);
    }
    let count = u16::from_le_bytes([e, f]);
    let count = (count != UNKNOWN).then_some(u64::from(count));
    Ok((HEAD_BYTES, count))
}

/// The element at a place, and the place behind it; `None` at the end.
pub(crate) fn next(blob: &[u8], at: usize) -> Result<Option<(Element, usize)>, Problem> {
    let last = blob.len().saturating_sub(1);
    if at >= last {
        return if at == last {
            Ok(None)
        } else {
            Err(Problem::Listpack)
        };
    }
    let inside = blob.get(at..last).ok_or(Problem::Listpack)?;
    let (head, content) = element(inside).ok_or(Problem::Listpack)?;
    let (element, bytes) = match content {
        Content::Bytes(bytes) => {
            let end = head.checked_add(bytes).ok_or(Problem::Listpack)?;
            if end > inside.len() {
                return Err(Problem::Listpack);
            }
            (Element::Bytes(at + head..at + end), end)
        }
        Content::Integer(number) => (Element::Integer(number), head),
    };
    let mut length = [0; 5];
    let length = back_length(bytes, &mut length);
    if inside.get(bytes..bytes + length.len()) != Some(length) {
        return Err(Problem::Listpack);
    }
    Ok(Some((element, at + bytes + length.len())))
}

enum Content {
    Bytes(usize),
    Integer(i64),
}

/// Bytes of the head of an element, and what it is.
fn element(inside: &[u8]) -> Option<(usize, Content)> {
    let first = *inside.first()?;
    let second = || inside.get(1).copied();
    Some(match first {
        0..=0x7f => (1, Content::Integer(i64::from(first))),
        0x80..=0xbf => (1, Content::Bytes(usize::from(first & 63))),
        0xc0..=0xdf => {
            let number = (i64::from(first & 31) << 8) | i64::from(second()?);
            let number = if number >= 1 << 12 {
                number - (1 << 13)
            } else {
                number
            };
            (2, Content::Integer(number))
        }
        0xe0..=0xef => {
            let bytes = (usize::from(first & 15) << 8) | usize::from(second()?);
            (2, Content::Bytes(bytes))
        }
        0xf0 => {
            let bytes = u32::from_le_bytes(*inside.get(1..)?.first_chunk()?);
            (LONG_HEAD, Content::Bytes(usize::try_from(bytes).ok()?))
        }
        0xf1 => (3, Content::Integer(little(inside.get(1..3)?))),
        0xf2 => (4, Content::Integer(little(inside.get(1..4)?))),
        0xf3 => (5, Content::Integer(little(inside.get(1..5)?))),
        0xf4 => (9, Content::Integer(little(inside.get(1..9)?))),
        _ => return None,
    })
}

/// A little-endian integer with a sign.
pub(crate) fn little(bytes: &[u8]) -> i64 {
    let sign = bytes.last().is_some_and(|last| last & 0x80 != 0);
    let mut all = [if sign { 0xff } else { 0 }; 8];
    let count = bytes.len().min(8);
    all[..count].copy_from_slice(&bytes[..count]);
    i64::from_le_bytes(all)
}

/// The length of an element as it stands behind it. The limits are those of Redis.
fn back_length(bytes: usize, into: &mut [u8; 5]) -> &[u8] {
    let groups = match bytes {
        0..=127 => 1,
        128..=16_382 => 2,
        16_383..=2_097_150 => 3,
        2_097_151..=268_435_454 => 4,
        _ => 5,
    };
    for (place, byte) in into[..groups].iter_mut().enumerate() {
        let shifted = (bytes as u64) >> (7 * (groups - 1 - place));
        let more = if place > 0 { 0x80 } else { 0 };
        *byte = u8::try_from(shifted & 0x7f).unwrap_or(0) | more;
    }
    &into[..groups]
}

/// Writes a listpack.
#[derive(Clone, Debug)]
pub(crate) struct Listpack {
    bytes: Vec<u8>,
    count: u64,
}

impl Default for Listpack {
    fn default() -> Self {
        Self {
            bytes: vec![0; HEAD_BYTES],
            count: 0,
        }
    }
}

impl Listpack {
    /// Bytes with the end.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() + 1
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Adds a string, as an integer if it is one.
    pub(crate) fn push(&mut self, text: &[u8]) {
        if let Some(number) = integer(text) {
            return self.push_integer(number);
        }
        let start = self.bytes.len();
        let low = |number: usize| u8::try_from(number & 0xff).unwrap_or(0);
        match text.len() {
            bytes @ 0..=63 => self.bytes.push(0x80 | low(bytes)),
            bytes @ 64..=4095 => self.bytes.extend([0xe0 | low(bytes >> 8), low(bytes)]),
            bytes => {
                self.bytes.push(0xf0);
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                self.bytes.extend(bytes.to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(text);
        self.end(start);
    }

    /// Adds an integer.
    pub(crate) fn push_integer(&mut self, number: i64) {
        let start = self.bytes.len();
        let low = number.to_le_bytes();
        match number {
            0..=127 => self.bytes.push(low[0]),
            -4096..=4095 => self.bytes.extend([0xc0 | (low[1] & 31), low[0]]),
            -0x8000..=0x7fff => self.integer(0xf1, &low[..2]),
            -0x80_0000..=0x7f_ffff => self.integer(0xf2, &low[..3]),
            -0x8000_0000..=0x7fff_ffff => self.integer(0xf3, &low[..4]),
            _ => self.integer(0xf4, &low),
        }
        self.end(start);
    }

    fn integer(&mut self, head: u8, bytes: &[u8]) {
        self.bytes.push(head);
        self.bytes.extend_from_slice(bytes);
    }

    fn end(&mut self, start: usize) {
        let mut length = [0; 5];
        let length = back_length(self.bytes.len() - start, &mut length);
        self.bytes.extend_from_slice(length);
        self.count += 1;
    }

    /// Adds the elements of another one.
    pub(crate) fn append(&mut self, other: &Self) {
        self.bytes.extend_from_slice(&other.bytes[HEAD_BYTES..]);
        self.count += other.count;
    }

    /// Its bytes; it is empty then.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let Self { mut bytes, count } = std::mem::take(self);
        bytes.push(END);
        let all = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        bytes[..4].copy_from_slice(&all.to_le_bytes());
        let count = u16::try_from(count).unwrap_or(UNKNOWN);
        bytes[4..HEAD_BYTES].copy_from_slice(&count.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(blob: &[u8]) -> Result<Vec<Vec<u8>>, Problem> {
        let (mut at, count) = begin(blob)?;
        let mut all = Vec::new();
        while let Some((element, behind)) = next(blob, at)? {
            all.push(element.text(blob).to_vec());
            at = behind;
        }
        if count.is_some_and(|count| count != all.len() as u64) {
            return Err(Problem::Listpack);
        }
        Ok(all)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            elements in prop::collection::vec(prop_oneof![
                prop::collection::vec(any::<u8>(), 0..70),
                any::<i64>().prop_map(|number| number.to_string().into_bytes()),
                (-5000i64..5000).prop_map(|number| number.to_string().into_bytes()),
                (4000usize..5000).prop_map(|bytes| vec![b'x'; bytes]),
                (16_370usize..16_390).prop_map(|bytes| vec![b'y'; bytes]),
            ], 0..20),
        ) {
            let mut listpack = Listpack::default();
            elements.iter().for_each(|element| listpack.push(element));
            let bytes = listpack.len();
            let blob = listpack.finish();
            prop_assert_eq!(blob.len(), bytes);
            prop_assert_eq!(texts(&blob), Ok(elements));
        }
    }
}
