//! Commands of bits: a string as a row of bits, the highest bit of its first byte first.

use std::ops::Range;

use farcore::Operation;

use super::arguments::{integer, is_option};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::long_change::{ChangeKind, LongChange};
use crate::long_task::LongTask;
use crate::replies::{ReplyKind, range};

type Result = std::result::Result<Flow, Refusal>;

const BITS_A_BYTE: u32 = 8;
/// An offset that is none; as Redis.
const NO_OFFSET: &str = "ERR bit offset is not an integer or out of range";

/// A bit's place: its byte, and its mask there.
#[derive(Clone, Copy, Debug)]
struct BitPlace {
    byte: u32,
    mask: u8,
}

impl BitPlace {
    /// The place that an argument names: at most the last bit of 512 MiB.
    fn of(argument: &[u8]) -> std::result::Result<Self, Refusal> {
        let offset = integer(argument).map_err(|_| NO_OFFSET)?;
        let offset = u32::try_from(offset).map_err(|_| NO_OFFSET)?;
        Ok(Self {
            byte: offset / BITS_A_BYTE,
            mask: 0x80 >> (offset % BITS_A_BYTE),
        })
    }
}

pub(super) fn getbit(call: &mut Call<'_>) -> Result {
    let place = BitPlace::of(call.argument(2))?;
    let operation = Operation::GetRange {
        key: call.key(),
        offset: place.byte,
        bytes: 1,
    };
    let kind = ReplyKind::Bit {
        byte: place.byte,
        mask: place.mask,
    };
    Ok(call.request(kind, operation))
}

pub(super) fn setbit(call: &mut Call<'_>) -> Result {
    let place = BitPlace::of(call.argument(2))?;
    let is_set = match call.argument(3) {
        b"0" => false,
        b"1" => true,
        _ => return Err("ERR bit is not an integer or out of range".into()),
    };
    let kind = ChangeKind::SetBit {
        byte: u64::from(place.byte),
        mask: place.mask,
        is_set,
    };
    let change = LongChange::new(call.key(), &[], kind);
    Ok(call.long_task(LongTask::Change(change)))
}

pub(super) fn bitcount(call: &mut Call<'_>) -> Result {
    let (start, end) = match call.count() {
        2 => (0, -1),
        4 | 5 => (integer(call.argument(2))?, integer(call.argument(3))?),
        _ => return Err(SYNTAX.into()),
    };
    let is_of_bits = match call.count() {
        5 if is_option(call.argument(4), "bit") => true,
        5 if !is_option(call.argument(4), "byte") => return Err(SYNTAX.into()),
        _ => false,
    };
    let key = call.key();
    let kind = ReplyKind::BitCount {
        start,
        end,
        is_of_bits,
    };
    Ok(call.request(kind, Operation::Get { key }))
}

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
pub(crate) fn count(value: &[u8], start: i64, end: i64, is_of_bits: bool) -> u64 {
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
                    count(&value, start, end, true),
                    expected,
                    "{start} to {end}"
                );
            }
        }
        assert_eq!(count(&value, 1, 1, false), 8);
        assert_eq!(count(&[], 0, -1, true), 0);
    }

    #[test]
    fn offsets_end_at_512_mib() {
        let place = BitPlace::of(b"4294967295").unwrap();
        assert_eq!((place.byte, place.mask), ((512 << 20) - 1, 1));
        for text in ["4294967296", "-1", "a", ""] {
            assert!(BitPlace::of(text.as_bytes()).is_err(), "{text}");
        }
    }
}
