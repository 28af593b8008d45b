//! The hot inline path, and its neighbour, the staging area: tokens that the card has.

use super::card::{Access, Card};
use super::settings::Treatment;
use super::staging::Staged;
use super::time::{NS, Ps};
use crate::card_table::{HotFields, Slot, Update};
use crate::cxl::CxlPlace;
use crate::directory::State;
use crate::place::{Place, Tier};
use crate::policy::Replacement;
use crate::record::Record;
use crate::token::Token;
use crate::workload::Operation;

impl Card {
    /// What a message does that meets a migration.
    pub(super) fn passes_migration(&mut self) -> bool {
        let passes = self.settings.treatment == Treatment::Optimistic;
        if passes {
            self.statistics.migration.passed += 1;
        } else {
            self.statistics.migration.waited += 1;
        }
        passes
    }

    /// An access to a token in the card's table.
    #[inline]
    pub(super) fn access_card(
        &mut self,
        key: u32,
        state: State,
        place: Place,
        (operation, is_foreign): (Operation, bool),
        at: Ps,
        is_woken: bool,
    ) -> Access {
        if state.is_migrating() && !self.passes_migration() {
            self.statistics.served.migrating += u64::from(!is_woken);
            return Access::Waits;
        }
        self.statistics.served.card += u64::from(!is_woken);
        let end = at + self.durations.card;
        if is_foreign {
            self.statistics.hot.denied += 1;
            return Access::Denied(end);
        }
        let Some(slot) = Slot::of(place) else {
            unreachable!("the place is in the table");
        };
        let Some((token, fields)) = self.table.read(slot) else {
            unreachable!("the slot of a token in the table is filled");
        };
        self.table.touch(slot.number, at / NS);
        // A token on its way out, or pinned, is out of the policy's hands.
        if !state.is_migrating() && !state.is_pinned() {
            let used = self.used(key);
            self.policy.hit(slot.number, used);
        }
        match operation {
            Operation::Read => {
                self.statistics.hot.reads += 1;
                Access::Done(end)
            }
            Operation::Relaxed => Access::Done(self.update(key, state, slot, fields, end)),
            Operation::Strict | Operation::Replace => {
                Access::Done(self.change(key, state, slot, token, end))
            }
        }
    }

    /// Updates relaxed fields by compare-and-swap. A second update during the first one's
    /// read-modify-write has seen the fields before it, so that it fails and is tried again.
    fn update(&mut self, key: u32, state: State, slot: Slot, fields: HotFields, mut at: Ps) -> Ps {
        let number = slot.number as usize;
        let mut tries = 0;
        loop {
            let is_early = at < self.updated_at[number].saturating_add(self.durations.update);
            let seen = if is_early {
                HotFields::new(fields.bits().wrapping_sub(1))
            } else {
                fields
            };
            match self.table.update(slot, seen, seen.next()) {
                Update::Done => break,
                Update::Conflict(_) => self.statistics.hot.conflicts += 1,
                Update::Gone => unreachable!("a token in the table has its slot"),
            }
            if tries == self.settings.update_retries {
                // Through the host, which orders the updates.
                self.statistics.hot.exhausted += 1;
                at = self.host_link.transfer(at, Record::BYTES);
                let done = self.table.update(slot, fields, fields.next());
                debug_assert_eq!(done, Update::Done);
                break;
            }
            tries += 1;
            at += self.durations.update;
        }
        self.updated_at[number] = at;
        self.statistics.hot.updates += 1;
        self.note_update(key);
        // A migration must hear of every update, the host of the first.
        if !state.is_dirty() || state.is_migrating() {
            let marked = self.directory.mark_dirty(key, state);
            debug_assert!(marked.is_ok(), "{marked:?}");
        }
        at
    }

    /// Changes strict fields: in the slot and, at once, at the host.
    fn change(&mut self, key: u32, state: State, slot: Slot, token: Token, at: Ps) -> Ps {
        self.statistics.hot.strict += 1;
        let token = Self::changed(token);
        let Some(moved) = self.table.replace(slot, token, at / NS) else {
            unreachable!("a token in the table has its slot");
        };
        let relocated = self.directory.relocate(key, state, moved.place());
        debug_assert!(relocated.is_ok(), "{relocated:?}");
        self.write_through(key, token, at)
    }

    /// An access to a token in the staging area.
    pub(super) fn access_staged(&mut self, key: u32, operation: Operation, at: Ps) -> Ps {
        let end = at + self.durations.card;
        let Some(staged) = self.staging.get(key) else {
            return end;
        };
        if std::mem::take(&mut staged.is_prefetched) {
            self.statistics.staging.prefetches_used += 1;
        }
        let end = match operation {
            Operation::Read => end,
            Operation::Relaxed => {
                staged.record.fields = staged.record.fields.next();
                staged.is_dirty = true;
                self.note_update(key);
                end
            }
            Operation::Strict | Operation::Replace => {
                staged.record.token = Self::changed(staged.record.token);
                let token = staged.record.token;
                self.change_behind(key, token, end)
            }
        };
        let uses = self.heat.of(key, at);
        if self.is_hot(uses) {
            self.promote_staged(key, end);
        } else if uses >= self.thresholds.to_cxl() {
            self.ask_for_cxl(key, at);
        }
        end
    }

    /// Writes a strict change to the tiers behind the card.
    fn change_behind(&mut self, key: u32, token: Token, at: Ps) -> Ps {
        let state = self.state(key);
        if let Some(place) = state.place().and_then(CxlPlace::of)
            && let Some(record) = self.cxl.record(place)
        {
            let changed = Record { token, ..record };
            self.cxl_link.transfer(at, size_of::<Token>() as u64);
            if !self.cxl.update(place, &changed) {
                self.drop_to_home(key, state, place, record.fields);
            }
        }
        // A migration that is under way reads the token again.
        let state = self.state(key);
        let marked = self.directory.mark_changed(key, state);
        debug_assert!(marked.is_ok(), "{marked:?}");
        self.write_through(key, token, at)
    }

    /// Moves a token from the staging area to the card's table.
    fn promote_staged(&mut self, key: u32, at: Ps) {
        let state = self.state(key);
        if state.is_migrating() || state.is_pinned() {
            return;
        }
        let Some(Staged {
            record, is_dirty, ..
        }) = self.staging.take(key)
        else {
            return;
        };
        if !self.fill(key, record, is_dirty, at) {
            self.stage(
                Staged {
                    key,
                    record,
                    is_dirty,
                    is_prefetched: false,
                },
                at,
            );
        }
    }

    /// A new object takes the index of a key: its token starts at the host. What waits or moves
    /// finishes first, so that the change is one of strict fields then.
    pub(super) fn replace(&mut self, key: u32, at: Ps) {
        let state = self.state(key);
        let old = self.handles[key as usize];
        let is_busy = self.waiters.has(key)
            || self.pending[key as usize] != super::card::Pending::Nothing
            || state.is_pinned();
        let (Some(kind), false, false) = (old.kind(), is_busy, state.is_migrating()) else {
            return;
        };
        let Some(version) = old.version().checked_add(1) else {
            return;
        };
        self.statistics.replaced += 1;
        self.staging.take(key);
        if let Some(place) = state.place() {
            match place.tier {
                Tier::Card => self.empty(place),
                Tier::Cxl => {
                    CxlPlace::of(place).map(|place| self.cxl.remove(place));
                }
                Tier::Host => {}
            }
        }
        let removed = self.directory.remove(key, old);
        debug_assert!(removed.is_ok(), "{removed:?}");
        let handle = crate::handle::Handle::new(kind, version, old.index());
        self.handles[key as usize] = handle;
        self.home[key as usize] = Record {
            token: self.population.token(handle),
            ..Record::default()
        };
        self.directory.insert(key, handle, Place::host(key));
        // The host's driver writes the new token.
        self.host_link
            .transfer(at, u64::from(self.settings.context_bytes));
        #[cfg(test)]
        {
            self.applied[key as usize] = 0;
        }
    }
}
