//! SIEVE: Zhang and others, "SIEVE is Simpler than LRU", NSDI 2024.

use super::list::{List, NONE};
use super::{Replacement, Use};

/// Evicts the first unused place that a hand meets, which moves from old to new. Places that were
/// used stay where they are in the queue.
#[derive(Clone, Debug)]
pub struct Sieve {
    queue: List,
    used: Vec<bool>,
    /// Where the hand stands, or [`NONE`] for the oldest.
    hand: u32,
}

impl Sieve {
    /// For places below this number.
    #[must_use]
    pub fn new(places: u32) -> Self {
        Self {
            queue: List::new(places),
            used: vec![false; places as usize],
            hand: NONE,
        }
    }
}

impl Replacement for Sieve {
    fn insert(&mut self, place: u32, _: Use) {
        self.used[place as usize] = false;
        self.queue.push(place);
    }

    #[inline]
    fn hit(&mut self, place: u32, _: Use) {
        self.used[place as usize] = true;
    }

    fn victim(&mut self) -> Option<u32> {
        let mut place = self.hand;
        loop {
            if place == NONE {
                place = self.queue.oldest();
            }
            if place == NONE {
                return None;
            }
            // Ends: a place that was passed is unused.
            if !std::mem::take(&mut self.used[place as usize]) {
                break;
            }
            place = self.queue.newer(place);
        }
        self.hand = place;
        self.remove(place);
        Some(place)
    }

    fn remove(&mut self, place: u32) {
        if self.hand == place {
            self.hand = self.queue.newer(place);
        }
        self.queue.remove(place);
    }
}
