//! Why bytes are no value.

use thiserror::Error;

/// Why bytes are no value, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{problem} at byte {at}")]
pub struct Error {
    /// What is wrong.
    pub problem: Problem,
    /// The place of the part that is wrong.
    pub at: u64,
}

/// What is wrong with bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum Problem {
    /// The bytes end before the value does.
    #[error("the bytes end too early")]
    Truncated,
    /// There are bytes behind the value.
    #[error("there are bytes behind the value")]
    Trailing,
    /// No value has this type.
    #[error("the type {0} is unknown")]
    Type(u8),
    /// The value is that of a module.
    #[error("the value is that of a module, which is not supported")]
    Module,
    /// The fields of a hash have expiries.
    #[error("the fields of the hash have expiries, which is not supported")]
    FieldExpiry,
    /// A length has no such form.
    #[error("a length is not well formed")]
    Length,
    /// A packed string does not unpack to its length.
    #[error("a packed string is not well formed")]
    Packed,
    /// A listpack does not add up.
    #[error("a listpack is not well formed")]
    Listpack,
    /// A ziplist does not add up.
    #[error("a ziplist is not well formed")]
    Ziplist,
    /// A zipmap does not add up.
    #[error("a zipmap is not well formed")]
    Zipmap,
    /// A set of integers does not add up, or is not in order.
    #[error("a set of integers is not well formed")]
    Intset,
    /// A collection has no elements.
    #[error("a collection has no elements")]
    Empty,
    /// A score is no number.
    #[error("a score is not a number")]
    Score,
    /// A node of a list is of no known kind.
    #[error("a node of a list is of an unknown kind")]
    Node,
    /// The entries of a stream do not add up, or are not in order.
    #[error("the entries of a stream are not well formed")]
    Stream,
    /// An entry of a stream has more fields than are allowed.
    #[error("an entry of a stream has {0} fields, which are too many")]
    Fields(u64),
    /// The groups of a stream do not add up, or are not in order.
    #[error("the groups of a stream are not well formed")]
    Group,
    /// A file does not begin as one.
    #[error("it is not an RDB file")]
    Magic,
    /// The version is newer than those that are read.
    #[error("the version {0} is not supported")]
    Version(u32),
    /// The checksum is another.
    #[error("the checksum is wrong")]
    Checksum,
    /// A record of a file is of no known kind.
    #[error("the record {0} is unknown")]
    Record(u8),
}

/// Why a read goes no further for now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stop {
    /// More bytes are needed.
    More,
    /// Memory for this many unpacked bytes must be allowed.
    Room(usize),
    /// Some was unpacked, more is to be.
    Busy,
    Bad(Problem),
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Bad(problem)
    }
}
