//! A slot: one 8-byte entry of the index.
//!
//! ```text
//! bit 63      50 49          44    43    42     37 36                      0
//! |   tag:14   | displacement:6 | mark:1 | class:6 |      address:37        |
//! ```
//!
//! The displacement is the number of buckets between the slot and its home bucket, so a removal can
//! shift back exactly the slots that may move. The all-zero word is empty: no record lies in unit 0
//! of a page. The mark belongs to the bucket, not to the slot. Seven of a bucket's eight marks say
//! which tags may lie past it as their home; the last says that a slot from an earlier bucket lies
//! past it.

use std::fmt;

use crate::log::{ADDRESS_BITS, Address, SizeClass};
use crate::message::hash::IndexHash;

pub(super) const TAG_BITS: u32 = 14;
const CLASS_SHIFT: u32 = ADDRESS_BITS;
pub(super) const MARK_SHIFT: u32 = 43;
pub(super) const DISPLACEMENT_SHIFT: u32 = 44;
const TAG_SHIFT: u32 = 50;
/// The farthest that a slot may lie from its home bucket, in buckets.
pub(super) const DISPLACEMENT_MAX: usize = 63;

const _: () = assert!(TAG_SHIFT + TAG_BITS == 64 && CLASS_SHIFT + 6 == MARK_SHIFT);
const _: () = assert!(DISPLACEMENT_SHIFT == MARK_SHIFT + 1 && TAG_SHIFT == DISPLACEMENT_SHIFT + 6);

/// One entry of the index.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Slot(pub(super) u64);

impl Slot {
    /// The empty slot.
    pub(super) const EMPTY: Self = Self(0);

    #[inline]
    pub(super) fn new(tag: u16, displacement: usize, class: SizeClass, address: Address) -> Self {
        debug_assert!(displacement <= DISPLACEMENT_MAX && address != Address::NONE);
        Self(
            u64::from(tag) << TAG_SHIFT
                | (displacement as u64) << DISPLACEMENT_SHIFT
                | class.raw() << CLASS_SHIFT
                | address.raw(),
        )
    }

    /// The upper bits of a slot with this tag at this displacement.
    #[inline]
    pub(super) const fn pattern(tag: u16, displacement: usize) -> u64 {
        (tag as u64) << (TAG_SHIFT - DISPLACEMENT_SHIFT) | displacement as u64
    }

    /// True if the upper bits match a pattern; the empty slot may match too.
    #[inline]
    pub(super) fn has(self, pattern: u64) -> bool {
        self.0 >> DISPLACEMENT_SHIFT == pattern
    }

    #[inline]
    pub(super) fn matches(self, pattern: u64) -> bool {
        self.has(pattern) && !self.is_empty()
    }

    #[inline]
    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(super) fn tag(self) -> u16 {
        (self.0 >> TAG_SHIFT) as u16
    }

    #[inline]
    pub(super) fn displacement(self) -> usize {
        (self.0 >> DISPLACEMENT_SHIFT) as usize & DISPLACEMENT_MAX
    }

    #[inline]
    pub(super) fn with_displacement(self, displacement: usize) -> Self {
        let mask = (DISPLACEMENT_MAX as u64) << DISPLACEMENT_SHIFT;
        Self(self.0 & !mask | (displacement as u64) << DISPLACEMENT_SHIFT)
    }

    #[inline]
    pub(super) fn with_place(self, class: SizeClass, address: Address) -> Self {
        Self(self.0 >> MARK_SHIFT << MARK_SHIFT | class.raw() << CLASS_SHIFT | address.raw())
    }

    /// True if the entry carries a mark of its bucket.
    #[inline]
    pub(super) fn is_marked(self) -> bool {
        self.0 >> MARK_SHIFT & 1 != 0
    }

    #[inline]
    pub(super) fn marked(self) -> Self {
        Self(self.0 | 1 << MARK_SHIFT)
    }

    /// The slot without the mark, which belongs to the bucket.
    #[inline]
    pub(super) fn unmarked(self) -> Self {
        Self(self.0 & !(1 << MARK_SHIFT))
    }

    /// The size class of the record.
    #[inline]
    pub(crate) fn class(self) -> SizeClass {
        SizeClass::from_raw(self.0 >> CLASS_SHIFT)
    }

    /// Where the record lies.
    #[inline]
    pub(crate) fn address(self) -> Address {
        Address::from_raw(self.0)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("Slot(empty)");
        }
        f.debug_struct("Slot")
            .field("tag", &self.tag())
            .field("displacement", &self.displacement())
            .field("marked", &self.is_marked())
            .field("class", &self.class())
            .field("address", &self.address())
            .finish()
    }
}

/// The tag bits of a hash.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "takes 14 bits")]
pub(super) fn tag_of(hash: IndexHash) -> u16 {
    (hash.0 >> 8) as u16 & ((1 << TAG_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn places() -> impl Strategy<Value = (SizeClass, Address)> {
        (0u64..64, 1u64..1 << CLASS_SHIFT)
            .prop_map(|(class, address)| (SizeClass::from_raw(class), Address::from_raw(address)))
    }

    proptest! {
        #[test]
        fn a_slot_reads_back(
            tag in 0u16..1 << TAG_BITS,
            displacement in 0..=DISPLACEMENT_MAX,
            (class, address) in places(),
            moved in 0..=DISPLACEMENT_MAX,
            (new_class, new_address) in places(),
            other: u16,
        ) {
            let parts = |slot: Slot| (slot.tag(), slot.displacement(), slot.class(), slot.address());
            let slot = Slot::new(tag, displacement, class, address);
            prop_assert_eq!(parts(slot), (tag, displacement, class, address));
            prop_assert!(!slot.is_empty());
            let shifted = slot.with_displacement(moved);
            prop_assert_eq!(parts(shifted), (tag, moved, class, address));
            let replaced = slot.with_place(new_class, new_address);
            prop_assert!(!slot.is_marked() && slot.marked().is_marked());
            prop_assert_eq!(parts(slot.marked()), parts(slot));
            prop_assert_eq!(slot.marked().unmarked(), slot);
            prop_assert_eq!(slot.marked().with_place(new_class, new_address), replaced.marked());
            prop_assert_eq!(slot.marked().with_displacement(moved), shifted.marked());
            prop_assert_eq!(parts(replaced), (tag, displacement, new_class, new_address));

            for slot in [slot, replaced] {
                prop_assert!(slot.matches(Slot::pattern(tag, displacement)));
                prop_assert_eq!(slot.matches(Slot::pattern(tag, moved)), moved == displacement);
                let other = other & ((1 << TAG_BITS) - 1);
                prop_assert_eq!(slot.matches(Slot::pattern(other, displacement)), other == tag);
                // Each bit makes another pattern.
                for bit in 0..TAG_BITS {
                    prop_assert!(!slot.matches(Slot::pattern(tag ^ 1 << bit, displacement)));
                }
            }
        }

        #[test]
        fn a_tag_is_bits_21_to_8_of_the_hash(hash: u64) {
            prop_assert_eq!(u64::from(tag_of(IndexHash(hash))), hash >> 8 & 0x3FFF);
        }
    }

    #[test]
    fn the_empty_slot_matches_nothing() {
        assert!(Slot::EMPTY.is_empty() && Slot::default() == Slot::EMPTY);
        // Its upper bits match a pattern all the same.
        let pattern = Slot::pattern(0, 0);
        assert!(Slot::EMPTY.has(pattern) && !Slot::EMPTY.matches(pattern));
        assert_eq!(format!("{:?}", Slot::EMPTY), "Slot(empty)");
    }
}
