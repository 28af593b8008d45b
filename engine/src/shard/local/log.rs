//! The local log: which pages of a shard are in local memory, and the life of each page.
//!
//! [`LocalLog`] owns the frames, the page table, the open pages, the lists of sealed and clean
//! pages and the victims. Only its methods change a page's state and live bytes. It returns what
//! else must follow (the read cache forgets a page, its extent is released), and the shard does it.
//!
//! ```text
//! reserve, commit -> seal -> begin_flush -> flushed -> evict
//!                     ^           |            |         |
//!                     |      flush_failed      |   lose_far_copy
//!                     \-----------/---(to be flushed again)
//! a page whose last record was retired is freed at once, unless it is open, flushing or pinned
//! ```

#![allow(unsafe_code)] // writes directories into frames

use std::collections::VecDeque;

use super::arena::Arena;
use super::open_pages::{HEADER_UNITS, OpenPage, OpenPages, TailKind};
use super::page_table::{Framed, Page, PageKind, PageState, PageTable};
use super::reserved::Reserved;
use super::victims::Victims;
use crate::constants::UNIT_BYTES;
use crate::log::page::{self, DIRECTORY_ENTRY_BYTES, DirectoryEntry};
use crate::log::{Address, PageShape, SizeClass};
use crate::message::hash::IndexHash;

/// Bytes that a record counts for in its page's live bytes.
#[inline]
pub(in crate::shard) fn account_bytes(class: SizeClass, units: u32) -> u64 {
    u64::from(class.units().unwrap_or(units)) * UNIT_BYTES as u64
}

/// What a page was when its far copy was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::shard) enum FarPageLost {
    /// Also local: it is flushed again.
    Local,
    /// Far only: its records, of this many bytes, are lost.
    Far(u64),
    /// Flushing: the flush fails and is repeated.
    Flushing,
}

/// The local pages of a shard, and the state of all its pages.
#[derive(Debug)]
pub(in crate::shard) struct LocalLog {
    pub(in crate::shard) pages: PageTable,
    pub(in crate::shard) open_pages: OpenPages,
    /// Bytes of a page for records and directory; the rest is for the directory's tag.
    append_bytes: usize,
    shape: PageShape,
    pub(in crate::shard) victims: Victims,
    pub(in crate::shard) arena: Arena,
    /// Sealed pages, oldest first.
    pub(in crate::shard) sealed: VecDeque<u32>,
    /// Clean pages, oldest first.
    pub(in crate::shard) clean: VecDeque<u32>,
    /// Times that pages were sealed, or listed as sealed again.
    seals: u64,
}

impl LocalLog {
    pub(in crate::shard) fn new(
        arena: Arena,
        pages: PageTable,
        victims: Victims,
        shape: PageShape,
        append_bytes: usize,
    ) -> Self {
        let frames = arena.page_frames();
        Self {
            pages,
            open_pages: OpenPages::default(),
            append_bytes,
            shape,
            victims,
            arena,
            sealed: VecDeque::with_capacity(frames),
            clean: VecDeque::with_capacity(frames),
            seals: 0,
        }
    }

    /// Room for the next record of a tail, if its open page has this many units left.
    #[inline]
    pub(in crate::shard) fn reserve(&mut self, kind: TailKind, units: u32) -> Option<Reserved> {
        let open = self.open_pages.get(kind).as_ref()?;
        if !open.fits(units, self.append_bytes) {
            return None;
        }
        let (number, unit) = (open.page, open.unit);
        let frame = self.pages.pointer(number);
        let place = frame.wrapping_add(unit as usize * UNIT_BYTES);
        let address = Address::new(self.shape, number, unit);
        // SAFETY: `fits` checked the room behind the open page's last record.
        Some(unsafe { Reserved::new(address, place, units) })
    }

    /// True if the open page of a tail has room for several records of this many units together.
    pub(in crate::shard) fn has_room_for_all(
        &mut self,
        kind: TailKind,
        units: u32,
        records: u32,
    ) -> bool {
        let append_bytes = self.append_bytes;
        let open = self.open_pages.get(kind).as_ref();
        open.is_some_and(|open| open.fits_all(units, records, append_bytes))
    }

    /// Pages that a tail must open to take records of these units, one after the other.
    pub(in crate::shard) fn pages_for(&mut self, kind: TailKind, units: &[u32]) -> usize {
        let append_bytes = self.append_bytes;
        let mut open = *self.open_pages.get(kind);
        let mut pages = 0;
        for &units in units {
            let has_room = |open: &OpenPage| open.fits(units, append_bytes);
            let page = match open.filter(has_room) {
                Some(page) => page,
                None => {
                    pages += 1;
                    OpenPage::new(0)
                }
            };
            open = Some(OpenPage {
                unit: page.unit + units,
                records: page.records + 1,
                ..page
            });
        }
        pages
    }

    /// Pages that the log's tail can open now.
    pub(in crate::shard) fn openable(&self) -> usize {
        self.openable_beside(self.arena.reserve()).unwrap_or(0)
    }

    /// Pages that a tail can open now if it leaves some frames; `None` if fewer are free.
    pub(in crate::shard) fn openable_beside(&self, frames: usize) -> Option<usize> {
        let spare = self.arena.free_count().checked_sub(frames)?;
        Some(spare.min(self.pages.free_count()))
    }

    /// Opens a new page for a tail. Returns the tail's previous page, which the caller seals. An
    /// error if no frame or page number is free.
    pub(in crate::shard) fn open_page(&mut self, kind: TailKind) -> Result<Option<OpenPage>, ()> {
        let frame = self.arena.take(kind == TailKind::Cold).ok_or(())?;
        let page_kind = if kind == TailKind::Cache {
            PageKind::Cache
        } else {
            PageKind::Log
        };
        let pointer = self.arena.pointer(frame).as_ptr();
        let Some(number) = self.pages.open(page_kind, frame, pointer) else {
            self.arena.give(frame);
            return Err(());
        };
        self.pages.get_mut(number).moved = kind == TailKind::Cold;
        let previous = self.open_pages.get(kind).replace(OpenPage::new(number));
        if let Some(previous) = previous {
            self.pages.get_mut(previous.page).successor = Some(number);
        }
        Ok(previous)
    }

    /// Counts the record that was written where [`LocalLog::reserve`] returned.
    #[inline]
    pub(in crate::shard) fn commit(
        &mut self,
        kind: TailKind,
        hash: IndexHash,
        address: Address,
        class: SizeClass,
        units: u32,
    ) {
        let page_bytes = self.shape.page_bytes();
        let unit = address.unit(self.shape);
        let Some(open) = self.open_pages.get(kind) else {
            return;
        };
        open.unit = unit + units;
        open.records += 1;
        let number = open.page;
        let place = page_bytes - open.records as usize * DIRECTORY_ENTRY_BYTES;
        let entry = DirectoryEntry { hash, unit, class }.encode();
        // SAFETY: `fits` kept room for this entry at the end of the open page's frame.
        unsafe {
            let target = self.pages.pointer(number).add(place);
            std::ptr::copy_nonoverlapping(entry.as_ptr(), target, DIRECTORY_ENTRY_BYTES);
        }
        let bytes = account_bytes(class, units);
        let entry = self.pages.get_mut(number);
        entry.live_bytes += bytes;
        entry.record_bytes += bytes;
        entry.units = unit + units;
        entry.records += 1;
        if class.units().is_none() {
            entry.longest_units = entry.longest_units.max(units);
        }
    }

    /// Notes that a record of a page expires.
    pub(in crate::shard) fn note_expiry(&mut self, number: u32, expiry_ms: u64, units: u32) {
        let page = self.pages.get_mut(number);
        let seconds = |seconds: u64| u32::try_from(seconds).unwrap_or(u32::MAX);
        page.expiring_units = page.expiring_units.saturating_add(units);
        page.expiry_min_s = page.expiry_min_s.min(seconds(expiry_ms / 1000));
        page.expiry_max_s = page.expiry_max_s.max(seconds(expiry_ms.div_ceil(1000)));
    }

    /// Changes the bytes that a record updated in place counts for.
    pub(in crate::shard) fn resize(&mut self, address: Address, old: u64, new: u64) {
        let entry = self.pages.get_mut(address.page(self.shape));
        entry.live_bytes = entry.live_bytes - old + new;
    }

    /// Ends a page's appends: its directory moves directly behind its records.
    pub(in crate::shard) fn seal(&mut self, open: OpenPage) -> PageKind {
        let page_bytes = self.shape.page_bytes();
        let frame = self.pages.pointer(open.page);
        // SAFETY: the frame is `page_bytes` long, belongs to this page, and nothing else refers to
        // it now.
        let bytes = unsafe { std::slice::from_raw_parts_mut(frame, page_bytes) };
        page::seal(bytes, open.unit, open.records);
        self.seals += 1;
        let entry = self.pages.get_mut(open.page);
        entry.units = open.unit;
        entry.sealed_at = self.seals;
        let kind = entry.kind();
        self.pages.set_state(open.page, PageState::Sealed);
        if kind == PageKind::Log {
            self.sealed.push_back(open.page);
        }
        kind
    }

    /// Takes a tail's open page, to be sealed, if it holds records.
    pub(in crate::shard) fn take_open(&mut self, kind: TailKind) -> Option<OpenPage> {
        let tail = self.open_pages.get(kind);
        tail.take_if(|open| open.unit > HEADER_UNITS)
    }

    /// Bytes of a page.
    #[inline]
    pub(super) fn page_bytes(&self) -> usize {
        self.shape.page_bytes()
    }

    /// The number of the last seal.
    pub(in crate::shard) fn seals(&self) -> u64 {
        self.seals
    }

    /// Starts the flush of the sealed page at `place` of the list, as flush `sequence`. The page is
    /// pinned. Its records do not change from now on, but for their checksums.
    pub(in crate::shard) fn begin_flush(&mut self, place: usize, sequence: u64) {
        let Some(number) = self.sealed.remove(place) else {
            return;
        };
        let entry = self.pages.get_mut(number);
        entry.sequence = sequence;
        entry.pins += 1;
        self.pages.set_state(number, PageState::Flushing);
    }

    /// Notes that a page is in far memory too. It stays pinned until [`LocalLog::unpin`].
    pub(in crate::shard) fn flushed(&mut self, number: u32) {
        self.pages.set_state(number, PageState::Clean);
        self.clean.push_back(number);
        self.victims.gain(&mut self.pages, number);
    }

    /// Undoes a failed flush: the page is sealed again and the next to be flushed. The caller
    /// releases its extent.
    pub(in crate::shard) fn flush_failed(&mut self, number: u32) {
        self.pages.set_state(number, PageState::Sealed);
        self.sealed.push_front(number);
    }

    /// Makes a clean page sealed again, because its far copy is gone or must move. The caller
    /// releases its extent.
    pub(in crate::shard) fn unflush(&mut self, number: u32) {
        self.victims.withdraw(&mut self.pages, number);
        self.seals += 1;
        self.pages.get_mut(number).sealed_at = self.seals;
        self.pages.set_state(number, PageState::Sealed);
        self.sealed.push_back(number);
    }

    /// Evicts the clean page at a place of the list: it is far from now on.
    pub(in crate::shard) fn evict(&mut self, place: usize) -> bool {
        let Some(number) = self.clean.remove(place) else {
            return false;
        };
        let frame = self.pages.evict(number);
        if let Some(frame) = frame {
            self.arena.give(frame);
        }
        frame.is_some()
    }

    /// Notes that the far copy of a page is gone. The caller releases the extent of a local page,
    /// ends a far page with [`LocalLog::lose_records`], and calls [`LocalLog::drop_unclean`] after
    /// the last of many.
    pub(in crate::shard) fn lose_far_copy(&mut self, number: u32) -> FarPageLost {
        let page = self.pages.get_mut(number);
        match page.state() {
            PageState::Clean => {
                self.unflush(number);
                FarPageLost::Local
            }
            PageState::Far => {
                // Keeps it off the victim lists.
                page.damaged = true;
                FarPageLost::Far(page.live_bytes)
            }
            _ => FarPageLost::Flushing,
        }
    }

    /// Takes the pages that are no longer clean off the list of clean ones: one pass for all.
    pub(in crate::shard) fn drop_unclean(&mut self) {
        let pages = &self.pages;
        self.clean
            .retain(|&number| pages.get(number).state() == PageState::Clean);
    }

    /// Counts all records of a far page dead: no slot leads to it.
    pub(in crate::shard) fn lose_records(&mut self, number: u32) {
        let live_bytes = std::mem::take(&mut self.pages.get_mut(number).live_bytes);
        self.victims.live_bytes = self.victims.live_bytes.saturating_sub(live_bytes);
    }

    /// Counts a record of a page dead; true if the page has no live record left.
    #[inline]
    pub(in crate::shard) fn retire(&mut self, number: u32, bytes: u64) -> bool {
        let emptied = self.pages.lose(number, bytes);
        self.victims.died(&mut self.pages, number, bytes);
        emptied
    }

    /// Counts a record of a mutable page, which is no victim, dead; true if the page has no live
    /// record left.
    #[inline]
    pub(in crate::shard) fn retire_mutable(&mut self, number: u32, bytes: u64) -> bool {
        self.pages.lose(number, bytes)
    }

    /// Takes the lists of sealed and clean pages, so that many pages can be freed without a search
    /// for each. [`LocalLog::put_lists`] must follow.
    pub(in crate::shard) fn take_lists(&mut self) -> [VecDeque<u32>; 2] {
        [
            std::mem::take(&mut self.sealed),
            std::mem::take(&mut self.clean),
        ]
    }

    /// Puts the lists back, without the pages that were freed.
    pub(in crate::shard) fn put_lists(&mut self, [mut sealed, mut clean]: [VecDeque<u32>; 2]) {
        let pages = &self.pages;
        let is = |number: u32, state| pages.get(number).state() == state;
        sealed.retain(|&number| is(number, PageState::Sealed));
        clean.retain(|&number| is(number, PageState::Clean));
        (self.sealed, self.clean) = (sealed, clean);
    }

    /// Frees a page without live records and returns its kind; `None` if it is open, flushing or
    /// pinned. The caller releases its extent.
    pub(in crate::shard) fn free_if_dead(&mut self, number: u32) -> Option<PageKind> {
        let page = self.pages.get(number);
        let (state, kind) = (page.state(), page.kind());
        let stays = matches!(
            state,
            PageState::Open | PageState::Free | PageState::Flushing
        );
        let is_pinned = page.pins > 0 && !farcore_tuning::mutated!("freed-though-pinned");
        if stays || page.live_bytes > 0 || is_pinned {
            return None;
        }
        match (kind, state) {
            (PageKind::Log, PageState::Sealed) => self.sealed.retain(|&other| other != number),
            (PageKind::Log, PageState::Clean) => self.clean.retain(|&other| other != number),
            _ => {}
        }
        self.victims.lose(&mut self.pages, number);
        if let Some(frame) = self.pages.free(number) {
            self.arena.give(frame);
        }
        Some(kind)
    }

    /// Pins a page, which keeps it from being freed until [`LocalLog::unpin`].
    #[inline]
    pub(in crate::shard) fn pin(&mut self, number: u32) {
        self.pages.get_mut(number).pins += 1;
    }

    /// Unpins a page; true if it has no live record and may be freed.
    #[inline]
    pub(in crate::shard) fn unpin(&mut self, number: u32) -> bool {
        let page = self.pages.get_mut(number);
        debug_assert!(page.pins > 0, "a page was unpinned twice");
        page.pins -= 1;
        if page.pins > 0 {
            return false;
        }
        let passed_over = std::mem::take(&mut page.passed_over);
        let is_dead = page.live_bytes == 0;
        if !is_dead && passed_over {
            self.victims.list(&mut self.pages, number);
        }
        is_dead
    }

    /// Keeps compaction away from a page that is not what was written, or whose extent the node
    /// took back.
    pub(in crate::shard) fn note_damaged(&mut self, number: u32) {
        self.pages.get_mut(number).damaged = true;
    }

    /// Notes that a record too long for a size class was given up: its page's live bytes may be too
    /// high.
    pub(in crate::shard) fn note_long_given_up(&mut self, number: u32) {
        self.pages.get_mut(number).gave_up_long = true;
    }

    /// Marks a page for compaction at a caller's request.
    pub(in crate::shard) fn request_compaction(&mut self, number: u32) {
        self.pages.get_mut(number).requested = true;
    }

    /// Takes a page that a caller wants compacted off the victim lists.
    pub(in crate::shard) fn take_requested(&mut self, number: u32) {
        let page = self.pages.get_mut(number);
        page.requested = false;
        self.victims.unlist(page, number);
    }

    /// Where a record is, if its page has a frame.
    #[inline]
    pub(in crate::shard) fn framed_of(&self, address: Address) -> Framed {
        let offset = address.unit(self.shape) as usize * UNIT_BYTES;
        self.pages.framed(address.page(self.shape)).at(offset)
    }

    /// A page's entry.
    #[inline]
    pub(in crate::shard) fn page(&self, number: u32) -> &Page {
        self.pages.get(number)
    }

    /// A page's entry, mutable: for tests that inject faults.
    #[cfg(test)]
    pub(in crate::shard) fn page_mut(&mut self, number: u32) -> &mut Page {
        self.pages.get_mut(number)
    }

    /// Takes a page's frame whatever its state: for tests that inject faults.
    #[cfg(test)]
    pub(in crate::shard) fn evict_page(&mut self, number: u32) {
        if let Some(frame) = self.pages.evict(number) {
            self.arena.give(frame);
        }
    }
}
