//! The pool of far extents that all shards draw from.
//!
//! Every extent is page-sized, so the pool is a queue of numbers. Several shards take and give back at once,
//! once per page and never per request: a bounded multi-producer queue is the right tool.

use crossbeam_queue::ArrayQueue;
use farcore_rdma::{RemoteKey, RemoteSlice};

/// A page-sized piece of far memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent(u32);

/// Free extents of the far memory.
#[derive(Debug)]
pub(crate) struct ExtentPool {
    key: RemoteKey,
    page_bytes: u32,
    count: usize,
    free: ArrayQueue<u32>,
}

impl ExtentPool {
    /// A pool of every whole page in `far_bytes` of memory behind `key`.
    pub(crate) fn new(key: RemoteKey, far_bytes: u64, page_bytes: u32) -> Self {
        let count = u32::try_from(far_bytes / u64::from(page_bytes)).unwrap_or(u32::MAX);
        let free = ArrayQueue::new((count as usize).max(1));
        for extent in 0..count {
            // The queue has room for every extent there is.
            let _ = free.push(extent);
        }
        Self {
            key,
            page_bytes,
            count: count as usize,
            free,
        }
    }

    /// Takes a free extent.
    pub(crate) fn claim(&self) -> Option<Extent> {
        self.free.pop().map(Extent)
    }

    /// Gives an extent back that no work request names any more.
    pub(crate) fn release(&self, extent: Extent) {
        let pushed = self.free.push(extent.0);
        debug_assert!(pushed.is_ok(), "an extent was released twice");
    }

    /// The far address of a byte of an extent.
    pub(crate) fn remote(&self, extent: Extent, offset: u64) -> RemoteSlice {
        RemoteSlice {
            key: self.key,
            offset: u64::from(extent.0) * u64::from(self.page_bytes) + offset,
        }
    }

    /// Extents that nobody holds.
    pub(crate) fn free_count(&self) -> usize {
        self.free.len()
    }

    /// Extents in all.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Bytes of the extents in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        (self.count - self.free.len()) as u64 * u64::from(self.page_bytes)
    }

    /// Bytes of all extents.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.count as u64 * u64::from(self.page_bytes)
    }
}
