//! What a client requests of a shard. An [`Operation`] borrows from the caller or from a lane;
//! nothing here owns memory. To add an operation, follow HACKING.md.

/// The version of a record: unique and increasing per key within one engine. `0` means "absent".
pub type Version = u64;

/// One request on one key. Keys are 1 B to 1 KiB, values 0 B to the engine's value limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

    /// The value that the operation carries; empty if it carries none.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &'a [u8] {
        match *self {
            Operation::Put { value, .. } | Operation::CompareAndSwap { value, .. } => value,
            Operation::Get { .. } | Operation::Delete { .. } => &[],
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
}

impl OperationKind {
    /// The last kind: no request has a greater one.
    pub(crate) const LAST: Self = Self::CompareAndSwap;

    /// True if a request of this kind carries an expected version.
    #[inline(always)]
    pub(crate) fn has_expected(self) -> bool {
        match self {
            Self::CompareAndSwap => true,
            Self::Get | Self::Put | Self::Delete => false,
        }
    }

    /// Bytes of the value in its answer, at most, if the key's value has this many bytes: a parked
    /// request reserves room for them.
    #[inline(always)]
    pub(crate) fn answer_bytes(self, value_bytes: usize) -> usize {
        match self {
            Self::Get => value_bytes,
            Self::Put | Self::Delete | Self::CompareAndSwap => 0,
        }
    }

    /// True if it needs the whole record of a far key; else it needs header and key only.
    #[inline(always)]
    pub(crate) fn reads_whole_record(self) -> bool {
        match self {
            Self::Get | Self::CompareAndSwap => true,
            Self::Put | Self::Delete => false,
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

impl<'a> From<Operation<'a>> for RequestParts<'a> {
    #[inline]
    fn from(operation: Operation<'a>) -> Self {
        let (kind, expected) = match operation {
            Operation::Get { .. } => (OperationKind::Get, 0),
            Operation::Put { .. } => (OperationKind::Put, 0),
            Operation::Delete { .. } => (OperationKind::Delete, 0),
            Operation::CompareAndSwap { expected, .. } => (OperationKind::CompareAndSwap, expected),
        };
        Self {
            kind,
            key: operation.key(),
            value: operation.value(),
            expected,
        }
    }
}
