//! Commands of bits: a string as a row of bits, the highest bit of its first byte first.

use farcore::Operation;

use super::arguments::{integer, is_option};
use super::{Call, Flow, Refusal, SYNTAX};
use crate::long::change::{ChangeKind, LongChange};
use crate::long::task::LongTask;
use crate::types::bit_counter::BITS_A_BYTE;
use crate::types::bit_seeker::Sought;
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

/// True if an argument is the unit `BIT`, false if it is `BYTE`.
fn is_of_bits(argument: &[u8]) -> std::result::Result<bool, &'static str> {
    let is_of_bits = is_option(argument, "bit");
    if is_of_bits || is_option(argument, "byte") {
        Ok(is_of_bits)
    } else {
        Err(SYNTAX)
    }
}

/// A request, or a refusal of arguments that Redis reads only once it has found the key.
fn request_or_refuse(
    call: &mut Call<'_>,
    nothing: i8,
    kind: std::result::Result<ReplyKind, &'static str>,
) -> Flow {
    let key = call.key();
    match kind {
        Ok(kind) => call.request(kind, Operation::Get { key }),
        Err(text) => call.refuse_after_look(None, OfAbsent::Number(nothing), text),
    }
}

/// An integer as Redis takes it.
fn number(argument: &[u8]) -> std::result::Result<i64, &'static str> {
    integer(argument).map_err(|_| NO_INTEGER)
}

pub(super) fn bitcount(call: &mut Call<'_>) -> Result {
    let kind = bit_count(call);
    Ok(request_or_refuse(call, 0, kind))
}

fn bit_count(call: &Call<'_>) -> std::result::Result<ReplyKind, &'static str> {
    let (start, end) = match call.count() {
        2 => (0, -1),
        4 | 5 => (number(call.argument(2))?, number(call.argument(3))?),
        _ => return Err(SYNTAX),
    };
    // As Redis, which counts nothing before it reads the unit.
    let is_nothing = start < 0 && end < 0 && start > end;
    let is_of_bits = call.count() == 5 && !is_nothing && is_of_bits(call.argument(4))?;
    Ok(ReplyKind::BitCount {
        start,
        end,
        is_of_bits,
    })
}

pub(super) fn bitpos(call: &mut Call<'_>) -> Result {
    let is_set = match integer(call.argument(2))? {
        0 => false,
        1 => true,
        _ => return Err("ERR The bit argument must be 1 or 0.".into()),
    };
    let kind = bit_place(call, is_set);
    Ok(request_or_refuse(call, if is_set { -1 } else { 0 }, kind))
}

fn bit_place(call: &Call<'_>, is_set: bool) -> std::result::Result<ReplyKind, &'static str> {
    let (mut start, mut end, mut in_bits) = (0, -1, false);
    let count = call.count();
    if count > 6 {
        return Err(SYNTAX);
    }
    if count > 3 {
        start = number(call.argument(3))?;
    }
    if count > 5 {
        in_bits = is_of_bits(call.argument(5))?;
    }
    if count > 4 {
        end = number(call.argument(4))?;
    }
    Ok(ReplyKind::BitPlace {
        start,
        end,
        sought: Sought {
            is_set,
            is_of_bits: in_bits,
            has_end: count > 4,
        },
    })
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
