//! Least recently used.

use super::list::List;
use super::{Replacement, Use};

/// Evicts the place that was used longest ago.
#[derive(Clone, Debug)]
pub struct Lru(List);

impl Lru {
    /// For places below this number.
    #[must_use]
    pub fn new(places: u32) -> Self {
        Self(List::new(places))
    }
}

impl Replacement for Lru {
    fn insert(&mut self, place: u32, _: Use) {
        self.0.push(place);
    }

    #[inline]
    fn hit(&mut self, place: u32, _: Use) {
        self.0.renew(place);
    }

    fn victim(&mut self) -> Option<u32> {
        self.0.pop()
    }

    fn remove(&mut self, place: u32) {
        self.0.remove(place);
    }
}
