//! Size classes: a record's length in units, rounded up, in 6 bits.
//!
//! Linear to 8 units, then 8 steps an octave, so a class is at most 12.5 % longer than the record.
//! Class 0 says "longer than any class": the length stands in the record's header.

/// Longest length with a class, in units.
pub(crate) const CLASS_UNITS_MAX: u32 = 960;

const LINEAR: u32 = 8;

/// A rounded length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SizeClass(u8);

#[expect(
    clippy::cast_possible_truncation,
    reason = "a class has at most 960 units"
)]
const UNITS: [u16; 64] = {
    let mut units = [0u16; 64];
    let mut class = 1;
    while class < 64 {
        units[class] = if class as u32 <= LINEAR {
            class as u16
        } else {
            let step = class - LINEAR as usize - 1;
            let octave = step / 8;
            ((9 + step % 8) << octave) as u16
        };
        class += 1;
    }
    units
};

const _: () = assert!(UNITS[8] == 8 && UNITS[9] == 9 && UNITS[17] == 18);
const _: () = assert!(UNITS[2 * LINEAR as usize] as u32 == 2 * LINEAR);
const _: () = assert!(UNITS[63] as u32 == CLASS_UNITS_MAX);

impl SizeClass {
    /// The number of classes.
    pub(crate) const COUNT: usize = 1 << Self::BITS;
    /// Bits of a class.
    pub(crate) const BITS: u32 = 6;

    /// The class of a record of this many units.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "a class has 6 bits")]
    pub(crate) fn for_units(units: u32) -> Self {
        // The first octave also has single-unit steps, so most records take this branch.
        if units <= 2 * LINEAR {
            return Self(units as u8);
        }
        if units > CLASS_UNITS_MAX {
            return Self(0);
        }
        // units - 1 lies in [8 << octave, 16 << octave).
        let octave = (units - 1).ilog2() - 3;
        let step = ((units - 1) >> octave) - 8;
        Self((LINEAR + 1 + octave * 8 + step) as u8)
    }

    /// The longest length of the class; `None` for a record longer than any class.
    #[inline]
    pub(crate) const fn units(self) -> Option<u32> {
        match UNITS[self.place()] {
            0 => None,
            units => Some(units as u32),
        }
    }

    /// The class as an index into a table of all classes.
    #[inline]
    pub(crate) const fn place(self) -> usize {
        self.0 as usize % Self::COUNT
    }

    /// The 6 bits.
    #[inline]
    pub(crate) fn raw(self) -> u64 {
        u64::from(self.0)
    }

    /// The class of 6 bits.
    #[inline]
    pub(crate) const fn from_raw(raw: u64) -> Self {
        Self((raw & 63) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_every_length_and_waste_an_eighth_at_most() {
        for units in 1..=CLASS_UNITS_MAX {
            let class = SizeClass::for_units(units);
            let rounded = class.units().unwrap();
            assert!(
                rounded >= units && (rounded - units) * 8 <= units,
                "{units} -> {rounded}"
            );
            assert_eq!(SizeClass::from_raw(class.raw()), class);
            // No smaller class fits.
            let smaller = SizeClass::from_raw(class.raw() - 1).units();
            assert!(smaller.is_none_or(|smaller| smaller < units), "{units}");
        }
        assert_eq!(SizeClass::for_units(CLASS_UNITS_MAX + 1).units(), None);
        assert_eq!(SizeClass::for_units(70_000).units(), None);
    }
}
