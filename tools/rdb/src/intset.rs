//! Sets of integers in one string: `width:32 | count:32 | integer ..`, in order.

use crate::error::Problem;
use crate::listpack::little;

const HEAD_BYTES: usize = 8;

/// Checks the head; returns how many integers there are.
pub(crate) fn begin(blob: &[u8]) -> Result<u64, Problem> {
    let width = width(blob).ok_or(Problem::Intset)?;
    let count = blob.get(4..).and_then(|rest| rest.first_chunk());
    let count = u64::from(u32::from_le_bytes(*count.ok_or(Problem::Intset)?));
    if count * width as u64 + HEAD_BYTES as u64 == blob.len() as u64 {
        Ok(count)
    } else {
        Err(Problem::Intset)
    }
}

fn width(blob: &[u8]) -> Option<usize> {
    match u32::from_le_bytes(*blob.first_chunk()?) {
        2 => Some(2),
        4 => Some(4),
        8 => Some(8),
        _ => None,
    }
}

/// The integer with a number, which is greater than the one before; `None` at the end.
pub(crate) fn next(blob: &[u8], number: usize) -> Result<Option<i64>, Problem> {
    let width = width(blob).ok_or(Problem::Intset)?;
    let at = |number: usize| {
        let start = HEAD_BYTES + number * width;
        blob.get(start..start + width).map(little)
    };
    let Some(found) = at(number) else {
        return Ok(None);
    };
    let is_greater = number == 0 || at(number - 1).is_some_and(|before| before < found);
    is_greater.then_some(Some(found)).ok_or(Problem::Intset)
}

/// Writes a set of integers, which are in order.
pub(crate) fn written(integers: &[i64]) -> Vec<u8> {
    let fits = |bits: u32| integers.iter().all(|&one| one >> (bits - 1) == one >> 63);
    let width = match (fits(16), fits(32)) {
        (true, _) => 2,
        (_, true) => 4,
        _ => 8usize,
    };
    let mut blob = Vec::with_capacity(HEAD_BYTES + integers.len() * width);
    let short = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
    blob.extend(short(width));
    blob.extend(short(integers.len()));
    for integer in integers {
        blob.extend_from_slice(&integer.to_le_bytes()[..width]);
    }
    blob
}
