//! Copying: gives pages the copies that they lack, moves those on nodes that leave, and mends
//! copies that are not what was written.
//!
//! ```text
//! short page -> target extent -> pieces: READ from a copy -> WRITE to the target -> one more copy
//! page on a node that leaves  -> as a short page; the target replaces the copy there, which is free
//!                                once a READ posted after that has completed
//! page on a node that is fuller than others -> as one on a node that leaves (`balance`)
//! damaged record of one copy  -> piece:  READ from another -> WRITE over it
//! ```
//!
//! What is copied is what far memory holds, ciphertext where there is a cipher: nothing is opened.
//! A page does not change between its flush and its end, so its bytes are those of any copy. It is
//! pinned meanwhile.
//!
//! - K1: a target becomes a copy only if all of its bytes were written, under the sequence number
//!   that the page still has.
//! - K2: the extent that a page has left is released after all READs that were posted while it was
//!   a copy have completed: requests of a queue pair complete in order.
//! - K3: a piece holds a buffer of compaction's from its READ to its WRITE, and waits for nothing
//!   of compaction's.

use farcore_rdma::{Endpoint, Status};

use super::copier::{Job, Left, PIECES_MAX, Piece, REST_NS, Stage, Task};
use crate::constants::{UNIT, UNIT_BYTES};
use crate::shard::Shard;
use crate::shard::far::buffers::SMALL_BYTES_MAX;
use crate::shard::far::{Avoided, Posted, Purpose};
use crate::shard::local::page_table::{PageKind, PageState};

/// Pages for which room is left in far memory.
pub(super) const ROOM_KEPT: usize = 2;
/// The number, of no piece, of the READ behind which a left extent is named no more.
const LAST_READ: u32 = u32::MAX;
/// After this time, a page that was being flushed is looked at again, in nanoseconds.
const FLUSH_NS: u64 = 1_000_000;
/// Pages looked at in one slice.
const PAGES_A_SLICE: u32 = 256;

impl<E: Endpoint> Shard<E> {
    /// A page is being copied or is to be: the core should go on, and need not before it ends.
    pub(crate) fn is_copying(&self) -> bool {
        let has_short = self.far.pages.has_short;
        let may_pass = self.copier.may_pass(has_short, self.now_ns);
        self.lacks_copies() && (!self.copier.is_idle() || may_pass)
            || self.may_balance() && self.copier.balancer.is_wanted(self.now_ns)
    }

    /// No page is known to lack a copy.
    pub(super) fn may_balance(&self) -> bool {
        !self.far.pages.has_short && self.copier.looks_for_gone_ns.is_none()
    }

    /// Some page may have fewer copies than it should.
    pub(in crate::shard) fn lacks_copies(&self) -> bool {
        let is_copying = !self.copier.is_idle() && !self.copier.balancer.is_moving;
        is_copying || !self.may_balance() || self.copier.has_mends()
    }

    /// What a flight has read is proven: copies that were not what was written are mended from the
    /// one that was.
    #[inline]
    pub(in crate::shard) fn mend_damaged(&mut self, flight: u32) {
        if self.flights.get(flight).damaged != Avoided::NONE {
            self.note_mends(flight);
        }
    }

    #[cold]
    fn note_mends(&mut self, flight: u32) {
        let entry = self.flights.get(flight);
        let damaged = std::mem::take(&mut entry.damaged);
        let (address, bytes, source) = (entry.address, entry.bytes as usize, entry.read_from);
        let page = address.page(self.shape);
        let start = address.unit(self.shape) as usize * UNIT_BYTES;
        for node in damaged.nodes().filter(|&node| node != source) {
            self.copier.note_mend(Task {
                page,
                sequence: self.local.pages.get(page).sequence,
                mends: Some(node),
                replaces: None,
                source: Some(source),
                start,
                end: start + bytes,
            });
        }
    }

    /// Copies a little. True if anything was done.
    #[inline]
    pub(in crate::shard) fn copy_slice(&mut self) -> bool {
        let is_on = !self.copier.is_idle() || !self.may_balance() || self.is_unbalanced();
        is_on && self.copy_on()
    }

    #[cold]
    fn copy_on(&mut self) -> bool {
        if self.copier.left.is_some() {
            return self.leave_extent();
        }
        self.copier
            .pace
            .note_use(self.now_ns, || self.metrics.far.snapshot());
        if self.copier.pace.is_window_over(self.now_ns) {
            let reads = self.metrics.far.snapshot();
            self.copier.pace.look(reads, self.now_ns);
        }
        let in_flight = self.copier.pieces.iter().any(Option::is_some);
        if !in_flight && self.now_ns < self.copier.pace.resumes_ns {
            return false;
        }
        if self.copier.job.is_none() && !self.begin_copy() {
            return false;
        }
        let mut busy = false;
        for slot in 0..PIECES_MAX {
            busy |= match &self.copier.pieces[slot] {
                // A burst ends before the next begins.
                None => !in_flight && self.read_piece(slot),
                Some(piece) => piece.stage == Stage::Read && self.write_piece(slot),
            };
        }
        if !busy && self.copier.pieces.iter().all(Option::is_none) {
            // No buffer is free, or no queue has room: the target and the page are not kept for it.
            self.fail_copy();
            self.copier.rests_until_ns = self.now_ns + REST_NS;
        }
        self.finish_copy();
        busy
    }

    /// Begins the next task. False if there is none now.
    fn begin_copy(&mut self) -> bool {
        let task = self.next_mend().or_else(|| self.next_short());
        let Some(task) = task.or_else(|| self.next_unbalanced()) else {
            return false;
        };
        let avoided = task.source.map_or(Avoided::NONE, Avoided::all_but);
        self.pin(task.page);
        self.copier.job = Some(Job {
            task,
            next: task.start,
            avoided,
            failed: false,
        });
        true
    }

    /// The next damaged piece whose page is still as it was found.
    fn next_mend(&mut self) -> Option<Task> {
        loop {
            let task = self.copier.mends.pop_front()?;
            let avoided = task.source.map_or(Avoided::NONE, Avoided::all_but);
            if self.is_as_copied(&task) && self.far.has_other_copy(task.page, avoided) {
                return Some(task);
            }
        }
    }

    /// The next page that lacks a copy, and has its target. `None` also if more pages are to be
    /// looked at.
    fn next_short(&mut self) -> Option<Task> {
        if !self.copier.is_passing {
            if !self.copier.may_pass(self.far.pages.has_short, self.now_ns) {
                return None;
            }
            // What becomes short from now on is looked for in another pass.
            self.far.pages.has_short = false;
            self.copier.looks_for_gone_ns = None;
            self.copier.pass_began_ns = self.now_ns;
            self.copier.is_passing = true;
        }
        let count = u32::try_from(self.local.pages.len()).unwrap_or(u32::MAX);
        for _ in 0..PAGES_A_SLICE {
            if self.copier.cursor >= count {
                self.end_pass();
                return None;
            }
            let page = self.copier.cursor;
            self.copier.cursor += 1;
            if !self.is_short(page) {
                continue;
            }
            let is_readable = self.far.pages.resting_node(page, self.now_ns).is_none();
            let has_target = is_readable && self.claim_room(page);
            if !has_target {
                self.copier.passed_over += 1;
                continue;
            }
            let mut task = self.whole_page(page);
            // What leaves is moved as it is: another copy may be damaged.
            task.source = self.far.pages.leaves(page);
            return Some(task);
        }
        self.background_due = true;
        None
    }

    /// The task that adds a copy of a page.
    pub(super) fn whole_page(&self, page: u32) -> Task {
        let entry = self.local.pages.get(page);
        let (units, records) = (entry.units as usize, entry.records);
        Task {
            page,
            sequence: entry.sequence,
            mends: None,
            replaces: None,
            source: None,
            start: 0,
            end: units * UNIT_BYTES + self.directory_far_bytes(records),
        }
    }

    /// Claims what a page is copied to, unless compaction and flush cannot do without it. Where
    /// hardly a page fits, since all nodes but one are full, a copy on that one takes nothing from
    /// them.
    fn claim_room(&mut self, page: u32) -> bool {
        if self.compactor.is_stuck() {
            return false;
        }
        let kept = match self.far.pages.takable_count() {
            0..=ROOM_KEPT if self.far.pages.plan().most() > 1 => ROOM_KEPT,
            0..=ROOM_KEPT => return false,
            _ => 0,
        };
        self.far.claim_target(page, kept, self.now_ns)
    }

    /// All pages were looked at.
    fn end_pass(&mut self) {
        (self.copier.cursor, self.copier.is_passing) = (0, false);
        if std::mem::take(&mut self.copier.passed_over) > 0 {
            self.far.pages.has_short = true;
            self.copier.rest(self.now_ns);
        } else if self.far.pages.is_any_left() {
            // Pages that are being flushed there.
            self.far.pages.has_short = true;
            self.copier.rests_until_ns = self.now_ns + FLUSH_NS;
        }
        // Nothing else says when the copies there count as missing. A node that was not gone when
        // the pass began may be by now.
        let since_ns = self.copier.pass_began_ns;
        self.copier.looks_for_gone_ns = self.far.pages.next_gone_ns(since_ns);
    }

    /// A page in far memory that lacks a copy.
    fn is_short(&self, page: u32) -> bool {
        let entry = self.local.pages.get(page);
        entry.kind() == PageKind::Log
            && matches!(entry.state(), PageState::Clean | PageState::Far)
            && !self.is_lost(page)
            && self.far.pages.lacking(page, self.now_ns) > 0
    }

    /// True if a page holds what it held when its task was noted.
    fn is_as_copied(&self, task: &Task) -> bool {
        let entry = self.local.pages.get(task.page);
        matches!(entry.state(), PageState::Clean | PageState::Far)
            && entry.sequence == task.sequence
            && self.far.pages.copy_count(task.page) > 0
    }

    /// Posts the READ of the job's next piece.
    fn read_piece(&mut self, slot: usize) -> bool {
        let Some(job) = &self.copier.job else {
            return false;
        };
        let (task, start, avoided) = (job.task, job.next, job.avoided);
        if job.failed || start >= task.end {
            return false;
        }
        let bytes = (task.end - start).min(SMALL_BYTES_MAX as usize);
        let Ok(bytes) = u32::try_from(bytes) else {
            return false;
        };
        let Some(landing) = self.far.buffers.compaction.allocate(bytes) else {
            return false;
        };
        let offset = landing.offset();
        let local = self.local.arena.landing_slice(offset, bytes);
        let purpose = Purpose::Copy(u32::try_from(slot).unwrap_or(u32::MAX));
        let posted = self.far.read(
            task.page,
            start as u64,
            local,
            (purpose, avoided),
            self.now_ns,
        );
        if posted != Posted::Yes {
            self.far.buffers.compaction.free(landing);
            if posted == Posted::Down {
                self.fail_copy();
            }
            return false;
        }
        self.copier.pace.posted(self.now_ns);
        if let Some(job) = &mut self.copier.job {
            job.next = start + bytes as usize;
        }
        self.copier.pieces[slot] = Some(Piece {
            landing,
            start,
            bytes,
            stage: Stage::Reading,
        });
        true
    }

    /// Posts the WRITE of a piece that was read.
    fn write_piece(&mut self, slot: usize) -> bool {
        let Some(task) = self.copier.job.as_ref().map(|job| job.task) else {
            return false;
        };
        let Some(piece) = &mut self.copier.pieces[slot] else {
            return false;
        };
        let local = self
            .local
            .arena
            .landing_slice(piece.landing.offset(), piece.bytes);
        let purpose = Purpose::Copy(u32::try_from(slot).unwrap_or(u32::MAX));
        let target = (task.page, task.mends);
        let start = piece.start as u64;
        match self
            .far
            .write_copy(target, start, local, purpose, self.now_ns)
        {
            Posted::Yes => piece.stage = Stage::Writing,
            Posted::Full => return false,
            Posted::Down => {
                self.free_copied(slot);
                self.fail_copy();
            }
        }
        true
    }

    fn free_copied(&mut self, slot: usize) {
        if let Some(piece) = self.copier.pieces[slot].take() {
            self.far.buffers.compaction.free(piece.landing);
        }
    }

    fn fail_copy(&mut self) {
        if let Some(job) = &mut self.copier.job {
            job.failed = true;
        }
    }

    /// Handles the completion of a piece's READ or WRITE.
    pub(in crate::shard) fn copy_step_done(&mut self, slot: u32, status: Status) {
        if slot == LAST_READ {
            return self.end_leaving();
        }
        let slot = slot as usize;
        let has_failed = self.copier.job.as_ref().is_none_or(|job| job.failed);
        let Some(piece) = &mut self.copier.pieces[slot] else {
            debug_assert!(false, "a completion of no piece");
            return;
        };
        if status == Status::Success && piece.stage == Stage::Reading && !has_failed {
            piece.stage = Stage::Read;
            self.write_piece(slot);
        } else {
            self.free_copied(slot);
            if status != Status::Success {
                self.fail_copy();
            }
        }
        self.finish_copy();
    }

    /// Ends a burst, and the job if it is done or has failed, once nothing of it is in flight.
    fn finish_copy(&mut self) {
        if self.copier.job.as_ref().is_some_and(|job| job.failed) {
            for slot in 0..PIECES_MAX {
                let waits = |piece: &Piece| piece.stage == Stage::Read;
                if self.copier.pieces[slot].as_ref().is_some_and(waits) {
                    self.free_copied(slot);
                }
            }
        }
        if self.copier.pieces.iter().any(Option::is_some) {
            return;
        }
        self.copier.pace.burst_done(self.now_ns);
        let is_over = |job: &mut Job| job.failed || job.next >= job.task.end;
        let Some(job) = self.copier.job.take_if(|job| is_over(job)) else {
            return;
        };
        let is_good = !job.failed && self.is_as_copied(&job.task);
        if job.task.mends.is_none() {
            let replaced = (job.task.page, job.task.replaces);
            self.far.settle_target(replaced, is_good, self.now_ns);
        }
        let counters = &self.metrics.counters;
        match (is_good, job.task.mends, job.task.replaces) {
            (true, None, Some(_)) => counters.pages_balanced.add(1),
            (true, None, None) => {
                counters.pages_copied.add(1);
                self.copier.note_copied();
            }
            (true, Some(_), _) => counters.copies_mended.add(1),
            (false, _, Some(_)) => self.rest_from_balance(),
            // It is found again in another pass.
            (false, _, None) => self.copier.passed_over += 1,
        }
        let adds = job.task.mends.is_none() && job.task.replaces.is_none();
        if is_good && adds && self.is_short(job.task.page) {
            // It lacks one more.
            self.copier.cursor = job.task.page;
        }
        if self.far.pages.left_queue().is_some() {
            let page = job.task.page;
            self.copier.left = Some(Left {
                page,
                landing: None,
            });
            self.leave_extent();
        } else {
            self.copier.balancer.is_moving = false;
            self.unpin(job.task.page);
        }
    }

    /// Releases the extent that a page has left, or posts a READ that completes after those that
    /// name it. True if it did.
    fn leave_extent(&mut self) -> bool {
        if self.far.is_left_alone() {
            self.end_leaving();
            return true;
        }
        let Some(left) = &mut self.copier.left else {
            return false;
        };
        if left.landing.is_some() {
            return false;
        }
        let Some(landing) = self.far.buffers.compaction.allocate(UNIT) else {
            return false;
        };
        let local = self.local.arena.landing_slice(landing.offset(), UNIT);
        let purpose = Purpose::Copy(LAST_READ);
        match self.far.read_left(local, purpose, self.now_ns) {
            Posted::Yes => left.landing = Some(landing),
            Posted::Full => {
                self.far.buffers.compaction.free(landing);
                return false;
            }
            // Its node took it back, or its queue pair is down and cannot be renewed: neither is so
            // while a READ is under way there, and none is posted any more.
            Posted::Down => {
                self.far.buffers.compaction.free(landing);
                self.end_leaving();
            }
        }
        true
    }

    /// No READ names the extent that a page has left.
    fn end_leaving(&mut self) {
        if let Some(left) = self.copier.left.take() {
            if let Some(landing) = left.landing {
                self.far.buffers.compaction.free(landing);
            }
            self.far.release_left();
            self.copier.balancer.is_moving = false;
            self.unpin(left.page);
        }
    }
}
