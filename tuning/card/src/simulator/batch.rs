//! The prefetched batch path: misses of tokens behind CXL are queued, clustered by page and fetched
//! together, one transfer a page.

use super::card::{Card, Pending};
use super::events::Event;
use super::staging::Staged;
use super::time::Ps;
use crate::cxl::CxlPlace;
use crate::place::Tier;

/// Bytes of a transfer's request and header.
const HEADER_BYTES: u64 = 32;

impl Card {
    /// A message needs a token behind CXL.
    pub(super) fn miss(&mut self, key: u32, at: Ps) {
        if self.pending[key as usize] != Pending::Nothing {
            self.statistics.batch.joined += 1;
            return;
        }
        self.pending[key as usize] = Pending::Fetch;
        if !self.misses.push(key) {
            self.statistics.batch.queue_full += 1;
            self.fetch(vec![key], at);
            return;
        }
        self.statistics.batch.queued += 1;
        if self.misses.len() >= u64::from(self.settings.batch.min) && !self.link_is_busy(at) {
            self.fetch_batch(at);
        } else if !self.batch_is_due {
            self.batch_is_due = true;
            self.events
                .add(at + self.durations.batch_wait, Event::BatchDue);
        }
    }

    fn link_is_busy(&mut self, at: Ps) -> bool {
        self.cxl_link.backlog(at) > self.durations.backlog_max
    }

    /// The first miss of a batch has waited long enough.
    pub(super) fn batch_due(&mut self, at: Ps) {
        self.batch_is_due = false;
        if self.misses.is_empty() {
            return;
        }
        let backlog = self.cxl_link.backlog(at);
        if backlog > self.durations.backlog_max {
            self.statistics.batch.deferred += 1;
            self.batch_is_due = true;
            let later = backlog - self.durations.backlog_max;
            self.events.add(at + later.max(1), Event::BatchDue);
            return;
        }
        self.fetch_batch(at);
    }

    /// Fetches what is queued, up to a batch.
    fn fetch_batch(&mut self, at: Ps) {
        let max = self.settings.batch.max as usize;
        let mut keys = Vec::with_capacity(max);
        while keys.len() < max
            && let Some(key) = self.misses.pop()
        {
            keys.push(key);
        }
        self.statistics.batch.batches += 1;
        self.fetch(keys, at);
        if !self.misses.is_empty() && !self.batch_is_due {
            self.batch_is_due = true;
            self.events
                .add(at + self.durations.batch_wait, Event::BatchDue);
        }
    }

    /// Fetches tokens, one transfer a page, with neighbours that are worth it.
    fn fetch(&mut self, keys: Vec<u32>, at: Ps) {
        let mut spare = (self.settings.batch.max as usize).saturating_sub(keys.len());
        let mut by_page = Vec::with_capacity(keys.len());
        for key in keys {
            let place = self.state(key).place().and_then(CxlPlace::of);
            match place {
                Some(place) => by_page.push((place.page, key)),
                // It has left the tier: its messages look again.
                None => {
                    self.pending[key as usize] = Pending::Nothing;
                    self.wake(key, at, None);
                }
            }
        }
        by_page.sort_unstable();
        for group in by_page.chunk_by(|one, other| one.0 == other.0) {
            let page = group[0].0;
            let mut keys: Vec<u32> = group.iter().map(|&(_, key)| key).collect();
            self.statistics.batch.fetched += keys.len() as u64;
            self.add_neighbours(page, &mut keys, &mut spare, at);
            self.start_transfer(page, keys, at);
        }
    }

    /// Adds the neighbours in a page that are warm enough, unless the link is busy.
    fn add_neighbours(&mut self, page: u32, keys: &mut Vec<u32>, spare: &mut usize, at: Ps) {
        let least = self.settings.batch.prefetch_at;
        let neighbours: Vec<u32> = self.cxl.keys(page).map(|(key, _)| key).collect();
        let is_busy = self.link_is_busy(at);
        for key in neighbours {
            let is_idle = self.pending[key as usize] == Pending::Nothing;
            // A copy whose move has not ended is not to be read yet.
            let is_here = self.tier(key) == Tier::Cxl;
            if !is_idle
                || !is_here
                || self.staging.peek(key).is_some()
                || self.heat.of(key, at) < least
            {
                continue;
            }
            if is_busy || *spare == 0 {
                self.statistics.batch.prefetches_dropped += 1;
                continue;
            }
            *spare -= 1;
            self.pending[key as usize] = Pending::Fetch;
            self.statistics.batch.prefetched += 1;
            keys.push(key);
        }
    }

    fn start_transfer(&mut self, page: u32, keys: Vec<u32>, at: Ps) {
        let packed = |&key: &u32| {
            let place = self.state(key).place().and_then(CxlPlace::of)?;
            Some(self.cxl.page(place.page).packed_bytes(place.slot))
        };
        let bytes: u64 = keys.iter().filter_map(packed).sum();
        // The whole page, if that is less.
        let bytes = bytes.min(self.cxl.page(page).bytes());
        self.cxl.touch(page, at);
        let end = self.cxl_link.transfer(at, HEADER_BYTES + bytes);
        self.statistics.batch.transfers += 1;
        let number = if let Some(number) = self.free_transfers.pop() {
            self.transfers[number as usize] = keys;
            number
        } else {
            self.transfers.push(keys);
            // Fewer than messages are in flight.
            u32::try_from(self.transfers.len() - 1).unwrap_or(u32::MAX)
        };
        self.events.add(end, Event::Fetched(number));
    }

    /// The tokens of a transfer are there: unpacks them, installs them and wakes their messages.
    pub(super) fn fetched(&mut self, transfer: u32, at: Ps) {
        let keys = std::mem::take(&mut self.transfers[transfer as usize]);
        self.free_transfers.push(transfer);
        for key in keys {
            self.pending[key as usize] = Pending::Nothing;
            let state = self.state(key);
            let place = state.place().and_then(CxlPlace::of);
            // If it has left the tier meanwhile, its messages look again.
            if let Some(record) = place.and_then(|place| self.cxl.record(place)) {
                let uses = self.heat.of(key, at);
                let is_hot = self.is_hot(uses);
                let may_move = !state.is_migrating() && !state.is_pinned();
                let is_filled = is_hot && may_move && self.fill(key, record, state.is_dirty(), at);
                if !is_filled {
                    let is_prefetched = !self.waiters.has(key);
                    self.stage(
                        Staged {
                            key,
                            record,
                            is_dirty: false,
                            is_prefetched,
                        },
                        at,
                    );
                }
            }
            self.wake(key, at, Some(Pending::Fetch));
        }
    }
}
