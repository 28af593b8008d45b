//! Growth, a group at a time and without the keys: the tag in each slot says where it moves.

use std::iter;

use super::segment::Segment;
use super::slot::{Slot, TAG_BITS};
use super::{
    CELLS, CELLS_AT_FIRST, DEPTH_MAX, GROWS_AT, Group, Index, NoSegment, SLOTS, SegmentSource,
};

impl Index {
    /// True if the segments of the group that one belongs to are as full as they should be.
    #[cold]
    pub(super) fn is_crowded(&self, number: usize) -> bool {
        let group = &self.groups[self.group_of[number] as usize];
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
        let added = self.add_segment(group, source)?;
        if self.cells < CELLS {
            self.widen(CELLS / CELLS_AT_FIRST);
        }
        let group = &mut self.groups[id];
        group.segments[group.count] = added;
        group.count += 1;
        let group = group.clone();
        self.publish(id);
        // From the last segment down, so that what moves up finds room: all move towards the new segment.
        for place in (0..group.count - 1).rev() {
            self.hand_on(group.segments[place], &group);
        }
        self.growth_steps += 1;
        Ok(())
    }

    /// Moves the slots of a segment that belong elsewhere now.
    fn hand_on(&mut self, number: u32, group: &Group) {
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
            let placed = to.insert(home, slot.tag(), slot.class(), slot.address());
            assert!(
                placed,
                "a slot found no place in a segment that grew emptier"
            );
            self.keys_in[target as usize] += 1;
        }
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
