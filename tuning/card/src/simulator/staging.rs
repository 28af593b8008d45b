//! The staging area: tokens that were fetched and are not worth a slot of the card's table, so
//! that they push out nothing hotter. What leaves is chosen by CLOCK.

use crate::policy::{Clock, NEVER, Replacement, Use};
use crate::record::Record;

const NONE: u32 = u32::MAX;

/// A token in the staging area.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Staged {
    pub(super) key: u32,
    pub(super) record: Record,
    /// Its relaxed fields are newer than those of its tier.
    pub(super) is_dirty: bool,
    /// It was prefetched and not used yet.
    pub(super) is_prefetched: bool,
}

#[derive(Debug)]
pub(super) struct Staging {
    entries: Vec<Staged>,
    free: Vec<u32>,
    at: Vec<u32>,
    clock: Clock,
}

fn used(key: u32) -> Use {
    Use {
        key,
        time: 0,
        next: NEVER,
    }
}

impl Staging {
    pub(super) fn new(entries: u32, keys: u32) -> Self {
        Self {
            entries: vec![Staged::default(); entries as usize],
            free: (0..entries).rev().collect(),
            at: vec![NONE; keys as usize],
            clock: Clock::new(entries),
        }
    }

    pub(super) fn len(&self) -> u64 {
        (self.entries.len() - self.free.len()) as u64
    }

    /// The token, without counting a use.
    pub(super) fn peek(&self, key: u32) -> Option<&Staged> {
        let at = self.at[key as usize];
        (at != NONE).then(|| &self.entries[at as usize])
    }

    /// The token, for a use.
    #[inline]
    pub(super) fn get(&mut self, key: u32) -> Option<&mut Staged> {
        let at = self.at[key as usize];
        if at == NONE {
            return None;
        }
        self.clock.hit(at, used(key));
        Some(&mut self.entries[at as usize])
    }

    /// Puts a token in that is not there; returns the one that leaves for it.
    pub(super) fn insert(&mut self, staged: Staged) -> Option<Staged> {
        debug_assert!(self.peek(staged.key).is_none(), "{staged:?}");
        let (at, left) = match self.free.pop() {
            Some(at) => (at, None),
            None => {
                let at = self.clock.victim()?;
                let left = self.entries[at as usize];
                self.at[left.key as usize] = NONE;
                (at, Some(left))
            }
        };
        self.at[staged.key as usize] = at;
        self.entries[at as usize] = staged;
        self.clock.insert(at, used(staged.key));
        left
    }

    /// Takes a token out.
    pub(super) fn take(&mut self, key: u32) -> Option<Staged> {
        let at = std::mem::replace(&mut self.at[key as usize], NONE);
        if at == NONE {
            return None;
        }
        self.clock.remove(at);
        self.free.push(at);
        Some(self.entries[at as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn staged(key: u32) -> Staged {
        Staged {
            key,
            ..Staged::default()
        }
    }

    #[test]
    fn what_was_used_stays_longer() {
        let mut staging = Staging::new(2, 8);
        assert!(staging.insert(staged(1)).is_none());
        assert!(staging.insert(staged(2)).is_none());
        assert!(staging.get(1).is_some());
        assert_eq!(staging.insert(staged(3)).unwrap().key, 2);
        assert!(staging.peek(2).is_none() && staging.peek(1).is_some());
        assert_eq!(staging.take(1).unwrap().key, 1);
        assert!(staging.take(1).is_none());
        assert_eq!(staging.len(), 1);
    }
}
