//! The local log: which pages of a shard are in local memory, and the life of each page.
//!
//! [`LocalLog`] owns the frames, the page table, the open pages, the lists of sealed and clean pages and
//! the victims. Its methods are the only writers of a page's state and of its live bytes. What else
//! follows from a change (a read cache that forgets, an extent that is released) it returns, and the
//! shard does it.
//!
//! ```text
//! reserve, commit -> seal -> begin_flush -> flushed -> evict -> (extent)
//!                     ^           |            |         |
//!                     |      flush_failed      |     lose_extent
//!                     \-----------/---(to be flushed again)
//! a page whose last record was retired is freed at once, unless it is open, flushing or pinned
//! ```

use std::collections::VecDeque;

use super::arena::Arena;
use super::open_pages::{HEADER_UNITS, OpenPage, OpenPages, TailKind};
use super::page_table::{Framed, Page, PageKind, PageState, PageTable};
use super::victims::Victims;
use crate::constants::UNIT_BYTES;
use crate::log::page::{self, DIRECTORY_ENTRY_BYTES, DirectoryEntry};
use crate::log::{Address, PageShape, SizeClass};
use crate::message::hash::IndexHash;
use crate::shard::far::extents::Extent;

/// Bytes that a record counts for in its page's accounts.
#[inline]
pub(in crate::shard) fn account_bytes(class: SizeClass, units: u32) -> u64 {
    u64::from(class.units().unwrap_or(units)) * UNIT_BYTES as u64
}

/// What follows from freeing a page.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) struct Freed {
    pub(in crate::shard) kind: PageKind,
    /// To be released.
    pub(in crate::shard) extent: Option<Extent>,
}

/// What a page was when its extent was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::shard) enum ExtentLost {
    /// Local as well: it is to be flushed again.
    Local,
    /// Far only: its records, of so many bytes, are lost.
    Far(u64),
    /// On its way there: the flush fails and is done again.
    Flushing,
}

/// The local pages of a shard, and the life of all.
#[derive(Debug)]
pub(in crate::shard) struct LocalLog {
    pub(in crate::shard) pages: PageTable,
    pub(in crate::shard) open_pages: OpenPages,
    /// Bytes of a page that records and directory may take; its directory's tag has the rest.
    append_bytes: usize,
    shape: PageShape,
    pub(in crate::shard) victims: Victims,
    pub(in crate::shard) arena: Arena,
    /// Sealed pages that are not yet in far memory, oldest first.
    pub(in crate::shard) sealed: VecDeque<u32>,
    /// Pages that are local and far, oldest first.
    pub(in crate::shard) clean: VecDeque<u32>,
    /// Pages sealed so far, or sealed again.
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

    /// Where the next record of a tail goes, if its open page takes one of so many units.
    #[inline]
    pub(in crate::shard) fn reserve(
        &mut self,
        kind: TailKind,
        units: u32,
    ) -> Option<(Address, *mut u8)> {
        let open = self.open_pages.get(kind).as_ref()?;
        if !open.fits(units, self.append_bytes) {
            return None;
        }
        let (number, unit) = (open.page, open.unit);
        let frame = self.pages.pointer(number);
        let place = frame.wrapping_add(unit as usize * UNIT_BYTES);
        Some((Address::new(self.shape, number, unit), place))
    }

    /// Opens a new page for a tail; the tail's page before, which is to be sealed. An error if no
    /// frame or page number is free.
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
        let previous = self.open_pages.get(kind).replace(OpenPage::new(number));
        if let Some(previous) = previous {
            self.pages.get_mut(previous.page).successor = Some(number);
        }
        Ok(previous)
    }

    /// Counts in the record that was written where [`LocalLog::reserve`] said.
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

    /// A record that stays in its place counts for another number of bytes.
    pub(in crate::shard) fn resize(&mut self, address: Address, old: u64, new: u64) {
        let entry = self.pages.get_mut(address.page(self.shape));
        entry.live_bytes = entry.live_bytes - old + new;
    }

    /// Closes a page for appends: its directory moves directly behind its records.
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

    /// A tail's open page, taken to be sealed, if it holds anything.
    pub(in crate::shard) fn take_open(&mut self, kind: TailKind) -> Option<OpenPage> {
        let tail = self.open_pages.get(kind);
        tail.take_if(|open| open.unit > HEADER_UNITS)
    }

    /// The place of the page that was sealed last in the order of sealing.
    pub(in crate::shard) fn seals(&self) -> u64 {
        self.seals
    }

    /// The oldest sealed page that no work names goes to `extent` as the flush `sequence`: it is
    /// pinned, and immutable from now on.
    pub(in crate::shard) fn begin_flush(
        &mut self,
        place: usize,
        extent: Extent,
        sequence: u64,
    ) -> Option<u32> {
        let number = self.sealed.remove(place)?;
        let entry = self.pages.get_mut(number);
        entry.extent = Some(extent);
        entry.sequence = sequence;
        entry.pins += 1;
        self.pages.set_state(number, PageState::Flushing);
        Some(number)
    }

    /// A page is in far memory as well. It stays pinned until [`LocalLog::unpin`].
    pub(in crate::shard) fn flushed(&mut self, number: u32) {
        self.pages.set_state(number, PageState::Clean);
        self.clean.push_back(number);
        self.victims.gain(&mut self.pages, number);
    }

    /// A flush failed: the page is as before it, and the next to be flushed. Its extent is to be
    /// released.
    pub(in crate::shard) fn flush_failed(&mut self, number: u32) -> Option<Extent> {
        self.pages.set_state(number, PageState::Sealed);
        self.sealed.push_front(number);
        self.pages.get_mut(number).extent.take()
    }

    /// A clean page is no longer in far memory, or must not stay where it is there: it is to be
    /// flushed again. Returns its extent, to be released.
    pub(in crate::shard) fn unflush(&mut self, number: u32) -> Option<Extent> {
        self.victims.withdraw(&mut self.pages, number);
        self.seals += 1;
        let page = self.pages.get_mut(number);
        page.sealed_at = self.seals;
        let extent = page.extent.take();
        self.pages.set_state(number, PageState::Sealed);
        self.sealed.push_back(number);
        extent
    }

    /// Takes the frame from the clean page at a place of the list: it is far from now on.
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

    /// The extent of a page is gone. The caller releases that of a local page, and ends far ones
    /// with [`LocalLog::lose_records`].
    pub(in crate::shard) fn lose_extent(&mut self, number: u32) -> ExtentLost {
        let page = self.pages.get_mut(number);
        match page.state() {
            PageState::Clean => {
                self.unflush(number);
                self.clean.retain(|&other| other != number);
                ExtentLost::Local
            }
            PageState::Far => {
                // Not to be listed as a victim any more.
                page.damaged = true;
                ExtentLost::Far(page.live_bytes)
            }
            _ => ExtentLost::Flushing,
        }
    }

    /// Nothing in a far page is alive any more: no slot leads to it.
    pub(in crate::shard) fn lose_records(&mut self, number: u32) {
        let live_bytes = std::mem::take(&mut self.pages.get_mut(number).live_bytes);
        self.victims.live_bytes = self.victims.live_bytes.saturating_sub(live_bytes);
    }

    /// Counts a record of a page dead; true if the page holds none any more.
    #[inline]
    pub(in crate::shard) fn retire(&mut self, number: u32, bytes: u64) -> bool {
        let emptied = self.pages.lose(number, bytes);
        self.victims.died(&mut self.pages, number, bytes);
        emptied
    }

    /// The same for a page that records may be changed in: no victim.
    #[inline]
    pub(in crate::shard) fn retire_mutable(&mut self, number: u32, bytes: u64) -> bool {
        self.pages.lose(number, bytes)
    }

    /// Frees a page with nothing alive in it; nothing if it is open, flushing or pinned.
    pub(in crate::shard) fn free_if_dead(&mut self, number: u32) -> Option<Freed> {
        let page = self.pages.get(number);
        let (state, kind) = (page.state(), page.kind());
        let stays = matches!(
            state,
            PageState::Open | PageState::Free | PageState::Flushing
        );
        if stays || page.live_bytes > 0 || page.pins > 0 {
            return None;
        }
        match (kind, state) {
            (PageKind::Log, PageState::Sealed) => self.sealed.retain(|&other| other != number),
            (PageKind::Log, PageState::Clean) => self.clean.retain(|&other| other != number),
            _ => {}
        }
        self.victims.lose(&mut self.pages, number);
        let (frame, extent) = self.pages.free(number);
        if let Some(frame) = frame {
            self.arena.give(frame);
        }
        Some(Freed { kind, extent })
    }

    /// Pins a page: it is not freed until [`LocalLog::unpin`].
    #[inline]
    pub(in crate::shard) fn pin(&mut self, number: u32) {
        self.pages.get_mut(number).pins += 1;
    }

    /// Unpins a page; true if it holds nothing and may be freed.
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

    /// Compaction leaves a page alone from now on: it is not what was written, or its node took it
    /// back.
    pub(in crate::shard) fn note_damaged(&mut self, number: u32) {
        self.pages.get_mut(number).damaged = true;
    }

    /// A record too long for a size class was given up: less was counted dead than it may have been.
    pub(in crate::shard) fn note_long_given_up(&mut self, number: u32) {
        self.pages.get_mut(number).gave_up_long = true;
    }

    /// A caller wants a page compacted.
    pub(in crate::shard) fn ask_to_compact(&mut self, number: u32) {
        self.pages.get_mut(number).asked = true;
    }

    /// Takes a page that a caller wants compacted off the list of victims.
    pub(in crate::shard) fn take_asked(&mut self, number: u32) {
        let page = self.pages.get_mut(number);
        page.asked = false;
        self.victims.unlist(page, number);
    }

    /// Where a record is, if its page has a frame.
    #[inline]
    pub(in crate::shard) fn framed_of(&self, address: Address) -> Framed {
        let offset = address.unit(self.shape) as usize * UNIT_BYTES;
        self.pages.framed(address.page(self.shape)).at(offset)
    }

    /// A page's facts.
    #[inline]
    pub(in crate::shard) fn page(&self, number: u32) -> &Page {
        self.pages.get(number)
    }

    /// A page to be changed as no door does: a fault that tests plant.
    #[cfg(test)]
    pub(in crate::shard) fn page_mut(&mut self, number: u32) -> &mut Page {
        self.pages.get_mut(number)
    }

    /// Takes a page's frame whatever its state: a fault that tests plant.
    #[cfg(test)]
    pub(in crate::shard) fn evict_page(&mut self, number: u32) {
        if let Some(frame) = self.pages.evict(number) {
            self.arena.give(frame);
        }
    }
}
