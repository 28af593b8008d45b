//! The read cache: copies of far records that were read twice soon, in pages of the arena.
//!
//! ```text
//! copy:  | home address, one unit | record |     the slot holds the address of the record
//! ```
//!
//! Eviction takes the oldest cache page, gives copies that were hit a second chance, and points the
//! other slots home. Nothing is written to far memory for it. The cache's share of frames follows
//! the hits of cache and log.

use std::collections::VecDeque;

use farcore_rdma::{Endpoint, prefetch};

use crate::constants::UNIT_BYTES;
use crate::index::{Position, Slot};
use crate::log::{Address, SizeClass};
use crate::message::hash::IndexHash;
use crate::shard::Shard;
use crate::shard::local::account_bytes;
use crate::shard::local::open_pages::TailKind;

/// Records that one slice of an eviction examines.
const RECORDS_A_SLICE: u32 = 128;
/// Local hits after which the split between cache and log is adjusted.
const HITS_A_LOOK: u64 = 1 << 16;

#[derive(Debug)]
struct Eviction {
    page: u32,
    next: u32,
    /// Units that were given a second chance.
    kept_units: u32,
}

/// The pages of the cache, and its share of frames.
#[derive(Debug)]
pub(in crate::shard) struct Cache {
    pages: VecDeque<u32>,
    eviction: Option<Eviction>,
    /// Ghosts: fingerprints of far records that were read once lately.
    ghosts: Vec<u16>,
    frames_total: usize,
    frames_target: usize,
    /// Frames that the cache may hold, at most.
    frames_max: usize,
    cache_hits: u64,
    log_hits: u64,
}

impl Cache {
    pub(in crate::shard) fn new(frames: usize, percent: u8, local_bytes: u64) -> Self {
        let frames_max = frames * usize::from(percent) / 100;
        Self {
            pages: VecDeque::with_capacity(frames),
            eviction: None,
            ghosts: vec![0; Self::ghost_count(local_bytes)],
            frames_total: frames,
            frames_target: (frames / 2).min(frames_max),
            frames_max,
            cache_hits: 0,
            log_hits: 0,
        }
    }

    /// Counts local hits, so that the split can follow them.
    #[inline]
    pub(in crate::shard) fn note_hits(&mut self, cache: u64, log: u64) {
        self.cache_hits += cache;
        self.log_hits += log;
        if self.cache_hits + self.log_hits >= HITS_A_LOOK {
            self.look();
        }
    }

    #[cold]
    fn look(&mut self) {
        let cache_frames = self.pages.len().max(1) as u64;
        let log_frames = self.frames_total.saturating_sub(self.pages.len()).max(1) as u64;
        let step = (self.frames_total / 64).max(1);
        // Hits a frame, compared by multiplying crosswise.
        let (cache, log) = (self.cache_hits * log_frames, self.log_hits * cache_frames);
        if cache > log + log / 8 {
            self.frames_target += step;
        } else if log > cache + cache / 8 {
            self.frames_target = self.frames_target.saturating_sub(step);
        }
        let least = (self.frames_total / 8).min(self.frames_max);
        self.frames_target = self.frames_target.clamp(least, self.frames_max);
        self.cache_hits = 0;
        self.log_hits = 0;
    }

    /// The place of an address's ghost, and its fingerprint.
    fn ghost(&self, address: Address) -> (usize, u16) {
        let mixed = address.raw().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let place = usize::try_from(mixed >> 20).unwrap_or(0) & (self.ghosts.len() - 1);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a fingerprint of the lowest bits"
        )]
        let print = (mixed as u16) | 1;
        (place, print)
    }

    /// Prefetches the ghost of a far record that is on its way; [`Shard::keep_copy`] needs it.
    #[inline]
    pub(in crate::shard) fn expect(&self, address: Address) {
        let (place, _) = self.ghost(address);
        prefetch(self.ghosts.as_ptr().wrapping_add(place).cast());
    }

    /// Notes a read; true if the address has a ghost already.
    fn seen_before(&mut self, address: Address) -> bool {
        let (place, print) = self.ghost(address);
        let seen = self.ghosts[place] == print;
        self.ghosts[place] = print;
        seen
    }

    /// Adds a sealed cache page.
    pub(in crate::shard) fn sealed(&mut self, page: u32) {
        self.pages.push_back(page);
    }

    /// Forgets a cache page that was freed.
    pub(in crate::shard) fn forget(&mut self, page: u32) {
        self.pages.retain(|&other| other != page);
        if self
            .eviction
            .as_ref()
            .is_some_and(|eviction| eviction.page == page)
        {
            self.eviction = None;
        }
    }

    /// Frames of sealed cache pages.
    pub(in crate::shard) fn frames(&self) -> usize {
        self.pages.len()
    }

    /// True if the cache holds more than its share of frames.
    pub(in crate::shard) fn should_shrink(&self) -> bool {
        self.pages.len() > self.frames_target
    }

    /// True while a page is being evicted.
    pub(in crate::shard) fn is_evicting(&self) -> bool {
        self.eviction.is_some()
    }

    fn ghost_count(local_bytes: u64) -> usize {
        let ghosts = usize::try_from(local_bytes / 512).unwrap_or(1 << 20);
        ghosts.next_power_of_two().clamp(1 << 10, 1 << 22)
    }

    /// Bytes of the cache's tables.
    pub(in crate::shard) fn bytes_for(frames: u64, local_bytes: u64) -> u64 {
        (Self::ghost_count(local_bytes) * size_of::<u16>()) as u64 + frames * 4
    }
}

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
