//! Sizes in messages, with a unit, as people type them in flags and settings.

use std::fmt;

const UNITS: [&str; 7] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const UNIT: u64 = 1024;
const MIB: u64 = 1 << 20;

/// A number of bytes with the largest unit of which it has at least one: `8 MiB`, `21.7 GiB`. It is
/// rounded down to a tenth, unless a thousandth more would make the next one. The alternate form,
/// `{:#}`, is exact: whole units, or all bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Size(pub u64);

impl Size {
    /// The least size that reads well and has at least `bytes` bytes: whole MiB, below one whole
    /// KiB. Above the greatest of these, that.
    ///
    /// ```
    /// # use farcore_tuning::Size;
    /// assert_eq!(Size::at_least(15_712_534).to_string(), "15 MiB");
    /// ```
    #[must_use]
    pub fn at_least(bytes: u64) -> Self {
        let grain = Self::grain(bytes);
        Self(
            bytes
                .checked_next_multiple_of(grain)
                .unwrap_or(u64::MAX / grain * grain),
        )
    }

    /// The greatest size that reads well and has at most `bytes` bytes.
    #[must_use]
    pub fn at_most(bytes: u64) -> Self {
        Self(bytes / Self::grain(bytes) * Self::grain(bytes))
    }

    fn grain(bytes: u64) -> u64 {
        match bytes {
            0..UNIT => 1,
            UNIT..MIB => UNIT,
            _ => MIB,
        }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        if bytes == 1 {
            return f.write_str("1 byte");
        }
        // The largest unit that it has one of, or, if it must be exact, is a multiple of.
        let fits = |power: &u32| {
            let unit = UNIT.pow(*power);
            bytes >= unit && (!f.alternate() || bytes.is_multiple_of(unit))
        };
        let power = (1..=6).rev().find(fits).unwrap_or(0);
        let unit = UNIT.pow(power);
        let name = UNITS.get(power as usize).unwrap_or(&"bytes");
        if bytes.is_multiple_of(unit) {
            return write!(f, "{} {name}", bytes / unit);
        }
        let thousandths = u128::from(bytes) * 1000 / u128::from(unit) + 1;
        let tenths = thousandths / 100;
        // The next unit has one of them.
        if let Some(next) = UNITS.get(power as usize + 1)
            && tenths >= 10 * u128::from(UNIT)
        {
            return write!(f, "1.0 {next}");
        }
        write!(f, "{}.{} {name}", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_or_have_one_decimal() {
        for (bytes, text, exact) in [
            (0, "0 bytes", "0 bytes"),
            (1, "1 byte", "1 byte"),
            (1023, "1023 bytes", "1023 bytes"),
            (4096, "4 KiB", "4 KiB"),
            (100_000, "97.6 KiB", "100000 bytes"),
            (MIB - 1, "1.0 MiB", "1048575 bytes"),
            (MIB - 2048, "1022 KiB", "1022 KiB"),
            // As a flag of 1.4GiB is read.
            (1_503_238_553, "1.4 GiB", "1503238553 bytes"),
            (1 << 40, "1 TiB", "1 TiB"),
            (1_610_612_736, "1.5 GiB", "1536 MiB"),
            (23_300_000_000, "21.7 GiB", "23300000000 bytes"),
            (u64::MAX, "16.0 EiB", "18446744073709551615 bytes"),
        ] {
            assert_eq!(Size(bytes).to_string(), text);
            assert_eq!(format!("{:#}", Size(bytes)), exact);
        }
    }

    #[test]
    fn bounds_are_rounded_to_the_safe_side() {
        for (bytes, least, most) in [
            (0, 0, 0),
            (1000, 1000, 1000),
            (1025, 2048, 1024),
            (MIB, MIB, MIB),
            (MIB + 1, 2 * MIB, MIB),
            (u64::MAX, u64::MAX / MIB * MIB, u64::MAX / MIB * MIB),
        ] {
            assert_eq!(Size::at_least(bytes), Size(least));
            assert_eq!(Size::at_most(bytes), Size(most));
        }
    }
}
