//! The place of the first bit that is set, or clear, in a part of a value, as its bytes come.

use std::ops::Range;

/// Bits of a byte, as places of bits count them.
const BYTE: u64 = 8;

/// What a command seeks, beside the ends of the part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sought {
    /// A bit that is set.
    pub(crate) is_set: bool,
    /// The ends count bits, not bytes.
    pub(crate) is_of_bits: bool,
    /// The part has an end: zeros do not go on behind the value.
    pub(crate) has_end: bool,
}

impl Sought {
    /// What is found where there is no value: zeros without an end.
    pub(crate) fn in_nothing(self) -> i64 {
        if self.is_set { -1 } else { 0 }
    }
}

/// Seeks a bit in a part of a value, as its bytes come.
#[derive(Clone, Debug)]
pub(crate) struct BitSeeker {
    is_set: bool,
    /// The part.
    bits: Range<u64>,
    /// What is replied if no bit is found.
    absent: i64,
    found: Option<u64>,
}

impl BitSeeker {
    /// A search from `start` to `end`, both included; negative ones count from the end of the
    /// value.
    pub(crate) fn new(length: u64, start: i64, end: i64, sought: Sought) -> Self {
        let unit = if sought.is_of_bits { 1 } else { BYTE };
        let units = i64::try_from(length * BYTE / unit).unwrap_or(i64::MAX);
        let from_start = |place: i64| {
            if place < 0 {
                place.saturating_add(units)
            } else {
                place
            }
        };
        let start = from_start(start).max(0);
        let end = from_start(end).max(0).min(units - 1);
        let bits = match (u64::try_from(start), u64::try_from(end)) {
            (Ok(start), Ok(end)) if start <= end => start * unit..(end + 1) * unit,
            _ => 0..0,
        };
        let goes_on = !sought.is_set && !sought.has_end && !bits.is_empty();
        let absent = if goes_on {
            i64::try_from(bits.end).unwrap_or(i64::MAX)
        } else {
            -1
        };
        Self {
            is_set: sought.is_set,
            bits,
            absent,
            found: None,
        }
    }

    /// The bytes of the value that are to be looked at.
    pub(crate) fn bytes(&self) -> Range<u64> {
        self.bits.start / BYTE..self.bits.end.div_ceil(BYTE)
    }

    /// Looks at bytes that begin at a place; true once the bit is found.
    pub(crate) fn take(&mut self, at: u64, part: &[u8]) -> bool {
        let (first, last) = (self.bytes().start, self.bytes().end);
        let (is_set, bits) = (self.is_set, self.bits.clone());
        // What is sought is a bit that is set of these.
        let of = |place: usize| {
            let byte = if is_set { part[place] } else { !part[place] };
            let at = at + place as u64;
            let mut mask = 0xff;
            if at == first {
                mask &= 0xff >> (bits.start % BYTE);
            }
            if at + 1 == last {
                mask &= !(0x7f >> ((bits.end + BYTE - 1) % BYTE));
            }
            byte & mask
        };
        let skipped = if is_set { 0 } else { 0xff };
        let mut place = 0;
        while self.found.is_none() && place < part.len() {
            let next = part[place..].iter().position(|byte| *byte != skipped);
            let Some(next) = next else {
                break;
            };
            place += next;
            let byte = of(place);
            if byte != 0 {
                let bit = (at + place as u64) * BYTE + u64::from(byte.leading_zeros());
                self.found = Some(bit);
            }
            place += 1;
        }
        self.found.is_some()
    }

    /// What is replied.
    pub(crate) fn place(&self) -> i64 {
        self.found
            .map_or(self.absent, |bit| i64::try_from(bit).unwrap_or(i64::MAX))
    }
}

/// The place of the first bit of a value, from `start` to `end`.
pub(crate) fn bit_place(value: &[u8], start: i64, end: i64, sought: Sought) -> i64 {
    let mut seeker = BitSeeker::new(value.len() as u64, start, end, sought);
    let Range { start, end } = seeker.bytes();
    let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    seeker.take(start, &value[place(start)..place(end)]);
    seeker.place()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_found_as_one_by_one() {
        for value in [
            &[0b0000_0001, 0xff, 0, 0b0111_1110][..],
            &[0xff; 4],
            &[0; 4],
            &[0xff, 0xff, 0xfe, 0x00],
        ] {
            let bit = |at: usize| value[at / 8] & (0x80 >> (at % 8)) != 0;
            for start in -40..40_i64 {
                for end in -40..40_i64 {
                    for is_set in [false, true] {
                        let sought = Sought {
                            is_set,
                            is_of_bits: true,
                            has_end: true,
                        };
                        // Unlike a range of bytes, it is not empty if both count from the end.
                        let from_start = |place: i64| if place < 0 { place + 32 } else { place };
                        let last = from_start(end).clamp(0, 31);
                        let mut bits = from_start(start).max(0)..=last;
                        let place = |at: i64| usize::try_from(at).unwrap();
                        let expected = bits.find(|&at| bit(place(at)) == is_set);
                        let expected = expected.unwrap_or(-1);
                        let seen = bit_place(value, start, end, sought);
                        assert_eq!(seen, expected, "{value:?} {start} to {end}: {is_set}");
                    }
                }
            }
        }
    }

    #[test]
    fn zeros_go_on_behind_a_value_without_an_end() {
        let sought = |is_set, has_end| Sought {
            is_set,
            is_of_bits: false,
            has_end,
        };
        assert_eq!(bit_place(&[0xff; 3], 0, -1, sought(false, false)), 24);
        assert_eq!(bit_place(&[0xff; 3], 0, -1, sought(false, true)), -1);
        assert_eq!(bit_place(&[0xff; 3], 5, -1, sought(false, false)), -1);
        assert_eq!(bit_place(&[0; 3], 0, -1, sought(true, false)), -1);
        assert_eq!(bit_place(&[], 0, -1, sought(false, false)), -1);
        assert_eq!(sought(false, false).in_nothing(), 0);
    }
}
