//! The landing buffers of a shard's transfers, divided by purpose, in registered memory.
//! ```text
//! | reads | messages | flush | compaction |     each: 8 KiB slabs, then an area for longer runs
//! ```
//!
//! - I1: a READ's buffer is held until its requests are answered or wait for local memory, a
//!   message until its request is answered. Room for answers is reserved before a request is
//!   parked. So a client that does not poll holds no READ's buffer, and a message only if its value
//!   turned out longer than that room.
//! - I2: no purpose takes another's buffers. Parked requests cannot keep their own READs from
//!   landing, and requests cannot keep pages from being flushed or compacted.
//! - I3: the large area of messages holds the longest message, that of reads two of the longest
//!   records, and that of compaction the longest record beside the longest directory.

use farcore_rdma::{LandingOptions, LandingPool};

/// The longest buffer that is allocated from slabs, in bytes.
pub(in crate::shard) const SMALL_BYTES_MAX: u32 = 8 << 10;
/// The least and the most bytes of slabs for READs.
const READ_SLABS_MIN: usize = 128 << 10;
const READ_SLABS_MAX: usize = 4 << 20;
/// The most bytes of slabs that flush, or compaction, can use at once: 16 transfers.
const BACKGROUND_SLABS_MAX: usize = 16 * SMALL_BYTES_MAX as usize;

/// Bytes of one pool.
#[derive(Clone, Copy, Debug)]
struct Area {
    slabs: usize,
    large: usize,
}

impl Area {
    fn bytes(self) -> usize {
        self.slabs + self.large
    }

    fn pool(self, base: &mut usize) -> LandingPool {
        let pool = LandingPool::new(LandingOptions {
            base: *base as u64,
            bytes: self.bytes() as u64,
            large_bytes: self.large as u64,
        });
        *base += self.bytes();
        pool
    }
}

/// How much of a shard's local memory each purpose gets.
#[derive(Clone, Copy, Debug)]
pub(in crate::shard) struct BufferLayout {
    reads: Area,
    messages: Area,
    flush: Area,
    compaction: Area,
}

impl BufferLayout {
    /// The layout for this much local memory.
    pub(in crate::shard) fn of(local_bytes: usize, page_bytes: usize) -> Self {
        let slabs = (local_bytes / 64)
            .next_power_of_two()
            .clamp(READ_SLABS_MIN, READ_SLABS_MAX);
        let background = (slabs / 2).min(BACKGROUND_SLABS_MAX);
        Self {
            reads: Area {
                slabs,
                large: 2 * page_bytes,
            },
            messages: Area {
                slabs: slabs / 4,
                // A value is half a page at most, and its key is read with it.
                large: page_bytes / 2 + SMALL_BYTES_MAX as usize,
            },
            flush: Area {
                slabs: background,
                large: 0,
            },
            compaction: Area {
                slabs: background,
                large: page_bytes,
            },
        }
    }

    /// The layout for pages that are flushed from their frames: nothing is copied on the way, and
    /// READs get that memory.
    pub(in crate::shard) fn without_flush(mut self) -> Self {
        self.reads.slabs += self.flush.slabs;
        self.flush.slabs = 0;
        self
    }

    /// Bytes of all buffers.
    pub(in crate::shard) fn bytes(&self) -> usize {
        let Self {
            reads,
            messages,
            flush,
            compaction,
        } = self;
        reads.bytes() + messages.bytes() + flush.bytes() + compaction.bytes()
    }
}

/// The pools, one for each purpose.
#[derive(Debug)]
pub(in crate::shard) struct Buffers {
    /// Where the READs of requests land.
    pub(in crate::shard) reads: LandingPool,
    /// Copies of parked requests.
    pub(in crate::shard) messages: LandingPool,
    /// Ciphertext on its way to far memory.
    pub(in crate::shard) flush: LandingPool,
    /// Where compaction's READs land.
    pub(in crate::shard) compaction: LandingPool,
}

impl Buffers {
    /// The pools, from the first byte of the region.
    pub(in crate::shard) fn new(layout: &BufferLayout) -> Self {
        let mut base = 0;
        Self {
            reads: layout.reads.pool(&mut base),
            messages: layout.messages.pool(&mut base),
            flush: layout.flush.pool(&mut base),
            compaction: layout.compaction.pool(&mut base),
        }
    }

    /// Bytes allocated from all pools.
    pub(in crate::shard) fn in_use_bytes(&self) -> u64 {
        let Self {
            reads,
            messages,
            flush,
            compaction,
        } = self;
        let pools = [reads, messages, flush, compaction];
        pools.into_iter().map(LandingPool::in_use_bytes).sum()
    }
}

/// True if a buffer of this many bytes is allocated from the large area.
pub(in crate::shard) fn is_long(bytes: u32) -> bool {
    bytes > SMALL_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::constants::{KEY_BYTES_MAX, PAGE_BYTES_MAX, PAGE_BYTES_MIN, UNIT_BYTES};
    use crate::log::page::DIRECTORY_ENTRY_BYTES;

    #[test]
    fn every_purpose_has_room_for_its_longest_buffer() {
        let mut page_bytes = PAGE_BYTES_MIN;
        while page_bytes <= PAGE_BYTES_MAX {
            for local_bytes in [0, 4 << 20, 1 << 30] {
                let layout = BufferLayout::of(local_bytes, page_bytes);
                let mut buffers = Buffers::new(&layout);
                let value = page_bytes / 2;
                // Header, key, value and tag.
                let bytes = UNIT_BYTES + KEY_BYTES_MAX + value + UNIT_BYTES;
                let record = u32::try_from(bytes).unwrap();
                let message = u32::try_from(8 + KEY_BYTES_MAX + value).unwrap();
                // The shortest record is of two units; the directory also has a tag.
                let directory = |bytes: usize| {
                    let records = bytes / (2 * UNIT_BYTES + DIRECTORY_ENTRY_BYTES);
                    u32::try_from(records * DIRECTORY_ENTRY_BYTES + UNIT_BYTES).unwrap()
                };
                assert!(buffers.messages.allocate(message).is_some());
                assert!(buffers.reads.allocate(record).is_some());
                let longest = buffers.compaction.allocate(directory(page_bytes));
                assert!(longest.is_some(), "{page_bytes}: {layout:?}");
                let mut buffers = Buffers::new(&layout);
                let beside = buffers.compaction.allocate(directory(page_bytes - bytes));
                assert!(beside.is_some() && buffers.compaction.allocate(record).is_some());
            }
            page_bytes *= 2;
        }
    }
}
