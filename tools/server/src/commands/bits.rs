//! Commands of bits: a string as a row of bits, the highest bit of its first byte first.

use farcore::{Condition, Core, Expiry, Operation, PutOptions, PutOutcome};

use super::arguments::{integer, is_option, stored_key};
use super::strings::TOO_LONG;
use super::{Call, Flow, Refusal, SYNTAX};
use crate::event_classes::EventClasses;
use crate::replies::{ReplyKind, error_text, range};
use crate::resp::Writer;

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
    Ok(call.request(ReplyKind::Bit { mask: place.mask }, operation))
}

pub(super) fn setbit(call: &mut Call<'_>) -> Result {
    let place = BitPlace::of(call.argument(2))?;
    let is_set = match call.argument(3) {
        b"0" => false,
        b"1" => true,
        _ => return Err("ERR bit is not an integer or out of range".into()),
    };
    // Checked before so many bytes are made.
    if place.byte as usize >= call.serving.limits.large_bytes {
        return Err(TOO_LONG.into());
    }
    let key = stored_key(call.argument(1)).to_vec();
    Ok(call.task(move |mut core, output, protocol| async move {
        let was_set = set(&mut core, &key, place, is_set).await;
        if let Ok((_, is_new)) = was_set {
            if is_new {
                output.notify(EventClasses::NEW, "new", &key);
            }
            output.notify(EventClasses::STRING, "setbit", &key);
        }
        output.write(|bytes| {
            let mut writer = Writer::new(bytes, protocol);
            match was_set {
                Ok((was_set, _)) => writer.integer(i64::from(was_set)),
                Err(error) => writer.error(&error_text(&error)),
            }
        });
        core
    }))
}

/// Sets a bit in one step, and keeps the key's expiry; returns what it was, and whether the key is
/// new.
async fn set(
    core: &mut Core,
    key: &[u8],
    place: BitPlace,
    is_set: bool,
) -> farcore::Result<(bool, bool)> {
    loop {
        let read = core.get(key).await?;
        let (mut bytes, version) = read.map_or((Vec::new(), 0), |value| {
            let version = value.version();
            (value.to_vec(), version)
        });
        let at = place.byte as usize;
        if bytes.len() <= at {
            bytes.resize(at + 1, 0);
        }
        let was_set = bytes[at] & place.mask != 0;
        if is_set {
            bytes[at] |= place.mask;
        } else {
            bytes[at] &= !place.mask;
        }
        let options = PutOptions {
            expiry: Expiry::Keep,
            condition: Condition::Version(version),
            structured: false,
        };
        // Else another client was faster.
        if !matches!(
            core.put_with(key, &bytes, options).await?,
            PutOutcome::Unmet(_)
        ) {
            return Ok((was_set, version == 0));
        }
    }
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

/// How many bits are set from `start` to `end`, both included, which count bytes or bits; negative
/// ones count from the end.
pub(crate) fn count(value: &[u8], start: i64, end: i64, is_of_bits: bool) -> u64 {
    let count =
        |bytes: &[u8]| -> u64 { bytes.iter().map(|byte| u64::from(byte.count_ones())).sum() };
    if !is_of_bits {
        return count(&value[range(start, end, value.len())]);
    }
    let bits = range(start, end, value.len() * BITS_A_BYTE as usize);
    if bits.is_empty() {
        return 0;
    }
    let (first, last) = (bits.start / 8, (bits.end - 1) / 8);
    let before = value[first] & !(0xff >> (bits.start % 8));
    // Bits of the last byte behind the end.
    let after = value[last] & ((0x7f_u8) >> ((bits.end - 1) % 8));
    count(&value[first..=last]) - u64::from(before.count_ones()) - u64::from(after.count_ones())
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
