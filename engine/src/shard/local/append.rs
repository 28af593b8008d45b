//! Appends records to the tails, seals pages, and frees frames just ahead of demand.
//!
//! `reserve` finds room in a tail and opens pages when needed; `make_room` evicts, flushes or
//! relocates pages in slices. A shard is *exhausted* when nothing that the engine can do makes
//! room; puts then fail instead of waiting.

use farcore_rdma::{Endpoint, prefetch_to_write};

use crate::cipher::PageCipher;
use crate::constants::{LINE_BYTES, UNIT_BYTES};
use crate::error::Error;
use crate::log::page::PageHeader;
use crate::shard::Shard;
use crate::shard::far::extents::NodeId;
use crate::shard::local::access::Reserved;
use crate::shard::local::open_pages::{OpenPage, TailKind};
use crate::shard::local::page_table::PageKind;

/// Bytes from a written record to the lines that are prefetched for later ones.
const PREFETCH_AHEAD: usize = 768;
/// Lines prefetched for every record: most records are that long.
const PREFETCH_LINES: usize = 4;
/// Lines prefetched at once, at most; the rest of a long record is written without a prefetch.
const PREFETCH_LINES_MAX: usize = 6;

/// Why a record cannot be stored now.
#[derive(Debug)]
pub(in crate::shard) enum NoRoom {
    /// Background work is making room; retry.
    Wait,
    /// The engine cannot make room.
    Never(Error),
}

/// Prefetches for write as many lines as a record is long, some records ahead of where it is
/// written, so that later records do not wait for them. Beyond the page's end this is useless but
/// harmless.
#[inline]
fn prefetch_for_write(place: *const u8, units: u32) {
    let ahead = place.wrapping_add(PREFETCH_AHEAD);
    let last = (units as usize * UNIT_BYTES).saturating_sub(1);
    let take = |line: usize| prefetch_to_write(ahead.wrapping_add((line * LINE_BYTES).min(last)));
    // No branch on the usual lengths, which are unpredictable: prefetching a line twice costs
    // nothing.
    (0..PREFETCH_LINES).for_each(take);
    if last >= PREFETCH_LINES * LINE_BYTES {
        (PREFETCH_LINES..PREFETCH_LINES_MAX).for_each(take);
    }
}

impl<E: Endpoint> Shard<E> {
    /// Makes sure that a tail's open page can take a record; returns the room for it.
    #[inline]
    pub(in crate::shard) fn reserve(
        &mut self,
        kind: TailKind,
        units: u32,
    ) -> Result<Reserved, NoRoom> {
        loop {
            if let Some(room) = self.local.reserve(kind, units) {
                prefetch_for_write(room.place(), units);
                return Ok(room);
            }
            self.open_page(kind)?;
        }
    }

    /// Makes sure that a tail's open page can take several records of this many units together.
    /// They fit an empty page. What the page before has left stays unused.
    pub(in crate::shard) fn reserve_all(
        &mut self,
        kind: TailKind,
        units: u32,
        records: u32,
    ) -> Result<(), NoRoom> {
        if records > 0 && !self.local.has_room_for_all(kind, units, records) {
            self.open_page(kind)?;
            assert!(self.local.has_room_for_all(kind, units, records));
        }
        Ok(())
    }

    #[cold]
    fn open_page(&mut self, kind: TailKind) -> Result<(), NoRoom> {
        match self.local.open_page(kind) {
            Ok(Some(previous)) => self.seal(previous),
            Ok(None) => {}
            Err(()) => return Err(self.no_frame()),
        }
        Ok(())
    }

    pub(in crate::shard) fn no_frame(&self) -> NoRoom {
        if self.exhausted && self.compactor.has_dead() {
            // Records that died since may make room: background work checks again first.
            NoRoom::Wait
        } else if self.exhausted && (self.far.is_silent() || self.spares_clean(false)) {
            NoRoom::Never(self.far.all_unavailable())
        } else if self.exhausted {
            NoRoom::Never(Error::FarFull {
                shard: Some(self.id),
                used: self.far.extents.used_bytes(),
                limit: self.far.extents.total_bytes(),
            })
        } else {
            NoRoom::Wait
        }
    }

    /// Ends a page's appends.
    fn seal(&mut self, open: OpenPage) {
        match self.local.seal(open) {
            PageKind::Cache => self.cache.sealed(open.page),
            PageKind::Log => self.metrics.counters.pages_sealed.add(1),
        }
        self.compactor.note_sealed();
        self.free_if_dead(open.page);
    }

    /// Seals a tail's open page if it holds records.
    pub(in crate::shard) fn seal_tail(&mut self, kind: TailKind) {
        if let Some(open) = self.local.take_open(kind) {
            self.seal(open);
        }
    }

    /// Writes the header of a page that is about to be flushed.
    pub(in crate::shard) fn write_header(&mut self, number: u32) {
        let entry = self.local.pages.get(number);
        let header = PageHeader {
            epoch: self.epoch,
            shard: self.id,
            sequence: entry.sequence,
            units: entry.units,
            records: entry.records,
            directory_unit: entry.units,
        };
        let cipher = self.far.cipher.as_ref().and_then(PageCipher::authenticated);
        let header = match cipher {
            Some(cipher) => {
                header.encode_with_tag(|fields| cipher.header_tag(header.sequence, fields))
            }
            None => header.encode(),
        };
        self.local.write_header(number, &header);
    }

    /// Frames that background work keeps free.
    fn free_target(&self) -> usize {
        self.local.arena.reserve() + 1 + self.local.arena.page_frames() / 64
    }

    /// True if background work must make room.
    pub(in crate::shard) fn wants_room(&self) -> bool {
        let short = self.local.arena.free_count() < self.free_target() && !self.stalled;
        !self.exhausted && (short || self.flusher.flush_all && !self.local.sealed.is_empty())
    }

    /// Makes room by one slice: evicts from the cache, evicts a clean page, or flushes the oldest
    /// sealed one. True if any work was done.
    pub(in crate::shard) fn make_room(&mut self) -> bool {
        if self.flusher.flush_all {
            self.flush_on();
        }
        let mut busy = self.continue_flush();
        busy |= self.evict_cache_slice();
        let free = self.local.arena.free_count();
        let target = self.free_target();
        self.stalled = false;
        if free >= target {
            return busy;
        }
        busy |= self.evict_beside_silence();
        let ahead = target + 1 + self.local.arena.page_frames() / 32;
        if free + self.evictable_count() < ahead {
            busy |= self.start_next_flush();
        }
        if self.cache.should_shrink() || self.evictable_count() == 0 {
            busy |= self.start_cache_eviction();
        }
        let cache_leaves = self.cache.is_evicting();
        if !cache_leaves {
            busy |= self.evict_clean() || self.relocate_clean();
        }
        if !busy && !cache_leaves && self.background_stands() {
            self.check_exhausted();
            self.stalled = self.background_stands();
        }
        busy
    }

    /// True if neither flush nor compaction can proceed.
    fn background_stands(&self) -> bool {
        !self.flusher.in_flight() && (self.compactor.is_idle() || self.compactor.is_stuck())
    }

    /// True if the far copy of a clean page may be gone because the last outcome at its node was a
    /// failure. Its frame may hold the last good copy.
    #[inline]
    fn is_far_copy_doubtful(&self, page: u32) -> bool {
        !self.far.health.is_good()
            && self
                .node_of(page)
                .is_some_and(|node| self.far.health.is_doubtful(node))
    }

    /// Clean pages whose far copy is reliable.
    fn evictable_count(&self) -> usize {
        if self.far.health.is_good() {
            return self.local.clean.len();
        }
        let pages = self.local.clean.iter();
        pages
            .filter(|&&page| !self.is_far_copy_doubtful(page))
            .count()
    }

    /// Evicts a clean page; false if none may leave.
    pub(in crate::shard) fn evict_clean(&mut self) -> bool {
        let may_go =
            |&page: &u32| self.local.pages.get(page).pins == 0 && !self.is_far_copy_doubtful(page);
        let Some(place) = self.local.clean.iter().position(may_go) else {
            return false;
        };
        if self.local.evict(place) {
            self.metrics.counters.pages_evicted.add(1);
        }
        true
    }

    /// For when frames are short and no clean page can be evicted. Probes the nodes of spared clean
    /// pages, and moves a page of a silent node back to the sealed list, to be written to another
    /// node. True if it moved one.
    fn relocate_clean(&mut self) -> bool {
        if self.far.health.is_good() {
            return false;
        }
        let mut silent = None;
        for place in 0..self.local.clean.len() {
            let number = self.local.clean[place];
            let Some(node) = self.node_of(number) else {
                continue;
            };
            if self.local.pages.get(number).pins > 0 || !self.far.health.is_doubtful(node) {
                continue;
            }
            self.probe(number, node);
            let queues = [node.reads(), node.writes()];
            if silent.is_none() && queues.iter().any(|&queue| self.far.health.is_silent(queue)) {
                silent = Some(place);
            }
        }
        let Some(place) = silent.filter(|_| self.flusher.is_idle()) else {
            return false;
        };
        if !self.has_room_beside(self.node_of(self.local.clean[place])) {
            return false;
        }
        let Some(number) = self.local.clean.remove(place) else {
            return false;
        };
        if let Some(extent) = self.local.unflush(number) {
            self.far.release_extent(extent);
        }
        self.metrics.counters.pages_relocated.add(1);
        true
    }

    /// True if another node has room for a page and may be tried now.
    fn has_room_beside(&self, own: Option<NodeId>) -> bool {
        self.far.extents.nodes().any(|node| {
            let queue = node.writes();
            Some(node) != own
                && self.far.extents.free_on(node) > 0
                && self.far.health.is_rested(queue, self.now_ns)
                && self.far.health.may_try(queue, self.now_ns)
        })
    }

    /// True if clean pages are spared because their node is in doubt. With `waiting`, pages of
    /// nodes known to be silent do not count.
    fn spares_clean(&self, waiting: bool) -> bool {
        !self.far.health.is_good()
            && self.local.clean.iter().any(|&page| {
                self.node_of(page).is_some_and(|node| {
                    let silent = [node.reads(), node.writes()]
                        .iter()
                        .any(|&queue| self.far.health.is_silent(queue));
                    self.far.health.is_doubtful(node) && !(waiting && silent)
                })
            })
    }

    /// Decides whether anything can still make room; called when no background work is in progress.
    fn check_exhausted(&mut self) {
        if self.local.arena.free_count() > self.local.arena.reserve() {
            self.exhausted = false;
            return;
        }
        if self.evict_urgently() {
            self.exhausted = false;
            return;
        }
        let silent = self.far.is_silent();
        let readable = !(silent && self.far.is_unreadable());
        if readable && !self.compactor.is_stuck() && self.start_compaction_urgently() {
            self.exhausted = false;
            return;
        }
        if silent {
            self.exhausted = true;
            self.compactor.note_exhausted();
            return;
        }
        let flushable = self.flusher.is_idle()
            && !self.local.sealed.is_empty()
            && self.far.extents.free_count() > 0;
        // A node that failed once or twice is probed until it answers or is silent.
        self.exhausted = !flushable
            && self.evictable_count() == 0
            && !self.spares_clean(true)
            && self.cache.frames() == 0;
        if self.exhausted {
            self.compactor.note_exhausted();
        }
    }
}
