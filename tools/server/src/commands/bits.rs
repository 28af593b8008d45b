//! Commands of bits: a string as a row of bits, the highest bit of its first byte first.

use farcore::Operation;

use super::arguments::{integer, is_option};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::long::change::{ChangeKind, LongChange};
use crate::long::task::LongTask;
use crate::types::bit_counter::BITS_A_BYTE;
use crate::types::replies::ReplyKind;

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
