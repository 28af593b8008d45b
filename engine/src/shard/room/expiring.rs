//! What a shard knows of records that expire, and how far the pass that removes them is.

use crate::log::Address;

/// How far a pass is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Pass {
    /// There is none.
    #[default]
    None,
    /// At this slot of the index.
    Slots(usize),
    /// At the page of this number.
    Pages(u32),
}

/// What a shard knows of records with an expiry.
#[derive(Debug, Default)]
pub(in crate::shard) struct Expiring {
    /// One was stored.
    pub(in crate::shard) any: bool,
    pub(super) pass: Pass,
    /// When the next pass begins.
    pub(super) due_ns: u64,
    /// Addresses that a slice found. Kept, so that a slice does not allocate.
    pub(super) found: Vec<Address>,
    /// Pages to be compacted. Some may have been freed since.
    pub(in crate::shard) pages: Vec<u32>,
}
