//! Victims: the far pages of a shard by how much of them is alive, so that the emptiest is found without a search.
//!
//! A page is listed in the bin of its live share, again each time it falls into a lower one; entries that no longer hold
//! are dropped when they come up, or when there are as many of them as of those that do hold.
//!
//! - I1: a page that is clean or far, has records and no pins, is listed in the bin that its entry names.
//! - I2: the sums are over the pages that are clean or far.

use super::pages::{Page, PageKind, PageState, PageTable};
use crate::constants::UNIT_BYTES;

const BINS: usize = 16;
/// The bin of a page that is listed nowhere.
pub(super) const UNLISTED: u8 = u8::MAX;

/// Far pages by live share, and their sums.
#[derive(Debug, Default)]
pub(super) struct Victims {
    bins: [Vec<u32>; BINS],
    /// Entries in all bins, those that no longer hold included.
    entries: usize,
    /// Pages.
    pub(super) pages: u64,
    /// Bytes of their records that are alive.
    pub(super) live_bytes: u64,
    /// Bytes of all their records.
    pub(super) record_bytes: u64,
}

/// Bytes of a page that records take, and its header.
fn used_bytes(page: &Page) -> u64 {
    u64::from(page.units.max(1)) * UNIT_BYTES as u64
}

/// The live share of a page, in percent.
pub(super) fn live_percent(page: &Page) -> u64 {
    page.live_bytes * 100 / used_bytes(page)
}

fn is_far(page: &Page) -> bool {
    page.kind == PageKind::Log && matches!(page.state, PageState::Clean | PageState::Far)
}

impl Victims {
    /// A page has reached far memory.
    pub(super) fn gain(&mut self, pages: &mut PageTable, number: u32) {
        let page = pages.get(number);
        self.pages += 1;
        self.live_bytes += page.live_bytes;
        self.record_bytes += page.record_bytes;
        self.list(pages, number);
    }

    /// Some of a page's bytes, already taken from its account, have died.
    #[inline]
    pub(super) fn died(&mut self, pages: &mut PageTable, number: u32, bytes: u64) {
        if is_far(pages.get(number)) {
            self.live_bytes = self.live_bytes.saturating_sub(bytes);
            self.list(pages, number);
        }
    }

    /// A page is about to be freed.
    pub(super) fn lose(&mut self, page: &Page) {
        if is_far(page) {
            self.pages -= 1;
            self.record_bytes -= page.record_bytes;
        }
    }

    /// Lists a page where it belongs, if it is in no such low bin yet.
    pub(super) fn list(&mut self, pages: &mut PageTable, number: u32) {
        let page = pages.get_mut(number);
        if !is_far(page) || page.damaged {
            return;
        }
        let share = page.live_bytes * BINS as u64 / used_bytes(page);
        let bin = usize::try_from(share).map_or(BINS - 1, |share| share.min(BINS - 1));
        let name = u8::try_from(bin).unwrap_or(UNLISTED);
        if page.bin == UNLISTED || name < page.bin {
            page.bin = name;
            self.bins[bin].push(number);
            self.entries += 1;
            if self.entries > 2 * pages.len() {
                self.sweep(pages);
            }
        }
    }

    /// Drops the entries that do not hold.
    #[cold]
    fn sweep(&mut self, pages: &PageTable) {
        for (bin, listed) in self.bins.iter_mut().enumerate() {
            listed.sort_unstable();
            listed.dedup();
            listed.retain(|&number| {
                let page = pages.get(number);
                usize::from(page.bin) == bin && is_far(page)
            });
        }
        self.entries = self.bins.iter().map(Vec::len).sum();
    }

    /// Bytes that the bins may take for a number of pages.
    pub(super) fn bytes_for(pages: usize) -> u64 {
        (4 * pages * size_of::<u32>()) as u64
    }

    /// Takes a page of the lowest share below `percent`, to within a bin. A pinned one is left to whoever unpins it.
    pub(super) fn take(&mut self, pages: &mut PageTable, percent: u64) -> Option<u32> {
        for (bin, listed) in self.bins.iter_mut().enumerate() {
            if bin as u64 * 100 >= percent * BINS as u64 {
                return None;
            }
            while let Some(number) = listed.pop() {
                self.entries -= 1;
                let page = pages.get_mut(number);
                if usize::from(page.bin) != bin || !is_far(page) || page.damaged {
                    continue;
                }
                if live_percent(page) >= percent {
                    listed.push(number);
                    self.entries += 1;
                    break;
                }
                page.bin = UNLISTED;
                if page.pins > 0 {
                    page.passed_over = true;
                    continue;
                }
                return Some(number);
            }
        }
        None
    }
}
