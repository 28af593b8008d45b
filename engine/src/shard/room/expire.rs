//! Removes what has expired and no request meets, so that its memory comes back.
//!
//! A pass begins once a second while records with an expiry may exist. It visits the slots of the
//! index, some a slice, and removes local records that have expired. Only pages that hold a record
//! which may have expired are examined. At its end it names the pages that compaction takes first:
//!
//! - far pages of which at least half has expired, or a quarter in a cache, as far as their
//!   earliest and latest expiry show; compaction drops what has expired instead of moving it;
//! - pages that are only local, of which at least half is dead since their records expired.
//!
//! - I1: a record is removed only when its own expiry, read from the record, is past.
//! - I2: a core without records that expire pays one branch a look.

use farcore_rdma::{Endpoint, prefetch_burst};

use crate::constants::UNIT_BYTES;
use crate::log::Address;
use crate::shard::Shard;
use crate::shard::local::page_table::{Page, PageKind, PageState};
use crate::shard::local::victims::live_percent;
use crate::shard::room::expiring::Pass;

/// Slots of the index that one slice visits. A slice takes some microseconds, for which the
/// requests of the core wait.
const SLOTS_A_SLICE: usize = 128;
/// Pages that one slice examines.
const PAGES_A_SLICE: u32 = 128;
/// Nanoseconds from the start of a pass to that of the next.
const PASS_NS: u64 = 1_000_000_000;
/// Share of a page's live bytes that must have expired for it to be compacted, in percent.
const EXPIRED_PERCENT: u64 = 50;
/// Share of a page's live bytes that must have expired for it to be compacted, in percent, where
/// live records are evicted otherwise.
const EXPIRED_PERCENT_OF_CACHE: u64 = 25;
/// Live share of a page that is only local, in percent, below which it is compacted.
const LOCAL_LIVE_PERCENT: u64 = 50;

/// Of some bytes, how many have expired by now if expiries lie evenly from the first to the last.
fn expired_bytes(bytes: u64, (first, last): (u64, u64), now_ms: u64) -> u64 {
    if now_ms < first {
        0
    } else if now_ms >= last {
        bytes
    } else {
        let share = u128::from(now_ms - first) * u128::from(bytes);
        u64::try_from(share / u128::from(last - first)).unwrap_or(bytes)
    }
}

impl<E: Endpoint> Shard<E> {
    /// One slice of a pass. True if a pass is under way.
    #[inline]
    pub(in crate::shard) fn expire_slice(&mut self) -> bool {
        self.expiring.any && self.expire_slice_now()
    }

    #[cold]
    fn expire_slice_now(&mut self) -> bool {
        match self.expiring.pass {
            Pass::None if self.now_ns < self.expiring.due_ns => return false,
            Pass::None => {
                self.expiring.due_ns = self.now_ns + PASS_NS;
                self.expire_slots(0);
            }
            Pass::Slots(next) => self.expire_slots(next),
            Pass::Pages(next) => self.name_pages(next),
        }
        !matches!(self.expiring.pass, Pass::None)
    }

    fn expire_slots(&mut self, next: usize) {
        let end = next + SLOTS_A_SLICE;
        let mut found = std::mem::take(&mut self.expiring.found);
        let more = self.index.for_each_in(next..end, |slot| {
            if let Some(record) = self.may_be_expired(slot.address()) {
                prefetch_burst(record);
                found.push(slot.address());
            }
        });
        for address in found.drain(..) {
            self.expire_at(address);
        }
        self.expiring.found = found;
        self.expiring.pass = if more {
            Pass::Slots(end)
        } else {
            self.expiring.pages.clear();
            Pass::Pages(0)
        };
    }

    /// Where a local record is, if its page holds one that may have expired.
    fn may_be_expired(&self, address: Address) -> Option<*const u8> {
        let page = self.local.page(address.page(self.shape));
        // No expiry is noted for pages of copies.
        if u64::from(page.expiry_min_s) * 1000 > self.unix_ms && page.kind() == PageKind::Log {
            return None;
        }
        let framed = self.framed_of(address);
        (!framed.is_far()).then(|| framed.pointer().cast_const())
    }

    fn expire_at(&mut self, address: Address) {
        let Some(record) = self.local.record_at(address) else {
            return;
        };
        if !self.is_past(record.expiry_ms()) {
            return;
        }
        let hash = self.key_hasher.hash(record.key());
        // Requests that wait for this key meet the record themselves.
        if self.flights.of_hash(hash).is_none() {
            self.remove_expired(hash, address);
        }
    }

    fn name_pages(&mut self, next: u32) {
        let end = next + PAGES_A_SLICE;
        let mut named = std::mem::take(&mut self.expiring.pages);
        let (pages, more) = self.local.pages.in_range(next..end);
        let worth = pages.filter(|(_, page)| self.is_worth_compacting(page));
        named.extend(worth.map(|(number, _)| number));
        self.compactor.due |= !named.is_empty();
        self.expiring.pages = named;
        self.expiring.pass = if more { Pass::Pages(end) } else { Pass::None };
    }

    /// True if enough of a page has expired, after its local records that have were removed.
    fn is_worth_compacting(&self, page: &Page) -> bool {
        let times = [page.expiry_min_s, page.expiry_max_s].map(|s| u64::from(s) * 1000);
        if page.expiring_units == 0
            || times[0] > self.unix_ms
            || page.kind() != PageKind::Log
            || page.live_bytes == 0
        {
            return false;
        }
        match page.state() {
            PageState::Sealed => live_percent(page) < LOCAL_LIVE_PERCENT,
            PageState::Clean | PageState::Far => {
                // Some of them may have died.
                let bytes = u64::from(page.expiring_units) * UNIT_BYTES as u64;
                let bytes = bytes.min(page.live_bytes);
                let percent = if self.evictor.is_on() {
                    EXPIRED_PERCENT_OF_CACHE
                } else {
                    EXPIRED_PERCENT
                };
                expired_bytes(bytes, times.into(), self.unix_ms) * 100 >= page.live_bytes * percent
            }
            PageState::Free | PageState::Open | PageState::Flushing => false,
        }
    }

    /// The next page that was named and can be compacted now.
    pub(in crate::shard) fn next_expired_page(&mut self) -> Option<u32> {
        while let Some(number) = self.expiring.pages.pop() {
            let page = self.local.page(number);
            let stays = page.kind() == PageKind::Log
                && matches!(
                    page.state(),
                    PageState::Sealed | PageState::Clean | PageState::Far
                )
                && page.expiring_units > 0
                && page.pins == 0
                && !page.damaged;
            if stays && self.can_be_read(number) {
                self.local.take_requested(number);
                return Some(number);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expired_share_of_a_page_rises_from_the_first_expiry_to_the_last() {
        let at = [0, 99, 100, 150, 199, 200, u64::MAX];
        let seen = at.map(|now_ms| expired_bytes(1000, (100, 200), now_ms));
        assert_eq!(seen, [0, 0, 0, 500, 990, 1000, 1000]);
        let one = [199, 200].map(|now_ms| expired_bytes(1000, (200, 200), now_ms));
        assert_eq!(one, [0, 1000]);
    }
}
