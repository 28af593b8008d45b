//! What operations take and return.

use farcore_protocol::{ConditionKind, ExpiryConditionKind, ExpiryKind};

/// The version of a key: unique and increasing per key; 0 means that the key is absent.
pub type Version = u64;

/// A value that was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Value {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The key's version.
    pub version: Version,
}

/// When a key expires.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Expiry {
    /// Never.
    #[default]
    Never,
    /// When it would have expired before.
    Keep,
    /// At a time, in milliseconds since 1970. A time in the past deletes the key.
    At(u64),
    /// After a time from now, in milliseconds. 0 deletes the key.
    In(u64),
}

impl Expiry {
    /// Kind and argument, as they are sent.
    pub(crate) fn encode(self) -> (ExpiryKind, u64) {
        match self {
            Self::Never => (ExpiryKind::Never, 0),
            Self::Keep => (ExpiryKind::Keep, 0),
            Self::At(at_ms) => (ExpiryKind::At, at_ms),
            Self::In(milliseconds) => (ExpiryKind::In, milliseconds),
        }
    }
}

/// What a key must be for a put to happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Condition {
    /// Anything.
    #[default]
    Always,
    /// The key is absent.
    Absent,
    /// The key exists.
    Present,
    /// The key has this version; 0 means that it is absent.
    Version(Version),
}

impl Condition {
    /// Kind and version, as they are sent.
    pub(crate) fn encode(self) -> (ConditionKind, Version) {
        match self {
            Self::Always => (ConditionKind::Always, 0),
            Self::Absent => (ConditionKind::Absent, 0),
            Self::Present => (ConditionKind::Present, 0),
            Self::Version(version) => (ConditionKind::Version, version),
        }
    }
}

/// How and when a put happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PutOptions {
    /// When the key expires.
    pub expiry: Expiry,
    /// What the key must be.
    pub condition: Condition,
}

/// How a put ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutOutcome {
    /// It was stored, under this version; 0 if its expiry was past already.
    Stored(Version),
    /// The condition does not hold: the key's version, 0 if it is absent.
    Unmet(Version),
}

/// How a compare-and-swap ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CasOutcome {
    /// It was stored, under this version.
    Stored(Version),
    /// The key has another version; 0 means that it is absent.
    Mismatch(Version),
}

/// What a key's expiry must be for another to be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExpiryCondition {
    /// Anything.
    #[default]
    Always,
    /// The key does not expire.
    Unset,
    /// The key expires.
    Set,
    /// The new expiry is later.
    Later,
    /// The new expiry is earlier.
    Earlier,
}

impl ExpiryCondition {
    pub(crate) fn encode(self) -> ExpiryConditionKind {
        match self {
            Self::Always => ExpiryConditionKind::Always,
            Self::Unset => ExpiryConditionKind::Unset,
            Self::Set => ExpiryConditionKind::Set,
            Self::Later => ExpiryConditionKind::Later,
            Self::Earlier => ExpiryConditionKind::Earlier,
        }
    }
}

/// What is known of a key beside its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata {
    /// The version.
    pub version: Version,
    /// Bytes of the value.
    pub length: u64,
    /// When it expires, in milliseconds since 1970.
    pub expiry_ms: Option<u64>,
    /// The key holds a collection, as a hash of the Redis protocol is: only that reads it.
    pub collection: bool,
}

/// Where a scan goes on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cursor(pub(crate) farcore_protocol::scan::Cursor);

/// What a scan returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanOptions {
    /// Values beside keys, as far as they fit the page: a page has at most 1 MiB. Default: no.
    pub values: bool,
    /// Entries of a page, about: 1 to 512. Default 128.
    pub entries: u32,
}

impl Default for ScanOptions {
    fn default() -> Self {
        Self {
            values: false,
            entries: 128,
        }
    }
}

/// An entry of a scan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanEntry {
    /// The key.
    pub key: Vec<u8>,
    /// The value, if the scan has values and it fits the page.
    pub value: Option<Vec<u8>>,
    /// What is known beside it. The expiry is known only to a scan with values.
    pub metadata: Metadata,
}

/// A page of a scan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanPage {
    /// The entries.
    pub entries: Vec<ScanEntry>,
    /// Where it goes on; `None` at its end.
    pub next: Option<Cursor>,
    /// Records that were lost or are damaged, whose keys are unknown.
    pub unreadable: u64,
}
