//! Passes over all slots of the index, whole or a range at a time.

use std::ops::Range;

use super::slot::Slot;
use super::{Index, SLOTS};
use crate::log::{Address, SizeClass};

impl Index {
    /// Redirects every slot to the place that `place_of` returns, if any. Cost: one pass over the
    /// whole index.
    pub(crate) fn redirect(
        &mut self,
        mut place_of: impl FnMut(Slot) -> Option<(SizeClass, Address)>,
    ) {
        for segment in &mut self.segments {
            for place in 0..SLOTS {
                let slot = segment.slot(place);
                if !slot.is_empty()
                    && let Some((class, address)) = place_of(slot)
                {
                    segment.set(place, slot.with_place(class, address));
                }
            }
        }
    }

    /// Removes the slots that `goes` selects from a range of segments; true if there are segments
    /// after those.
    pub(crate) fn remove_where(
        &mut self,
        numbers: Range<usize>,
        goes: impl Fn(Slot) -> bool,
    ) -> bool {
        for number in numbers.start..numbers.end.min(self.segments.len()) {
            let mut removed = 0;
            for place in 0..SLOTS {
                // A removal pulls another slot to the same place. It comes from a later bucket, or,
                // at the end of the segment, from one of the first, where none is left to remove.
                while let slot = self.segments[number].slot(place)
                    && !slot.is_empty()
                    && goes(slot)
                {
                    self.segments[number].remove(place);
                    removed += 1;
                }
            }
            self.keys_in[number] -= removed;
            self.keys -= usize::from(removed);
        }
        numbers.end < self.segments.len()
    }

    /// Visits the slots of a range of places, counted over all segments; true if there are places
    /// after those.
    pub(crate) fn for_each_in(&self, places: Range<usize>, mut visit: impl FnMut(Slot)) -> bool {
        let all = self.segments.len() * SLOTS;
        for place in places.start..places.end.min(all) {
            let slot = self.segments[place / SLOTS].slot(place % SLOTS);
            if !slot.is_empty() {
                visit(slot);
            }
        }
        places.end < all
    }

    /// Visits every slot. Cost: one pass over the whole index.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(Slot)) {
        for segment in &self.segments {
            for place in 0..SLOTS {
                let slot = segment.slot(place);
                if !slot.is_empty() {
                    visit(slot);
                }
            }
        }
    }
}
