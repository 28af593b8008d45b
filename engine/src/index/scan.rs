//! The order in which a scan visits slots.
//!
//! ```text
//! bit 63    45 44       22 21    14 13     0
//! |    0:19   |  root:23  | home:8 | tag:14 |
//! ```
//!
//! A slot's place in this order follows from bits of its key's hash that never change: growth moves
//! slots to other segments of their root, and insertions and removals to other buckets, but neither
//! changes root, home bucket or tag. So a scan that has passed an order has passed every key below
//! it, whatever the index did in between.
//!
//! - I1: [`Index::slots_at`] finds the slots of one root and home in one segment, tags ascending.
//!   A root's segments hold ascending ranges of tags, so the orders found rise from call to call.

use super::segment::{BUCKETS, Segment};
#[cfg(test)]
use super::slot::tag_of;
use super::slot::{DISPLACEMENT_MAX, Slot, TAG_BITS};
use super::{Index, ROOTS_MAX, SLOTS_A_BUCKET};
use crate::message::hash::IndexHash;

/// Bits of a home bucket.
const HOME_BITS: u32 = BUCKETS.trailing_zeros();
const ROOT_SHIFT: u32 = TAG_BITS + HOME_BITS;
const TAGS: u64 = 1 << TAG_BITS;
/// Bits of an order.
pub(crate) const ORDER_BITS: u32 = ROOT_SHIFT + ROOTS_MAX.trailing_zeros();

const _: () = assert!(BUCKETS.is_power_of_two());

/// A key's place in the order of a scan.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) struct Order(pub(crate) u64);

impl Order {
    fn new(root: u64, home: usize, tag: u64) -> Self {
        Self(root << ROOT_SHIFT | (home as u64) << TAG_BITS | tag)
    }

    fn root(self) -> u64 {
        self.0 >> ROOT_SHIFT
    }

    fn home(self) -> usize {
        (self.0 >> TAG_BITS) as usize & (BUCKETS - 1)
    }

    fn tag(self) -> u64 {
        self.0 & (TAGS - 1)
    }

    /// The next order.
    pub(crate) fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Index {
    /// The place of a hash in the order of a scan.
    #[cfg(test)]
    pub(crate) fn order_of(&self, hash: IndexHash) -> Order {
        let root = ((hash.0 >> 32) * u64::from(self.roots)) >> 32;
        Order::new(root, Self::home_of(hash), u64::from(tag_of(hash)))
    }

    /// A hash that finds the same slots as every hash of this order.
    pub(crate) fn hash_at(&self, order: Order) -> IndexHash {
        let upper = (order.root() << 32).div_ceil(u64::from(self.roots));
        IndexHash(upper << 32 | order.tag() << 8 | order.home() as u64)
    }

    /// Adds the slots of the root and the home of `from`, in the segment of its tag, from that tag
    /// on, tags ascending. Returns the order from which others follow; `None` if none do. Cost:
    /// usually one cache line, or two in a full index.
    pub(crate) fn slots_at(&self, from: Order, found: &mut Vec<(Order, Slot)>) -> Option<Order> {
        let (root, home) = (from.root(), from.home());
        if root >= u64::from(self.roots) {
            return None;
        }
        let first = usize::try_from(root).ok()? * self.cells;
        let cells = &self.directory[first..first + self.cells];
        let cell = (usize::try_from(from.tag()).ok()? * self.cells) >> TAG_BITS;
        let number = cells[cell];
        let start = found.len();
        self.segments[number as usize].for_each_of_home(home, |slot| {
            if u64::from(slot.tag()) >= from.tag() {
                let order = Order::new(root, home, u64::from(slot.tag()));
                found.push((order, slot.unmarked()));
            }
        });
        found[start..].sort_unstable_by_key(|&(order, _)| order);
        // The first tag of the next segment.
        let next = (cell..cells.len()).find(|&next| cells[next] != number);
        if let Some(next) = next {
            let tag = (next << TAG_BITS).div_ceil(self.cells) as u64;
            return Some(Order::new(root, home, tag));
        }
        let next = Order::new(root, home, TAGS - 1).next();
        (next.root() < u64::from(self.roots)).then_some(next)
    }
}

impl Segment {
    /// Visits the slots of a home bucket.
    fn for_each_of_home(&self, home: usize, mut visit: impl FnMut(Slot)) {
        for displacement in 0..=DISPLACEMENT_MAX {
            let bucket = (home + displacement) % BUCKETS;
            let mut marked = false;
            for place in bucket * SLOTS_A_BUCKET..(bucket + 1) * SLOTS_A_BUCKET {
                let slot = self.slot(place);
                marked |= slot.is_marked();
                if !slot.is_empty() && slot.displacement() == displacement {
                    visit(slot);
                }
            }
            // No slot lies past a bucket without marks.
            if !marked {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::super::tests::Heap;
    use super::*;
    use crate::log::{Address, SizeClass};

    /// Scans from an order on, `slots_at` by `slots_at`; stops after `most` slots.
    fn scan(
        index: &Index,
        mut from: Option<Order>,
        most: usize,
    ) -> (Vec<(Order, Slot)>, Option<Order>) {
        let mut found = Vec::new();
        while let Some(order) = from
            && found.len() < most
        {
            from = index.slots_at(order, &mut found);
            assert!(
                from.is_none_or(|next| next > order),
                "a scan makes progress"
            );
        }
        (found, from)
    }

    fn address(number: u64) -> Address {
        Address::from_raw(number + 1)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_scan_under_growth_and_removal_sees_every_key_that_stays_exactly_once(
            seed: u64,
            stay in 1usize..3000,
            others in 0usize..9000,
            most in 1usize..400,
            crowded: bool,
        ) {
            let mut heap = Heap::default();
            let mut index = Index::new(100, &mut heap).unwrap();
            let hash = |number: u64| {
                let hash = crate::message::hash::Hasher128::new(seed).hash(&number.to_le_bytes()).index;
                // Few homes, so that slots lie far from theirs and wrap around.
                if crowded { IndexHash(hash.0 & !0xF0 | 0xF0) } else { hash }
            };
            let class = SizeClass::for_units(2);
            let mut kept = HashMap::new();
            for number in 0..stay as u64 {
                if index.insert(hash(number), class, address(number), &mut heap).is_ok() {
                    kept.insert(address(number), 0);
                }
            }
            let (mut from, mut next, mut last) = (Some(Order::default()), stay as u64, None);
            let mut present = Vec::new();
            while from.is_some() {
                let (found, then) = scan(&index, from, most);
                for (order, slot) in found {
                    prop_assert!(last.is_none_or(|last| last <= order));
                    last = Some(order);
                    if let Some(seen) = kept.get_mut(&slot.address()) {
                        *seen += 1;
                    }
                }
                prop_assert!(from.is_some() && (then.is_none() || then > last));
                from = then;
                // Others come, the index grows, and half of them go.
                for _ in 0..others / 8 {
                    if index.insert(hash(next), class, address(next), &mut heap).is_ok() {
                        present.push(next);
                    }
                    next += 1;
                }
                for number in present.drain(present.len() / 2..) {
                    let hash = hash(number);
                    let position = index.find_address(hash, address(number)).unwrap();
                    index.remove(hash, position);
                }
            }
            prop_assert!(kept.values().all(|&seen| seen == 1));
        }

        #[test]
        fn the_hash_of_an_order_finds_the_slots_of_that_order(hash: u64, keys in 1u64..100_000) {
            let mut heap = Heap::default();
            let mut index = Index::new(keys, &mut heap).unwrap();
            let hash = IndexHash(hash);
            index.insert(hash, SizeClass::for_units(3), address(7), &mut heap).unwrap();
            let order = index.order_of(hash);
            prop_assert_eq!(index.order_of(index.hash_at(order)), order);
            prop_assert!(index.find_address(index.hash_at(order), address(7)).is_some());
            let mut found = Vec::new();
            index.slots_at(order, &mut found);
            prop_assert_eq!(found.first().map(|&(order, _)| order), Some(order));
            found.clear();
            let after = index.slots_at(order.next(), &mut found);
            prop_assert!(found.is_empty() && after.is_none_or(|after| after > order));
        }
    }
}
