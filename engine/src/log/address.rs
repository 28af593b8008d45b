//! Where a record lies: page number and unit within the page, in 37 bits.
//!
//! ```text
//! bit 36                unit_bits   0
//! |     page number     |   unit    |     unit_bits = log2(page bytes / 16)
//! ```

use std::fmt;

use crate::constants::UNIT_BYTES;

/// Bits of an address.
pub(crate) const ADDRESS_BITS: u32 = 37;

/// How addresses of one engine split into page and unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageShape {
    unit_bits: u32,
}

impl PageShape {
    /// The shape of pages of a power of two of bytes.
    pub(crate) fn new(page_bytes: u32) -> Self {
        debug_assert!(page_bytes.is_power_of_two());
        Self {
            unit_bits: (page_bytes as usize / UNIT_BYTES).trailing_zeros(),
        }
    }

    /// Bits of a unit's number.
    #[inline]
    pub(crate) fn unit_bits(self) -> u32 {
        self.unit_bits
    }

    /// A page, in bytes.
    #[inline]
    pub(crate) fn page_bytes(self) -> usize {
        UNIT_BYTES << self.unit_bits
    }

    /// The most pages that an address can distinguish.
    pub(crate) fn pages_max(self) -> u64 {
        1 << (ADDRESS_BITS - self.unit_bits)
    }
}

/// The place of a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address(u64);

const _: () = assert!(ADDRESS_BITS < 64);

impl Address {
    /// No record's address: unit 0 of page 0 is a page header.
    pub(crate) const NONE: Self = Self(0);

    /// The address of a unit of a page.
    #[inline]
    pub(crate) fn new(shape: PageShape, page: u32, unit: u32) -> Self {
        debug_assert!(u64::from(page) < shape.pages_max() && unit >> shape.unit_bits == 0);
        Self(u64::from(page) << shape.unit_bits | u64::from(unit))
    }

    /// The page number.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "at most 25 bits are left")]
    pub(crate) fn page(self, shape: PageShape) -> u32 {
        (self.0 >> shape.unit_bits) as u32
    }

    /// The unit within the page.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "masked to 17 bits at most")]
    pub(crate) fn unit(self, shape: PageShape) -> u32 {
        self.0 as u32 & ((1 << shape.unit_bits) - 1)
    }

    /// The packed word.
    #[inline]
    pub(crate) fn raw(self) -> u64 {
        self.0
    }

    /// The address that a packed word holds.
    #[inline]
    pub(crate) fn from_raw(raw: u64) -> Self {
        Self(raw & ((1 << ADDRESS_BITS) - 1))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({:#x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::constants::{PAGE_BYTES_MAX, PAGE_BYTES_MIN};

    proptest! {
        #[test]
        fn an_address_reads_back(bits in PAGE_BYTES_MIN.ilog2()..=PAGE_BYTES_MAX.ilog2(), page: u32, unit: u32) {
            let shape = PageShape::new(1 << bits);
            let page = u32::try_from(u64::from(page) % shape.pages_max()).unwrap();
            let unit = unit % (1 << (bits - 4));
            let address = Address::new(shape, page, unit);
            prop_assert_eq!((address.page(shape), address.unit(shape)), (page, unit));
            prop_assert_eq!(Address::from_raw(address.raw()), address);
            prop_assert!(address.raw() >> ADDRESS_BITS == 0);
        }
    }
}
