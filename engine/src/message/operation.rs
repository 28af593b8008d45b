//! What a client requests of a shard. An [`Operation`] borrows from the caller or from a lane;
//! nothing here owns memory. To add an operation, follow HACKING.md.

use crate::constants::{KEY_BYTES_MAX, UNIT_BYTES};
use crate::message::change::{COLLECTION_BYTES, Change, METADATA_BYTES};
use crate::message::list::{ADDRESS_BYTES, LIST_BYTES};
use crate::message::long::OPENED_BYTES;
use crate::message::transaction::Transaction;
use crate::tree::{TreeGuard, TreeOp};

/// The version of a record: unique and increasing per key within one engine. `0` means "absent".
pub type Version = u64;

/// One request on one key. Keys are 1 B to 1 KiB, values 0 B to the engine's value limit.
#[derive(Clone, Copy, Debug, PartialEq)]
// Fields lie in declaration order, so that key and value are at the same offsets in every kind. The
// kinds are in the order of `OperationKind`, so that one is the other.
#[repr(u8)]
#[non_exhaustive]
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
    /// Check and write several keys of one shard, all or none. Answers
    /// [`Answer::Stored`](crate::Answer::Stored) with the version of the last write (`0` if there
    /// is none), or [`Answer::Conflict`](crate::Answer::Conflict).
    Transaction {
        /// The keys, with what is expected of and written to each.
        transaction: &'a Transaction<'a>,
    },
    /// Read or change the collection of a key.
    Tree {
        /// The key.
        key: &'a [u8],
        /// What is read or changed.
        op: TreeOp<'a>,
        /// Of which collection.
        guard: TreeGuard,
    },
}

impl<'a> Operation<'a> {
    /// The key that the operation names; the first one of a transaction.
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
            | Operation::GetRange { key, .. }
            | Operation::Tree { key, .. } => key,
            Operation::Transaction { transaction } => transaction.first_key(),
        }
    }

    /// The value that the operation carries; empty if it carries none.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &'a [u8] {
        match self {
            Operation::Change { change, .. } => change.bytes(),
            _ => self.plain_value(),
        }
    }

    /// The kind: the kinds are numbered in the order of the variants, so this is a load.
    #[inline(always)]
    fn kind(&self) -> OperationKind {
        match self {
            Operation::Get { .. } => OperationKind::Get,
            Operation::Put { .. } => OperationKind::Put,
            Operation::Delete { .. } => OperationKind::Delete,
            Operation::CompareAndSwap { .. } => OperationKind::CompareAndSwap,
            Operation::Change { .. } => OperationKind::Change,
            Operation::Inspect { .. } => OperationKind::Inspect,
            Operation::GetRange { .. } => OperationKind::GetRange,
            Operation::Transaction { .. } => OperationKind::Transaction,
            Operation::Tree { .. } => OperationKind::Tree,
        }
    }

    /// The value of an operation that is no change.
    #[inline(always)]
    fn plain_value(&self) -> &'a [u8] {
        match *self {
            Operation::Put { value, .. } | Operation::CompareAndSwap { value, .. } => value,
            _ => &[],
        }
    }
}

#[cfg(test)]
impl<'a> Operation<'a> {
    /// One operation of every kind.
    pub(crate) fn of_every_kind(
        key: &'a [u8],
        value: &'a [u8],
    ) -> [Self; OperationKind::LAST_PUBLIC as usize + 1] {
        let change = Change::Append { tail: value };
        let operations = [
            Self::Get { key },
            Self::Put { key, value },
            Self::Delete { key },
            Self::CompareAndSwap {
                key,
                value,
                expected: 5,
            },
            Self::Change { key, change },
            Self::Inspect { key },
            Self::GetRange {
                key,
                offset: 3,
                bytes: 4,
            },
            Self::Transaction {
                transaction: Box::leak(Box::new(Transaction::new().put(key, value))),
            },
            Self::Tree {
                key,
                op: TreeOp::Get { key: value },
                guard: TreeGuard::default(),
            },
        ];
        for (place, operation) in operations.iter().enumerate() {
            assert_eq!(operation.kind() as usize, place, "{operation:?}");
        }
        operations
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
    // From here on the parts of a request are encoded.
    Change = 4,
    Inspect = 5,
    GetRange = 6,
    Transaction = 7,
    Tree = 8,
    // From here on there is no `Operation`: they are about a shard, or a slot of it.
    /// List records in the order of the index.
    List = 9,
    /// Read the record at an address, if a slot still leads there.
    ReadAt = 10,
    /// Answer version and kind of the record at an address, without its value, if a slot still
    /// leads there. A far one is read whole, as a checksum covers it as a whole.
    ReadHeadAt = 11,
    /// Count the keys of a shard.
    Count = 12,
    /// Remove all keys of a shard.
    Clear = 13,
    // Long values: see `message::long`.
    LongBegin = 14,
    LongWrite = 15,
    LongCommit = 16,
    LongAbort = 17,
    LongOpen = 18,
    LongRead = 19,
    /// Count lost keys of a shard as absent.
    ForgetLost = 20,
    /// Read a node of a tree, for an operation that waits for it.
    TreeRead = 21,
    /// Read the head of a collection, for an operation that waits for it.
    TreeHead = 22,
    // Sections: see `message::section`. The reactor serves them, not the shard.
    SectionEnter = 23,
    SectionLeave = 24,
    // What files bring back, and what they need: see `journal::restore`.
    /// Give a key what a file says of it, if that is newer.
    Restore = 25,
    /// Change nodes of a tree as a file says.
    TreePatch = 26,
    /// Answer nodes of a tree as they lie.
    TreeDump = 27,
    /// Give a key that is lost what a file says of it, or answer whether it may be lost.
    Repair = 28,
    /// Write nodes of a tree that are lost.
    RepairNodes = 29,
}

impl OperationKind {
    /// The last kind: no request has a greater one.
    pub(crate) const LAST: Self = Self::RepairNodes;
    /// The last kind that an [`Operation`] has.
    #[cfg(test)]
    pub(crate) const LAST_PUBLIC: Self = Self::Tree;

    /// True if the parts of a request of this kind are encoded.
    #[inline(always)]
    fn is_encoded(self) -> bool {
        self as u8 >= Self::Change as u8
    }

    /// True if a request of this kind carries an expected version.
    #[inline(always)]
    pub(crate) fn has_expected(self) -> bool {
        match self {
            Self::CompareAndSwap => true,
            Self::Get
            | Self::Put
            | Self::Delete
            | Self::Change
            | Self::Inspect
            | Self::GetRange
            | Self::Transaction
            | Self::List
            | Self::ReadAt
            | Self::ReadHeadAt
            | Self::Count
            | Self::Clear
            | Self::ForgetLost
            | Self::LongBegin
            | Self::LongWrite
            | Self::LongCommit
            | Self::LongAbort
            | Self::LongOpen
            | Self::LongRead
            | Self::Tree
            | Self::TreeRead
            | Self::TreeHead
            | Self::SectionEnter
            | Self::SectionLeave
            | Self::Restore
            | Self::Repair
            | Self::TreePatch
            | Self::RepairNodes
            | Self::TreeDump => false,
        }
    }

    /// True if a request of this kind may wait in a flight, and so keeps its order with others of
    /// its hash. A transaction has several keys and a tree several nodes, so they are tried again
    /// from their lane; the others have no hash of their own.
    pub(crate) fn may_wait(self) -> bool {
        !matches!(
            self,
            Self::Transaction
                | Self::Tree
                | Self::List
                | Self::Count
                | Self::Clear
                | Self::ForgetLost
                | Self::LongBegin
                | Self::LongWrite
                | Self::LongAbort
                | Self::SectionEnter
                | Self::SectionLeave
                | Self::TreePatch
                | Self::RepairNodes
                | Self::TreeDump
        )
    }

    /// True if a request of this kind enters or leaves a section.
    pub(crate) fn is_of_section(self) -> bool {
        matches!(self, Self::SectionEnter | Self::SectionLeave)
    }

    /// True if the key of a request of this kind is an address.
    #[inline(always)]
    pub(crate) fn is_by_address(self) -> bool {
        matches!(self, Self::ReadAt | Self::ReadHeadAt)
    }

    /// True if a request of this kind names a key.
    pub(crate) fn names_a_key(self) -> bool {
        (self as u8) < Self::List as u8
            || matches!(
                self,
                Self::LongBegin
                    | Self::LongCommit
                    | Self::LongOpen
                    | Self::Restore
                    | Self::Repair
                    | Self::TreePatch
                    | Self::RepairNodes
                    | Self::TreeDump
            )
    }

    /// Bytes of the value in its answer, at most, if the key's value has this many bytes: a parked
    /// request reserves room for them.
    #[inline(always)]
    pub(crate) fn answer_bytes(self, value_bytes: usize) -> usize {
        match self {
            Self::Get | Self::GetRange | Self::LongRead => value_bytes,
            Self::LongOpen => OPENED_BYTES,
            Self::Change | Self::LongCommit => value_bytes.max(METADATA_BYTES),
            Self::Inspect => COLLECTION_BYTES,
            // The whole record. Its address was taken for the key.
            Self::ReadAt => value_bytes + UNIT_BYTES + ADDRESS_BYTES,
            Self::ReadHeadAt => UNIT_BYTES + KEY_BYTES_MAX,
            Self::List => LIST_BYTES,
            Self::Put
            | Self::Delete
            | Self::CompareAndSwap
            | Self::Count
            | Self::Clear
            | Self::ForgetLost
            | Self::LongBegin
            | Self::LongWrite
            | Self::LongAbort
            | Self::Transaction
            | Self::Tree
            | Self::TreeRead
            | Self::TreeHead
            | Self::SectionEnter
            | Self::SectionLeave
            | Self::Restore
            | Self::Repair
            | Self::TreePatch
            | Self::RepairNodes
            | Self::TreeDump => 0,
        }
    }

    /// True if it needs the whole record of a far key, whose checksum is verified, because its
    /// answer says what the header does; else it needs header and key only.
    #[inline(always)]
    pub(crate) fn reads_whole_record(self) -> bool {
        match self {
            Self::Get
            | Self::CompareAndSwap
            | Self::Inspect
            | Self::Change
            | Self::GetRange
            | Self::ReadAt
            | Self::ReadHeadAt
            | Self::LongCommit
            | Self::LongOpen
            | Self::LongRead
            | Self::TreeRead
            | Self::TreeHead
            | Self::Restore
            | Self::Repair => true,
            Self::Put
            | Self::Delete
            | Self::List
            | Self::Count
            | Self::Clear
            | Self::ForgetLost
            | Self::LongBegin
            | Self::LongWrite
            | Self::LongAbort
            | Self::Transaction
            | Self::Tree
            | Self::SectionEnter
            | Self::SectionLeave
            | Self::TreePatch
            | Self::RepairNodes
            | Self::TreeDump => false,
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
    /// The version that a compare-and-swap expects; else `0`.
    pub(crate) expected: Version,
}

/// The range of a [`Operation::GetRange`], as its request's value carries it: where it begins, and
/// its bytes. An empty range if the value is no range.
pub(crate) fn decode_range(value: &[u8]) -> (usize, usize) {
    let part = |at: usize| {
        let bytes = value.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
    };
    (part(0), part(4))
}

impl<'a> RequestParts<'a> {
    /// The parts of an operation that needs no encoding; `None` for the others.
    #[inline(always)]
    pub(crate) fn plain(operation: &Operation<'a>) -> Option<Self> {
        let kind = operation.kind();
        if kind.is_encoded() {
            return None;
        }
        let expected = match *operation {
            Operation::CompareAndSwap { expected, .. } => expected,
            _ => 0,
        };
        Some(Self {
            kind,
            key: operation.key(),
            value: operation.plain_value(),
            expected,
        })
    }

    /// The parts of an operation; a change is encoded in `scratch`.
    #[inline(always)]
    pub(crate) fn of(operation: &Operation<'a>, scratch: &'a mut Vec<u8>) -> Self {
        match Self::plain(operation) {
            Some(parts) => parts,
            None => Self::of_rare(operation, scratch),
        }
    }

    #[inline(never)]
    fn of_rare(operation: &Operation<'a>, scratch: &'a mut Vec<u8>) -> Self {
        if let Operation::Change { key, ref change } = *operation
            && let Some((expected, value)) = change.as_swap()
        {
            return Self {
                kind: OperationKind::CompareAndSwap,
                key,
                value,
                expected,
            };
        }
        scratch.clear();
        let kind = match *operation {
            Operation::Change { ref change, .. } => {
                change.encode(scratch);
                OperationKind::Change
            }
            Operation::GetRange { offset, bytes, .. } => {
                scratch.extend(offset.to_le_bytes());
                scratch.extend(bytes.to_le_bytes());
                OperationKind::GetRange
            }
            Operation::Transaction { transaction } => {
                transaction.encode(scratch);
                OperationKind::Transaction
            }
            Operation::Tree { ref op, guard, .. } => {
                op.encode(guard, scratch);
                OperationKind::Tree
            }
            _ => OperationKind::Inspect,
        };
        Self {
            kind,
            key: operation.key(),
            value: scratch,
            expected: 0,
        }
    }
}
