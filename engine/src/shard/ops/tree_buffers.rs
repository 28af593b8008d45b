//! Buffers of operations on collections.

use crate::log::record::LocalRecord;
use crate::tree::TreeScratch;

/// Buffers of operations on trees. They grow to the largest one and stay.
#[derive(Debug, Default)]
pub(in crate::shard) struct TreeBuffers {
    pub(super) work: TreeScratch,
    pub(super) answer: Vec<u8>,
    /// Units of the records that are appended.
    pub(super) units: Vec<u32>,
    /// Records that are changed in place, of no meaning behind the operation.
    pub(super) records: Vec<LocalRecord>,
    /// A node as its record has it, or a head.
    pub(super) stored: Vec<u8>,
}
