//! The page table: for each page number its state, where its bytes are and how much of it is alive.
//!
//! ```text
//! open -> sealed -> flushing -> clean -> far -> (extent freed)
//!    \________\________________________/  a page whose last record dies is freed at once
//! ```
//!
//! - I1: `framed(p)` is null exactly when page `p` has no frame. Else it says the page's kind and
//!   whether it is mutable.
//! - I2: `live_bytes` is the sum of the size classes of the records whose slot holds their address,
//!   and of home records whose cached copy a slot holds.
//! - I3: a page with pins is never freed: a pin is a work request, a flush or a compaction that
//!   names it.
//! - I4: the last two numbers are no pages: slots whose record is lost point there (see `lost`).

use std::ops::Range;
use std::ptr;

use crate::constants::UNIT_BYTES;
use crate::shard::local::arena::Frame;

/// The bin of a page that is in no list of victims.
pub(in crate::shard) const UNLISTED: u8 = u8::MAX;

/// The state of a page's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageState {
    /// The number is unused.
    Free,
    /// Takes appends and updates in place.
    Open,
    /// Full; takes updates in place; not in far memory.
    Sealed,
    /// On its way to its extent; immutable.
    Flushing,
    /// Local and far; immutable.
    Clean,
    /// Far only.
    Far,
}

/// What a page holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PageKind {
    /// Records of the log.
    Log,
    /// Copies of far records.
    Cache,
}

/// One page.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    state: PageState,
    kind: PageKind,
    frame: Option<Frame>,
    /// The sequence number of its last flush, from which the nonce of its ciphertext is made.
    pub(crate) sequence: u64,
    /// Its number in the order in which pages were sealed, or lost their far copy.
    pub(crate) sealed_at: u64,
    /// Units in use, header included, directory not.
    pub(crate) units: u32,
    /// Records appended, dead ones included.
    pub(crate) records: u32,
    /// Units of the longest record that was too long for a size class when it was appended.
    pub(crate) longest_units: u32,
    /// Bytes of the records that are alive, by size class.
    pub(in crate::shard) live_bytes: u64,
    /// Bytes of all records appended, by size class.
    pub(crate) record_bytes: u64,
    /// Units of the records with an expiry, dead ones included.
    pub(in crate::shard) expiring_units: u32,
    /// The first and last expiry of its records, in seconds since 1970, rounded outwards.
    pub(in crate::shard) expiry_min_s: u32,
    pub(in crate::shard) expiry_max_s: u32,
    pub(crate) pins: u32,
    /// How many pages were opened before it: another page of the same number has another one.
    pub(crate) opening: u32,
    /// The page that its tail continued in.
    pub(crate) successor: Option<u32>,
    /// Its directory is not what was written, or the node took its extent back: compaction leaves
    /// it alone.
    pub(crate) damaged: bool,
    /// A record too long for a size class was given up, so `live_bytes` may be too high.
    pub(crate) gave_up_long: bool,
    /// Compaction filled it.
    pub(crate) moved: bool,
    /// The victim list that it is in.
    pub(crate) bin: u8,
    /// Compaction passed it over while it was pinned.
    pub(crate) passed_over: bool,
    /// A caller requested a compaction when it was worth compacting.
    pub(crate) requested: bool,
}

impl Default for Page {
    fn default() -> Self {
        Self {
            state: PageState::Free,
            kind: PageKind::Log,
            frame: None,
            sequence: 0,
            sealed_at: 0,
            units: 0,
            records: 0,
            longest_units: 0,
            live_bytes: 0,
            record_bytes: 0,
            expiring_units: 0,
            expiry_min_s: u32::MAX,
            expiry_max_s: 0,
            pins: 0,
            opening: 0,
            successor: None,
            damaged: false,
            gave_up_long: false,
            moved: false,
            bin: UNLISTED,
            passed_over: false,
            requested: false,
        }
    }
}

impl Page {
    #[inline]
    pub(crate) fn state(&self) -> PageState {
        self.state
    }

    /// Its frame, while it is local.
    pub(crate) fn frame(&self) -> Option<Frame> {
        self.frame
    }

    #[inline]
    pub(crate) fn kind(&self) -> PageKind {
        self.kind
    }

    /// True while its records may be changed in place.
    fn is_mutable(&self) -> bool {
        self.kind == PageKind::Log && matches!(self.state, PageState::Open | PageState::Sealed)
    }
}

/// A place in a frame, with the page's properties in the low bits that alignment leaves free: all
/// that a request needs to know of a page. Null if the page is far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Framed(*mut u8);

const CACHED: usize = 1;
const MUTABLE: usize = 2;
const _: () = assert!(CACHED + MUTABLE < UNIT_BYTES);

impl Framed {
    const FAR: Self = Self(ptr::null_mut());

    fn new(pointer: *mut u8, page: &Page) -> Self {
        debug_assert!(pointer.addr().is_multiple_of(UNIT_BYTES));
        let cached = if page.kind == PageKind::Cache {
            CACHED
        } else {
            0
        };
        let mutable = if page.is_mutable() { MUTABLE } else { 0 };
        Self(pointer.wrapping_add(cached | mutable))
    }

    #[inline]
    pub(crate) fn is_far(self) -> bool {
        self.0.is_null()
    }

    /// The place this many bytes further, a multiple of a unit; far stays far.
    #[inline]
    pub(crate) fn at(self, offset: usize) -> Self {
        debug_assert!(offset.is_multiple_of(UNIT_BYTES));
        if self.is_far() {
            return self;
        }
        Self(self.0.wrapping_add(offset))
    }

    /// The page holds copies of far records.
    #[inline]
    pub(crate) fn is_cached(self) -> bool {
        self.0.addr() & CACHED != 0
    }

    /// Records may be changed in place.
    #[inline]
    pub(crate) fn is_mutable(self) -> bool {
        self.0.addr() & MUTABLE != 0
    }

    /// The place itself; null when the page is far.
    #[inline]
    pub(crate) fn pointer(self) -> *mut u8 {
        self.0.wrapping_sub(self.0.addr() & (CACHED | MUTABLE))
    }
}

/// All pages of a shard, by number.
#[derive(Debug)]
pub(crate) struct PageTable {
    framed: Vec<Framed>,
    /// Changes to the table so far.
    moves: u64,
    /// Pages that were opened.
    opened: u32,
    pages: Vec<Page>,
    free: Vec<u32>,
    /// The first of the two lost pages.
    first_lost: u32,
}

/// Page numbers that stand for lost records: one for the current generation, one for the generation
/// that is being forgotten.
pub(crate) const LOST_PAGES: u32 = 2;

impl PageTable {
    /// A table for this many pages and the two lost pages. It never allocates afterwards.
    pub(crate) fn new(pages: usize) -> Self {
        let count = u32::try_from(pages).unwrap_or(u32::MAX - LOST_PAGES);
        let all = pages + LOST_PAGES as usize;
        Self {
            framed: vec![Framed::FAR; all],
            moves: 0,
            opened: 0,
            pages: vec![Page::default(); all],
            free: (0..count).rev().collect(),
            first_lost: count,
        }
    }

    /// Counts bytes of a page's records dead; true if no live record is left.
    #[inline]
    pub(super) fn lose(&mut self, page: u32, bytes: u64) -> bool {
        let entry = self.get_mut(page);
        debug_assert!(entry.live_bytes >= bytes, "more bytes died than lived");
        entry.live_bytes = entry.live_bytes.saturating_sub(bytes);
        entry.live_bytes == 0
    }

    /// The page that stands for all records lost in a generation: far, without an extent.
    pub(crate) fn lost_page(&self, generation: u16) -> u32 {
        self.first_lost + u32::from(generation) % LOST_PAGES
    }

    /// True if the page stands for lost records of any generation.
    #[inline]
    pub(crate) fn is_lost_page(&self, page: u32) -> bool {
        page >= self.first_lost
    }

    /// All page numbers, in use or not.
    pub(crate) fn len(&self) -> usize {
        self.pages.len()
    }

    /// Page numbers that are not in use.
    pub(super) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Allocates a page number for a new open page in `frame`.
    pub(super) fn open(&mut self, kind: PageKind, frame: Frame, pointer: *mut u8) -> Option<u32> {
        let number = self.free.pop()?;
        let page = Page {
            state: PageState::Open,
            kind,
            frame: Some(frame),
            opening: self.opened,
            ..Page::default()
        };
        self.opened = self.opened.wrapping_add(1);
        self.reframe(number, Framed::new(pointer, &page));
        self.pages[number as usize] = page;
        Some(number)
    }

    /// What requests need to know of a page.
    #[inline]
    pub(crate) fn framed(&self, page: u32) -> Framed {
        self.framed[page as usize]
    }

    /// The first byte of a page's frame; null when the page is far.
    #[inline]
    pub(crate) fn pointer(&self, page: u32) -> *mut u8 {
        self.framed(page).pointer()
    }

    /// Moves a page that has a frame to another state.
    pub(super) fn set_state(&mut self, page: u32, state: PageState) {
        let pointer = self.pointer(page);
        let entry = &mut self.pages[page as usize];
        debug_assert!(entry.frame.is_some() && !pointer.is_null());
        entry.state = state;
        let framed = Framed::new(pointer, entry);
        self.reframe(page, framed);
    }

    fn reframe(&mut self, page: u32, framed: Framed) {
        self.framed[page as usize] = framed;
        self.moves += u64::from(!farcore_tuning::mutated!("moves-not-counted"));
    }

    /// Counts how often any page came, went or changed what may be done with it. While it is
    /// unchanged, every page is where and as it was.
    #[inline]
    pub(crate) fn moves(&self) -> u64 {
        self.moves
    }

    /// The page.
    #[inline]
    pub(crate) fn get(&self, page: u32) -> &Page {
        &self.pages[page as usize]
    }

    /// The page, to be changed.
    #[inline]
    pub(super) fn get_mut(&mut self, page: u32) -> &mut Page {
        &mut self.pages[page as usize]
    }

    /// Takes the frame from a page: it is far from now on.
    pub(super) fn evict(&mut self, page: u32) -> Option<Frame> {
        self.reframe(page, Framed::FAR);
        self.pages[page as usize].state = PageState::Far;
        self.pages[page as usize].frame.take()
    }

    /// Frees a page number; returns the frame that the page held.
    pub(super) fn free(&mut self, page: u32) -> Option<Frame> {
        let entry = std::mem::take(&mut self.pages[page as usize]);
        debug_assert!(entry.state != PageState::Free && entry.pins == 0 && entry.live_bytes == 0);
        self.reframe(page, Framed::FAR);
        self.free.push(page);
        entry.frame
    }

    /// Every page in use, with its number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Page)> {
        (0u32..)
            .zip(&self.pages)
            .filter(|(_, page)| page.state != PageState::Free)
    }

    /// The pages in use among these numbers, and whether there are numbers after them.
    pub(crate) fn in_range(
        &self,
        numbers: Range<u32>,
    ) -> (impl Iterator<Item = (u32, &Page)>, bool) {
        let start = numbers.start as usize;
        let end = (numbers.end as usize).min(self.pages.len());
        let pages = self.pages.get(start..end).unwrap_or_default();
        let used = (numbers.zip(pages)).filter(|(_, page)| page.state != PageState::Free);
        (used, end < self.pages.len())
    }

    /// Checks what the table says of each page, and which numbers are free.
    #[cfg(any(test, feature = "simulation"))]
    pub(in crate::shard) fn check(&self) {
        let mut free: Vec<u32> = self.free.clone();
        free.sort_unstable();
        for (number, page) in (0u32..).zip(&self.pages) {
            let framed = self.framed(number);
            let has_frame = page.frame.is_some();
            assert_eq!(has_frame, !framed.is_far(), "page table I1: page {number}");
            let own = Framed::new(framed.pointer(), page);
            assert!(!has_frame || framed == own, "page table I1: page {number}");
            let is_far = matches!(page.state, PageState::Free | PageState::Far);
            assert_eq!(has_frame, !is_far, "page table I1: state of {number}");
            let is_free = page.state == PageState::Free;
            let pins = page.pins;
            assert!(!is_free || pins == 0, "page table I3: {number} is free");
            let is_lost = self.is_lost_page(number);
            assert!(!is_lost || is_free, "page table I4: {number} is in use");
            let listed = free.partition_point(|&other| other < number);
            let listed = free[listed..].iter().take_while(|&&other| other == number);
            let count = usize::from(is_free && !is_lost);
            assert_eq!(listed.count(), count, "page table I4: {number} in the list");
        }
    }

    /// Bytes of the table for a number of pages, the lost pages included.
    pub(crate) fn bytes_for(pages: usize) -> u64 {
        (pages * (size_of::<Framed>() + size_of::<Page>() + size_of::<u32>())) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breach::assert_breaks;

    #[test]
    fn a_planted_breach_of_the_page_table_is_found() {
        type Breach = fn(&mut PageTable, u32);
        let breaches: [(&str, Breach); 7] = [
            ("page table I1", |table, page| {
                table.framed[page as usize] = Framed::FAR;
            }),
            ("page table I1", |table, page| {
                // Sealed, and not noted in what requests see.
                table.pages[page as usize].state = PageState::Clean;
            }),
            ("page table I1", |table, page| {
                table.pages[page as usize].state = PageState::Far;
            }),
            ("page table I3", |table, page| {
                table.pages[page as usize + 1].pins = 1;
            }),
            ("page table I4", |table, page| table.free.push(page)),
            ("page table I4", |table, _| table.free.truncate(1)),
            ("page table I4", |table, _| {
                let lost = table.first_lost as usize;
                table.pages[lost].state = PageState::Far;
            }),
        ];
        let mut frame = [0u64; 2];
        let place = frame.as_mut_ptr().cast::<u8>();
        // The page is never read.
        let place = place.wrapping_add(place.align_offset(UNIT_BYTES));
        for (invariant, plant) in breaches {
            let mut table = PageTable::new(4);
            let page = table.open(PageKind::Log, Frame::default(), place).unwrap();
            table.check();
            plant(&mut table, page);
            assert_breaks(invariant, || table.check());
        }
    }
}
