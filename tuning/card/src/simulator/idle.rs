//! Stretches in which no message is under way, and only the worker takes its turns: of a trace they
//! may be hours. Virtual time jumps over the turns that find nothing, and a turn at the end of a
//! jump looks at every slot and page in place of samples.
//!
//! - I1: a jump ends at the next message, or soon after the first token or page has been idle for
//!   as long as the settings say. So the tiers are at the end what the turns would have made of
//!   them.
//! - I2: what a stretch costs depends on the tokens that move, not on its length.

use super::Simulation;
use super::card::Card;
use super::events::Event;
use super::maintenance::FULL;
use super::time::Ps;

/// Turns without a move after which nothing will find the room that is missing.
const QUIET_TURNS: u32 = 64;
/// A jump goes on for this part of the idle time, so that tokens leave together.
const LATER_PART: Ps = 16;
/// Slots or pages that are looked at for one step of the simulation.
const LOOKED_AT: u64 = 64;

/// What is known of the quiet of a card.
#[derive(Debug, Default)]
pub(super) struct Idle {
    /// The worker has had a turn since the last message: the next one sees nothing new.
    pub(super) has_begun: bool,
    /// Until then no turn finds anything, whatever messages do.
    until: Ps,
    /// Turns in this stretch that moved nothing.
    turns: u32,
}

impl Simulation {
    /// The worker's next turn or, after the first of a stretch, a jump over those that find
    /// nothing, up to `until` at most. Returns how many steps that was.
    pub(super) fn idle(&mut self, until: Ps) -> u64 {
        let Some(turn) = self.card.events.next_at() else {
            return 1;
        };
        if !self.idle.has_begun {
            self.idle.has_begun = true;
            self.happen(true);
            return 1;
        }
        let is_short = self.card.is_short_of_room();
        if is_short && self.idle.turns < QUIET_TURNS {
            let before = self.card.migrations.len();
            self.happen(true);
            let has_moved = self.card.migrations.len() > before;
            self.idle.turns = if has_moved { 0 } else { self.idle.turns + 1 };
            return 1;
        }
        self.idle.turns = 0;
        if turn < self.idle.until {
            self.jump(turn, until.min(self.idle.until));
            return 1;
        }
        let looked_at = u64::from(self.card.table.slots()) + u64::from(self.card.cxl.pages());
        let durations = &self.card.durations;
        let soonest = durations.card_idle.min(durations.cxl_idle);
        // A token that a later message brings is not idle before.
        let later = until.max(turn).saturating_add(soonest);
        match self.card.next_idle(turn) {
            Some(due) if due < turn => {
                let before = self.card.migrations.len();
                self.card.events.pop();
                self.card.take_idle_home(turn);
                let next = turn + self.card.durations.maintenance;
                self.card.events.add(next, Event::Maintenance);
                if self.card.migrations.len() == before {
                    // What cannot leave now stays until messages have used it.
                    self.idle.until = until.max(turn + 1);
                }
            }
            due => {
                let due = due.unwrap_or(later);
                self.idle.until = due
                    .saturating_add(soonest / LATER_PART)
                    .min(later)
                    .max(turn + 1);
            }
        }
        1 + looked_at / LOOKED_AT
    }

    /// Moves the worker's turn to the first one that is not before a moment.
    fn jump(&mut self, turn: Ps, to: Ps) {
        let every = self.card.durations.maintenance;
        let turns = to.saturating_sub(turn).div_ceil(every).max(1);
        let next = turn + turns * every;
        self.card.events.pop();
        self.card.events.add(next, Event::Maintenance);
        self.maintenance.pass(next - every);
    }
}

impl Card {
    /// Whether the worker's turns make room.
    fn is_short_of_room(&self) -> bool {
        self.missing_slots() > 0 || self.cxl.pages() > 0 && self.cxl.fullness() > FULL
    }

    /// When the first token or page has been idle for too long.
    fn next_idle(&self, at: Ps) -> Option<Ps> {
        let slots = (0..self.table.slots()).filter_map(|number| self.idle_from(number, at));
        let pages = (0..self.cxl.pages()).filter_map(|number| {
            let last = self.cxl.last_use(number)?;
            Some(last.saturating_add(self.durations.cxl_idle))
        });
        slots.chain(pages).min()
    }

    /// Moves all that was idle too long, as samples would have found it one by one.
    fn take_idle_home(&mut self, at: Ps) {
        for number in 0..self.table.slots() {
            self.demote_if_idle(number, at);
        }
        for number in 0..self.cxl.pages() {
            self.demote_page_if_idle(number, at);
        }
    }
}
