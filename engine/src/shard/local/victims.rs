//! Victims: far pages listed by live share, so that the emptiest is found without a search.
//!
//! A page on a node that does not answer is set aside until the node is back.
//!
//! ```text
//! list 0 .. 63: pages by live share, a 64th each | list 64 + n: pages set aside for node n
//! ```
//!
//! Each list is doubly linked through one table with an entry for every page number. Nothing
//! allocates after construction.
//!
//! - I1: a page that is clean or far, has records and no pins, is in the list of its live share or
//!   a higher one, or set aside.
//! - I2: the sums are over the pages that are clean or far.
//! - I3: a page is in the list that its `bin` names and in no other. A freed page is in none.

use crate::constants::UNIT_BYTES;
use crate::shard::far::{NODES_MAX, NodeId};
use crate::shard::local::page_table::{Page, PageKind, PageState, PageTable, UNLISTED};

/// Lists by live share. Many, because nearly full pages are compacted as well if nothing else makes
/// room.
const BINS: usize = 64;
/// The end of a list.
const END: u32 = u32::MAX;

const _: () = assert!(BINS + NODES_MAX < UNLISTED as usize);

/// The neighbours of a page in its list.
#[derive(Clone, Copy, Debug)]
struct Link {
    next: u32,
    previous: u32,
}

/// Far pages by live share, and their sums.
#[derive(Debug)]
pub(in crate::shard) struct Victims {
    /// The first page of each list.
    heads: Vec<u32>,
    /// List neighbours, by page number.
    links: Vec<Link>,
    /// Pages that are set aside.
    aside_count: usize,
    /// Clean and far pages.
    pub(in crate::shard) pages: u64,
    /// Bytes of their records that are alive.
    pub(in crate::shard) live_bytes: u64,
    /// Bytes of all their records.
    pub(in crate::shard) record_bytes: u64,
}

/// Bytes of a page's records and header.
fn used_bytes(page: &Page) -> u64 {
    u64::from(page.units.max(1)) * UNIT_BYTES as u64
}

/// The live share of a page, in percent.
pub(in crate::shard) fn live_percent(page: &Page) -> u64 {
    page.live_bytes * 100 / used_bytes(page)
}

fn is_far(page: &Page) -> bool {
    page.kind() == PageKind::Log && matches!(page.state(), PageState::Clean | PageState::Far)
}

/// The list of the pages that are set aside for a node.
fn aside_of(node: NodeId) -> u8 {
    u8::try_from(BINS + node.position()).unwrap_or(UNLISTED)
}

fn is_aside(bin: u8) -> bool {
    bin != UNLISTED && usize::from(bin) >= BINS
}

impl Victims {
    /// Empty lists for this many page numbers.
    pub(in crate::shard) fn new(nodes: usize, pages: usize) -> Self {
        let none = Link {
            next: END,
            previous: END,
        };
        Self {
            heads: vec![END; BINS + nodes],
            links: vec![none; pages],
            aside_count: 0,
            pages: 0,
            live_bytes: 0,
            record_bytes: 0,
        }
    }

    /// Bytes of the table for a number of pages.
    pub(in crate::shard) fn bytes_for(pages: usize) -> u64 {
        (pages * size_of::<Link>()) as u64
    }

    /// Puts an unlisted page at the head of a list.
    fn link(&mut self, page: &mut Page, number: u32, bin: u8) {
        debug_assert!(page.bin == UNLISTED, "a page is in one list");
        page.bin = bin;
        let next = std::mem::replace(&mut self.heads[usize::from(bin)], number);
        self.links[number as usize] = Link {
            next,
            previous: END,
        };
        if next != END {
            self.links[next as usize].previous = number;
        }
        self.aside_count += usize::from(is_aside(bin));
    }

    /// Removes a page from its list, if it is in one.
    pub(in crate::shard) fn unlist(&mut self, page: &mut Page, number: u32) {
        let bin = std::mem::replace(&mut page.bin, UNLISTED);
        if bin == UNLISTED {
            return;
        }
        let Link { next, previous } = self.links[number as usize];
        if next != END {
            self.links[next as usize].previous = previous;
        }
        if previous == END {
            self.heads[usize::from(bin)] = next;
        } else {
            self.links[previous as usize].next = next;
        }
        self.aside_count -= usize::from(is_aside(bin));
    }

    /// Every list with its bin and its page numbers.
    #[cfg(any(test, feature = "simulation"))]
    pub(in crate::shard) fn lists(&self) -> impl Iterator<Item = (u8, Vec<u32>)> {
        let listed = |number: u32| (number != END).then_some(number);
        (0u8..).zip(&self.heads).map(move |(bin, &head)| {
            let listed = std::iter::successors(listed(head), |&number| {
                listed(self.links[number as usize].next)
            });
            (bin, listed.collect())
        })
    }

    /// Adds a page that has reached far memory.
    pub(in crate::shard) fn gain(&mut self, pages: &mut PageTable, number: u32) {
        let page = pages.get(number);
        self.pages += 1;
        self.live_bytes += page.live_bytes;
        self.record_bytes += page.record_bytes;
        self.list(pages, number);
    }

    /// Notes that records of a page died; its entry no longer counts their bytes.
    #[inline]
    pub(in crate::shard) fn died(&mut self, pages: &mut PageTable, number: u32, bytes: u64) {
        if is_far(pages.get(number)) {
            self.live_bytes = self.live_bytes.saturating_sub(bytes);
            self.list(pages, number);
        }
    }

    /// Removes a page that is about to be freed.
    pub(in crate::shard) fn lose(&mut self, pages: &mut PageTable, number: u32) {
        let page = pages.get_mut(number);
        self.unlist(page, number);
        if is_far(page) {
            self.pages -= 1;
            self.record_bytes -= page.record_bytes;
        }
    }

    /// Removes a page that is local and no longer far.
    pub(in crate::shard) fn withdraw(&mut self, pages: &mut PageTable, number: u32) {
        self.lose(pages, number);
        self.live_bytes = self.live_bytes.saturating_sub(pages.get(number).live_bytes);
    }

    /// Lists a page by its live share, unless it is in a list that low already.
    pub(in crate::shard) fn list(&mut self, pages: &mut PageTable, number: u32) {
        let page = pages.get_mut(number);
        if !is_far(page) || page.damaged || is_aside(page.bin) {
            return;
        }
        let share = page.live_bytes * BINS as u64 / used_bytes(page);
        let bin = usize::try_from(share).map_or(BINS - 1, |share| share.min(BINS - 1));
        let bin = u8::try_from(bin).unwrap_or(UNLISTED);
        if page.bin == UNLISTED || bin < page.bin {
            self.unlist(page, number);
            self.link(page, number, bin);
        }
    }

    /// Sets a page aside until the node of its extent is back.
    pub(in crate::shard) fn set_aside(&mut self, pages: &mut PageTable, number: u32, node: NodeId) {
        let page = pages.get_mut(number);
        self.unlist(page, number);
        self.link(page, number, aside_of(node));
    }

    /// Pages that are set aside.
    pub(in crate::shard) fn aside_count(&self) -> usize {
        self.aside_count
    }

    /// Lists up to `most` pages of a node again; true if there were any.
    pub(in crate::shard) fn list_again(
        &mut self,
        pages: &mut PageTable,
        node: NodeId,
        most: usize,
    ) -> bool {
        let mut listed = false;
        for _ in 0..most {
            let number = self.heads[usize::from(aside_of(node))];
            if number == END {
                break;
            }
            self.unlist(pages.get_mut(number), number);
            self.list(pages, number);
            listed = true;
        }
        listed
    }

    /// Takes a page from the lowest list below `percent`. A pinned page is skipped and listed again
    /// when it is unpinned.
    pub(in crate::shard) fn take(&mut self, pages: &mut PageTable, percent: u64) -> Option<u32> {
        for bin in 0..BINS {
            if bin as u64 * 100 >= percent * BINS as u64 {
                return None;
            }
            while self.heads[bin] != END {
                let number = self.heads[bin];
                let page = pages.get_mut(number);
                if live_percent(page) >= percent {
                    break;
                }
                self.unlist(page, number);
                if page.damaged {
                    continue;
                }
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
