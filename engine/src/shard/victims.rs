//! Victims: the far pages of a shard by how much of them is alive, so that the emptiest is found without a search.
//!
//! A page on a node that does not answer is set aside until the node is back.
//!
//! A page is listed in the bin of its live share, again each time it falls into a lower one; entries that no longer hold
//! are dropped when they come up, or when there are as many of them as of those that do hold.
//!
//! - I1: a page that is clean or far, has records and no pins, is listed in the bin that its entry names, or set aside.
//! - I2: the sums are over the pages that are clean or far.

use farcore_rdma::Endpoint;

use super::Shard;
use super::extents::NodeId;
use super::pages::{Page, PageKind, PageState, PageTable};
use crate::constants::UNIT_BYTES;

const BINS: usize = 16;
/// Pages set aside or listed again in one slice.
const PAGES_A_SLICE: usize = 64;
/// The bin of a page that is listed nowhere.
pub(super) const UNLISTED: u8 = u8::MAX;
/// The bin of a page that is set aside.
const ASIDE: u8 = u8::MAX - 1;

const _: () = assert!(BINS < ASIDE as usize);

/// What there is to be compacted.
pub(super) enum Pick {
    Page(u32),
    /// More is to be looked at.
    Later,
    None,
}

/// Far pages by live share, and their sums.
#[derive(Debug)]
pub(super) struct Victims {
    bins: [Vec<u32>; BINS],
    /// Entries in all bins, those that no longer hold included.
    entries: usize,
    /// By node, the pages that wait for it to answer; those freed meanwhile included.
    aside: Vec<Vec<u32>>,
    aside_count: usize,
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
fn live_percent(page: &Page) -> u64 {
    page.live_bytes * 100 / used_bytes(page)
}

fn is_far(page: &Page) -> bool {
    page.kind() == PageKind::Log && matches!(page.state(), PageState::Clean | PageState::Far)
}

fn waits_for(page: &Page, node: NodeId) -> bool {
    page.bin == ASIDE && page.extent.is_some_and(|extent| extent.node() == node)
}

impl Victims {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            bins: [const { Vec::new() }; BINS],
            entries: 0,
            aside: vec![Vec::new(); nodes],
            aside_count: 0,
            pages: 0,
            live_bytes: 0,
            record_bytes: 0,
        }
    }

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

    /// A page that is still local is no longer far.
    pub(super) fn withdraw(&mut self, page: &mut Page) {
        self.lose(page);
        self.live_bytes = self.live_bytes.saturating_sub(page.live_bytes);
        page.bin = UNLISTED;
    }

    /// Lists a page where it belongs, if it is in no such low bin yet.
    pub(super) fn list(&mut self, pages: &mut PageTable, number: u32) {
        let page = pages.get_mut(number);
        if !is_far(page) || page.damaged || page.bin == ASIDE {
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

    /// Keeps an unlisted page from being listed until its node is back.
    pub(super) fn set_aside(&mut self, pages: &mut PageTable, number: u32, node: NodeId) {
        pages.get_mut(number).bin = ASIDE;
        self.aside[node.position()].push(number);
        self.aside_count += 1;
        if self.aside_count > pages.len() {
            self.sweep_aside(pages);
        }
    }

    #[cold]
    fn sweep_aside(&mut self, pages: &PageTable) {
        for (node, aside) in self.aside.iter_mut().enumerate() {
            aside.sort_unstable();
            aside.dedup();
            aside.retain(|&number| waits_for(pages.get(number), NodeId::new(node)));
        }
        self.aside_count = self.aside.iter().map(Vec::len).sum();
    }

    /// Pages that are set aside, and some that were freed since.
    pub(super) fn aside_count(&self) -> usize {
        self.aside_count
    }

    /// Lists up to `most` pages of a node again; true if there were any.
    pub(super) fn list_again(&mut self, pages: &mut PageTable, node: NodeId, most: usize) -> bool {
        let mut listed = false;
        for _ in 0..most {
            let Some(number) = self.aside[node.position()].pop() else {
                break;
            };
            self.aside_count -= 1;
            let page = pages.get_mut(number);
            // It may have been freed, and even set aside anew for another node.
            if waits_for(page, node) {
                page.bin = UNLISTED;
                self.list(pages, number);
                listed = true;
            }
        }
        listed
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

    /// Bytes that the lists may take for a number of pages.
    pub(super) fn bytes_for(pages: usize) -> u64 {
        (6 * pages * size_of::<u32>()) as u64
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

impl<E: Endpoint> Shard<E> {
    /// Lists the pages again that were set aside for nodes that answer now; of one that may answer, a page to try.
    pub(super) fn list_returned(&mut self) {
        if self.victims.aside_count() == 0 {
            return;
        }
        for node in self.extents.nodes() {
            let queue = node.reads();
            let most = match (
                self.health.is_silent(queue),
                self.health.may_try(queue, self.now_ns),
            ) {
                (false, _) => PAGES_A_SLICE,
                (true, true) => 1,
                (true, false) => continue,
            };
            self.compactor.due |= self.victims.list_again(&mut self.pages, node, most);
        }
    }

    /// A page of which less than `percent` is alive: the emptiest far one, or else the emptiest sealed one if those may
    /// go too. Those that cannot be read now are set aside.
    pub(super) fn pick_victim(&mut self, percent: u64, sealed_too: bool) -> Pick {
        for _ in 0..PAGES_A_SLICE {
            let Some(number) = self.victims.take(&mut self.pages, percent) else {
                return self.pick_sealed(percent, sealed_too);
            };
            match self.node_of(number) {
                Some(node)
                    if self.pages.pointer(number).is_null()
                        && !self.health.may_try(node.reads(), self.now_ns) =>
                {
                    self.victims.set_aside(&mut self.pages, number, node);
                }
                _ => return Pick::Page(number),
            }
        }
        Pick::Later
    }

    fn pick_sealed(&self, percent: u64, sealed_too: bool) -> Pick {
        if !sealed_too {
            return Pick::None;
        }
        let sealed = self.sealed.iter().filter_map(|&number| {
            let page = self.pages.get(number);
            (page.pins == 0 && !page.damaged).then(|| (live_percent(page), number))
        });
        let emptiest = sealed.min().filter(|&(live, _)| live < percent);
        emptiest.map_or(Pick::None, |(_, number)| Pick::Page(number))
    }
}
