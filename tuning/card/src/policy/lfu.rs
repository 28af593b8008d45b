//! Least frequently used, exactly, in constant time: Shah, Mitra and Matani, "An O(1) algorithm for
//! implementing the LFU cache eviction scheme", 2010.

use super::list::NONE;
use super::{Replacement, Use};

#[derive(Clone, Copy, Debug)]
struct Entry {
    newer: u32,
    older: u32,
    /// The group of entries that were used as often.
    group: u32,
}

/// Entries that were used equally often, as a list.
#[derive(Clone, Copy, Debug)]
struct Group {
    uses: u64,
    newest: u32,
    oldest: u32,
    fewer: u32,
    more: u32,
}

/// Evicts the place that was used least often; among equals, the one that reached its count first.
#[derive(Clone, Debug)]
pub struct Lfu {
    entries: Vec<Entry>,
    groups: Vec<Group>,
    free: Vec<u32>,
    /// The group with the fewest uses.
    least: u32,
}

impl Lfu {
    /// For places below this number.
    #[must_use]
    pub fn new(places: u32) -> Self {
        let entry = Entry {
            newer: NONE,
            older: NONE,
            group: NONE,
        };
        Self {
            entries: vec![entry; places as usize],
            groups: Vec::new(),
            free: Vec::new(),
            least: NONE,
        }
    }

    /// A new empty group after another; [`NONE`] makes it the first.
    fn add_group(&mut self, fewer: u32, uses: u64) -> u32 {
        let more = match fewer {
            NONE => self.least,
            fewer => self.groups[fewer as usize].more,
        };
        let group = Group {
            uses,
            newest: NONE,
            oldest: NONE,
            fewer,
            more,
        };
        let number = if let Some(number) = self.free.pop() {
            self.groups[number as usize] = group;
            number
        } else {
            self.groups.push(group);
            // At most one group a place and one more.
            u32::try_from(self.groups.len() - 1).unwrap_or(NONE)
        };
        match fewer {
            NONE => self.least = number,
            fewer => self.groups[fewer as usize].more = number,
        }
        if more != NONE {
            self.groups[more as usize].fewer = number;
        }
        number
    }

    fn push(&mut self, group: u32, place: u32) {
        let newest = self.groups[group as usize].newest;
        self.entries[place as usize] = Entry {
            newer: NONE,
            older: newest,
            group,
        };
        match newest {
            NONE => self.groups[group as usize].oldest = place,
            newest => self.entries[newest as usize].newer = place,
        }
        self.groups[group as usize].newest = place;
    }

    fn take(&mut self, place: u32) {
        let Entry {
            newer,
            older,
            group,
        } = self.entries[place as usize];
        match newer {
            NONE => self.groups[group as usize].newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => self.groups[group as usize].oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
        let Group {
            newest,
            fewer,
            more,
            ..
        } = self.groups[group as usize];
        if newest != NONE {
            return;
        }
        match fewer {
            NONE => self.least = more,
            fewer => self.groups[fewer as usize].more = more,
        }
        if more != NONE {
            self.groups[more as usize].fewer = fewer;
        }
        self.free.push(group);
    }
}

impl Replacement for Lfu {
    fn insert(&mut self, place: u32, _: Use) {
        let group = match self.least {
            NONE => self.add_group(NONE, 1),
            least if self.groups[least as usize].uses == 1 => least,
            _ => self.add_group(NONE, 1),
        };
        self.push(group, place);
    }

    fn hit(&mut self, place: u32, _: Use) {
        let group = self.entries[place as usize].group;
        let Group { uses, more, .. } = self.groups[group as usize];
        let next = if more != NONE && self.groups[more as usize].uses == uses + 1 {
            more
        } else {
            self.add_group(group, uses + 1)
        };
        self.take(place);
        self.push(next, place);
    }

    fn victim(&mut self) -> Option<u32> {
        if self.least == NONE {
            return None;
        }
        let place = self.groups[self.least as usize].oldest;
        self.take(place);
        Some(place)
    }

    fn remove(&mut self, place: u32) {
        self.take(place);
    }
}
