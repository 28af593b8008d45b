//! Changes of one key that depend on what the key holds: conditional puts and deletes, counters,
//! appends and ranges. A shard carries each out in one step, so no client sees a half of it.
//!
//! `wire` says how a [`Change`] is sent, `decision` what it does, without shard or memory.

mod decision;
mod metadata;
mod number;
#[cfg(test)]
mod tests;
mod wire;

use crate::message::expiry::{Expiry, ExpiryCondition};
use crate::message::operation::Version;

pub(crate) use self::decision::{Circumstances, Current, Decision, Effect, Reply};
pub(crate) use self::metadata::{COLLECTION_BYTES, METADATA_BYTES};
pub use self::metadata::{CollectionMetadata, Metadata};
pub(crate) use self::wire::CHANGE_BYTES;

/// What a key must be for a change to happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition<'a> {
    /// Anything.
    #[default]
    Always,
    /// The key is absent.
    Absent,
    /// The key exists.
    Present,
    /// The key has this version; `0` means that it is absent.
    Version(Version),
    /// The key exists with this value.
    Equals(&'a [u8]),
}

/// How and when a put happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOptions<'a> {
    /// When the key expires.
    pub expiry: Expiry,
    /// What the key must be.
    pub condition: Condition<'a>,
}

/// A change that depends on what the key holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change<'a> {
    /// Store a value if the condition holds. Answers [`Answer::Stored`](crate::Answer::Stored), or
    /// with `previous` the value before as [`Answer::Value`](crate::Answer::Value) or
    /// [`Answer::Absent`](crate::Answer::Absent). With an expiry in the past the key is deleted:
    /// [`Answer::Deleted`](crate::Answer::Deleted), or [`Answer::Absent`](crate::Answer::Absent) if
    /// it was absent.
    Put {
        /// The new value.
        value: &'a [u8],
        /// When it expires.
        expiry: Expiry,
        /// What the key must be.
        condition: Condition<'a>,
        /// Answer the value before.
        previous: bool,
    },
    /// Remove the key if the condition holds. Answers [`Answer::Deleted`](crate::Answer::Deleted),
    /// or with `previous` the value before; [`Answer::Absent`](crate::Answer::Absent) if there was
    /// none and the condition allows that.
    Delete {
        /// What the key must be.
        condition: Condition<'a>,
        /// Answer the value before.
        previous: bool,
    },
    /// Set when the key expires, if the condition holds. Answers
    /// [`Answer::Stored`](crate::Answer::Stored), or with `value` the value as
    /// [`Answer::Value`](crate::Answer::Value); [`Answer::Mismatch`](crate::Answer::Mismatch) if
    /// the condition does not hold, [`Answer::Deleted`](crate::Answer::Deleted) if the time is
    /// past, [`Answer::Absent`](crate::Answer::Absent) if there is no such key.
    SetExpiry {
        /// When it expires.
        expiry: Expiry,
        /// What its expiry must be.
        condition: ExpiryCondition,
        /// Answer the value.
        value: bool,
    },
    /// Add to a decimal integer; an absent key counts as 0. Answers the sum in decimal.
    Increment {
        /// What is added.
        by: i64,
    },
    /// Add to a decimal number; an absent key counts as 0. Answers the sum in decimal.
    IncrementFloat {
        /// What is added.
        by: f64,
    },
    /// Add bytes behind the value; an absent key counts as empty. Answers [`Metadata`].
    Append {
        /// The bytes.
        tail: &'a [u8],
    },
    /// Overwrite a part of the value. What lies between its end and the part is filled with zeros.
    /// Answers [`Metadata`].
    SetRange {
        /// Where the part begins.
        offset: u64,
        /// The new bytes; with none, nothing changes.
        bytes: &'a [u8],
    },
}

impl<'a> Change<'a> {
    /// The bytes that the change stores or adds; empty if it carries none.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        match *self {
            Self::Put { value: bytes, .. }
            | Self::Append { tail: bytes }
            | Self::SetRange { bytes, .. } => bytes,
            Self::Delete { .. }
            | Self::SetExpiry { .. }
            | Self::Increment { .. }
            | Self::IncrementFloat { .. } => &[],
        }
    }

    /// The expected version and the value of a change that does no more than a compare-and-swap,
    /// which is faster and answered alike.
    pub(crate) fn as_swap(&self) -> Option<(Version, &'a [u8])> {
        let Self::Put {
            value,
            expiry: Expiry::Never,
            condition,
            previous: false,
        } = *self
        else {
            return None;
        };
        match condition {
            Condition::Absent => Some((0, value)),
            Condition::Version(version) => Some((version, value)),
            Condition::Always | Condition::Present | Condition::Equals(_) => None,
        }
    }

    /// True if neither what it does nor its answer depends on what the key holds.
    pub(crate) fn is_blind(&self) -> bool {
        matches!(
            self,
            Self::Put {
                condition: Condition::Always,
                previous: false,
                expiry: Expiry::Never | Expiry::At(_) | Expiry::In(_),
                ..
            }
        )
    }

    /// True if it removes the key whatever that holds, and does not answer what it held.
    pub(crate) fn is_plain_delete(&self) -> bool {
        matches!(
            self,
            Self::Delete {
                condition: Condition::Always,
                previous: false,
            }
        )
    }

    /// True if what it does or its answer depends on the value that the key holds.
    pub(crate) fn needs_value(&self) -> bool {
        match *self {
            Self::Put {
                condition,
                previous,
                ..
            }
            | Self::Delete {
                condition,
                previous,
            } => previous || matches!(condition, Condition::Equals(_)),
            Self::SetExpiry { value, .. } => value,
            Self::Increment { .. }
            | Self::IncrementFloat { .. }
            | Self::Append { .. }
            | Self::SetRange { .. } => true,
        }
    }

    fn compared(&self) -> &'a [u8] {
        match *self {
            Self::Put { condition, .. } | Self::Delete { condition, .. } => match condition {
                Condition::Equals(compared) => compared,
                _ => &[],
            },
            _ => &[],
        }
    }

    /// The expiry that the change names; [`Expiry::Keep`] if it names none.
    fn expiry(&self) -> Expiry {
        match *self {
            Self::Put { expiry, .. } | Self::SetExpiry { expiry, .. } => expiry,
            _ => Expiry::Keep,
        }
    }
}
