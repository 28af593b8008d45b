//! The count of the bits that are set in a part of a value, as its bytes come.

use std::ops::Range;

use crate::types::replies::{ReplyKind, range};

/// Bits of a byte.
pub(crate) const BITS_A_BYTE: u32 = 8;

/// Counts the bits that are set in a part of a value, as its bytes come.
#[derive(Clone, Debug)]
pub(crate) struct BitCounter {
    /// The bytes that have bits of the part.
    bytes: Range<u64>,
    /// Bits of the first and of the last byte that are no part of it.
    before: u8,
    behind: u8,
    count: u64,
}

impl BitCounter {
    /// A count of the bits from `start` to `end`, both included, which count bytes or bits;
    /// negative ones count from the end of the value.
    fn new(length: u64, start: i64, end: i64, is_of_bits: bool) -> Self {
        let unit = if is_of_bits {
            u64::from(BITS_A_BYTE)
        } else {
            1
        };
        let units = usize::try_from(length * unit).unwrap_or(usize::MAX);
        let wanted = range(start, end, units);
        let (start, end) = (wanted.start as u64, wanted.end as u64);
        let mut counter = Self {
            bytes: start / unit..end.div_ceil(unit),
            before: 0,
            behind: 0,
            count: 0,
        };
        if wanted.is_empty() {
            counter.bytes = 0..0;
        } else if is_of_bits {
            counter.before = !(0xff >> (start % unit));
            counter.behind = 0x7f >> ((end - 1) % unit);
        }
        counter
    }

    /// The count of a kind of reply, of a value of this length.
    pub(crate) fn of(kind: ReplyKind, length: u64) -> Self {
        match kind {
            ReplyKind::BitCount {
                start,
                end,
                is_of_bits,
            } => Self::new(length, start, end, is_of_bits),
            ReplyKind::Bit { byte, mask } => {
                let byte = u64::from(byte);
                Self {
                    bytes: byte.min(length)..(byte + 1).min(length),
                    before: !mask,
                    behind: 0,
                    count: 0,
                }
            }
            _ => Self::new(length, 0, -1, false),
        }
    }

    /// The bytes of the value that are to be counted.
    pub(crate) fn bytes(&self) -> Range<u64> {
        self.bytes.clone()
    }

    /// Counts bytes that begin at a place.
    pub(crate) fn take(&mut self, at: u64, part: &[u8]) {
        let ones = |byte: u8| u64::from(byte.count_ones());
        self.count += part.iter().map(|&byte| ones(byte)).sum::<u64>();
        let end = at + part.len() as u64;
        if let Some(first) = part.first().filter(|_| at == self.bytes.start) {
            self.count -= ones(first & self.before);
        }
        if let Some(last) = part.last().filter(|_| end == self.bytes.end) {
            self.count -= ones(last & self.behind);
        }
    }

    /// Bits that are set.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

/// How many bits of a value are set from `start` to `end`.
pub(crate) fn bit_count(value: &[u8], start: i64, end: i64, is_of_bits: bool) -> u64 {
    let mut counter = BitCounter::new(value.len() as u64, start, end, is_of_bits);
    let Range { start, end } = counter.bytes();
    let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    counter.take(start, &value[place(start)..place(end)]);
    counter.count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_counted_as_they_are_one_by_one() {
        let value = [0b1010_0001, 0xff, 0, 0b0111_1110];
        let bit = |at: usize| value[at / 8] & (0x80 >> (at % 8)) != 0;
        for start in -40..40_i64 {
            for end in -40..40_i64 {
                let bits = range(start, end, 32);
                let expected = bits.filter(|&at| bit(at)).count() as u64;
                assert_eq!(
                    bit_count(&value, start, end, true),
                    expected,
                    "{start} to {end}"
                );
            }
        }
        assert_eq!(bit_count(&value, 1, 1, false), 8);
        assert_eq!(bit_count(&[], 0, -1, true), 0);
    }
}
