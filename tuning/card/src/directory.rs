//! The directory: for each token 16 bytes that say where it lies and what happens to it.
//!
//! ```text
//! word 0, state   63        40 39     36 35    34 33  32 31           0
//!                 [ version:24 ][ flags:4 ][ to:2 ][ in:2 ][ place:32 ]
//! word 1, name    63                                  32 31           0
//!                 [             0                      ][ handle:32   ]
//! flags           bit 0 pinned, bit 1 dirty, bit 2 migrating, bit 3 reserved
//! ```
//!
//! `in` is the tier of the place; `to` is the tier to which the token migrates, and 0 if it does
//! not. Any thread looks tokens up. A change of the state is one compare-and-swap of word 0.
//!
//! - I1: every change of a state raises its version, so that two states of a token are equal only
//!   if nothing happened between them (modulo 2^24 changes).
//! - I2: a token that is pinned or migrating starts no migration.
//! - I3: a migration ends only if nothing changed since it began; else its owner learns the new
//!   state, reconciles and tries again.
//! - I4: an entry is inserted and removed by one thread at a time. A lookup during that finds the
//!   old token, the new one or none, but never the name of one with the state of the other.

use std::fmt;

use super::atomics::{AtomicU64, Ordering, fence};
use super::handle::Handle;
use super::place::{Place, Tier};

const VERSION_SHIFT: u32 = 40;
const FLAGS_SHIFT: u32 = 36;
const TO_SHIFT: u32 = 34;
const IN_SHIFT: u32 = 32;
const TIER_MASK: u64 = 0b11;
const PINNED: u64 = 1 << FLAGS_SHIFT;
const DIRTY: u64 = 1 << (FLAGS_SHIFT + 1);
const MIGRATING: u64 = 1 << (FLAGS_SHIFT + 2);
const VERSION_ONE: u64 = 1 << VERSION_SHIFT;
const PLACE_MASK: u64 = (1 << IN_SHIFT) - 1;

/// The state of a token at one moment. The all-zero word is that of no token.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct State(u64);

impl State {
    fn at(place: Place, version: u64, flags: u64) -> Self {
        let tier = u64::from(place.tier as u8) << IN_SHIFT;
        Self(version | flags | tier | u64::from(place.number))
    }

    /// Where the token lies; `None` of no token.
    #[must_use]
    #[inline]
    pub fn place(self) -> Option<Place> {
        let tier = tier(self.0 >> IN_SHIFT)?;
        let [.., a, b, c, d] = self.0.to_be_bytes();
        let number = u32::from_be_bytes([a, b, c, d]);
        Some(Place { tier, number })
    }

    /// The tier to which it migrates.
    #[must_use]
    pub fn destination(self) -> Option<Tier> {
        tier(self.0 >> TO_SHIFT)
    }

    /// It must stay where it is.
    #[must_use]
    pub fn is_pinned(self) -> bool {
        self.0 & PINNED != 0
    }

    /// Its relaxed fields differ from those at the host.
    #[must_use]
    pub fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// It migrates.
    #[must_use]
    #[inline]
    pub fn is_migrating(self) -> bool {
        self.0 & MIGRATING != 0
    }

    /// How many changes there were, modulo 2^24.
    #[must_use]
    pub fn version(self) -> u32 {
        // 24 bits.
        u32::try_from(self.0 >> VERSION_SHIFT).unwrap_or(u32::MAX)
    }

    fn next_version(self) -> u64 {
        self.0.wrapping_add(VERSION_ONE) & !(VERSION_ONE - 1)
    }
}

fn tier(bits: u64) -> Option<Tier> {
    match bits & TIER_MASK {
        1 => Some(Tier::Card),
        2 => Some(Tier::Cxl),
        3 => Some(Tier::Host),
        _ => None,
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(place) = self.place() else {
            return f.write_str("none");
        };
        write!(f, "{place:?} v{}", self.version())?;
        for (is, name) in [
            (self.is_pinned(), " pinned"),
            (self.is_dirty(), " dirty"),
            (self.is_migrating(), " migrating"),
        ] {
            f.write_str(if is { name } else { "" })?;
        }
        Ok(())
    }
}

/// Why a change of a state did not happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The state is another by now.
    Changed(State),
    /// The token is pinned.
    Pinned,
    /// The token migrates already.
    Migrating,
    /// No token has this handle.
    Absent,
}

#[derive(Debug, Default)]
struct Entry {
    state: AtomicU64,
    name: AtomicU64,
}

#[cfg(not(farcore_loom))]
const _: () = assert!(size_of::<Entry>() == 16);

/// The entries, by key.
#[derive(Debug)]
pub struct Directory {
    entries: Box<[Entry]>,
}

impl Directory {
    /// An empty directory for this many tokens: 16 bytes each.
    #[must_use]
    pub fn new(tokens: u32) -> Self {
        Self {
            entries: (0..tokens).map(|_| Entry::default()).collect(),
        }
    }

    /// The state of a token, if the entry is of its handle.
    #[must_use]
    #[inline]
    pub fn look_up(&self, key: u32, handle: Handle) -> Option<State> {
        let entry = &self.entries[key as usize];
        // ORDERING: with the release store of the name in `insert`: its state is seen, too.
        let name = entry.name.load(Ordering::Acquire);
        // ORDERING: with the release of `change`: what was written to the place is seen.
        let state = State(entry.state.load(Ordering::Acquire));
        fence(Ordering::Acquire);
        // ORDERING: with the release fence of `remove`: a state of a later token comes with
        // another name.
        let same = entry.name.load(Ordering::Relaxed);
        let is_named = name == u64::from(handle.bits()) && same == name;
        (is_named && state.place().is_some()).then_some(state)
    }

    /// Enters a token that lies at a place. The entry is free.
    pub fn insert(&self, key: u32, handle: Handle, place: Place) {
        let entry = &self.entries[key as usize];
        // ORDERING: only this thread inserts and removes (I4).
        let before = State(entry.state.load(Ordering::Relaxed));
        debug_assert!(before.place().is_none(), "{before:?}");
        let state = State::at(place, before.next_version(), 0);
        // ORDERING: a reader that sees the state sees the token at its place.
        entry.state.store(state.0, Ordering::Release);
        // ORDERING: a reader that sees the name sees the state.
        entry
            .name
            .store(u64::from(handle.bits()), Ordering::Release);
    }

    /// Removes a token that does not migrate; its handle names nothing from then on.
    ///
    /// # Errors
    /// It migrates, or there is none.
    pub fn remove(&self, key: u32, handle: Handle) -> Result<State, Refusal> {
        let seen = self.look_up(key, handle).ok_or(Refusal::Absent)?;
        if seen.is_migrating() {
            return Err(Refusal::Migrating);
        }
        self.change(key, seen, State(seen.next_version()))?;
        let entry = &self.entries[key as usize];
        // ORDERING: only this thread inserts and removes (I4).
        entry.name.store(0, Ordering::Relaxed);
        // ORDERING: a reader that sees a later state finds no name, or a later one.
        fence(Ordering::Release);
        Ok(seen)
    }

    fn change(&self, key: u32, seen: State, next: State) -> Result<State, Refusal> {
        let entry = &self.entries[key as usize];
        // ORDERING: release, for readers of the place; acquire, for what others wrote before.
        let swapped =
            entry
                .state
                .compare_exchange(seen.0, next.0, Ordering::AcqRel, Ordering::Acquire);
        match swapped {
            Ok(_) => Ok(next),
            Err(now) => Err(Refusal::Changed(State(now))),
        }
    }

    fn with(&self, key: u32, seen: State, set: u64, cleared: u64) -> Result<State, Refusal> {
        let rest = seen.0 & (VERSION_ONE - 1) & !cleared;
        self.change(key, seen, State(seen.next_version() | rest | set))
    }

    /// Begins a migration.
    ///
    /// # Errors
    /// The token is pinned or migrates, or its state is not the one that was seen.
    pub fn begin(&self, key: u32, seen: State, to: Tier) -> Result<State, Refusal> {
        if seen.is_pinned() {
            return Err(Refusal::Pinned);
        }
        if seen.is_migrating() {
            return Err(Refusal::Migrating);
        }
        let to = u64::from(to as u8) << TO_SHIFT;
        self.with(key, seen, MIGRATING | to, TIER_MASK << TO_SHIFT)
    }

    /// Ends a migration: the token lies at `place` from then on, and is dirty if `dirty`.
    ///
    /// # Errors
    /// Something changed since the state that was seen (I3).
    pub fn commit(
        &self,
        key: u32,
        seen: State,
        place: Place,
        dirty: bool,
    ) -> Result<State, Refusal> {
        debug_assert!(seen.is_migrating(), "{seen:?}");
        let flags = (seen.0 & PINNED) | if dirty { DIRTY } else { 0 };
        self.change(key, seen, State::at(place, seen.next_version(), flags))
    }

    /// Notes that the token lies at another place of the same tier.
    ///
    /// # Errors
    /// The state is not the one that was seen.
    pub fn relocate(&self, key: u32, seen: State, place: Place) -> Result<State, Refusal> {
        debug_assert_eq!(seen.place().map(|seen| seen.tier), Some(place.tier));
        self.with(key, seen, u64::from(place.number), PLACE_MASK)
    }

    /// Gives a migration up: the token stays where it is.
    ///
    /// # Errors
    /// Something changed since the state that was seen.
    pub fn abandon(&self, key: u32, seen: State) -> Result<State, Refusal> {
        self.with(key, seen, 0, MIGRATING | TIER_MASK << TO_SHIFT)
    }

    /// Marks relaxed fields as changed; says so to a migration, too.
    ///
    /// # Errors
    /// The state is not the one that was seen.
    pub fn mark_dirty(&self, key: u32, seen: State) -> Result<State, Refusal> {
        self.with(key, seen, DIRTY, 0)
    }

    /// Raises the version after a strict change, so that a migration reads the token again.
    ///
    /// # Errors
    /// The state is not the one that was seen.
    pub fn mark_changed(&self, key: u32, seen: State) -> Result<State, Refusal> {
        self.with(key, seen, 0, 0)
    }

    /// Pins a token to its place, or lets it go.
    ///
    /// # Errors
    /// It migrates, or its state is not the one that was seen.
    pub fn pin(&self, key: u32, seen: State, pinned: bool) -> Result<State, Refusal> {
        if seen.is_migrating() {
            return Err(Refusal::Migrating);
        }
        let (set, cleared) = if pinned { (PINNED, 0) } else { (0, PINNED) };
        self.with(key, seen, set, cleared)
    }
}

#[cfg(all(test, not(farcore_loom)))]
mod tests {
    use super::*;
    use crate::handle::Kind;

    const HANDLE: Handle = Handle::new(Kind::QueuePair, 1, 9);

    fn card(number: u32) -> Place {
        Place {
            tier: Tier::Card,
            number,
        }
    }

    fn directory() -> (Directory, State) {
        let directory = Directory::new(4);
        directory.insert(2, HANDLE, Place::host(77));
        let state = directory.look_up(2, HANDLE).expect("just inserted");
        (directory, state)
    }

    #[test]
    fn the_layout_is_the_drawing() {
        let state = State::at(card(0x0102_0304), 5 << VERSION_SHIFT, PINNED | DIRTY);
        assert_eq!(state.0, 0x0000_0531_0102_0304);
        assert_eq!(format!("{state:?}"), "Card:0x1020304 v5 pinned dirty");
        assert_eq!(State::default().place(), None);
    }

    #[test]
    fn a_token_is_found_by_its_handle_only() {
        let (directory, state) = directory();
        assert_eq!(state.place(), Some(Place::host(77)));
        let other = Handle::new(Kind::QueuePair, 2, 9);
        assert_eq!(directory.look_up(2, other), None);
        assert_eq!(directory.look_up(1, HANDLE), None);
        assert_eq!(directory.remove(2, HANDLE), Ok(state));
        assert_eq!(directory.look_up(2, HANDLE), None);
        assert_eq!(directory.remove(2, HANDLE), Err(Refusal::Absent));
        directory.insert(2, other, Place::host(1));
        assert!(directory.look_up(2, other).unwrap().version() > state.version());
    }

    #[test]
    fn a_migration_ends_unless_something_changed() {
        let (directory, seen) = directory();
        let moving = directory.begin(2, seen, Tier::Card).unwrap();
        assert_eq!(moving.destination(), Some(Tier::Card));
        assert_eq!(
            directory.begin(2, moving, Tier::Cxl),
            Err(Refusal::Migrating)
        );
        assert_eq!(directory.remove(2, HANDLE), Err(Refusal::Migrating));
        let dirty = directory.mark_dirty(2, moving).unwrap();
        let refused = directory.commit(2, moving, card(3), false);
        assert_eq!(refused, Err(Refusal::Changed(dirty)));
        let there = directory.commit(2, dirty, card(3), true).unwrap();
        assert_eq!(there.place(), Some(card(3)));
        assert!(there.is_dirty() && !there.is_migrating() && there.destination().is_none());
    }

    #[test]
    fn a_pinned_token_does_not_move() {
        let (directory, seen) = directory();
        let pinned = directory.pin(2, seen, true).unwrap();
        assert_eq!(directory.begin(2, pinned, Tier::Card), Err(Refusal::Pinned));
        let free = directory.pin(2, pinned, false).unwrap();
        let moving = directory.begin(2, free, Tier::Card).unwrap();
        assert_eq!(directory.pin(2, moving, true), Err(Refusal::Migrating));
        let back = directory.abandon(2, moving).unwrap();
        assert_eq!(back.place(), seen.place());
        assert!(!back.is_migrating());
    }

    #[test]
    fn versions_wrap_without_touching_other_bits() {
        let (directory, mut seen) = directory();
        for _ in 0..(1 << 24) + 3 {
            seen = directory.mark_changed(2, seen).unwrap();
        }
        assert_eq!(seen.place(), Some(Place::host(77)));
        assert_eq!(seen.version(), 4);
    }
}

#[cfg(all(test, farcore_loom))]
mod model {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::handle::Kind;

    const OLD: Handle = Handle::new(Kind::QueuePair, 0, 0);
    const NEW: Handle = Handle::new(Kind::QueuePair, 1, 0);

    #[test]
    fn two_migrations_never_overlap() {
        loom::model(|| {
            let directory = Arc::new(Directory::new(1));
            directory.insert(0, OLD, Place::host(1));
            let other = {
                let directory = Arc::clone(&directory);
                thread::spawn(move || {
                    let seen = directory.look_up(0, OLD).unwrap();
                    directory.begin(0, seen, Tier::Card).is_ok()
                })
            };
            let seen = directory.look_up(0, OLD).unwrap();
            let began = directory.begin(0, seen, Tier::Cxl).is_ok();
            assert_ne!(began, other.join().unwrap());
        });
    }

    #[test]
    fn a_lookup_never_mixes_two_tokens() {
        loom::model(|| {
            let directory = Arc::new(Directory::new(1));
            directory.insert(0, OLD, Place::host(1));
            let owner = {
                let directory = Arc::clone(&directory);
                thread::spawn(move || {
                    directory.remove(0, OLD).unwrap();
                    directory.insert(0, NEW, Place::host(2));
                })
            };
            if let Some(state) = directory.look_up(0, OLD) {
                assert_eq!(state.place(), Some(Place::host(1)));
            }
            if let Some(state) = directory.look_up(0, NEW) {
                assert_eq!(state.place(), Some(Place::host(2)));
            }
            owner.join().unwrap();
            assert_eq!(directory.look_up(0, OLD), None);
        });
    }

    #[test]
    fn a_change_during_a_migration_is_noticed() {
        loom::model(|| {
            let directory = Arc::new(Directory::new(1));
            directory.insert(0, OLD, Place::host(1));
            let seen = directory.look_up(0, OLD).unwrap();
            let moving = directory.begin(0, seen, Tier::Cxl).unwrap();
            let writer = {
                let directory = Arc::clone(&directory);
                thread::spawn(move || directory.mark_dirty(0, moving).is_ok())
            };
            let there = Place {
                tier: Tier::Cxl,
                number: 5,
            };
            let committed = directory.commit(0, moving, there, false).is_ok();
            assert_ne!(committed, writer.join().unwrap());
        });
    }
}
