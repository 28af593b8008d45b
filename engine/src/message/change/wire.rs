//! How a [`Change`] is sent, as the value of a request:
//!
//! ```text
//! | kind:8 | condition:8 | previous:8 | expiry kind:8 | compared bytes:32 | word:64 | expiry:64 |
//! | compared | bytes |
//!
//! previous: 1 if the value before, or that of a changed expiry, is answered
//! word:     the version of a condition, the addend, or the offset
//! ```

use super::{Change, Condition};
use crate::message::expiry::{Expiry, ExpiryCondition};

/// Bytes of an encoded change beside its value and what it compares.
pub(crate) const CHANGE_BYTES: usize = 24;

pub(super) const PUT: u8 = 0;
pub(super) const DELETE: u8 = 1;
pub(super) const INCREMENT: u8 = 2;
pub(super) const INCREMENT_FLOAT: u8 = 3;
pub(super) const APPEND: u8 = 4;
pub(super) const SET_RANGE: u8 = 5;
pub(super) const SET_EXPIRY: u8 = 6;

impl<'a> Change<'a> {
    /// Writes the change as a request's value, by which it can also outlive what it borrows.
    pub fn encode(&self, into: &mut Vec<u8>) {
        let any = Condition::Always;
        let (kind, condition, previous, word) = match *self {
            Self::Put {
                condition,
                previous,
                ..
            } => (PUT, condition, previous, 0),
            Self::Delete {
                condition,
                previous,
            } => (DELETE, condition, previous, 0),
            Self::SetExpiry {
                condition, value, ..
            } => (SET_EXPIRY, any, value, condition as u64),
            Self::Increment { by } => (INCREMENT, any, false, by.cast_unsigned()),
            Self::IncrementFloat { by } => (INCREMENT_FLOAT, any, false, by.to_bits()),
            Self::Append { .. } => (APPEND, any, false, 0),
            Self::SetRange { offset, .. } => (SET_RANGE, any, false, offset),
        };
        let (condition, word) = match condition {
            Condition::Always => (0, word),
            Condition::Absent => (1, word),
            Condition::Present => (2, word),
            Condition::Version(version) => (3, version),
            Condition::Equals(_) => (4, word),
        };
        let (expiry_kind, expiry) = self.expiry().encode();
        let compared = self.compared();
        let compared_bytes = u32::try_from(compared.len()).unwrap_or(u32::MAX);
        let mut head = [0; CHANGE_BYTES];
        head[..4].copy_from_slice(&[kind, condition, u8::from(previous), expiry_kind]);
        head[4..8].copy_from_slice(&compared_bytes.to_le_bytes());
        head[8..16].copy_from_slice(&word.to_le_bytes());
        head[16..].copy_from_slice(&expiry.to_le_bytes());
        into.clear();
        into.extend_from_slice(&head);
        into.extend_from_slice(compared);
        into.extend_from_slice(self.bytes());
    }

    /// The change that [`Change::encode`] wrote; `None` if it wrote no such bytes.
    #[must_use]
    pub fn decode(encoded: &'a [u8]) -> Option<Self> {
        let (head, rest) = encoded.split_first_chunk::<CHANGE_BYTES>()?;
        let compared_bytes = u32::from_le_bytes(*head[4..].first_chunk()?);
        let word = u64::from_le_bytes(*head[8..].first_chunk()?);
        let expiry = u64::from_le_bytes(*head[16..].first_chunk()?);
        let (compared, bytes) = rest.split_at_checked(compared_bytes as usize)?;
        let condition = match head[1] {
            0 => Condition::Always,
            1 => Condition::Absent,
            2 => Condition::Present,
            3 => Condition::Version(word),
            4 => Condition::Equals(compared),
            _ => return None,
        };
        let expiry = Expiry::decode(head[3], expiry)?;
        let previous = head[2] != 0;
        Some(match head[0] {
            PUT => Self::Put {
                value: bytes,
                expiry,
                condition,
                previous,
            },
            DELETE => Self::Delete {
                condition,
                previous,
            },
            SET_EXPIRY => Self::SetExpiry {
                expiry,
                condition: ExpiryCondition::of(u8::try_from(word).ok()?)?,
                value: previous,
            },
            INCREMENT => Self::Increment {
                by: word.cast_signed(),
            },
            INCREMENT_FLOAT => Self::IncrementFloat {
                by: f64::from_bits(word),
            },
            APPEND => Self::Append { tail: bytes },
            SET_RANGE => Self::SetRange {
                offset: word,
                bytes,
            },
            _ => return None,
        })
    }
}
