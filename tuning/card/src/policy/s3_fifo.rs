//! S3-FIFO: Yang and others, "FIFO Queues are All You Need for Cache Eviction", SOSP 2023.
//!
//! A tenth of the places is for newcomers. One that was used twice there moves to the main queue;
//! another is evicted, and its key is remembered by a ghost queue of nine tenths of the places. A
//! key that is remembered goes to the main queue at once, which is a CLOCK with counters up to 3.
//! Until the first eviction, newcomers beyond the tenth go to the main queue, too.
//! The details are those of libCacheSim, whose counts of misses the tests compare.

use super::list::List;
use super::{Replacement, Use};

const MOVE_AT: u8 = 2;
const COUNT_MAX: u8 = 3;

#[derive(Clone, Copy, Default, Debug)]
struct Entry {
    key: u32,
    uses: u8,
    is_main: bool,
}

/// Evicts newcomers that are not used soon.
#[derive(Clone, Debug)]
pub struct S3Fifo {
    entries: Vec<Entry>,
    small: List,
    small_max: u32,
    main: List,
    main_max: u32,
    has_evicted: bool,
    /// Keys.
    ghosts: List,
    is_ghost: Vec<bool>,
    ghosts_max: u32,
    /// The missed key was a ghost.
    returns: Option<u32>,
}

impl S3Fifo {
    /// For places and keys below these numbers.
    #[must_use]
    pub fn new(places: u32, keys: u32) -> Self {
        let tenth = places / 10;
        Self {
            entries: vec![Entry::default(); places as usize],
            small: List::new(places),
            small_max: tenth,
            main: List::new(places),
            main_max: places - tenth,
            has_evicted: false,
            ghosts: List::new(keys),
            is_ghost: vec![false; keys as usize],
            // Nine tenths, rounded down, without overflow.
            ghosts_max: tenth * 9 + places % 10 * 9 / 10,
            returns: None,
        }
    }

    fn remember(&mut self, key: u32) {
        if self.ghosts_max == 0 {
            return;
        }
        if self.ghosts.len() == self.ghosts_max
            && let Some(oldest) = self.ghosts.pop()
        {
            self.is_ghost[oldest as usize] = false;
        }
        self.ghosts.push(key);
        self.is_ghost[key as usize] = true;
    }

    /// Evicts a newcomer, or moves all of them to the main queue.
    fn small_victim(&mut self) -> Option<u32> {
        while let Some(place) = self.small.pop() {
            let entry = &mut self.entries[place as usize];
            if entry.uses < MOVE_AT {
                let key = entry.key;
                self.remember(key);
                return Some(place);
            }
            entry.uses = 0;
            entry.is_main = true;
            self.main.push(place);
        }
        None
    }

    fn main_victim(&mut self) -> Option<u32> {
        loop {
            let place = self.main.pop()?;
            let entry = &mut self.entries[place as usize];
            if entry.uses == 0 {
                return Some(place);
            }
            entry.uses = entry.uses.min(COUNT_MAX) - 1;
            self.main.push(place);
        }
    }
}

impl Replacement for S3Fifo {
    fn missed(&mut self, key: u32) {
        self.returns = None;
        if std::mem::take(&mut self.is_ghost[key as usize]) {
            self.ghosts.remove(key);
            self.returns = Some(key);
        }
    }

    fn insert(&mut self, place: u32, access: Use) {
        let returns = self.returns.take() == Some(access.key);
        let fills = !self.has_evicted && self.small.len() >= self.small_max;
        let is_main = returns || fills;
        self.entries[place as usize] = Entry {
            key: access.key,
            uses: 0,
            is_main,
        };
        if is_main {
            self.main.push(place);
        } else {
            self.small.push(place);
        }
    }

    #[inline]
    fn hit(&mut self, place: u32, _: Use) {
        let entry = &mut self.entries[place as usize];
        entry.uses = entry.uses.saturating_add(1);
    }

    fn victim(&mut self) -> Option<u32> {
        self.has_evicted = true;
        if self.main.len() <= self.main_max
            && self.small.len() > 0
            && let Some(place) = self.small_victim()
        {
            return Some(place);
        }
        // If newcomers remain, the main queue is longer than it may be.
        self.main_victim()
    }

    fn remove(&mut self, place: u32) {
        if self.entries[place as usize].is_main {
            self.main.remove(place);
        } else {
            self.small.remove(place);
        }
    }
}
