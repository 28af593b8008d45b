//! CLOCK, or second chance: Corbató, "A Paging Experiment with the Multics System", 1968.

use super::list::List;
use super::{Replacement, Use};

/// Evicts the oldest place that was not used since it was last considered; one that was used
/// becomes the newest.
#[derive(Clone, Debug)]
pub struct Clock {
    queue: List,
    used: Vec<bool>,
}

impl Clock {
    /// For places below this number.
    #[must_use]
    pub fn new(places: u32) -> Self {
        Self {
            queue: List::new(places),
            used: vec![false; places as usize],
        }
    }
}

impl Replacement for Clock {
    fn insert(&mut self, place: u32, _: Use) {
        self.used[place as usize] = false;
        self.queue.push(place);
    }

    #[inline]
    fn hit(&mut self, place: u32, _: Use) {
        self.used[place as usize] = true;
    }

    fn victim(&mut self) -> Option<u32> {
        // Ends: a place that was passed is unused.
        loop {
            let place = self.queue.pop()?;
            if !std::mem::take(&mut self.used[place as usize]) {
                return Some(place);
            }
            self.queue.push(place);
        }
    }

    fn remove(&mut self, place: u32) {
        self.queue.remove(place);
    }
}
