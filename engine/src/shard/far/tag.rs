//! The tag of a work request: what it was posted for, and its queue pair.
//!
//! ```text
//! bit 63     48 47    40 39     32 31      0
//! |    0:16    | kind:8 | queue:8 |  id:32  |
//! ```

use farcore_rdma::WorkId;

use super::extents::Queue;
use super::read_ahead::ChunkId;

/// What a work request was posted for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::shard) enum Purpose {
    /// The READ of a flight.
    Flight(u32),
    /// A chunk of read-ahead.
    Chunk(ChunkId),
    /// A piece of the page that is being flushed, to the copy at a place.
    Flush(u32, u8),
    /// A READ of compaction.
    Compaction(u32),
    /// A READ that checks whether a node answers.
    Probe,
    /// A piece of a page that is being copied: its READ, or its WRITE.
    Copy(u32),
}

/// The tag of a work request; its completion carries it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::shard) struct WorkTag {
    pub(in crate::shard) purpose: Purpose,
    pub(in crate::shard) queue: Queue,
}

impl WorkTag {
    #[inline]
    pub(super) fn id(self) -> WorkId {
        let (kind, id) = match self.purpose {
            Purpose::Flight(id) => (0, id),
            Purpose::Chunk(id) => (1, u32::from(id.0)),
            Purpose::Flush(id, copy) => (2, id << 8 | u32::from(copy)),
            Purpose::Compaction(id) => (3, id),
            Purpose::Probe => (4, 0),
            Purpose::Copy(id) => (5, id),
        };
        WorkId(kind << 40 | (self.queue.index() as u64) << 32 | u64::from(id))
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "unpacks what `id` packed")]
    pub(super) fn of(id: WorkId) -> Self {
        let low = id.0 as u32;
        let purpose = match id.0 >> 40 {
            0 => Purpose::Flight(low),
            1 => Purpose::Chunk(ChunkId(low as u8)),
            2 => Purpose::Flush(low >> 8, low as u8),
            3 => Purpose::Compaction(low),
            5 => Purpose::Copy(low),
            _ => Purpose::Probe,
        };
        let queue = Queue::at((id.0 >> 32) as u8);
        Self { purpose, queue }
    }
}

#[cfg(test)]
mod tests {
    use super::super::extents::NodeId;
    use super::*;

    #[test]
    fn a_tag_survives_its_packing() {
        let purposes = [
            Purpose::Flight(255),
            Purpose::Chunk(ChunkId(15)),
            Purpose::Flush(7, 2),
            Purpose::Copy(3),
            Purpose::Compaction(u32::MAX),
            Purpose::Probe,
        ];
        for node in [0, 1, 63].map(NodeId::new) {
            for queue in [node.reads(), node.writes()] {
                for purpose in purposes {
                    let tag = WorkTag { purpose, queue };
                    assert_eq!(WorkTag::of(tag.id()), tag);
                }
            }
        }
    }
}
