//! Integers of any number of bits in a value, the highest bit first, and what happens where a sum
//! does not fit one.

/// Bits of the widest field.
const BITS_MAX: u32 = 64;
/// Bits of a byte.
const BYTE: u64 = 8;
/// Bytes that have bits of a field, at most.
pub(crate) const FIELD_BYTES_MAX: usize = 9;

/// What a field is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FieldType {
    is_signed: bool,
    bits: u32,
}

impl FieldType {
    /// The type that a text names: `i1` to `i64`, or `u1` to `u63`.
    pub(crate) fn of(text: &[u8]) -> Option<Self> {
        let (&sign, bits) = text.split_first()?;
        let is_signed = match sign {
            b'i' => true,
            b'u' => false,
            _ => return None,
        };
        let bits = crate::words::parsed_integer(bits)?;
        let bits = u32::try_from(bits).ok()?;
        let most = if is_signed { BITS_MAX } else { BITS_MAX - 1 };
        (1..=most)
            .contains(&bits)
            .then_some(Self { is_signed, bits })
    }

    pub(crate) fn bits(self) -> u32 {
        self.bits
    }

    /// The least and the greatest number.
    fn ends(self) -> (i128, i128) {
        if self.is_signed {
            let half = 1 << (self.bits - 1);
            (-half, half - 1)
        } else {
            (0, (1 << self.bits) - 1)
        }
    }

    /// The number that the lowest bits are.
    fn number(self, bits: u128) -> i64 {
        let cut = bits & ((1 << self.bits) - 1);
        let is_negative = self.is_signed && cut >> (self.bits - 1) != 0;
        let number = cut.cast_signed() - if is_negative { 1 << self.bits } else { 0 };
        i64::try_from(number).unwrap_or(i64::MAX)
    }
}

/// What happens if a number does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Overflow {
    #[default]
    Wrap,
    Saturate,
    Fail,
}

/// What is done with a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FieldChange {
    Get,
    Set(i64),
    Add(i64),
}

/// A field, and what is done with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FieldStep {
    pub(crate) of: FieldType,
    /// The place of its first bit.
    pub(crate) offset: u64,
    pub(crate) change: FieldChange,
    pub(crate) overflow: Overflow,
}

impl FieldStep {
    /// The byte of its first bit.
    pub(crate) fn first_byte(&self) -> u64 {
        self.offset / BYTE
    }

    /// The byte behind its last bit.
    pub(crate) fn end_byte(&self) -> u64 {
        (self.offset + u64::from(self.of.bits)).div_ceil(BYTE)
    }

    /// Bits behind the field in a window of bytes that begins at its first one.
    fn behind(&self) -> u32 {
        let window = u64::from(u128::BITS);
        u32::try_from(window - self.offset % BYTE).unwrap_or(0) - self.of.bits
    }

    /// True if a number is to be set that lies more than 63 bits below the greatest one.
    fn is_far_below(&self, number: i128) -> bool {
        let (_, most) = self.of.ends();
        let is_set = matches!(self.change, FieldChange::Set(_));
        is_set && self.of.is_signed && self.of.bits < BITS_MAX && most - number > i64::MAX.into()
    }

    /// Reads and changes the field in its bytes. Returns the reply; none if it would overflow.
    pub(crate) fn apply(&self, bytes: &mut [u8; FIELD_BYTES_MAX]) -> Option<i64> {
        let mut window = [0; size_of::<u128>()];
        window[..FIELD_BYTES_MAX].copy_from_slice(bytes);
        let all = u128::from_be_bytes(window);
        let old = self.of.number(all >> self.behind());
        let number = match self.change {
            FieldChange::Get => return Some(old),
            // What is to be stored without a sign is one that is too large if it is negative.
            FieldChange::Set(new) if !self.of.is_signed => i128::from(new.cast_unsigned()),
            FieldChange::Set(new) => i128::from(new),
            FieldChange::Add(by) => i128::from(old) + i128::from(by),
        };
        let (least, most) = self.of.ends();
        let new = match self.overflow {
            Overflow::Fail if !(least..=most).contains(&number) => return None,
            // As Redis, for which such a number is too large: its distance to the greatest one has
            // no 64 bits.
            Overflow::Saturate if self.is_far_below(number) => most,
            Overflow::Saturate => number.clamp(least, most),
            _ => number,
        };
        let mask = ((1_u128 << self.of.bits) - 1) << self.behind();
        let kept = all & !mask;
        let placed = (new.cast_unsigned() << self.behind()) & mask;
        bytes.copy_from_slice(&(kept | placed).to_be_bytes()[..FIELD_BYTES_MAX]);
        Some(match self.change {
            FieldChange::Add(_) => self.of.number(new.cast_unsigned()),
            _ => old,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(of: &str, offset: u64, change: FieldChange, overflow: Overflow) -> FieldStep {
        FieldStep {
            of: FieldType::of(of.as_bytes()).unwrap(),
            offset,
            change,
            overflow,
        }
    }

    #[test]
    fn types_are_those_of_redis() {
        for text in ["i1", "i64", "u1", "u63"] {
            assert!(FieldType::of(text.as_bytes()).is_some(), "{text}");
        }
        for text in ["", "i", "i0", "i65", "u64", "u-1", "x8", "I8", "u08"] {
            assert!(FieldType::of(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn a_field_lies_at_any_bit() {
        for bits in 1..=64_u32 {
            for offset in 0..16 {
                let of = format!("i{bits}");
                let mut bytes = [0xa5; FIELD_BYTES_MAX];
                let set = step(&of, offset % 8, FieldChange::Set(-1), Overflow::Wrap);
                set.apply(&mut bytes).unwrap();
                let get = step(&of, offset % 8, FieldChange::Get, Overflow::Wrap);
                assert_eq!(get.apply(&mut bytes), Some(-1), "{bits} bits at {offset}");
                let others = bytes.iter().map(|byte| byte.count_ones()).sum::<u32>();
                assert!(others >= bits);
            }
        }
    }

    #[test]
    fn what_does_not_fit_wraps_saturates_or_fails() {
        for (of, before, by, wrapped, saturated) in [
            ("u8", 250, 10, 4, 255),
            ("u8", 5, -10, 251, 0),
            ("i8", 120, 10, -126, 127),
            ("i8", -120, -10, 126, -128),
            ("i64", i64::MAX, 1, i64::MIN, i64::MAX),
            ("i64", i64::MIN, -1, i64::MAX, i64::MIN),
            ("u63", i64::MAX, 1, 0, i64::MAX),
        ] {
            for (overflow, expected) in [
                (Overflow::Wrap, Some(wrapped)),
                (Overflow::Saturate, Some(saturated)),
                (Overflow::Fail, None),
            ] {
                let mut bytes = [0; FIELD_BYTES_MAX];
                let set = step(of, 3, FieldChange::Set(before), Overflow::Wrap);
                set.apply(&mut bytes);
                let add = step(of, 3, FieldChange::Add(by), overflow);
                assert_eq!(add.apply(&mut bytes), expected, "{of} {before} + {by}");
                let get = step(of, 3, FieldChange::Get, overflow);
                assert_eq!(get.apply(&mut bytes), Some(expected.unwrap_or(before)));
            }
        }
        let mut bytes = [0; FIELD_BYTES_MAX];
        let set = step("u8", 0, FieldChange::Set(-1), Overflow::Saturate);
        assert_eq!(set.apply(&mut bytes), Some(0));
        assert_eq!(bytes[0], 255);
        let set = step("i8", 0, FieldChange::Set(i64::MIN), Overflow::Saturate);
        assert_eq!(set.apply(&mut bytes), Some(-1));
        assert_eq!(bytes[0], 127);
    }
}
