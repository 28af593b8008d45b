//! Checks the invariants of the index. Only in tests and simulations.

use super::slot::TAG_BITS;
use super::{Index, SLOTS};

impl Index {
    /// Checks every segment, that the directory leads to each slot's, and all counts.
    pub(crate) fn check(&self) {
        let cells = self.roots as usize * self.cells;
        assert_eq!(self.directory.len(), cells, "index I4: cells");
        let named = self.directory.iter();
        let named = named.map(|&one| self.segments[one as usize]);
        let is_same = self.named.iter().copied().eq(named);
        assert!(is_same, "index I4: the two tables differ");
        let mut keys = 0;
        for (id, group) in (0u32..).zip(&self.groups) {
            for &number in &group.segments[..group.count] {
                let place = number as usize;
                assert_eq!(self.group_of[place], id, "index I4: group of {number}");
                let segment = &self.segments[place];
                segment.check();
                let count = segment.count();
                let counted = usize::from(self.keys_in[place]);
                assert_eq!(counted, count, "index I4: keys of {number}");
                keys += count;
                let slots = (0..SLOTS).map(|place| segment.slot(place));
                for slot in slots.filter(|slot| !slot.is_empty()) {
                    let cell = (usize::from(slot.tag()) * self.cells) >> TAG_BITS;
                    let place = group.root as usize * self.cells + cell;
                    let named = self.directory[place];
                    assert_eq!(named, number, "index I3: {slot:?} is not found");
                }
            }
        }
        assert_eq!(self.keys, keys, "index I4: keys");
    }
}
