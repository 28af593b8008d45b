//! Growth of the index: a group at a time and without the keys, because the tag in each slot says
//! where it moves.
//!
//! A step adds a segment to a group, moves the slots that belong elsewhere and publishes the
//! directory; or it splits a group of 4 segments into two of 2, which moves no slot. A step that
//! fails is undone: the index is as before.

use std::iter;

use super::segment::Segment;
use super::slot::{Slot, TAG_BITS};
use super::{
    CELLS, CELLS_AT_FIRST, DEPTH_MAX, GROWS_AT, Group, Index, NoSegment, SLOTS, SegmentSource,
};

/// The contents of a segment before its group grew.
struct SegmentCopy {
    slots: Vec<Slot>,
    keys: u16,
}

impl Index {
    /// True if a segment's group is full enough to grow and its last attempt did not fail.
    #[cold]
    pub(super) fn should_grow(&self, number: usize) -> bool {
        let group = &self.groups[self.group_of[number] as usize];
        if group.cannot_divide {
            return false;
        }
        let segments = &group.segments[..group.count];
        let keys = segments.iter().map(|&one| self.keys_in[one as usize]);
        keys.map(usize::from).sum::<usize>() >= usize::from(GROWS_AT) * group.count
    }

    /// Runs one step of growth for a segment's group.
    #[cold]
    pub(super) fn grow(
        &mut self,
        number: usize,
        source: &mut impl SegmentSource,
    ) -> Result<(), NoSegment> {
        let group = self.group_of[number];
        let id = group as usize;
        if self.groups[id].count == 4 {
            return self.split(id);
        }
        let added = self.add_segment(group, source).inspect_err(|_| {
            self.groups[id].cannot_divide = false;
            self.refused = true;
        })?;
        let before: Vec<_> = {
            let group = &self.groups[id];
            let segments = group.segments[..group.count].iter();
            segments.map(|&number| self.copy_of(number)).collect()
        };
        if self.cells < CELLS {
            self.widen(CELLS / CELLS_AT_FIRST);
        }
        let group = &mut self.groups[id];
        group.segments[group.count] = added;
        group.count += 1;
        group.cannot_divide = false;
        let group = group.clone();
        self.publish(id);
        // From the last segment down, so that moved slots find room: all move towards the new
        // segment.
        let mut old = group.segments[..group.count - 1].iter().rev();
        if !old.all(|&number| self.hand_on(number, &group)) {
            self.undo_growth(id, &before);
            return Err(NoSegment);
        }
        self.growth_steps += 1;
        Ok(())
    }

    fn copy_of(&self, number: u32) -> SegmentCopy {
        let segment = self.segments[number as usize];
        SegmentCopy {
            slots: (0..SLOTS).map(|place| segment.slot(place)).collect(),
            keys: self.keys_in[number as usize],
        }
    }

    /// Removes a group's latest segment and restores the contents of the others.
    #[cold]
    fn undo_growth(&mut self, id: usize, before: &[SegmentCopy]) {
        let group = &mut self.groups[id];
        group.count -= 1;
        group.cannot_divide = true;
        let group = group.clone();
        for (&number, copy) in group.segments.iter().zip(before) {
            for (place, &slot) in copy.slots.iter().enumerate() {
                self.segments[number as usize].set(place, slot);
            }
            self.keys_in[number as usize] = copy.keys;
        }
        self.publish(id);
        self.remove_last_segment();
    }

    /// Moves the slots of a segment that belong elsewhere now. False if one finds no place there.
    /// Segments grow emptier on average, but if many slots share one home, all its slots of two
    /// segments may belong in one.
    fn hand_on(&mut self, number: u32, group: &Group) -> bool {
        let cells = self.cells;
        let directory = &self.directory[group.root as usize * cells..][..cells];
        let target_of = |slot: Slot| directory[(usize::from(slot.tag()) * cells) >> TAG_BITS];
        let mut movers = Vec::with_capacity(SLOTS / 2);
        for place in 0..SLOTS {
            let slot = self.segments[number as usize].slot(place);
            if !slot.is_empty() && target_of(slot) != number {
                movers.push((Segment::home_of(place, slot), slot, target_of(slot)));
            }
        }
        for (home, slot, target) in movers {
            // A removal shifts other slots back, so look up where the slot is now.
            let from = &mut self.segments[number as usize];
            let place = from.place_of(home, slot.tag(), slot.address());
            debug_assert!(
                place.is_some(),
                "a slot was lost while its segment was divided"
            );
            if let Some(place) = place {
                from.remove(place);
                self.keys_in[number as usize] -= 1;
            }
            let to = &mut self.segments[target as usize];
            if !to.insert(home, slot.tag(), slot.class(), slot.address()) {
                return false;
            }
            self.keys_in[target as usize] += 1;
        }
        true
    }

    /// Splits a group of 4 segments into two of 2; no slot moves.
    fn split(&mut self, id: usize) -> Result<(), NoSegment> {
        let group = self.groups[id].clone();
        if group.depth == DEPTH_MAX {
            return Err(NoSegment);
        }
        let right = u32::try_from(self.groups.len()).map_err(|_| NoSegment)?;
        if CELLS << group.depth == self.cells {
            self.widen(2);
        }
        let halves = [
            [group.segments[0], group.segments[1]],
            [group.segments[2], group.segments[3]],
        ];
        for (side, half) in halves.iter().enumerate() {
            let made = Group {
                root: group.root,
                depth: group.depth + 1,
                prefix: group.prefix * 2 + u32::from(side == 1),
                segments: [half[0], half[1], 0, 0],
                count: 2,
                cannot_divide: false,
            };
            if side == 0 {
                self.groups[id] = made;
                self.publish(id);
            } else {
                self.groups.push(made);
                for &segment in half {
                    self.group_of[segment as usize] = right;
                }
                self.publish(right as usize);
            }
        }
        Ok(())
    }

    /// Multiplies the cells of each root.
    fn widen(&mut self, times: usize) {
        fn repeated<T: Copy>(cells: &[T], times: usize) -> Vec<T> {
            let mut wider = Vec::with_capacity(cells.len() * times);
            for &cell in cells {
                wider.extend(iter::repeat_n(cell, times));
            }
            wider
        }
        self.directory = repeated(&self.directory, times);
        self.named = repeated(&self.named, times);
        self.cells *= times;
    }
}
