//! The rule of each change: what it does to the record that it finds, and how it is answered.

use std::io::Write as _;

use super::number::{finite, float, integer, write_decimal};
use super::{Change, Condition};
use crate::constants::EXPIRY_BYTES;
use crate::error::Error;
use crate::message::operation::Version;

/// A record as a change finds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Current<'a> {
    pub(crate) version: Version,
    pub(crate) value: &'a [u8],
    /// When it expires, later than now.
    pub(crate) expiry_ms: Option<u64>,
}

/// What a decision depends on beside the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    /// The longest value.
    pub(crate) value_bytes_max: usize,
    /// Milliseconds since 1970.
    pub(crate) now_ms: u64,
}

/// What a change does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing.
    None,
    /// Store the decision's value.
    Store,
    /// Remove the key.
    Delete,
}

/// How a change is answered once it has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Stored,
    Deleted,
    Absent,
    Mismatch,
    /// The value before; `Absent` if there was none.
    Previous,
    /// The new value, under the new version.
    New,
    /// The new value's length and expiry, under the new version.
    Length,
}

/// What a change does, decided from the record that it finds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decision<'a> {
    pub(crate) effect: Effect,
    pub(crate) reply: Reply,
    /// The value to store.
    pub(crate) value: &'a [u8],
    /// When it expires.
    pub(crate) expiry_ms: Option<u64>,
}

impl<'a> Decision<'a> {
    const fn nothing(reply: Reply) -> Self {
        Self {
            effect: Effect::None,
            reply,
            value: &[],
            expiry_ms: None,
        }
    }

    const fn delete(reply: Reply) -> Self {
        Self {
            effect: Effect::Delete,
            ..Self::nothing(reply)
        }
    }

    const fn store(reply: Reply, value: &'a [u8], expiry_ms: Option<u64>) -> Self {
        Self {
            effect: Effect::Store,
            reply,
            value,
            expiry_ms,
        }
    }
}

impl Condition<'_> {
    fn holds(&self, current: Option<&Current<'_>>) -> bool {
        match *self {
            Self::Always => true,
            Self::Absent => current.is_none(),
            Self::Present => current.is_some(),
            Self::Version(version) => current.map_or(0, |current| current.version) == version,
            Self::Equals(value) => current.is_some_and(|current| current.value == value),
        }
    }
}

impl<'a> Change<'a> {
    /// Decides what the change does to a key. A value that must be made is made in `scratch`.
    /// Counters, appends and ranges keep the key's expiry.
    ///
    /// # Errors
    /// [`Error::NotANumber`], [`Error::CounterOverflow`], [`Error::ValueTooLong`]: nothing changes.
    pub(crate) fn decide<'b>(
        &self,
        current: Option<&Current<'_>>,
        circumstances: Circumstances,
        scratch: &'b mut Vec<u8>,
    ) -> Result<Decision<'b>, Error>
    where
        'a: 'b,
    {
        let before = current.map_or(&[][..], |current| current.value);
        let expiry_ms = current.and_then(|current| current.expiry_ms);
        // A value with an expiry is shorter: both are stored together.
        let taken = expiry_ms.map_or(0, |_| EXPIRY_BYTES);
        let longest = circumstances.value_bytes_max - taken;
        Ok(match *self {
            Self::Put { condition, .. } | Self::Delete { condition, .. }
                if !condition.holds(current) =>
            {
                Decision::nothing(Reply::Mismatch)
            }
            Self::Put {
                value, previous, ..
            } => {
                let stored = if previous {
                    Reply::Previous
                } else {
                    Reply::Stored
                };
                self.store_until(current, circumstances, stored, value)?
            }
            Self::Delete { .. } if current.is_none() => Decision::nothing(Reply::Absent),
            Self::Delete { previous, .. } => Decision::delete(if previous {
                Reply::Previous
            } else {
                Reply::Deleted
            }),
            Self::SetExpiry { .. } if current.is_none() => Decision::nothing(Reply::Absent),
            Self::SetExpiry {
                expiry,
                condition,
                value,
            } => {
                let after_ms = expiry.resolve(expiry_ms, circumstances.now_ms);
                if !condition.holds(expiry_ms, after_ms) {
                    return Ok(Decision::nothing(Reply::Mismatch));
                }
                let stored = if value { Reply::New } else { Reply::Stored };
                scratch.clear();
                scratch.extend_from_slice(before);
                self.store_until(current, circumstances, stored, scratch)?
            }
            Self::Increment { by } => {
                let number = integer(before, current.is_some())?;
                let sum = number.checked_add(by);
                let sum = sum.ok_or(Error::CounterOverflow {
                    current: number,
                    by,
                })?;
                write_decimal(sum, scratch);
                Decision::store(Reply::New, scratch, expiry_ms)
            }
            Self::IncrementFloat { by } => {
                let sum = finite(float(before, current.is_some())? + by)?;
                scratch.clear();
                // Writing to a vector never fails.
                let _ = write!(scratch, "{sum}");
                Decision::store(Reply::New, scratch, expiry_ms)
            }
            Self::Append { .. } | Self::SetRange { .. } => {
                self.splice(before, longest, scratch)?;
                let effect = match self.bytes() {
                    [] if matches!(self, Self::SetRange { .. }) => Effect::None,
                    _ => Effect::Store,
                };
                Decision {
                    effect,
                    ..Decision::store(Reply::Length, scratch, expiry_ms)
                }
            }
        })
    }

    /// Makes the value after an append or a range in `scratch`.
    fn splice(&self, before: &[u8], longest: usize, scratch: &mut Vec<u8>) -> Result<(), Error> {
        let (start, bytes) = match *self {
            Self::Append { tail } => (before.len() as u64, tail),
            Self::SetRange { offset, bytes } if !bytes.is_empty() => (offset, bytes),
            _ => (0, &[][..]),
        };
        fits(start.saturating_add(bytes.len() as u64), longest)?;
        let start = usize::try_from(start).unwrap_or(usize::MAX);
        scratch.clear();
        scratch.extend_from_slice(before);
        scratch.resize(before.len().max(start + bytes.len()), 0);
        scratch[start..start + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Stores a value until it expires, or deletes the key if that is past.
    fn store_until<'b>(
        &self,
        current: Option<&Current<'_>>,
        circumstances: Circumstances,
        stored: Reply,
        value: &'b [u8],
    ) -> Result<Decision<'b>, Error> {
        let before_ms = current.and_then(|current| current.expiry_ms);
        let expiry_ms = (self.expiry()).resolve(before_ms, circumstances.now_ms);
        let Some(at_ms) = expiry_ms else {
            return Ok(Decision::store(stored, value, None));
        };
        if at_ms > circumstances.now_ms {
            let longest = circumstances.value_bytes_max - EXPIRY_BYTES;
            fits(value.len() as u64, longest)?;
            return Ok(Decision::store(stored, value, expiry_ms));
        }
        Ok(match (current, stored) {
            (None, Reply::Previous) => Decision::nothing(Reply::Previous),
            (None, _) => Decision::nothing(Reply::Absent),
            (Some(_), Reply::Previous | Reply::New) => Decision::delete(Reply::Previous),
            (Some(_), _) => Decision::delete(Reply::Deleted),
        })
    }
}

fn fits(bytes: u64, max: usize) -> Result<(), Error> {
    if bytes <= max as u64 {
        return Ok(());
    }
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    Err(Error::ValueTooLong { bytes, max })
}
