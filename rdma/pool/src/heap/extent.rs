//! A claimed extent, divided into pages.

use farcore_rdma::RemoteSlice;

use super::bits::Bits;
use super::lengths::PAGE_BYTES;

/// A claimed extent.
#[derive(Debug)]
pub(super) struct Extent {
    /// Its number on the node.
    pub(super) number: u32,
    slice: RemoteSlice,
    pages: Bits,
    longest: u32,
}

impl Extent {
    pub(super) fn new(number: u32, slice: RemoteSlice, bytes: u64) -> Self {
        let pages = u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX);
        Self {
            number,
            slice,
            pages: Bits::new(pages),
            longest: pages,
        }
    }

    /// The longest run of free pages.
    pub(super) fn longest(&self) -> u32 {
        self.longest
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.count() == 0
    }

    pub(super) fn free_pages(&self) -> u32 {
        self.pages.limit() - self.pages.count()
    }

    /// Where a page begins.
    pub(super) fn slice(&self, page: u32) -> RemoteSlice {
        RemoteSlice {
            offset: self.slice.offset + u64::from(page) * PAGE_BYTES,
            ..self.slice
        }
    }

    /// Takes the first run of free pages that is long enough. Returns its first page.
    pub(super) fn take(&mut self, count: u32) -> Option<u32> {
        let (first, _) = self.pages.gaps().find(|&(_, length)| length >= count)?;
        for page in first..first + count {
            self.pages.insert(page);
        }
        self.measure();
        Some(first)
    }

    /// Gives pages back; false, with no effect, if one of them is not taken.
    pub(super) fn give(&mut self, first: u32, count: u32) -> bool {
        let end = first.checked_add(count);
        let pages = end.map(|end| first..end);
        let Some(pages) = pages.filter(|pages| pages.clone().all(|page| self.pages.has(page)))
        else {
            return false;
        };
        for page in pages {
            self.pages.remove(page);
        }
        self.measure();
        true
    }

    fn measure(&mut self) {
        self.longest = self
            .pages
            .gaps()
            .map(|(_, length)| length)
            .max()
            .unwrap_or(0);
    }
}
