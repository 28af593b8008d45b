//! Buffers of operations, kept by the shard so that no operation allocates them anew.

use crate::index::Slot;
use crate::index::scan::Order;
use crate::message::hash::IndexHash;

/// Buffers for values that changes make. They grow to the longest value and stay.
#[derive(Debug, Default)]
pub(in crate::shard) struct ChangeScratch {
    pub(super) new: Vec<u8>,
    pub(super) previous: Vec<u8>,
    /// A value with its expiry.
    pub(super) stored: Vec<u8>,
}

/// Buffers of lists. They grow to the longest answer and stay.
#[derive(Debug, Default)]
pub(in crate::shard) struct ListScratch {
    pub(super) slots: Vec<(Order, Slot)>,
    pub(super) answer: Vec<u8>,
}

/// What a transaction does to one key, as it was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Planned {
    pub(super) hash: IndexHash,
    /// When the new record expires.
    pub(super) expiry_ms: Option<u64>,
    /// Units of the new record.
    pub(super) units: u32,
    /// The record that is replaced or removed has expired.
    pub(super) meets_expired: bool,
    pub(super) effect: Effect,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Effect {
    /// The key was not looked at yet, or stays as it is.
    None,
    Delete,
    /// The record's value is overwritten in place.
    Overwrite,
    /// A new record replaces the one that the key's slot leads to.
    Append,
    /// The key gets a slot and a record.
    Insert,
}

/// Buffers of the transaction that is tried. They grow to the longest one and stay.
#[derive(Debug, Default)]
pub(in crate::shard) struct TransactionScratch {
    pub(super) plan: Vec<Planned>,
    /// A value with its expiry.
    pub(super) stored: Vec<u8>,
}
