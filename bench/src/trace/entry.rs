//! One request as a trace file states it, and why a line or record is skipped.
//!
//! The key is borrowed from the reader's buffer; nothing is allocated a request.

use farcore::Expiry;
use serde::{Deserialize, Serialize};

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Read.
    Get,
    /// Write.
    Set,
    /// Append or prepend: write a longer value.
    Extend,
    /// Increment or decrement: write a value of the same length.
    Modify,
    /// Remove.
    Delete,
    /// Set when the key expires.
    Touch,
    /// Read, and set when the key expires.
    GetAndTouch,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The key: 1 B to 1 KiB.
    pub key: &'a [u8],
    /// The operation.
    pub verb: Verb,
    /// The stated size of the value, in bytes; not limited.
    pub value_bytes: u64,
    /// The time to live of what is written: [`Expiry::Never`], [`Expiry::Keep`] or [`Expiry::In`].
    pub expiry: Expiry,
}

/// Why a line or a record is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flaw {
    /// The first line is a header.
    Header,
    /// Fewer than seven fields.
    Fields,
    /// Time, key size or value size is not a number of 64 bits.
    Number,
    /// The key is empty.
    KeyEmpty,
    /// The key is longer than the engines take.
    KeyTooLong,
    /// The operation is unknown.
    Operation,
    /// The line is longer than any request can be.
    LineTooLong,
    /// The file ends within a record.
    Truncated,
}

impl Flaw {
    /// The reason in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Header => "a header",
            Self::Fields => "fewer than 7 fields",
            Self::Number => "a time or a size that is not a number",
            Self::KeyEmpty => "an empty key",
            Self::KeyTooLong => "a key of more than 1024 bytes",
            Self::Operation => "an unknown operation",
            Self::LineTooLong => "a line of more than 8192 bytes",
            Self::Truncated => "a record cut short by the end of the file",
        }
    }
}
