//! Removes what has expired and no request meets, so that its memory comes back.
//!
//! A pass begins once a second while records with an expiry may exist. It visits the slots of the
//! index, some segments a slice, and removes local records that have expired. Only pages that hold
//! a record which may have expired are examined. At its end it names the pages in far memory of
//! which at least half has expired, or a quarter in a cache, as far as their earliest and latest
//! expiry tell; compaction takes these first, and drops what has expired instead of moving it.
//!
//! - I1: a record is removed only when its own expiry, read from the record, is past.
//! - I2: a core without records that expire pays one branch a look.

use farcore_rdma::Endpoint;

use crate::constants::UNIT_BYTES;
use crate::log::Address;
use crate::shard::Shard;
use crate::shard::local::page_table::{Page, PageKind, PageState};

/// Segments of the index that one slice visits.
const SEGMENTS_A_SLICE: usize = 1;
/// Nanoseconds from the start of a pass to that of the next.
const PASS_NS: u64 = 1_000_000_000;
/// Share of a page's live bytes that must have expired for it to be compacted, in percent.
const EXPIRED_PERCENT: u64 = 50;
/// The same where live records are evicted otherwise.
const EXPIRED_PERCENT_OF_CACHE: u64 = 25;

/// What a shard knows of records with an expiry.
#[derive(Debug, Default)]
pub(in crate::shard) struct Expiring {
    /// One was stored.
    pub(in crate::shard) any: bool,
    /// The next segment of the pass; `None` between passes.
    next: Option<usize>,
    /// When the next pass begins.
    due_ns: u64,
    /// Addresses that a slice found. Kept, so that a slice does not allocate.
    found: Vec<Address>,
    /// Pages to be compacted. Some may have been freed since.
    pub(in crate::shard) pages: Vec<u32>,
}

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
        let next = match self.expiring.next {
            Some(next) => next,
            None if self.now_ns >= self.expiring.due_ns => {
                self.expiring.due_ns = self.now_ns + PASS_NS;
                0
            }
            None => return false,
        };
        let end = next + SEGMENTS_A_SLICE;
        let mut found = std::mem::take(&mut self.expiring.found);
        let more = self.index.for_each_in(next..end, |slot| {
            if self.is_expired_at(slot.address()) {
                found.push(slot.address());
            }
        });
        for address in found.drain(..) {
            self.expire_at(address);
        }
        self.expiring.found = found;
        self.expiring.next = more.then_some(end);
        if !more {
            self.name_expired_pages();
        }
        more
    }

    /// True if a local record that has expired is at an address.
    fn is_expired_at(&self, address: Address) -> bool {
        let page = self.local.page(address.page(self.shape));
        // No expiry is noted for pages of copies.
        if u64::from(page.expiry_min_s) * 1000 > self.unix_ms && page.kind() == PageKind::Log {
            return false;
        }
        let record = self.local.record_at(address);
        record.is_some_and(|record| self.is_past(record.expiry_ms()))
    }

    fn expire_at(&mut self, address: Address) {
        let Some(record) = self.local.record_at(address) else {
            return;
        };
        let hash = self.key_hasher.hash(record.key());
        // Requests that wait for this key meet the record themselves.
        if self.flights.of_hash(hash).is_none() {
            self.remove_expired(hash, address);
        }
    }

    fn name_expired_pages(&mut self) {
        let now_ms = self.unix_ms;
        let expired = |page: &Page| {
            // Some of them may have died.
            let bytes = u64::from(page.expiring_units) * UNIT_BYTES as u64;
            let bytes = bytes.min(page.live_bytes);
            let times = [page.expiry_min_s, page.expiry_max_s].map(|s| u64::from(s) * 1000);
            expired_bytes(bytes, times.into(), now_ms)
        };
        let percent = if self.evictor.is_on() {
            EXPIRED_PERCENT_OF_CACHE
        } else {
            EXPIRED_PERCENT
        };
        let worth = |page: &Page| {
            page.kind() == PageKind::Log
                && matches!(page.state(), PageState::Clean | PageState::Far)
                && page.live_bytes > 0
                && expired(page) * 100 >= page.live_bytes * percent
        };
        let pages = self.local.pages.iter();
        let named = pages.filter(|(_, page)| page.expiring_units > 0 && worth(page));
        self.expiring.pages.clear();
        self.expiring.pages.extend(named.map(|(number, _)| number));
        if !self.expiring.pages.is_empty() {
            self.compactor.due = true;
        }
    }

    /// The next page that was named and can be compacted now.
    pub(in crate::shard) fn next_expired_page(&mut self) -> Option<u32> {
        while let Some(number) = self.expiring.pages.pop() {
            let page = self.local.page(number);
            let stays = page.kind() == PageKind::Log
                && matches!(page.state(), PageState::Clean | PageState::Far)
                && page.expiring_units > 0
                && page.pins == 0
                && !page.damaged;
            if stays && self.can_be_read(number) {
                self.local.take_asked(number);
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
