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

use farcore_rdma::prefetch;

use crate::log::Address;

/// Local hits after which the split between cache and log is adjusted.
const HITS_A_LOOK: u64 = 1 << 16;

/// How far the eviction of a page is.
#[derive(Debug)]
pub(super) struct Eviction {
    pub(super) page: u32,
    pub(super) next: u32,
    /// Units that were given a second chance.
    pub(super) kept_units: u32,
}

/// The pages of the cache, and its share of frames.
#[derive(Debug)]
pub(in crate::shard) struct Cache {
    pub(super) pages: VecDeque<u32>,
    pub(super) eviction: Option<Eviction>,
    /// Ghosts: fingerprints of far records that were read once lately.
    ghosts: Vec<u16>,
    frames_total: usize,
    frames_target: usize,
    /// Frames that the cache may hold, at most.
    pub(super) frames_max: usize,
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
        let place = ((mixed >> 32) * self.ghosts.len() as u64) >> 32;
        let place = usize::try_from(place).unwrap_or(0);
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a fingerprint of the lowest bits"
        )]
        let print = (mixed as u16) | 1;
        (place, print)
    }

    /// Prefetches the ghost of a far record that is on its way; `Shard::keep_copy` needs it.
    #[inline]
    pub(in crate::shard) fn expect(&self, address: Address) {
        let (place, _) = self.ghost(address);
        prefetch(self.ghosts.as_ptr().wrapping_add(place).cast());
    }

    /// Notes a read; true if the address has a ghost already.
    pub(super) fn seen_before(&mut self, address: Address) -> bool {
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

    /// The page that is being evicted.
    #[cfg(any(test, feature = "simulation"))]
    pub(in crate::shard) fn evicted_page(&self) -> Option<u32> {
        self.eviction.as_ref().map(|eviction| eviction.page)
    }

    /// True while a page is being evicted.
    pub(in crate::shard) fn is_evicting(&self) -> bool {
        self.eviction.is_some()
    }

    fn ghost_count(local_bytes: u64) -> usize {
        // No power of two: a table that doubles at some length of local memory would make more of
        // it too little.
        let ghosts = usize::try_from(local_bytes / 512).unwrap_or(1 << 20);
        ghosts.clamp(1 << 10, 1 << 22)
    }

    /// Bytes of the cache's tables.
    pub(in crate::shard) fn bytes_for(frames: u64, local_bytes: u64) -> u64 {
        (Self::ghost_count(local_bytes) * size_of::<u16>()) as u64 + frames * 4
    }
}
