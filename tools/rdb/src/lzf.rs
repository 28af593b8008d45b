//! LZF, by which Redis packs strings.
//!
//! ```text
//! 000LLLLL byte..                  literals, L + 1
//! LLLooooo oooooooo                L + 2 bytes from o + 1 back, L from 1 to 6
//! 111ooooo LLLLLLLL oooooooo       L + 9 bytes from o + 1 back
//! ```

use crate::error::Problem;

/// Bytes that three packed ones become, at most.
const RUN_MAX: usize = 264;
const LITERALS_MAX: usize = 32;
const OFFSET_MAX: usize = 8192;
const TABLE_BITS: u32 = 16;
/// Bytes that Redis compares before it looks at the limit.
const UNROLLED: usize = 16;
/// Bytes that a string must have to be packed.
const PACKED_MIN: usize = 5;

/// True if packed bytes can become this many.
pub(crate) fn may_become(packed: usize, bytes: usize) -> bool {
    bytes <= packed.saturating_mul(RUN_MAX / 3)
}

/// Unpacks bytes from a place on, about `budget` of them; true if that were the last.
pub(crate) fn unpack(
    packed: &[u8],
    at: &mut usize,
    (into, bytes): (&mut Vec<u8>, usize),
    budget: usize,
) -> Result<bool, Problem> {
    let enough = into.len().saturating_add(budget);
    while into.len() < enough && *at < packed.len() {
        let next = |place: &mut usize| {
            let byte = packed.get(*place).copied().ok_or(Problem::Packed);
            *place += 1;
            byte.map(usize::from)
        };
        let control = next(at)?;
        if control < LITERALS_MAX {
            let end = *at + control + 1;
            let literals = packed.get(*at..end).ok_or(Problem::Packed)?;
            if into.len() + literals.len() > bytes {
                return Err(Problem::Packed);
            }
            into.extend_from_slice(literals);
            *at = end;
            continue;
        }
        let mut length = control >> 5;
        if length == 7 {
            length += next(at)?;
        }
        let offset = ((control & 31) << 8) + next(at)? + 1;
        length += 2;
        let from = into.len().checked_sub(offset).ok_or(Problem::Packed)?;
        if into.len() + length > bytes {
            return Err(Problem::Packed);
        }
        if offset >= length {
            into.extend_from_within(from..from + length);
        } else {
            // It repeats what it writes.
            for place in from..from + length {
                let byte = into[place];
                into.push(byte);
            }
        }
    }
    if *at < packed.len() {
        return Ok(false);
    }
    if into.len() == bytes {
        Ok(true)
    } else {
        Err(Problem::Packed)
    }
}

/// Strings in a row that are not worth it until some are passed over, and how many then.
const VAIN_MAX: u32 = 32;
const PASSED: u32 = 31;

/// Packs strings, as Redis does, but for those beside many that do not pack.
#[derive(Debug, Default)]
pub struct Packer {
    /// Where three bytes were seen last, from a beginning on that is later for each string.
    seen: Vec<u32>,
    base: u32,
    packed: Vec<u8>,
    /// Strings in a row that were not worth it, and those that are passed over because of that.
    vain: u32,
    passed: u32,
}

impl Packer {
    /// Bytes that it takes, beside those of the longest string that it has packed.
    pub const BYTES: usize = 4 << TABLE_BITS;

    /// Packs bytes; `None` if that saves fewer than 4 of them.
    pub(crate) fn pack(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        if bytes.len() < PACKED_MIN {
            return None;
        }
        // Neighbours are alike: where they do not pack, few are tried.
        if self.vain >= VAIN_MAX && self.passed < PASSED {
            self.passed += 1;
            return None;
        }
        self.passed = 0;
        let length = u32::try_from(bytes.len()).ok()?;
        if self.seen.is_empty() || self.base.checked_add(length).is_none() {
            self.seen.clear();
            self.seen.resize(1 << TABLE_BITS, 0);
            self.base = 1;
        }
        let most = bytes.len() - 4;
        self.packed.clear();
        let is_packed = self.run(bytes, most);
        self.base += length;
        self.vain = if is_packed {
            0
        } else {
            self.vain.saturating_add(1)
        };
        is_packed.then_some(&self.packed[..])
    }

    /// The place in the table of the three bytes at a place.
    fn slot(bytes: &[u8], at: usize) -> usize {
        let value = (u32::from(bytes[at]) << 16)
            | (u32::from(bytes[at + 1]) << 8)
            | u32::from(bytes[at + 2]);
        let mixed = (value >> (24 - TABLE_BITS)).wrapping_sub(value.wrapping_mul(5));
        mixed as usize & ((1 << TABLE_BITS) - 1)
    }

    /// Notes a place; returns where its three bytes were seen before, behind the first byte.
    fn note(&mut self, bytes: &[u8], at: usize) -> Option<usize> {
        let now = self.base + u32::try_from(at).unwrap_or(0);
        let before = std::mem::replace(&mut self.seen[Self::slot(bytes, at)], now);
        let before = before.checked_sub(self.base)? as usize;
        (before > 0 && before < at).then_some(before)
    }

    /// Ends a run of literals, which the last bytes are.
    fn end_run(&mut self, literals: usize) {
        let head = self.packed.len() - literals - 1;
        if literals == 0 {
            self.packed.truncate(head);
        } else {
            self.packed[head] = u8::try_from(literals - 1).unwrap_or(0);
        }
    }

    fn run(&mut self, bytes: &[u8], most: usize) -> bool {
        let (mut at, mut literals) = (0, 0);
        // The head of a run of literals.
        self.packed.push(0);
        while at + 2 < bytes.len() {
            let before = self.note(bytes, at);
            let before = before.filter(|&before| {
                at - before - 1 < OFFSET_MAX && bytes[before..before + 3] == bytes[at..at + 3]
            });
            let Some(before) = before else {
                if self.packed.len() >= most {
                    return false;
                }
                self.literal(bytes[at], &mut literals);
                at += 1;
                continue;
            };
            if self.packed.len() - usize::from(literals == 0) + 4 >= most
                && self.packed.len() + 4 >= most
            {
                return false;
            }
            self.end_run(literals);
            let length = matching(&bytes[before..], &bytes[at..]);
            self.reference(at - before - 1, length - 2);
            literals = 0;
            self.packed.push(0);
            at += length;
            if at + 2 >= bytes.len() {
                break;
            }
            self.note(bytes, at - 2);
            self.note(bytes, at - 1);
        }
        if self.packed.len() + 3 > most {
            return false;
        }
        while at < bytes.len() {
            self.literal(bytes[at], &mut literals);
            at += 1;
        }
        self.end_run(literals);
        true
    }

    fn literal(&mut self, byte: u8, literals: &mut usize) {
        self.packed.push(byte);
        *literals += 1;
        if *literals == LITERALS_MAX {
            self.end_run(*literals);
            *literals = 0;
            self.packed.push(0);
        }
    }

    fn reference(&mut self, offset: usize, length: usize) {
        let byte = |number: usize| u8::try_from(number & 0xff).unwrap_or(0);
        if length < 7 {
            self.packed.push(byte((offset >> 8) + (length << 5)));
        } else {
            self.packed.push(byte((offset >> 8) + (7 << 5)));
            self.packed.push(byte(length - 7));
        }
        self.packed.push(byte(offset));
    }
}

/// How many bytes a reference covers, whose first three are alike: as Redis, which mostly leaves
/// out the last two of the string.
fn matching(before: &[u8], now: &[u8]) -> usize {
    let longest = now.len().saturating_sub(2).min(RUN_MAX);
    let is_alike = |at: usize| before.get(at) == now.get(at);
    let mut length = 2;
    if longest > UNROLLED {
        for _ in 0..UNROLLED {
            length += 1;
            if !is_alike(length) {
                return length;
            }
        }
    }
    loop {
        length += 1;
        if length >= longest || !is_alike(length) {
            return length;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unpacked(packed: &[u8], bytes: usize, budget: usize) -> Result<Vec<u8>, Problem> {
        let (mut at, mut into) = (0, Vec::new());
        while !unpack(packed, &mut at, (&mut into, bytes), budget)? {}
        Ok(into)
    }

    #[test]
    fn few_are_tried_where_none_packs() {
        let mut packer = Packer::default();
        let mut state = 1_u64;
        let mut noise = || {
            let mut next = || {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                state.to_be_bytes()[0]
            };
            (0..100).map(|_| next()).collect::<Vec<_>>()
        };
        for _ in 0..VAIN_MAX {
            assert!(packer.pack(&noise()).is_none());
        }
        let tried = packer.base;
        assert!(packer.pack(&[7; 100]).is_none(), "it is passed over");
        for _ in 1..PASSED {
            assert!(packer.pack(&noise()).is_none());
        }
        assert_eq!(packer.base, tried);
        assert!(packer.pack(&[7; 100]).is_some(), "one is tried");
        assert!(
            packer.pack(&[7; 100]).is_some(),
            "and so are all from then on"
        );
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            texts in prop::collection::vec(
                (prop::collection::vec(0u8..4, 0..600), 1usize..4), 1..5),
        ) {
            let mut packer = Packer::default();
            for (text, times) in texts {
                let text = text.repeat(times);
                if let Some(packed) = packer.pack(&text) {
                    prop_assert!(packed.len() + 4 <= text.len());
                    prop_assert_eq!(unpacked(packed, text.len(), 100), Ok(text.clone()));
                    prop_assert!(may_become(packed.len(), text.len()));
                }
            }
        }

        #[test]
        fn any_bytes_are_unpacked_or_refused(
            packed in prop::collection::vec(any::<u8>(), 0..80),
            bytes in 0usize..3000,
        ) {
            if let Ok(unpacked) = unpacked(&packed, bytes, 64) {
                prop_assert_eq!(unpacked.len(), bytes);
                prop_assert!(may_become(packed.len(), bytes));
            }
        }
    }
}
