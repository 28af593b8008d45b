//! The card's table, L1: the tokens that a message finds without leaving the card.
//!
//! ```text
//! a slot, 32 bytes   token word 0 | token word 1 | hot word | use word
//! hot word           63       62          48 47                     0
//!                    [ frozen ][ generation ][ relaxed fields:48    ]
//! use word           63                      16 15                  0
//!                    [ time of the last use:48 ][ uses:16           ]
//! place              31                      16 15                  0     of the directory
//!                    [   generation:15         ][  slot:16          ]
//! ```
//!
//! The hot word holds the fields that messages change, such as packet numbers, and is changed by
//! compare-and-swap. A slot's generation counts the tokens that it has held, so that a reader with
//! an old place notices that the slot is another's by now. The use word is a hint for the
//! maintenance: a lost count costs nothing.
//!
//! Tokens are read as with a sequence lock whose sequence is the hot word's generation.
//!
//! - I1: a slot is filled and emptied by one thread at a time; any thread reads and updates.
//! - I2: no update is lost: [`CardTable::freeze`] returns the last fields, and an update after it
//!   fails.
//! - I3: a reader gets both words of one token, or nothing.

use std::fmt;

use super::atomics::{AtomicU64, Ordering, fence};
use super::place::{Place, Tier};
use super::token::Token;

/// Most slots.
pub const SLOTS_MAX: u32 = 1 << 16;
const FIELDS_BITS: u32 = 48;
const FIELDS_MASK: u64 = (1 << FIELDS_BITS) - 1;
const GENERATION_MASK: u64 = (1 << 15) - 1;
const FROZEN: u64 = 1 << 63;
/// Times that a slot tells apart: 78 hours of nanoseconds.
pub const TIMES: u64 = 1 << 48;
const USES_MASK: u64 = (1 << 16) - 1;
const SLOT_BITS: u32 = 16;

/// The relaxed fields of an object, 48 bits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct HotFields(u64);

impl HotFields {
    /// The fields of these bits; the upper 16 are left out.
    #[must_use]
    pub const fn new(bits: u64) -> Self {
        Self(bits & FIELDS_MASK)
    }

    /// The bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The fields after one more message: the number of the next one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self::new(self.0 + 1)
    }
}

/// A slot of the table, and the generation that is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// The number of the slot.
    pub number: u32,
    generation: u64,
}

impl Slot {
    /// The slot of a place in the directory; `None` of a place in another tier.
    #[must_use]
    #[inline]
    pub fn of(place: Place) -> Option<Self> {
        (place.tier == Tier::Card).then_some(Self {
            number: place.number & (SLOTS_MAX - 1),
            generation: u64::from(place.number >> SLOT_BITS),
        })
    }

    /// The place for the directory.
    #[must_use]
    pub fn place(self) -> Place {
        #[expect(clippy::cast_possible_truncation, reason = "15 bits")]
        let generation = self.generation as u32;
        Place {
            tier: Tier::Card,
            number: generation << SLOT_BITS | self.number,
        }
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {}g{}", self.number, self.generation)
    }
}

/// How an update ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// It is done.
    Done,
    /// The fields are others than those that were seen.
    Conflict(HotFields),
    /// The token is no longer in the slot, or is about to leave it.
    Gone,
}

#[derive(Debug, Default)]
struct Cell {
    token: [AtomicU64; 2],
    hot: AtomicU64,
    uses: AtomicU64,
}

#[cfg(not(farcore_loom))]
const _: () = assert!(size_of::<Cell>() == 32);

fn generation(hot: u64) -> u64 {
    hot >> FIELDS_BITS & GENERATION_MASK
}

/// The slots.
#[derive(Debug)]
pub struct CardTable {
    cells: Box<[Cell]>,
}

impl CardTable {
    /// A table of this many empty slots, at most [`SLOTS_MAX`].
    ///
    /// # Panics
    /// There are more.
    #[must_use]
    pub fn new(slots: u32) -> Self {
        assert!(slots <= SLOTS_MAX, "{slots} slots");
        let empty = || Cell {
            hot: AtomicU64::new(FROZEN),
            ..Cell::default()
        };
        Self {
            cells: (0..slots).map(|_| empty()).collect(),
        }
    }

    /// The number of slots.
    #[must_use]
    pub fn slots(&self) -> u32 {
        u32::try_from(self.cells.len()).unwrap_or(SLOTS_MAX)
    }

    /// Fills an empty slot.
    pub fn fill(&self, number: u32, token: Token, fields: HotFields, time: u64) -> Slot {
        let cell = &self.cells[number as usize];
        // ORDERING: one thread fills and empties (I1).
        let before = cell.hot.load(Ordering::Relaxed);
        debug_assert!(before & FROZEN != 0, "the slot is empty");
        let next = (generation(before) + 1) & GENERATION_MASK;
        // ORDERING: ordered by the fence below.
        cell.hot
            .store(FROZEN | next << FIELDS_BITS, Ordering::Relaxed);
        // ORDERING: with the acquire fence of `read`: a reader that sees a word of this token sees
        // the generation of this fill, or a later one, afterwards.
        fence(Ordering::Release);
        let [first, second] = token.words();
        cell.token[0].store(first, Ordering::Relaxed);
        cell.token[1].store(second, Ordering::Relaxed);
        cell.uses.store(time << 16 | 1, Ordering::Relaxed);
        // ORDERING: a reader that sees the slot filled sees its token.
        cell.hot
            .store(next << FIELDS_BITS | fields.0, Ordering::Release);
        Slot {
            number,
            generation: next,
        }
    }

    /// The token and the relaxed fields in a slot; `None` if it is another token's or leaves.
    #[must_use]
    #[inline]
    pub fn read(&self, slot: Slot) -> Option<(Token, HotFields)> {
        let cell = &self.cells[slot.number as usize];
        // ORDERING: with the last store of `fill`.
        let hot = cell.hot.load(Ordering::Acquire);
        if hot & FROZEN != 0 || generation(hot) != slot.generation {
            return None;
        }
        let first = cell.token[0].load(Ordering::Relaxed);
        let second = cell.token[1].load(Ordering::Relaxed);
        // ORDERING: with the release fence of `fill`.
        fence(Ordering::Acquire);
        let after = cell.hot.load(Ordering::Relaxed);
        // Frozen since then is no harm: the words are those of this token still.
        (generation(after) == slot.generation)
            .then_some((Token::from_words([first, second]), HotFields::new(hot)))
    }

    /// Changes the relaxed fields if they are those that were seen.
    #[inline]
    pub fn update(&self, slot: Slot, seen: HotFields, next: HotFields) -> Update {
        let cell = &self.cells[slot.number as usize];
        let base = slot.generation << FIELDS_BITS;
        // ORDERING: release, so that who reads the fields sees what came before them; acquire, for
        // the fields of others.
        let swapped = cell.hot.compare_exchange(
            base | seen.0,
            base | next.0,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        match swapped {
            Ok(_) => Update::Done,
            Err(now) if now & FROZEN != 0 || generation(now) != slot.generation => Update::Gone,
            Err(now) => Update::Conflict(HotFields::new(now)),
        }
    }

    /// Replaces the token's words after a strict change; only the thread that fills does so.
    /// `None` if the slot is another token's. Readers meanwhile get nothing and look again.
    pub fn replace(&self, slot: Slot, token: Token, time: u64) -> Option<Slot> {
        let fields = self.freeze(slot)?;
        Some(self.fill(slot.number, token, fields, time))
    }

    /// Ends all updates of a slot and returns the last fields; `None` if it is another token's.
    /// The slot is empty afterwards: its token may be read by those who have the place still, and
    /// it may be filled.
    pub fn freeze(&self, slot: Slot) -> Option<HotFields> {
        let cell = &self.cells[slot.number as usize];
        // ORDERING: with the updates: the last fields are returned.
        let before = cell.hot.fetch_or(FROZEN, Ordering::AcqRel);
        let is_own = before & FROZEN == 0 && generation(before) == slot.generation;
        is_own.then(|| HotFields::new(before))
    }

    /// Notes a use at a time, in units that the caller chooses, below 2^48.
    #[inline]
    pub fn touch(&self, number: u32, time: u64) {
        let cell = &self.cells[number as usize];
        // ORDERING: a hint; a lost count costs nothing.
        let uses = cell.uses.load(Ordering::Relaxed) & USES_MASK;
        let more = (uses + 1).min(USES_MASK);
        cell.uses.store(time << 16 | more, Ordering::Relaxed);
    }

    /// The time of the last use, modulo [`TIMES`], and the number of uses.
    #[must_use]
    pub fn uses(&self, number: u32) -> (u64, u64) {
        let word = self.cells[number as usize].uses.load(Ordering::Relaxed);
        (word >> 16, word & USES_MASK)
    }
}

#[cfg(all(test, not(farcore_loom)))]
mod tests {
    use super::*;

    fn token(number: u64) -> Token {
        Token::from_words([number, !number])
    }

    #[test]
    fn a_slot_is_filled_updated_and_emptied() {
        let table = CardTable::new(4);
        let slot = table.fill(3, token(1), HotFields::new(7), 100);
        assert_eq!(Slot::of(slot.place()), Some(slot));
        assert_eq!(table.read(slot), Some((token(1), HotFields::new(7))));
        let (seven, eight) = (HotFields::new(7), HotFields::new(8));
        assert_eq!(table.update(slot, seven, eight), Update::Done);
        assert_eq!(table.update(slot, seven, eight), Update::Conflict(eight));
        table.touch(3, 250);
        assert_eq!(table.uses(3), (250, 2));
        assert_eq!(table.freeze(slot), Some(eight));
        assert_eq!(table.freeze(slot), None);
        assert_eq!(table.read(slot), None);
        assert_eq!(table.update(slot, eight, seven), Update::Gone);
        let next = table.fill(3, token(2), HotFields::default(), 300);
        assert_eq!(table.read(slot), None);
        assert_eq!(table.update(slot, eight, seven), Update::Gone);
        assert!(table.read(next).is_some());
    }

    #[test]
    fn a_strict_change_ends_old_places() {
        let table = CardTable::new(1);
        let slot = table.fill(0, token(1), HotFields::new(9), 0);
        let next = table.replace(slot, token(2), 5).unwrap();
        assert_eq!(table.read(slot), None);
        assert_eq!(table.read(next), Some((token(2), HotFields::new(9))));
        assert_eq!(table.replace(slot, token(3), 5), None);
    }

    #[test]
    fn fields_and_generations_wrap_in_their_bits() {
        let table = CardTable::new(1);
        let most = HotFields::new(u64::MAX);
        assert_eq!(most.next(), HotFields::default());
        let mut slot = table.fill(0, token(0), most, 0);
        for turn in 1..40_000 {
            assert_eq!(table.freeze(slot), Some(most));
            slot = table.fill(0, token(turn), most, 0);
            assert_eq!(table.read(slot), Some((token(turn), most)));
        }
    }
}

#[cfg(all(test, farcore_loom))]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    fn token(number: u64) -> Token {
        Token::from_words([number, !number])
    }

    /// Adds one to the fields, as a message does; true if it is done.
    fn add(table: &CardTable, slot: Slot) -> bool {
        let Some((_, mut seen)) = table.read(slot) else {
            return false;
        };
        loop {
            match table.update(slot, seen, seen.next()) {
                Update::Done => return true,
                Update::Conflict(now) => seen = now,
                Update::Gone => return false,
            }
        }
    }

    #[test]
    fn no_update_is_lost_when_a_slot_is_emptied() {
        loom::model(|| {
            let table = Arc::new(CardTable::new(1));
            let slot = table.fill(0, token(1), HotFields::default(), 0);
            let writers = [(); 2].map(|()| {
                let table = Arc::clone(&table);
                thread::spawn(move || u64::from(add(&table, slot)))
            });
            let left = table.freeze(slot).unwrap().bits();
            let done: u64 = writers.map(|one| one.join().unwrap()).iter().sum();
            assert_eq!(left, done);
        });
    }

    #[test]
    fn a_reader_never_mixes_two_tokens() {
        loom::model(|| {
            let table = Arc::new(CardTable::new(1));
            let slot = table.fill(0, token(1), HotFields::default(), 0);
            let filler = {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    table.freeze(slot).unwrap();
                    table.fill(0, token(2), HotFields::default(), 0)
                })
            };
            if let Some((read, _)) = table.read(slot) {
                assert_eq!(read, token(1));
            }
            let next = filler.join().unwrap();
            assert_eq!(table.read(next).unwrap().0, token(2));
            assert_eq!(table.read(slot), None);
        });
    }
}
