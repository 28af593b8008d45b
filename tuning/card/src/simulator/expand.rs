//! The on-demand path: tokens at the host. A request for which a message waits is urgent; what the
//! host brings to the CXL tier on its own is background work, for which the link must be idle.

use super::card::{Card, Pending};
use super::events::Event;
use super::staging::Staged;
use super::time::Ps;
use crate::permission::{Request, check};
use crate::place::Tier;
use crate::token::{Access, Fields};

/// Most tokens that wait for background transfers.
const BACKGROUND_MAX: usize = 1_024;

impl Card {
    /// A message needs a token at the host; false if it has no permission, and nothing moves.
    pub(super) fn expand(&mut self, key: u32, is_foreign: bool, at: Ps) -> bool {
        if !self.is_permitted(key, is_foreign) {
            self.statistics.expand.denied += 1;
            return false;
        }
        if self.pending[key as usize] != Pending::Nothing {
            self.statistics.expand.joined += 1;
            return true;
        }
        self.pending[key as usize] = Pending::Expansion;
        self.statistics.expand.urgent += 1;
        let bytes = u64::from(self.settings.context_bytes);
        let end = self.host_link.transfer(at + self.durations.check, bytes);
        self.events.add(end, Event::Expanded(key));
        true
    }

    /// The check of the IOMMU: may the queue pair's domain use the object?
    fn is_permitted(&self, key: u32, is_foreign: bool) -> bool {
        let token = self.home[key as usize].token;
        let owner = match token.unpack() {
            Ok(Fields::QueuePair(pair)) => pair.domain,
            _ => self.population.domain(token.handle().index()),
        };
        let request = Request {
            domain: owner.wrapping_add(u16::from(is_foreign)),
            needed: Access::default(),
        };
        check(token, owner, request).is_ok()
    }

    /// A token from the host is there: installs it and wakes its messages.
    pub(super) fn expanded(&mut self, key: u32, at: Ps) {
        self.pending[key as usize] = Pending::Nothing;
        let state = self.state(key);
        let is_home = state.place().map(|place| place.tier) == Some(Tier::Host);
        if is_home && self.staging.peek(key).is_none() {
            let record = self.home[key as usize];
            let uses = self.heat.of(key, at);
            let may_move = !state.is_migrating() && !state.is_pinned();
            let is_hot = self.is_hot(uses);
            if !(is_hot && may_move && self.fill(key, record, false, at)) {
                self.stage(
                    Staged {
                        key,
                        record,
                        is_dirty: false,
                        is_prefetched: false,
                    },
                    at,
                );
                if uses >= self.thresholds.to_cxl() {
                    self.ask_for_cxl(key, at);
                }
            }
        }
        self.wake(key, at, Some(Pending::Expansion));
    }

    /// Asks the host to bring a token to the CXL tier when it has time.
    pub(super) fn ask_for_cxl(&mut self, key: u32, at: Ps) {
        let state = self.state(key);
        let is_home = state.place().map(|place| place.tier) == Some(Tier::Host);
        let may_move = !state.is_migrating() && !state.is_pinned();
        if self.settings.cxl_pages == 0 || !is_home || !may_move || self.is_asked[key as usize] {
            return;
        }
        if self.background.len() >= BACKGROUND_MAX {
            self.statistics.expand.background_dropped += 1;
            return;
        }
        self.is_asked[key as usize] = true;
        self.background.push_back(key);
        if !self.background_is_due {
            self.background_is_due = true;
            self.events.add(at, Event::Background);
        }
    }

    /// Starts background transfers while the link is idle, and looks again later.
    pub(super) fn background_due(&mut self, at: Ps) {
        self.background_is_due = false;
        while self.host_link.backlog(at) == 0
            && let Some(key) = self.background.pop_front()
        {
            self.is_asked[key as usize] = false;
            self.bring_to_cxl(key, at);
        }
        if !self.background.is_empty() {
            self.background_is_due = true;
            let later = self.host_link.backlog(at).max(1);
            self.events.add(at + later, Event::Background);
        }
    }
}
