//! One request as a file states it, and what can be wrong with it.

use serde::{Deserialize, Serialize};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Read.
    Get,
    /// Write.
    Set,
    /// Make longer.
    Extend,
    /// Write anew with the same length.
    Modify,
    /// Remove.
    Delete,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key: 1 B to 1 KiB.
    pub key: &'a [u8],
    /// What is asked.
    pub verb: Verb,
    /// The stated size of the value, in bytes, whatever it is.
    pub value_bytes: u64,
}

/// Why a line or a record is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flaw {
    /// The first line names the columns.
    Header,
    /// Fewer than seven fields.
    Fields,
    /// Time, key size or value size is not a number of 64 bits.
    Number,
    /// No key.
    KeyEmpty,
    /// A key longer than an engine takes.
    KeyTooLong,
    /// An operation that the format does not know.
    Operation,
    /// A line longer than any request could be.
    LineTooLong,
    /// The file ends within a record.
    Truncated,
}

impl Flaw {
    /// What to say of it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Header => "a header",
            Self::Fields => "fewer than 7 fields",
            Self::Number => "a time or a size that is no number",
            Self::KeyEmpty => "an empty key",
            Self::KeyTooLong => "a key of more than 1024 bytes",
            Self::Operation => "an unknown operation",
            Self::LineTooLong => "a line of more than 8192 bytes",
            Self::Truncated => "a record cut short by the end of the file",
        }
    }
}
