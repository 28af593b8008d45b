//! Lanes with requests that were not served yet, and the order in which a turn serves them.
//!
//! - I1: no lane is always served before another: a turn begins after the lane with which the one
//!   before it began.

use std::cmp::Ordering;

/// A bit for each lane.
type Bitmap = [u64; 4];

/// The marked lanes, and the one with which the next turn begins.
#[derive(Debug, Default)]
pub(super) struct MarkedLanes {
    marked: Bitmap,
    first: u8,
}

impl MarkedLanes {
    /// Marks a lane.
    #[inline]
    pub(super) fn mark(&mut self, lane: usize) {
        self.marked[lane / 64] |= 1 << (lane % 64);
    }

    /// Marks lanes of one word of the bitmap.
    #[inline]
    pub(super) fn mark_all(&mut self, word: usize, lanes: u64) {
        self.marked[word] |= lanes;
    }

    /// Removes the mark of a lane; false if it had none.
    #[inline]
    pub(super) fn unmark(&mut self, lane: usize) -> bool {
        let is_marked = self.has(lane);
        self.marked[lane / 64] &= !(1 << (lane % 64));
        is_marked
    }

    #[inline]
    pub(super) fn has(&self, lane: usize) -> bool {
        self.marked[lane / 64] & (1 << (lane % 64)) != 0
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.marked == Bitmap::default()
    }

    /// The marked lanes in the order of this turn.
    #[inline]
    pub(super) fn in_order(&self) -> LaneOrder {
        LaneOrder::new(self.marked, self.first)
    }

    /// Removes all marks and returns the lanes that had one, in the order of this turn. The next
    /// turn begins after the first of them.
    #[inline]
    pub(super) fn take(&mut self) -> LaneOrder {
        let lanes = LaneOrder::new(std::mem::take(&mut self.marked), self.first);
        if let Some(lane) = lanes.first() {
            self.first = u8::try_from(lane).map_or(0, |lane| lane.wrapping_add(1));
        }
        lanes
    }
}

/// The lowest lane of the bitmap.
#[inline]
fn lowest(marked: &Bitmap) -> Option<usize> {
    let word = marked.iter().position(|&bits| bits != 0)?;
    Some(word * 64 + marked[word].trailing_zeros() as usize)
}

/// Takes the lowest lane from the bitmap.
#[inline]
fn pop_lowest(marked: &mut Bitmap) -> Option<usize> {
    let lane = lowest(marked)?;
    marked[lane / 64] &= marked[lane / 64] - 1;
    Some(lane)
}

/// The lanes of a bitmap, each once: from the first upwards, then those below it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneOrder {
    from_first: Bitmap,
    below: Bitmap,
}

impl LaneOrder {
    #[inline]
    fn new(marked: Bitmap, first: u8) -> Self {
        let (first_word, bit) = (usize::from(first / 64), first % 64);
        let mut from_first = marked;
        for (word, bits) in from_first.iter_mut().enumerate() {
            *bits &= match word.cmp(&first_word) {
                Ordering::Less => 0,
                Ordering::Equal => u64::MAX << bit,
                Ordering::Greater => u64::MAX,
            };
        }
        let mut below = marked;
        for (bits, taken) in below.iter_mut().zip(from_first) {
            *bits &= !taken;
        }
        Self { from_first, below }
    }

    #[inline]
    fn first(&self) -> Option<usize> {
        lowest(&self.from_first).or_else(|| lowest(&self.below))
    }
}

impl Iterator for LaneOrder {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        pop_lowest(&mut self.from_first).or_else(|| pop_lowest(&mut self.below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_has_each_lane_once_and_begins_at_the_first() {
        let marked = [1 << 3 | 1 << 63, 0, 1 << 5, 1 << 63];
        for (first, expected) in [
            (0, [3, 63, 133, 255]),
            (3, [3, 63, 133, 255]),
            (4, [63, 133, 255, 3]),
            (64, [133, 255, 3, 63]),
            (134, [255, 3, 63, 133]),
            (255, [255, 3, 63, 133]),
        ] {
            let seen: Vec<_> = LaneOrder::new(marked, first).collect();
            assert_eq!(seen, expected, "from {first}");
        }
        assert_eq!(LaneOrder::new([0; 4], 7).next(), None);
    }

    #[test]
    fn a_turn_begins_after_the_lane_with_which_the_last_began() {
        let mut lanes = MarkedLanes::default();
        for expected in [[3, 64, 255], [64, 255, 3], [255, 3, 64], [3, 64, 255]] {
            for lane in expected {
                lanes.mark(lane);
            }
            assert!(lanes.in_order().eq(expected) && lanes.has(64));
            assert!(lanes.take().eq(expected) && lanes.is_empty());
        }
        lanes.mark_all(1, 1 << 2);
        assert!(lanes.unmark(66) && !lanes.unmark(66) && lanes.is_empty());
    }
}
