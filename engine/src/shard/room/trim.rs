//! A trim: local memory that holds little is given back before frames are short, because a caller
//! has a limit of its own.
//!
//! Clean pages leave: their records are in far memory too. Pages that are mostly dead are
//! compacted, the emptiest first, whatever made their records die: deletes, replaced or shorter
//! values, expiry. No page is flushed for it, so full pages stay.
//!
//! - I1: it ends, also if a page is pinned or far memory is away: such pages stay.

use farcore_rdma::Endpoint;

use crate::shard::Shard;
use crate::shard::local::open_pages::TailKind;
use crate::shard::local::victims::live_percent;
use crate::shard::room::compaction::LIVE_PERCENT_REQUESTED;

impl<E: Endpoint> Shard<E> {
    /// Local memory that is not free, in bytes, but for copies of far records.
    fn held_bytes(&self) -> u64 {
        let arena = &self.local.arena;
        let taken = arena.total() - arena.free_count();
        taken.saturating_sub(self.cache.frames()) as u64 * self.shape.page_bytes() as u64
    }

    /// Starts to give back what is above `keep_bytes`, as far as that is possible; `None` compacts
    /// all pages that are mostly dead. [`Shard::is_trimming`] reports when it has ended. Cost: a
    /// look at every local page.
    pub(crate) fn start_trim(&mut self, keep_bytes: Option<u64>) {
        let page_bytes = self.shape.page_bytes() as u64;
        let excess = |shard: &Self| {
            keep_bytes.map_or(u64::MAX, |keep| shard.held_bytes().saturating_sub(keep))
        };
        if keep_bytes.is_some() {
            while excess(self) > 0 && self.evict_clean() {}
        } else {
            self.seal_tail(TailKind::Log);
        }
        let excess = excess(self);
        if excess == 0 || self.is_compacting_requested() {
            return;
        }
        let lists = self.local.sealed.iter().chain(&self.local.clean);
        let mut worth: Vec<(u64, u32)> = lists
            .map(|&number| (number, self.local.page(number)))
            .filter(|(_, page)| page.pins == 0 && !page.damaged)
            .map(|(number, page)| (live_percent(page), number))
            .filter(|&(percent, _)| percent < LIVE_PERCENT_REQUESTED)
            .collect();
        worth.sort_unstable();
        // The page that the records move to takes a frame.
        let mut wanted = excess.saturating_add(page_bytes);
        worth.retain(|&(_, number)| {
            let is_wanted = wanted > 0;
            let live_bytes = self.local.page(number).live_bytes;
            wanted = wanted.saturating_sub(page_bytes.saturating_sub(live_bytes));
            is_wanted
        });
        worth.reverse();
        self.compact_pages(worth.into_iter().map(|(_, number)| number).collect());
        self.compactor.trims = self.is_compacting_requested();
        self.background_due = true;
    }

    /// True until all that [`Shard::start_trim`] found was given back, or cannot be now.
    pub(crate) fn is_trimming(&self) -> bool {
        let stands = self.compactor.is_stuck() && self.pressure.stands();
        self.compactor.trims && !stands
    }
}
