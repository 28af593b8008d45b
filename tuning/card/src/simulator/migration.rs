//! Moves between tiers. A move over a link takes time, during which the directory guards it: the
//! token is migrating, and a change raises its version.
//!
//! - I1: at the end of a move, the new copy has the last strict and relaxed fields: updates of the
//!   old copy are ended first, and what changed is copied again (reconciled).

use super::card::Card;
use super::events::Event;
use super::time::{NS, Ps};
use crate::card_table::{HotFields, Slot};
use crate::cxl::CxlPlace;
use crate::directory::{Refusal, State};
use crate::place::{Place, Tier};
use crate::policy::Replacement;
use crate::record::Record;

/// A move under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    /// The state as it began.
    state: State,
    /// Where the copy is, if the move is to the CXL tier.
    to: Option<CxlPlace>,
    /// The copy.
    record: Record,
    /// When it began, and when it ends.
    begun: Ps,
    end: Ps,
}

impl Card {
    /// Ends a migration in the directory; changes since then do not matter any more.
    fn commit(&mut self, key: u32, mut seen: State, place: Place, is_dirty: bool) {
        loop {
            match self.directory.commit(key, seen, place, is_dirty) {
                Ok(_) => return,
                Err(Refusal::Changed(now)) if now.is_migrating() => seen = now,
                Err(refusal) => unreachable!("a migration under way ends: {refusal:?}"),
            }
        }
    }

    /// Puts a token into the card's table, from the tier behind; false if there is no slot.
    pub(super) fn fill(&mut self, key: u32, record: Record, is_dirty: bool, at: Ps) -> bool {
        self.policy.missed(key);
        if self.free_slots.is_empty() {
            self.evict(at);
        }
        let Some(number) = self.free_slots.pop() else {
            return false;
        };
        let state = self.state(key);
        let Ok(moving) = self.directory.begin(key, state, Tier::Card) else {
            self.free_slots.push(number);
            return false;
        };
        if let Some(place) = state.place().and_then(CxlPlace::of) {
            self.cxl.remove(place);
        }
        let slot = self
            .table
            .fill(number, record.token, record.fields, at / NS);
        self.slot_keys[number as usize] = key;
        self.updated_at[number as usize] = 0;
        let is_dirty = is_dirty || state.is_dirty();
        self.commit(key, moving, slot.place(), is_dirty);
        let used = self.used(key);
        self.policy.insert(number, used);
        self.statistics.migration.to_card += 1;
        true
    }

    /// Empties a slot at once: its token goes home, its changes with a posted write.
    fn evict(&mut self, at: Ps) {
        let Some(number) = self.policy.victim() else {
            return;
        };
        let key = self.slot_keys[number as usize];
        let state = self.state(key);
        let slot = state.place().and_then(Slot::of);
        let (Some(slot), Ok(moving)) = (slot, self.directory.begin(key, state, Tier::Host)) else {
            return;
        };
        self.statistics.migration.card_to_host += 1;
        self.statistics.migration.forced += 1;
        let fields = self.table.freeze(slot).unwrap_or_default();
        if state.is_dirty() {
            self.host_link.transfer(at, Record::BYTES);
            self.home[key as usize].fields = fields;
        }
        self.free_slots.push(number);
        self.commit(key, moving, Place::host(key), false);
    }

    /// Frees a slot whose token is removed.
    pub(super) fn empty(&mut self, place: Place) {
        if let Some(slot) = Slot::of(place) {
            self.table.freeze(slot);
            self.policy.remove(slot.number);
            self.free_slots.push(slot.number);
        }
    }

    /// Starts to move the token of a slot, which the policy has given up, to the CXL tier, or to
    /// the host if that has no room.
    pub(super) fn demote(&mut self, number: u32, at: Ps) {
        let key = self.slot_keys[number as usize];
        let state = self.state(key);
        let slot = state.place().and_then(Slot::of);
        let record = slot.and_then(|slot| self.table.read(slot));
        let Some((token, fields)) = record else {
            return;
        };
        let record = Record { token, fields };
        let to = self.cxl.insert(key, &record, at);
        let tier = if to.is_some() { Tier::Cxl } else { Tier::Host };
        let Ok(state) = self.directory.begin(key, state, tier) else {
            to.map(|to| self.cxl.remove(to));
            return;
        };
        let end = if to.is_some() {
            self.cxl_link.transfer(at, Record::BYTES)
        } else if state.is_dirty() {
            self.host_link.transfer(at, Record::BYTES)
        } else {
            at
        };
        self.start(
            key,
            Move {
                state,
                to,
                record,
                begun: at,
                end,
            },
        );
    }

    /// Starts to move a token from the host to the CXL tier.
    pub(super) fn bring_to_cxl(&mut self, key: u32, at: Ps) {
        let state = self.state(key);
        let is_home = state.place().map(|place| place.tier) == Some(Tier::Host);
        if !is_home || !self.cxl.has_page(key) {
            self.statistics.migration.abandoned += u64::from(is_home);
            return;
        }
        let Ok(state) = self.directory.begin(key, state, Tier::Cxl) else {
            return;
        };
        self.statistics.expand.background += 1;
        let end = self
            .host_link
            .transfer(at, u64::from(self.settings.context_bytes));
        let record = self.home[key as usize];
        let to = self.cxl.insert(key, &record, at);
        self.start(
            key,
            Move {
                state,
                to,
                record,
                begun: at,
                end,
            },
        );
    }

    /// Starts to move a token from the CXL tier to the host.
    pub(super) fn bring_home(&mut self, key: u32, at: Ps) {
        let state = self.state(key);
        let place = state.place().and_then(CxlPlace::of);
        let record = place.and_then(|place| self.cxl.record(place));
        let (Some(record), Ok(moving)) = (record, self.directory.begin(key, state, Tier::Host))
        else {
            return;
        };
        let end = if state.is_dirty() {
            self.host_link.transfer(at, Record::BYTES)
        } else {
            at
        };
        let under_way = Move {
            state: moving,
            to: None,
            record,
            begun: at,
            end,
        };
        self.start(key, under_way);
    }

    fn start(&mut self, key: u32, under_way: Move) {
        let end = under_way.end;
        let before = self.migrations.insert(key, under_way);
        debug_assert!(before.is_none(), "{key}: {before:?}");
        self.events.add(end, Event::Migrated(key));
    }

    /// A move over a link is at its end.
    pub(super) fn migrated(&mut self, key: u32, at: Ps) {
        // One that was cut short has no move any more, or a later one.
        let is_end = |under_way: &&Move| under_way.end == at;
        if self.migrations.get(&key).filter(is_end).is_none() {
            return;
        }
        let Some(under_way) = self.migrations.remove(&key) else {
            return;
        };
        if at > under_way.begun {
            let took = (at - under_way.begun) / NS;
            self.latencies.moves.record(took);
            self.latencies.moves_interval.record(took);
        }
        let now = self.state(key);
        match now.place().map(|place| place.tier) {
            Some(Tier::Card) => self.leave_card(key, under_way, now, at),
            Some(Tier::Cxl) => self.leave_cxl(key, under_way, now),
            _ => self.leave_host(key, under_way, now, at),
        }
        self.wake(key, at, None);
    }

    /// Counts a copy that had to be made again.
    fn note_reconciled(&mut self, under_way: &Move, now: State) {
        self.statistics.migration.reconciled += u64::from(under_way.state != now);
    }

    fn leave_card(&mut self, key: u32, under_way: Move, now: State, at: Ps) {
        let Some(slot) = now.place().and_then(Slot::of) else {
            return;
        };
        let token = self
            .table
            .read(slot)
            .map_or(under_way.record.token, |read| read.0);
        // Ends all updates, so that these are the last fields.
        let fields = self.table.freeze(slot).unwrap_or_default();
        let record = Record { token, fields };
        self.note_reconciled(&under_way, now);
        self.free_slots.push(slot.number);
        let is_dirty = now.is_dirty();
        let Some(to) = under_way.to else {
            self.statistics.migration.card_to_host += 1;
            if is_dirty {
                self.home[key as usize].fields = fields;
            }
            self.commit(key, now, Place::host(key), false);
            return;
        };
        if record != under_way.record {
            self.cxl_link.transfer(at, size_of::<HotFields>() as u64);
        }
        if record == under_way.record || self.cxl.update(to, &record) {
            self.statistics.migration.card_to_cxl += 1;
            self.commit(key, now, to.place(), is_dirty);
            return;
        }
        // The page has no room for fields that have grown.
        self.cxl.remove(to);
        self.statistics.migration.card_to_host += 1;
        self.host_link.transfer(at, Record::BYTES);
        self.home[key as usize].fields = fields;
        self.commit(key, now, Place::host(key), false);
    }

    fn leave_cxl(&mut self, key: u32, under_way: Move, now: State) {
        let place = now.place().and_then(CxlPlace::of);
        let Some(record) = place.and_then(|place| self.cxl.remove(place)) else {
            return;
        };
        self.note_reconciled(&under_way, now);
        if now.is_dirty() {
            self.home[key as usize].fields = record.fields;
        }
        self.statistics.migration.cxl_to_host += 1;
        self.commit(key, now, Place::host(key), false);
    }

    fn leave_host(&mut self, key: u32, under_way: Move, now: State, at: Ps) {
        let record = self.home[key as usize];
        self.note_reconciled(&under_way, now);
        let Some(to) = under_way.to else {
            self.give_up(key, now);
            return;
        };
        if record != under_way.record {
            self.cxl_link.transfer(at, Record::BYTES);
            if !self.cxl.update(to, &record) {
                self.cxl.remove(to);
                self.give_up(key, now);
                return;
            }
        }
        self.statistics.migration.host_to_cxl += 1;
        self.commit(key, now, to.place(), false);
    }

    fn give_up(&mut self, key: u32, now: State) {
        self.statistics.migration.abandoned += 1;
        let abandoned = self.directory.abandon(key, now);
        debug_assert!(abandoned.is_ok(), "{abandoned:?}");
    }

    /// Writes relaxed fields to the tier of a token that is not on the card.
    pub(super) fn set_fields(&mut self, key: u32, fields: HotFields, at: Ps) {
        let state = self.state(key);
        let Some(place) = state.place().and_then(CxlPlace::of) else {
            self.host_link.transfer(at, Record::BYTES);
            self.home[key as usize].fields = fields;
            // A move under way copies them again.
            let marked = self.directory.mark_changed(key, state);
            debug_assert!(marked.is_ok(), "{marked:?}");
            return;
        };
        let Some(record) = self.cxl.record(place) else {
            return;
        };
        self.cxl_link.transfer(at, size_of::<HotFields>() as u64);
        if self.cxl.update(place, &Record { fields, ..record }) {
            let marked = self.directory.mark_dirty(key, state);
            debug_assert!(marked.is_ok(), "{marked:?}");
        } else {
            self.host_link.transfer(at, Record::BYTES);
            self.drop_to_home(key, state, place, fields);
        }
    }

    /// Moves a token home whose page has no room for its changes.
    pub(super) fn drop_to_home(
        &mut self,
        key: u32,
        state: State,
        place: CxlPlace,
        fields: HotFields,
    ) {
        self.home[key as usize].fields = fields;
        if state.is_migrating() {
            // It goes home anyway; what it takes along is what the page has.
            let home = self.home[key as usize];
            let record = self.cxl.remove(place);
            debug_assert!(record.is_some());
            self.home[key as usize] = home;
            self.migrations.remove(&key);
            self.commit(key, state, Place::host(key), false);
            return;
        }
        match self.directory.begin(key, state, Tier::Host) {
            Ok(moving) => {
                self.cxl.remove(place);
                self.statistics.migration.cxl_to_host += 1;
                self.commit(key, moving, Place::host(key), false);
            }
            // A pinned token stays with its older fields; home has the newer.
            Err(_) => self.statistics.migration.abandoned += 1,
        }
    }
}
