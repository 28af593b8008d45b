//! Growth, a group at a time and without the keys: the tag in each slot says where it moves.

use std::iter;

use super::segment::Segment;
use super::slot::{Slot, TAG_BITS};
use super::{
    CELLS, CELLS_AT_FIRST, DEPTH_MAX, GROWS_AT, Group, Index, NoSegment, SLOTS, SegmentSource,
};

/// What a segment held before its group grew.
struct SegmentCopy {
    slots: Vec<Slot>,
    keys: u16,
}

impl Index {
    /// True if the segments of the group that one belongs to are as full as they should be, and it
    /// has not grown in vain.
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

    /// One step of growth of the group of a segment.
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
        let before: Vec<_> = {
            let group = &self.groups[id];
            let segments = group.segments[..group.count].iter();
            segments.map(|&number| self.copy_of(number)).collect()
        };
        let added = self.add_segment(group, source).inspect_err(|_| {
            self.groups[id].cannot_divide = false;
        })?;
        if self.cells < CELLS {
            self.widen(CELLS / CELLS_AT_FIRST);
        }
        let group = &mut self.groups[id];
        group.segments[group.count] = added;
        group.count += 1;
        group.cannot_divide = false;
        let group = group.clone();
        self.publish(id);
        // From the last segment down, so that what moves up finds room: all move towards the new
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

    /// Takes a group's latest segment back, and gives those before it what they had.
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

    /// Moves the slots of a segment that belong elsewhere now. False if one finds no place there:
    /// segments grow emptier on average, but where many slots have one home, all of its slots in
    /// two segments may belong in one.
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
            // Removal shifts others back, so that the mover is looked for where it lies by now.
            let from = &mut self.segments[number as usize];
            let place = from.place_of(home, slot.tag(), slot.address());
            debug_assert!(
                place.is_some(),
                "a slot got lost while its segment was divided"
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

    /// Turns a group of 4 segments into two of 2; no slot moves.
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

    /// Gives each root so many times as many cells.
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
