//! What a shard that evicts knows: which records were read, and the order of its far pages.

use std::collections::VecDeque;

use crate::message::hash::IndexHash;
use crate::message::operation::OperationKind;
use crate::message::request::Request;
use crate::shard::local::page_table::{PageKind, PageState, PageTable};
use crate::shard::room::sketch::Sketch;

/// Local memory for one entry of the sketch, and all memory for one, in bytes; the fewer entries
/// count. Records are longer, and an index that holds as many as there are entries takes a third of
/// local memory.
const ENTRY_LOCAL_BYTES: u64 = 32;
const ENTRY_ALL_BYTES: u64 = 128;
/// New pages are kept, whatever they hold, up to one page in this many.
const NEW_SHARE: usize = 10;

/// Pages in the order in which they reached far memory. Some may have been freed since.
#[derive(Debug, Default)]
pub(super) struct PageQueue {
    pub(super) pages: VecDeque<QueuedPage>,
    /// The length at which pages that were freed are removed.
    clean_at: usize,
}

/// A page number, and the flush that distinguishes it from other pages of that number.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedPage {
    pub(super) page: u32,
    pub(super) sequence: u32,
}

/// The low bits of a sequence number, which distinguish it from all that may still be queued.
#[expect(clippy::cast_possible_truncation, reason = "low bits are meant")]
fn low(sequence: u64) -> u32 {
    sequence as u32
}

impl QueuedPage {
    /// True if the page is still the one that was queued.
    fn is_current(self, pages: &PageTable) -> bool {
        let page = pages.get(self.page);
        page.kind() == PageKind::Log
            && matches!(page.state(), PageState::Clean | PageState::Far)
            && low(page.sequence) == self.sequence
            && !page.damaged
    }
}

impl PageQueue {
    pub(super) fn new(pages: usize) -> Self {
        Self {
            pages: VecDeque::with_capacity(Self::length_for(pages)),
            clean_at: 0,
        }
    }

    /// The most entries for a number of pages.
    fn length_for(pages: usize) -> usize {
        pages + pages / 8 + 16
    }

    pub(super) fn push(&mut self, number: u32, pages: &PageTable) {
        if self.pages.len() >= self.clean_at {
            self.pages.retain(|queued| queued.is_current(pages));
            self.clean_at = Self::length_for(self.pages.len());
        }
        let sequence = low(pages.get(number).sequence);
        self.pages.push_back(QueuedPage {
            page: number,
            sequence,
        });
    }

    /// The page at a place, if it is still there; one that was freed leaves the queue.
    pub(super) fn at(&mut self, place: usize, pages: &PageTable) -> Option<u32> {
        while let Some(queued) = self.pages.get(place).copied() {
            if queued.is_current(pages) {
                return Some(queued.page);
            }
            self.pages.remove(place);
        }
        None
    }

    /// Puts the page at a place behind all others.
    pub(super) fn put_behind(&mut self, place: usize) {
        if let Some(queued) = self.pages.remove(place) {
            self.pages.push_back(queued);
        }
    }
}

/// What a shard that evicts knows of its records and pages.
#[derive(Debug, Default)]
pub(crate) struct Evictor {
    pub(super) is_on: bool,
    sketch: Sketch,
    /// Pages of the log's tail.
    pub(super) new: PageQueue,
    /// Pages that compaction filled.
    pub(super) moved: PageQueue,
}

impl Evictor {
    /// For a shard with this much memory; `None` evicts nothing.
    pub(in crate::shard) fn new(memory: Option<(u64, u64)>, page_bytes: u64) -> Self {
        let Some((local_bytes, extents)) = memory else {
            return Self::default();
        };
        let pages = usize::try_from(extents).unwrap_or(0);
        Self {
            is_on: true,
            sketch: Sketch::new(Self::entries_for(local_bytes, extents, page_bytes)),
            new: PageQueue::new(pages),
            moved: PageQueue::new(pages),
        }
    }

    /// Entries of the sketch, a power of two.
    fn entries_for(local_bytes: u64, extents: u64, page_bytes: u64) -> usize {
        let all_bytes = local_bytes.saturating_add(extents.saturating_mul(page_bytes));
        let entries = (local_bytes / ENTRY_LOCAL_BYTES).min(all_bytes / ENTRY_ALL_BYTES);
        let entries = usize::try_from(entries).unwrap_or(1 << 40).max(1024);
        1 << entries.ilog2()
    }

    /// Bytes that a shard keeps beside its arena to evict.
    pub(crate) fn bytes_for(local_bytes: u64, extents: u64, page_bytes: u64) -> u64 {
        let pages = usize::try_from(extents).unwrap_or(usize::MAX / 64);
        let queues = 2 * PageQueue::length_for(pages) * size_of::<QueuedPage>();
        (Self::entries_for(local_bytes, extents, page_bytes) + queues) as u64
    }

    /// True if records are evicted.
    #[inline]
    pub(in crate::shard) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Notes which records a batch reads and writes.
    #[cold]
    #[inline(never)]
    pub(in crate::shard) fn note_batch(&mut self, batch: &[Request<'_>]) {
        for request in batch {
            self.sketch.prefetch(request.hash);
        }
        for request in batch {
            match request.kind() {
                OperationKind::Get
                | OperationKind::Inspect
                | OperationKind::GetRange
                | OperationKind::Tree
                | OperationKind::LongOpen => {
                    self.sketch.note_read(request.hash);
                }
                OperationKind::Put
                | OperationKind::CompareAndSwap
                | OperationKind::Change
                | OperationKind::LongCommit => {
                    self.sketch.note_written(request.hash);
                }
                // A transaction has several keys; the others name none.
                OperationKind::Delete
                | OperationKind::Transaction
                | OperationKind::List
                | OperationKind::ReadAt
                | OperationKind::ReadHeadAt
                | OperationKind::Count
                | OperationKind::Clear
                | OperationKind::ForgetLost
                | OperationKind::LongBegin
                | OperationKind::LongWrite
                | OperationKind::LongAbort
                | OperationKind::LongRead
                | OperationKind::TreeRead
                | OperationKind::TreeHead
                | OperationKind::SectionEnter
                | OperationKind::SectionLeave
                | OperationKind::Restore
                | OperationKind::Repair
                | OperationKind::RepairNodes
                | OperationKind::TreePatch
                | OperationKind::TreeDump => {}
            }
        }
    }

    /// Notes that a page has reached far memory.
    pub(in crate::shard) fn note_far(&mut self, number: u32, pages: &PageTable) {
        if !self.is_on {
            return;
        }
        if pages.get(number).moved {
            self.moved.push(number, pages);
        } else {
            self.new.push(number, pages);
        }
    }

    /// True if a record was read since it was written or moved, as far as is known.
    pub(in crate::shard) fn was_read(&self, hash: IndexHash) -> bool {
        self.sketch.was_read(hash)
    }

    /// Notes that a record of an evicted page stays.
    pub(in crate::shard) fn note_moved(&mut self, hash: IndexHash, is_first: bool) {
        self.sketch.note_moved(hash, is_first);
    }

    /// Checks that nothing is allocated where nothing is evicted.
    #[cfg(any(test, feature = "simulation"))]
    pub(in crate::shard) fn check(&self) {
        let pages = self.new.pages.capacity() + self.moved.pages.capacity();
        let is_empty = pages == 0 && self.sketch.is_empty();
        assert!(self.is_on || is_empty, "evict E1: something is allocated");
    }

    /// True if the oldest new page goes before the oldest moved one.
    pub(super) fn is_turn_of_new(&self) -> bool {
        let (new, moved) = (self.new.pages.len(), self.moved.pages.len());
        new * NEW_SHARE > new + moved
    }

    pub(super) fn queue(&mut self, is_new: bool) -> &mut PageQueue {
        if is_new {
            &mut self.new
        } else {
            &mut self.moved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breach::assert_breaks;

    #[test]
    fn an_evictor_that_is_off_and_allocates_is_found() {
        let mut evictor = Evictor::new(None, 1 << 16);
        evictor.check();
        Evictor::new(Some((1 << 20, 8)), 1 << 16).check();
        evictor.new.pages.reserve(1);
        assert_breaks("evict E1", || evictor.check());
    }
}
