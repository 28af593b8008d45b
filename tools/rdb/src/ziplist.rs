//! Ziplists: the elements of small collections in one string, up to version 9.
//!
//! ```text
//! bytes:32 | last:32 | count:16 | element .. | 255
//! element: bytes of the one before, 8 bits or 254 and 32 bits | encoding | content
//!   00llllll                  a string of up to 63 bytes
//!   01llllll llllllll         a string of up to 16383 bytes
//!   10000000 l:32             a string; the length is big-endian
//!   0xc0 0xd0 0xe0            an integer of 16, 32, 64 bits
//!   0xf0 0xfe                 an integer of 24, 8 bits
//!   0xf1 .. 0xfd              an integer from 0 to 12
//! ```

use crate::error::Problem;
use crate::listpack::{Element, little};

const HEAD_BYTES: usize = 10;
const END: u8 = 255;
const LONG: u8 = 254;
const UNKNOWN: u16 = u16::MAX;

/// Where a walk stands: the place of the next element, and that of the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Walk {
    pub(crate) at: usize,
    before: usize,
}

/// Checks the head and the end; returns where the elements begin, and how many there are if that is
/// known.
pub(crate) fn begin(blob: &[u8]) -> Result<(Walk, Option<u64>), Problem> {
    let bytes = blob.first_chunk::<4>().ok_or(Problem::Ziplist)?;
    let count = blob
        .get(8..HEAD_BYTES)
        .and_then(|count| count.first_chunk::<2>());
    let count = u16::from_le_bytes(*count.ok_or(Problem::Ziplist)?);
    let has_end = blob.len() > HEAD_BYTES && blob.last() == Some(&END);
    if u64::from(u32::from_le_bytes(*bytes)) != blob.len() as u64 || !has_end {
        return Err(Problem::Ziplist);
    }
    let walk = Walk {
        at: HEAD_BYTES,
        before: HEAD_BYTES,
    };
    Ok((walk, (count != UNKNOWN).then_some(u64::from(count))))
}

/// The next element, and the walk behind it; `None` at the end, if the head names the last element.
pub(crate) fn next(blob: &[u8], walk: Walk) -> Result<Option<(Element, Walk)>, Problem> {
    element(blob, walk).ok_or(Problem::Ziplist)
}

fn element(blob: &[u8], walk: Walk) -> Option<Option<(Element, Walk)>> {
    let last = blob.len().checked_sub(1)?;
    let Walk { at, before } = walk;
    if at == last {
        let tail = u32::from_le_bytes(*blob.get(4..)?.first_chunk()?);
        return (tail as usize == before).then_some(None);
    }
    let inside = blob.get(..last)?;
    let (bytes_before, head) = match *inside.get(at)? {
        LONG => {
            let bytes = u32::from_le_bytes(*inside.get(at + 1..)?.first_chunk()?);
            (bytes as usize, at + 5)
        }
        END => return None,
        bytes => (usize::from(bytes), at + 1),
    };
    if bytes_before != at - before {
        return None;
    }
    let first = *inside.get(head)?;
    let string = |start: usize, bytes: usize| {
        let end = start.checked_add(bytes)?;
        (end <= last).then_some((Element::Bytes(start..end), end))
    };
    let integer = |bytes: usize| {
        let content = inside.get(head + 1..head + 1 + bytes)?;
        Some((Element::Integer(little(content)), head + 1 + bytes))
    };
    let (element, end) = match first {
        0..=0x3f => string(head + 1, usize::from(first))?,
        0x40..=0x7f => {
            let low = usize::from(*inside.get(head + 1)?);
            string(head + 2, (usize::from(first & 63) << 8) | low)?
        }
        0x80 => {
            let bytes = u32::from_be_bytes(*inside.get(head + 1..)?.first_chunk()?);
            string(head + 5, usize::try_from(bytes).ok()?)?
        }
        0xc0 => integer(2)?,
        0xd0 => integer(4)?,
        0xe0 => integer(8)?,
        0xf0 => integer(3)?,
        0xfe => integer(1)?,
        0xf1..=0xfd => (Element::Integer(i64::from(first & 15) - 1), head + 1),
        _ => return None,
    };
    let walk = Walk {
        at: end,
        before: at,
    };
    Some(Some((element, walk)))
}
