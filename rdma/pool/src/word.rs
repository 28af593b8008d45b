//! The reference word of exported memory: how many own it, so that it is freed after the last.
//!
//! ```text
//! bits 63..32  a generation, drawn at random: a pointer to what was freed finds another one
//! bit  31      a pointer with the right to free is on its way: it counts as an owner
//! bits 30..0   processes that own a share
//! ```
//!
//! - I1: a word whose low half is 0 is dead: nothing brings it back to life, and its exporter frees
//!   the memory.
//! - I2: only a process that the node knows to share the word's extent raises it. So where no
//!   process shares the extent, what a word counts besides its exporter has died.

/// Set while a pointer with the right to free is on its way.
const ON_ITS_WAY: u64 = 1 << 31;
const OWNERS: u64 = ON_ITS_WAY - 1;
const LOW: u64 = ON_ITS_WAY | OWNERS;

/// What a reference word holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Count(u64);

impl Count {
    /// The word of memory that its exporter owns.
    pub(crate) fn first(generation: u32) -> Self {
        Self(u64::from(generation) << 32 | 1)
    }

    pub(crate) fn of(word: u64) -> Self {
        Self(word)
    }

    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// Whether it is alive, in a generation.
    pub(crate) fn is_alive(self, generation: u32) -> bool {
        self.0 >> 32 == u64::from(generation) && self.0 & LOW > 0
    }

    /// One owner more; `None` if there are too many.
    pub(crate) fn joined(self) -> Option<Self> {
        (self.0 & OWNERS < OWNERS).then_some(Self(self.0 + 1))
    }

    /// One owner less.
    pub(crate) fn left(self) -> Self {
        Self(if self.0 & OWNERS > 0 {
            self.0 - 1
        } else {
            self.0
        })
    }

    /// A pointer with the right to free leaves: an owner less, and it in its place.
    pub(crate) fn sent(self) -> Self {
        Self(self.left().0 | ON_ITS_WAY)
    }

    pub(crate) fn is_on_its_way(self) -> bool {
        self.0 & ON_ITS_WAY != 0
    }

    /// It has arrived: an owner more.
    pub(crate) fn arrived(self) -> Option<Self> {
        Self(self.0 & !ON_ITS_WAY).joined()
    }

    /// No owner.
    pub(crate) fn dead(self) -> Self {
        Self(self.0 & !LOW)
    }

    pub(crate) fn is_dead(self) -> bool {
        self.0 & LOW == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_owner_ends_it() {
        let count = Count::first(7);
        assert!(count.is_alive(7) && !count.is_alive(8));
        let two = count.joined().expect("few owners");
        assert!(two.left().is_alive(7) && !two.left().is_dead());
        assert!(two.left().left().is_dead() && !two.left().left().is_alive(7));
        assert_eq!(two.dead().left(), two.dead());
    }

    #[test]
    fn what_is_on_its_way_arrives_once() {
        let sent = Count::first(7).sent();
        assert!(sent.is_alive(7) && sent.is_on_its_way() && !sent.is_dead());
        let arrived = sent.arrived().expect("few owners");
        assert_eq!(arrived, Count::first(7));
        assert!(!arrived.is_on_its_way());
        // Sent by one of two owners.
        let sent = Count::first(7).joined().expect("few owners").sent();
        assert!(!sent.left().is_dead());
        assert_eq!(sent.word() & OWNERS, 1);
    }
}
