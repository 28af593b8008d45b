//! Belady's clairvoyant policy: "A study of replacement algorithms for a virtual-storage computer",
//! 1966. No policy misses less with one tier and demand fetching.

use std::collections::BinaryHeap;

use super::{NEVER, Replacement, Use};

/// Evicts the place whose key is used last in the future. A hit costs the logarithm of the places.
#[derive(Clone, Debug)]
pub struct Belady {
    /// The time of the next use by place; `None` of a place that was taken out.
    next: Vec<Option<u64>>,
    /// Next uses and places, also some that are out of date.
    heap: BinaryHeap<(u64, u32)>,
}

impl Belady {
    /// For places below this number.
    #[must_use]
    pub fn new(places: u32) -> Self {
        Self {
            next: vec![None; places as usize],
            heap: BinaryHeap::new(),
        }
    }

    fn set(&mut self, place: u32, next: u64) {
        self.next[place as usize] = Some(next);
        self.heap.push((next, place));
        // Entries that are out of date: at most as many as there are places.
        if self.heap.len() > 2 * self.next.len() + 64 {
            let next = &self.next;
            self.heap
                .retain(|&(time, place)| next[place as usize] == Some(time));
            if self.heap.len() > self.next.len() {
                // Equal pairs remain only of keys that are never used again.
                let mut pairs = std::mem::take(&mut self.heap).into_vec();
                pairs.sort_unstable();
                pairs.dedup();
                self.heap = pairs.into();
            }
        }
    }
}

impl Replacement for Belady {
    fn insert(&mut self, place: u32, access: Use) {
        self.set(place, access.next);
    }

    fn hit(&mut self, place: u32, access: Use) {
        self.set(place, access.next);
    }

    fn victim(&mut self) -> Option<u32> {
        loop {
            let (time, place) = self.heap.pop()?;
            if self.next[place as usize] == Some(time) {
                self.next[place as usize] = None;
                return Some(place);
            }
        }
    }

    fn remove(&mut self, place: u32) {
        self.next[place as usize] = None;
    }
}

/// The time of the next access to the same key, for each access.
#[must_use]
pub(crate) fn next_accesses(keys: u32, accesses: &[u32]) -> Vec<u64> {
    let mut upcoming = vec![NEVER; keys as usize];
    let mut next = vec![NEVER; accesses.len()];
    for (time, &key) in accesses.iter().enumerate().rev() {
        next[time] = std::mem::replace(&mut upcoming[key as usize], time as u64);
    }
    next
}
