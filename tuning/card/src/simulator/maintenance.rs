//! The worker that keeps the tiers in order: it samples slots and pages, and moves what was idle
//! too long, or what must make room.

use super::card::{Card, Pending};
use super::time::{NS, Ps};
use crate::card_table::{Slot, TIMES};
use crate::policy::Replacement;

/// Most tokens that leave the card for room at one time.
const PRESSURE_MAX: usize = 64;
/// The share of pages in use above which the least recent leave.
pub(super) const FULL: f64 = 0.95;

/// What the worker remembers between two turns.
#[derive(Debug, Default)]
pub(super) struct Before {
    at: Ps,
    cxl_busy: Ps,
    host_busy: Ps,
    served: super::statistics::Served,
    moved: u64,
}

impl Card {
    /// One turn of the worker.
    pub(super) fn maintain(&mut self, before: &mut Before, at: Ps) {
        self.adapt(before, at);
        self.demote_idle(at);
        self.make_room(at);
        self.demote_pages(at);
    }

    fn adapt(&mut self, before: &mut Before, at: Ps) {
        let passed = at.saturating_sub(before.at).max(1) as f64;
        let busy = |now: Ps, then: Ps| (now - then) as f64 / passed;
        let cxl = busy(self.cxl_link.busy(), before.cxl_busy);
        let host = busy(self.host_link.busy(), before.host_busy);
        let served = self.statistics.served.since(&before.served);
        let moved = self.statistics.migration.total();
        let misses = (served.cxl + served.host).max(1);
        let moves = moved.saturating_sub(before.moved) as f64 / misses as f64;
        // A turn without accesses has seen nothing to adapt to.
        if served.total() > 0 {
            let load = cxl.max(self.settings.host_load(host));
            self.thresholds.adapt(at, load, served.hit_ratio(), moves);
        }
        *before = Before {
            at,
            cxl_busy: self.cxl_link.busy(),
            host_busy: self.host_link.busy(),
            served: self.statistics.served,
            moved,
        };
    }

    /// Moves sampled tokens that were not used for long from the card, with their neighbours.
    fn demote_idle(&mut self, at: Ps) {
        let slots = self.table.slots();
        for _ in 0..self.settings.maintenance.samples {
            let number = self.random.below(slots);
            self.demote_if_idle(number, at);
        }
    }

    /// Moves the token of a slot that was not used for long.
    pub(super) fn demote_if_idle(&mut self, number: u32, at: Ps) {
        if self.is_movable(number) && self.unused(number, at) > self.durations.card_idle {
            self.policy.remove(number);
            self.demote(number, at);
        }
    }

    /// When the token of a slot will have been idle for too long, if it may move then.
    pub(super) fn idle_from(&self, number: u32, at: Ps) -> Option<Ps> {
        let unused = self.unused(number, at);
        let from = at.saturating_sub(unused) + self.durations.card_idle;
        self.is_movable(number).then_some(from)
    }

    /// Whether a slot has a token that may leave.
    fn is_movable(&self, number: u32) -> bool {
        let state = self.state(self.slot_keys[number as usize]);
        let slot = state.place().and_then(Slot::of);
        let is_there = slot.is_some_and(|slot| slot.number == number);
        is_there && !state.is_migrating() && !state.is_pinned()
    }

    /// How long a slot was not used.
    fn unused(&self, number: u32, at: Ps) -> Ps {
        let (last_ns, _) = self.table.uses(number);
        let passed_ns = (at / NS).wrapping_sub(last_ns) % TIMES;
        // Events of one moment may come a little out of order.
        if passed_ns > TIMES / 2 {
            0
        } else {
            passed_ns * NS
        }
    }

    /// The slots that are missing for the share that is kept free.
    pub(super) fn missing_slots(&self) -> usize {
        let share = self.settings.maintenance.free_share;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of 2^16 slots"
        )]
        let least = (f64::from(self.table.slots()) * share) as usize;
        // Those on their way out have their slots still.
        let leaving = self.migrations.len();
        least.saturating_sub(self.free_slots.len() + leaving)
    }

    /// Keeps a share of the card's slots free.
    fn make_room(&mut self, at: Ps) {
        for _ in 0..self.missing_slots().min(PRESSURE_MAX) {
            let Some(number) = self.policy.victim() else {
                return;
            };
            self.demote(number, at);
        }
    }

    /// Moves pages home that were not used for long, or the least recent of a sample if the tier is
    /// full.
    fn demote_pages(&mut self, at: Ps) {
        let pages = self.cxl.pages();
        let mut oldest: Option<(Ps, u32)> = None;
        for _ in 0..self.settings.maintenance.samples {
            let number = self.random.below(pages);
            let Some(last) = (pages > 0).then(|| self.cxl.last_use(number)).flatten() else {
                continue;
            };
            if self.demote_page_if_idle(number, at) {
                continue;
            }
            if oldest.is_none_or(|(time, _)| last < time) {
                oldest = Some((last, number));
            }
        }
        if self.cxl.fullness() > FULL
            && let Some((_, number)) = oldest
        {
            self.demote_page(number, at);
        }
    }

    /// Moves a page home that was not used for long; whether it was so.
    pub(super) fn demote_page_if_idle(&mut self, number: u32, at: Ps) -> bool {
        let last = self.cxl.last_use(number);
        let is_idle = last.is_some_and(|last| at.saturating_sub(last) > self.durations.cxl_idle);
        if is_idle {
            self.demote_page(number, at);
        }
        is_idle
    }

    fn demote_page(&mut self, number: u32, at: Ps) {
        let keys: Vec<u32> = self.cxl.keys(number).map(|(key, _)| key).collect();
        for key in keys {
            // One that is on its way, or wanted, stays.
            if self.pending[key as usize] == Pending::Nothing && !self.waiters.has(key) {
                self.bring_home(key, at);
            }
        }
    }
}

impl Before {
    /// The turns up to a moment saw nothing.
    pub(super) fn pass(&mut self, at: Ps) {
        self.at = at;
    }

    /// The counts begin anew.
    pub(super) fn forget_served(&mut self) {
        self.served = super::statistics::Served::default();
        self.moved = 0;
    }
}
