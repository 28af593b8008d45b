//! What a client asks of a shard and what the shard answers.
//!
//! Both borrow: an [`Operation`] from the caller or from a lane, an [`Answer`] from a frame, a
//! landing buffer, a lane, or whoever met an error. Nothing here owns memory. Allocated is only
//! what must outlive its place: a value answered to a call, and one too long for a lane.

use crate::error::Error;

/// The version of a record: unique and increasing per key within one engine. `0` means "absent".
pub type Version = u64;

/// One request on one key. Keys are 1 B to 1 KiB, values 0 B to the engine's value limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Fields lie in the order in which they are declared: the key of every kind in one place, and the
// value of both.
#[repr(u8)]
pub enum Operation<'a> {
    /// Read the value of a key.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Store a value, whatever was there.
    Put {
        /// The key.
        key: &'a [u8],
        /// The new value.
        value: &'a [u8],
    },
    /// Remove a key.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Store a value if the key's version is `expected`; `0` expects that the key is absent.
    CompareAndSwap {
        /// The key.
        key: &'a [u8],
        /// The new value.
        value: &'a [u8],
        /// The version that the key must have.
        expected: Version,
    },
}

impl<'a> Operation<'a> {
    /// The key that the operation names.
    #[inline]
    #[must_use]
    pub fn key(&self) -> &'a [u8] {
        match *self {
            Operation::Get { key }
            | Operation::Put { key, .. }
            | Operation::Delete { key }
            | Operation::CompareAndSwap { key, .. } => key,
        }
    }

    /// The value that the operation carries; empty where it carries none.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &'a [u8] {
        match *self {
            Operation::Put { value, .. } | Operation::CompareAndSwap { value, .. } => value,
            Operation::Get { .. } | Operation::Delete { .. } => &[],
        }
    }
}

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum OperationKind {
    Get = 0,
    Put = 1,
    Delete = 2,
    Swap = 3,
}

/// An operation whose parts lie in the same places whatever its kind, so that only what depends on
/// the kind branches on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestParts<'a> {
    pub(crate) kind: OperationKind,
    pub(crate) key: &'a [u8],
    /// Empty where the kind has none.
    pub(crate) value: &'a [u8],
    /// What a swap expects; `0` otherwise.
    pub(crate) expected: Version,
}

impl<'a> From<Operation<'a>> for RequestParts<'a> {
    #[inline]
    fn from(operation: Operation<'a>) -> Self {
        let (kind, expected) = match operation {
            Operation::Get { .. } => (OperationKind::Get, 0),
            Operation::Put { .. } => (OperationKind::Put, 0),
            Operation::Delete { .. } => (OperationKind::Delete, 0),
            Operation::CompareAndSwap { expected, .. } => (OperationKind::Swap, expected),
        };
        Self {
            kind,
            key: operation.key(),
            value: operation.value(),
            expected,
        }
    }
}

/// The answer to one [`Operation`]. What it borrows is there until the visitor that was handed it
/// returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// A get found the key.
    Value {
        /// The record's version.
        version: Version,
        /// The value; valid until the visitor that was handed it returns.
        value: &'a [u8],
    },
    /// A get or a delete found no such key.
    Absent,
    /// A put, or a compare-and-swap whose expectation held, stored its value under this version.
    Stored {
        /// The new record's version.
        version: Version,
    },
    /// A delete removed the key.
    Deleted,
    /// A compare-and-swap met another version and changed nothing; `0` means that the key is
    /// absent.
    Mismatch {
        /// The version that the key has.
        current: Version,
    },
    /// The operation failed and changed nothing that was stored.
    Failed(&'a Error),
}

const _: () = assert!(size_of::<Answer<'_>>() == 4 * size_of::<u64>());

impl<'a> Answer<'a> {
    /// The value that the answer carries; empty where it carries none.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &'a [u8] {
        match *self {
            Answer::Value { value, .. } => value,
            _ => &[],
        }
    }
}
