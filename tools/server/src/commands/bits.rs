//! Commands of bits: a string as a row of bits, the highest bit of its first byte first.

use farcore::Operation;

use super::arguments::{integer, is_option};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::long::change::{ChangeKind, LongChange};
use crate::long::task::LongTask;
use crate::types::bit_counter::BITS_A_BYTE;
use crate::types::replies::{OfAbsent, ReplyKind};
use crate::words::NO_INTEGER;

type Result = std::result::Result<Flow, Refusal>;
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

/// The range of `BITCOUNT`, and whether it is of bits.
fn counted_range(call: &Call<'_>) -> std::result::Result<(i64, i64, bool), &'static str> {
    let number = |place| integer(call.argument(place)).map_err(|_| NO_INTEGER);
    match call.count() {
        2 => Ok((0, -1, false)),
        4 => Ok((number(2)?, number(3)?, false)),
        5 => {
            let (start, end, unit) = (number(2)?, number(3)?, call.argument(4));
            let is_of_bits = is_option(unit, "bit");
            if !is_of_bits && !is_option(unit, "byte") {
                return Err(SYNTAX);
            }
            Ok((start, end, is_of_bits))
        }
        _ => Err(SYNTAX),
    }
}

pub(super) fn bitcount(call: &mut Call<'_>) -> Result {
    let (start, end, is_of_bits) = match counted_range(call) {
        Ok(range) => range,
        Err(text) => return Ok(call.refuse_after_look(None, OfAbsent::Zero, text)),
    };
    let key = call.key();
    let kind = ReplyKind::BitCount {
        start,
        end,
        is_of_bits,
    };
    Ok(call.request(kind, Operation::Get { key }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_end_at_512_mib() {
        let place = BitPlace::of(b"4294967295").unwrap();
        assert_eq!((place.byte, place.mask), ((512 << 20) - 1, 1));
        for text in ["4294967296", "-1", "a", ""] {
            assert!(BitPlace::of(text.as_bytes()).is_err(), "{text}");
        }
    }
}
