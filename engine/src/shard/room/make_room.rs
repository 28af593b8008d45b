//! Makes room just ahead of demand: evicts, flushes or relocates pages in slices, and decides when
//! nothing more can be done.
//!
//! A removal from a tree writes nodes, and must have room where a put has none, as a delete needs
//! none. While there are trees, one frame more is kept from all but removals and compaction, and
//! removals leave compaction the frames that it cannot work without. Where that frame is full,
//! pages are compacted that have anything dead in them: as much is dead as removals have written.

use farcore_rdma::Endpoint;

use crate::shard::local::open_pages::TailKind;
use crate::shard::room::pressure::{NoRoom, Removals};
use crate::shard::{FRAMES_RESERVED, Shard};

impl<E: Endpoint> Shard<E> {
    /// Why there is no frame for a page.
    pub(in crate::shard) fn no_frame(&self) -> NoRoom {
        self.no_frames(1)
    }

    /// Why there are not this many frames at once.
    pub(in crate::shard) fn no_frames(&self, frames: usize) -> NoRoom {
        if frames < self.pressure.refused_from || self.compactor.has_dead() {
            // Records that died since may make room: background work checks again first.
            NoRoom::Wait
        } else {
            self.never()
        }
    }

    /// Why there will be no frame.
    fn never(&self) -> NoRoom {
        if self.far.pages.is_silent() || self.spares_clean(false) {
            NoRoom::Never(self.far.pages.all_unavailable())
        } else {
            NoRoom::Never(self.far.pages.full(self.id))
        }
    }

    /// Makes sure that a removal can append records of these units, one after the other: to the
    /// log's tail, or to the cold tail where that has no room. Returns which.
    pub(in crate::shard) fn reserve_removal(&mut self, units: &[u32]) -> Result<TailKind, NoRoom> {
        let tails = [
            (TailKind::Log, self.local.arena.reserve()),
            (TailKind::Cold, FRAMES_RESERVED),
        ];
        for (tail, kept) in tails {
            let pages = self.local.pages_for(tail, units);
            let spare = self.local.openable_beside(kept);
            // Records that need no page are appended though fewer frames are kept than should be,
            // but for those that compaction may need the cold tail for.
            let spare = spare.or((tail == TailKind::Log).then_some(0));
            if spare.is_some_and(|spare| pages <= spare) {
                self.pressure.removals = Removals::Served;
                return Ok(tail);
            }
        }
        if self.pressure.removals == Removals::Refused {
            return Err(self.never());
        }
        if self.pressure.removals == Removals::Served {
            self.pressure.removals = Removals::Wait(0);
            self.pressure.stalled = false;
        }
        let pages = self.local.pages_for(TailKind::Log, units);
        self.pressure.want(pages);
        Err(NoRoom::Wait)
    }

    /// Frames that background work keeps free.
    fn free_target(&self) -> usize {
        let usual = 1 + self.local.arena.page_frames() / 64;
        self.local.arena.reserve() + usual.max(self.pressure.wanted)
    }

    /// True if background work must make room.
    pub(in crate::shard) fn wants_room(&self) -> bool {
        let short = self.local.arena.free_count() < self.free_target() && !self.pressure.stalled;
        let removal_waits = matches!(self.pressure.removals, Removals::Wait(_));
        let flushes = self.flusher.flush_all && !self.local.sealed.is_empty();
        removal_waits || !self.pressure.is_exhausted() && (short || flushes)
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
        self.pressure.stalled = false;
        if free >= target {
            // As much as was wanted is there.
            if std::mem::take(&mut self.pressure.wanted) > 0 {
                self.pressure.serve_removals();
            } else {
                self.pressure.pass_removal(true);
            }
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
            self.pressure.stalled = self.background_stands();
        }
        busy
    }

    /// True if neither flush nor compaction can proceed.
    fn background_stands(&self) -> bool {
        !self.flusher.in_flight()
            && !self.trees.has_dying()
            && (self.compactor.is_idle() || self.compactor.is_stuck())
    }

    /// Clean pages whose far copy is reliable.
    fn evictable_count(&self) -> usize {
        let pages = &self.far.pages;
        if pages.all_answer() && pages.plan().least() == 1 {
            return self.local.clean.len();
        }
        let clean = self.local.clean.iter();
        clean
            .filter(|&&page| !pages.is_doubtful(page) && pages.has_least(page))
            .count()
    }

    /// Evicts a clean page; false if none may leave. The frame of one whose far copy is in doubt
    /// may hold the last good copy.
    pub(in crate::shard) fn evict_clean(&mut self) -> bool {
        let far = &self.far.pages;
        let may_go = |&page: &u32| {
            self.local.pages.get(page).pins == 0 && !far.is_doubtful(page) && far.has_least(page)
        };
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
        if self.far.pages.all_answer() {
            return false;
        }
        let mut silent = None;
        for place in 0..self.local.clean.len() {
            let number = self.local.clean[place];
            if self.local.pages.get(number).pins > 0 || !self.far.pages.is_doubtful(number) {
                continue;
            }
            self.probe(number);
            if silent.is_none() && self.far.pages.is_at_silent_node(number) {
                silent = Some(place);
            }
        }
        let Some(place) = silent.filter(|_| self.flusher.is_idle()) else {
            return false;
        };
        let number = self.local.clean[place];
        if !self.far.pages.has_room_beside(number, self.now_ns) {
            return false;
        }
        self.local.clean.remove(place);
        self.local.unflush(number);
        self.far.release(number);
        self.metrics.counters.pages_relocated.add(1);
        true
    }

    /// True if clean pages are spared because their node is in doubt. With `waiting`, pages of
    /// nodes known to be silent do not count.
    fn spares_clean(&self, waiting: bool) -> bool {
        let pages = &self.far.pages;
        !pages.all_answer()
            && self
                .local
                .clean
                .iter()
                .any(|&page| pages.is_doubtful(page) && !(waiting && pages.is_at_silent_node(page)))
    }

    /// Decides whether anything can still make room; called when no background work is in progress.
    fn check_exhausted(&mut self) {
        let openable = self.local.openable();
        if openable >= self.pressure.wanted.max(1) {
            self.pressure.relieve();
            if self.pressure.wanted == 0 {
                // It is not enough for one that waits.
                self.pressure.pass_removal(true);
            }
        } else if self.can_make_room() {
            self.pressure.relieve();
        } else {
            self.pressure.refuse(openable);
            self.compactor.note_exhausted();
            if matches!(self.pressure.removals, Removals::Wait(_)) {
                let goes_on = self.start_compaction_for_removals();
                self.pressure.pass_removal(goes_on);
            }
        }
    }

    /// True if something can still make room; begins it, if nothing else does.
    fn can_make_room(&mut self) -> bool {
        if self.evict_urgently() {
            return true;
        }
        let silent = self.far.pages.is_silent();
        let readable = !(silent && self.far.pages.is_unreadable());
        if readable && !self.compactor.is_stuck() && self.start_compaction_urgently() {
            return true;
        }
        if silent {
            return false;
        }
        let flushable = self.flusher.is_idle()
            && !self.local.sealed.is_empty()
            && self.far.pages.room_count() > 0;
        // A node that failed once or twice is probed until it answers or is silent.
        flushable
            || self.evictable_count() > 0
            || self.spares_clean(true)
            || self.cache.frames() > 0
    }
}
