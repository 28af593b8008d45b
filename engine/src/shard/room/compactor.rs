//! The compaction under way: its victim, what was read of it, and what makes the next one due.

use farcore_rdma::Landing;

use crate::shard::far::{Avoided, NodeId};
use crate::shard::room::flusher::Shortfall;

/// READs of a compaction under way at once.
pub(in crate::shard::room) const READS_MAX: usize = 16;

#[derive(Debug)]
pub(in crate::shard::room) enum Directory {
    /// The page is local: its directory lies in its frame.
    Local,
    Unposted,
    Posted(Landing),
    Landed(Landing),
}

/// What becomes of a victim's records that are alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::shard) enum Fate {
    /// They are moved.
    Stays,
    /// Those that were read are moved, three quarters of the page at most; the others are evicted.
    StaysIfRead,
    /// They are evicted.
    Goes,
}

/// The page that is emptied, and how far.
#[derive(Debug)]
pub(in crate::shard::room) struct Victim {
    pub(in crate::shard::room) page: u32,
    pub(in crate::shard::room) fate: Fate,
    /// Units of the records that were to be moved so far.
    pub(in crate::shard::room) kept_units: u32,
    pub(in crate::shard::room) records: u32,
    pub(in crate::shard::room) next: u32,
    pub(in crate::shard::room) directory: Directory,
    pub(in crate::shard::room) fault: Fault,
    /// Something was not what was written, and all that is left of the page is read once more.
    pub(in crate::shard::room) reads_again: bool,
    /// What it is read from: one copy of the page.
    pub(in crate::shard::room) avoided: Avoided,
    /// Copies that were not what was written.
    pub(in crate::shard::room) tried: Avoided,
    /// Live bytes of the page when all of its copies had been tried, at first all.
    pub(in crate::shard::room) live_bytes: u64,
}

/// What keeps a victim from being finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::shard::room) enum Fault {
    None,
    /// A request failed: the page is tried again later.
    Fabric,
    /// A record or the directory is not what was written. Both are read once more. A record is
    /// given up then; if it is the directory, the page is left alone until its last record is dead.
    Damage,
}

/// Neighbours that one READ brings.
#[derive(Debug)]
pub(in crate::shard::room) struct Run {
    pub(in crate::shard::room) landing: Landing,
    pub(in crate::shard::room) landed: bool,
    pub(in crate::shard::room) start: u32,
    pub(in crate::shard::room) bytes: u32,
    pub(in crate::shard::room) next: u32,
    pub(in crate::shard::room) last: u32,
    /// The record at `next` was found to be what was written, and lies there in plaintext.
    pub(in crate::shard::room) proven: bool,
}

/// The victim under way.
#[derive(Debug)]
pub(in crate::shard) struct Compactor {
    pub(in crate::shard::room) victim: Option<Victim>,
    pub(in crate::shard::room) runs: [Option<Run>; READS_MAX],
    /// Bytes that died since victims were last looked for.
    pub(in crate::shard::room) dead_bytes: u64,
    /// As many of them make victims worth looking for.
    pub(in crate::shard::room) dead_bytes_due: u64,
    pub(in crate::shard::room) page_bytes: u64,
    /// Victims are to be looked for.
    pub(in crate::shard) due: bool,
    /// A caller waits until the pages that were worth it at its request are compacted.
    pub(in crate::shard::room) requested: bool,
    /// Those of them that are left, the emptiest last; some may have been freed since.
    pub(in crate::shard::room) requested_pages: Vec<u32>,
    /// A trim requests them, and does not wait for pages that are pinned.
    pub(in crate::shard) trims: bool,
    /// The victim waits for a frame or a buffer that is not there.
    pub(in crate::shard::room) stuck: bool,
    pub(in crate::shard::room) shortfall: Option<Shortfall>,
}

impl Compactor {
    pub(in crate::shard) fn new(page_bytes: u32) -> Self {
        Self {
            dead_bytes_due: u64::from(page_bytes),
            page_bytes: u64::from(page_bytes),
            victim: None,
            runs: [const { None }; READS_MAX],
            dead_bytes: 0,
            due: false,
            requested: false,
            requested_pages: Vec::new(),
            trims: false,
            stuck: false,
            shortfall: None,
        }
    }

    /// True while the victim waits for what only others can give.
    pub(in crate::shard) fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// The victim under way.
    pub(in crate::shard) fn victim_page(&self) -> Option<u32> {
        self.victim.as_ref().map(|victim| victim.page)
    }

    /// Bytes of the buffers that the victim's READs use.
    #[cfg(any(test, feature = "simulation"))]
    pub(in crate::shard) fn landing_bytes(&self) -> u64 {
        let directory = match self.victim.as_ref().map(|victim| &victim.directory) {
            Some(Directory::Posted(landing) | Directory::Landed(landing)) => Some(landing),
            _ => None,
        };
        let runs = self.runs.iter().flatten().map(|run| &run.landing);
        let all = runs.chain(directory);
        all.map(|landing| u64::from(landing.bytes())).sum()
    }

    pub(in crate::shard::room) fn is_reading(&self) -> bool {
        let victim = self.victim.as_ref();
        victim.is_some_and(|victim| matches!(victim.directory, Directory::Posted(_)))
            || self.runs.iter().flatten().any(|run| !run.landed)
    }

    #[inline]
    pub(in crate::shard) fn note_dead(&mut self, bytes: u64) {
        self.dead_bytes += bytes;
        self.due |= self.dead_bytes >= self.dead_bytes_due;
    }

    pub(in crate::shard) fn note_sealed(&mut self) {
        self.due = true;
    }

    /// Puts are refused because no page is worth compacting: the next record that dies may change
    /// that.
    pub(in crate::shard) fn note_exhausted(&mut self) {
        self.dead_bytes_due = 1;
        self.dead_bytes = 0;
    }

    /// True if a record has died since victims were last looked for.
    pub(in crate::shard) fn has_dead(&self) -> bool {
        self.dead_bytes > 0
    }

    /// Another node joins at the position of one that has left: no copy there was tried.
    pub(in crate::shard) fn forget_node(&mut self, node: NodeId) {
        if let Some(victim) = &mut self.victim {
            victim.tried.forget(node);
        }
    }

    /// Has all that is left of the victim evicted if it waits for what only others can give: to
    /// remove records takes no memory.
    pub(in crate::shard) fn remove_all_if_stuck(&mut self) {
        if self.stuck
            && let Some(victim) = &mut self.victim
        {
            victim.fate = Fate::Goes;
            self.due = true;
        }
    }

    pub(in crate::shard) fn is_idle(&self) -> bool {
        self.victim.is_none() && !self.due && !self.requested
    }
}
