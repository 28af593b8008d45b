//! What a client requests of a shard. An [`Operation`] borrows from the caller or from a lane;
//! nothing here owns memory. To add an operation, follow HACKING.md.

use crate::message::change::Change;

/// The version of a record: unique and increasing per key within one engine. `0` means "absent".
pub type Version = u64;

/// One request on one key. Keys are 1 B to 1 KiB, values 0 B to the engine's value limit.
#[derive(Clone, Copy, Debug, PartialEq)]
// Fields lie in declaration order, so that key and value are at the same offsets in every kind.
#[repr(u8)]
pub enum Operation<'a> {
    /// Read the value of a key.
    Get {
        /// The key.
        key: &'a [u8],
    },
    /// Store a value, whether or not the key exists.
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
    /// Change a key in a way that depends on what it holds.
    Change {
        /// The key.
        key: &'a [u8],
        /// What changes.
        change: Change<'a>,
    },
    /// Read a key's version and length without its value. The answer's value is
    /// [`Metadata`](crate::Metadata).
    Inspect {
        /// The key.
        key: &'a [u8],
    },
    /// Read a part of a value: what lies between `offset` and `offset + bytes`, and less where the
    /// value ends before.
    GetRange {
        /// The key.
        key: &'a [u8],
        /// Where the part begins.
        offset: u32,
        /// The most bytes of it.
        bytes: u32,
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
            | Operation::CompareAndSwap { key, .. }
            | Operation::Change { key, .. }
            | Operation::Inspect { key }
            | Operation::GetRange { key, .. } => key,
        }
    }

    /// The value that the operation carries; empty if it carries none.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &'a [u8] {
        match *self {
            Operation::Put { value, .. } | Operation::CompareAndSwap { value, .. } => value,
            Operation::Change { ref change, .. } => change.bytes(),
            Operation::Get { .. }
            | Operation::Delete { .. }
            | Operation::Inspect { .. }
            | Operation::GetRange { .. } => &[],
        }
    }
}

/// The kind of an operation. A request has 5 bits for it, enough for 32.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum OperationKind {
    Get = 0,
    Put = 1,
    Delete = 2,
    CompareAndSwap = 3,
    Change = 4,
    Inspect = 5,
    GetRange = 6,
}

impl OperationKind {
    /// The last kind: no request has a greater one.
    pub(crate) const LAST: Self = Self::GetRange;

    /// True if a request of this kind carries a word: the expected version, or a range.
    #[inline(always)]
    pub(crate) fn has_word(self) -> bool {
        match self {
            Self::CompareAndSwap | Self::GetRange => true,
            Self::Get | Self::Put | Self::Delete | Self::Change | Self::Inspect => false,
        }
    }

    /// Bytes of the value in its answer, at most, if the key's value has this many bytes: a parked
    /// request reserves room for them.
    #[inline(always)]
    pub(crate) fn answer_bytes(self, value_bytes: usize) -> usize {
        match self {
            Self::Get | Self::Change | Self::GetRange => value_bytes,
            Self::Inspect => size_of::<u64>(),
            Self::Put | Self::Delete | Self::CompareAndSwap => 0,
        }
    }

    /// True if it needs the whole record of a far key; else it needs header and key only.
    #[inline(always)]
    pub(crate) fn reads_whole_record(self) -> bool {
        match self {
            Self::Get | Self::CompareAndSwap | Self::Change | Self::GetRange => true,
            Self::Put | Self::Delete | Self::Inspect => false,
        }
    }
}

/// An operation with its parts in the same places for every kind, so that only kind-specific code
/// branches on the kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestParts<'a> {
    pub(crate) kind: OperationKind,
    pub(crate) key: &'a [u8],
    /// Empty if the kind has no value.
    pub(crate) value: &'a [u8],
    /// The version that a compare-and-swap expects, or the range of a read; else `0`.
    pub(crate) word: u64,
}

/// A range in a word.
pub(crate) fn range_word(offset: u32, bytes: u32) -> u64 {
    u64::from(offset) << 32 | u64::from(bytes)
}

/// The range of a word: where it begins, and its bytes.
#[expect(clippy::cast_possible_truncation, reason = "halves of the word")]
pub(crate) fn word_range(word: u64) -> (usize, usize) {
    ((word >> 32) as usize, word as u32 as usize)
}

impl<'a> RequestParts<'a> {
    /// The parts of an operation; a change is encoded in `scratch`.
    #[inline]
    pub(crate) fn of(operation: &Operation<'a>, scratch: &'a mut Vec<u8>) -> Self {
        let (kind, word) = match *operation {
            Operation::Get { .. } => (OperationKind::Get, 0),
            Operation::Put { .. } => (OperationKind::Put, 0),
            Operation::Delete { .. } => (OperationKind::Delete, 0),
            Operation::CompareAndSwap { expected, .. } => (OperationKind::CompareAndSwap, expected),
            Operation::Change { key, ref change } => return Self::of_change(key, change, scratch),
            Operation::Inspect { .. } => (OperationKind::Inspect, 0),
            Operation::GetRange { offset, bytes, .. } => {
                (OperationKind::GetRange, range_word(offset, bytes))
            }
        };
        Self {
            kind,
            key: operation.key(),
            value: operation.value(),
            word,
        }
    }

    #[cold]
    fn of_change(key: &'a [u8], change: &Change<'_>, scratch: &'a mut Vec<u8>) -> Self {
        change.encode(scratch);
        Self {
            kind: OperationKind::Change,
            key,
            value: scratch,
            word: 0,
        }
    }
}
