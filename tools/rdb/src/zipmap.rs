//! Zipmaps: small hashes in one string, up to version 3.
//!
//! ```text
//! count:8 | pair .. | 255
//! pair: length | field | length | free:8 | value | free bytes
//! ```
//!
//! A length is a byte, or 254 and 32 bits if it is no less than that.

use std::ops::Range;

use crate::error::Problem;

const END: u8 = 255;
const LONG: u8 = 254;

/// A field, its value, and the place behind both.
pub(crate) type Pair = (Range<usize>, Range<usize>, usize);

/// Checks the end; returns where the pairs begin, and how many there are if that is known.
pub(crate) fn begin(blob: &[u8]) -> Result<(usize, Option<u64>), Problem> {
    if blob.len() < 2 || blob.last() != Some(&END) {
        return Err(Problem::Zipmap);
    }
    Ok((1, (blob[0] < LONG).then_some(u64::from(blob[0]))))
}

/// The pair at a place; `None` at the end.
pub(crate) fn next(blob: &[u8], at: usize) -> Result<Option<Pair>, Problem> {
    if at + 1 == blob.len() {
        return Ok(None);
    }
    pair(blob, at).map(Some).ok_or(Problem::Zipmap)
}

fn pair(blob: &[u8], at: usize) -> Option<Pair> {
    let inside = blob.get(..blob.len().checked_sub(1)?)?;
    let (bytes, at) = length(inside, at)?;
    let field = at..at.checked_add(bytes)?;
    let (bytes, at) = length(inside, field.end)?;
    let free = usize::from(*inside.get(at)?);
    let value = at + 1..(at + 1).checked_add(bytes)?;
    let end = value.end.checked_add(free)?;
    (end <= inside.len()).then_some((field, value, end))
}

fn length(inside: &[u8], at: usize) -> Option<(usize, usize)> {
    match *inside.get(at)? {
        END => None,
        LONG => {
            let bytes = u32::from_le_bytes(*inside.get(at + 1..)?.first_chunk()?);
            // Redis takes a shorter one to have stood in a byte.
            let bytes = usize::try_from(bytes)
                .ok()
                .filter(|&bytes| bytes >= LONG.into())?;
            Some((bytes, at + 5))
        }
        bytes => Some((usize::from(bytes), at + 1)),
    }
}
