//! Copies of far records: made when a record is read again soon, and evicted page by page.

use farcore_rdma::Endpoint;

use crate::constants::UNIT_BYTES;
use crate::index::{Position, Slot};
use crate::log::{Address, SizeClass};
use crate::message::hash::IndexHash;
use crate::shard::Shard;
use crate::shard::local::account_bytes;
use crate::shard::local::open_pages::TailKind;
use crate::shard::local::read_cache::Eviction;

/// Records that one slice of an eviction examines.
const RECORDS_A_SLICE: u32 = 128;

impl<E: Endpoint> Shard<E> {
    /// Copies a far record that was just read into the cache, if it has a ghost.
    pub(in crate::shard) fn keep_copy(
        &mut self,
        hash: IndexHash,
        position: Position,
        slot: Slot,
        record: &[u8],
    ) {
        let home = slot.address();
        if self.cache.frames_max == 0
            || slot.class().units().is_none()
            || !self.cache.seen_before(home)
        {
            return;
        }
        if let Some(address) = self.copy_into_cache(hash, slot, home, record) {
            self.index.replace(position, slot.class(), address);
            self.metrics.counters.cache_copies.add(1);
        }
    }

    fn copy_into_cache(
        &mut self,
        hash: IndexHash,
        slot: Slot,
        home: Address,
        record: &[u8],
    ) -> Option<Address> {
        let units = u32::try_from(record.len() / UNIT_BYTES).ok()?;
        let room = self.reserve(TailKind::Cache, units + 1).ok()?;
        let start = room.address();
        room.copy_with_home(home, record);
        let unit = start.unit(self.shape) + 1;
        let address = Address::new(self.shape, start.page(self.shape), unit);
        self.local
            .commit(TailKind::Cache, hash, address, slot.class(), units);
        Some(address)
    }

    /// Moves a copy whose home is lost to the log. If there is no room, the record is lost too.
    #[cold]
    fn keep_last_copy(
        &mut self,
        hash: IndexHash,
        slot: Slot,
        record: &[u8],
    ) -> (SizeClass, Address) {
        let units = u32::try_from(record.len() / UNIT_BYTES).unwrap_or(u32::MAX);
        let Ok(room) = self.reserve(TailKind::Cold, units) else {
            self.lost.note_slots(1);
            self.note_loss();
            return self.lost_place(0);
        };
        let address = room.address();
        room.copy(record);
        (self.local).commit(TailKind::Cold, hash, address, slot.class(), units);
        (slot.class(), address)
    }

    /// Starts the eviction of the oldest cache page.
    pub(in crate::shard) fn start_cache_eviction(&mut self) -> bool {
        if self.cache.eviction.is_some() {
            return true;
        }
        let Some(&page) = self.cache.pages.front() else {
            return false;
        };
        self.pin(page);
        self.cache.eviction = Some(Eviction {
            page,
            next: 0,
            kept_units: 0,
        });
        true
    }

    /// Runs one slice of the eviction; false if none is in progress.
    pub(in crate::shard) fn evict_cache_slice(&mut self) -> bool {
        let Some(mut eviction) = self.cache.eviction.take() else {
            return false;
        };
        let entry = self.local.pages.get(eviction.page);
        let (units, records) = (entry.units, entry.records);
        let last = (eviction.next + RECORDS_A_SLICE).min(records);
        for entry in eviction.next..last {
            let entry = self.local.entry(eviction.page, entry);
            self.prefetch_burst(entry.hash);
        }
        while eviction.next < last {
            let entry = self.local.entry(eviction.page, eviction.next);
            let address = Address::new(self.shape, eviction.page, entry.unit);
            if let Some(position) = self.index.find_address(entry.hash, address) {
                let slot = self.index.slot(position);
                let home = self.local.home_of(address);
                let record = self.local.record(self.framed_of(address));
                let length = record.header().units();
                let (mut class, mut target) = (slot.class(), home);
                if self.local.pages.is_lost_page(home.page(self.shape)) {
                    (class, target) = self.keep_last_copy(entry.hash, slot, record.bytes());
                } else if record.is_hot() && eviction.kept_units < units / 2 {
                    let copied = self.copy_into_cache(entry.hash, slot, home, record.bytes());
                    if let Some(copy) = copied {
                        eviction.kept_units += length;
                        self.metrics.counters.cache_second_chances.add(1);
                        target = copy;
                    }
                }
                self.index.replace(position, class, target);
                let bytes = account_bytes(slot.class(), length);
                self.local.retire_mutable(eviction.page, bytes);
            }
            eviction.next += 1;
        }
        if eviction.next == records {
            debug_assert_eq!(self.local.pages.get(eviction.page).live_bytes, 0);
            self.unpin(eviction.page);
            self.metrics.counters.pages_evicted.add(1);
        } else {
            self.cache.eviction = Some(eviction);
        }
        true
    }
}
