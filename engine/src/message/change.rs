//! Changes of one key that depend on what the key holds: conditional puts and deletes, counters,
//! appends and ranges. A shard carries each out in one step, so no client sees a half of it.
//!
//! A [`Change`] is sent as the value of a request:
//!
//! ```text
//! | kind:8 | condition:8 | previous:8 | expiry kind:8 | compared bytes:32 | word:64 | expiry:64 |
//! | compared | bytes |
//!
//! previous: 1 if the value before, or that of a changed expiry, is answered; 2 more if the new value
//!           is structured
//! word:     the version of a condition, the addend, or the offset
//! ```
//!
//! [`Change::decide`] is the rule of each change, without shard or memory.

use std::io::Write as _;

use crate::constants::EXPIRY_BYTES;
use crate::error::Error;
use crate::message::expiry::{Expiry, ExpiryCondition};
use crate::message::operation::Version;

/// Bytes of an encoded change beside its value and what it compares.
pub(crate) const CHANGE_BYTES: usize = 24;

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

/// How and when a put happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PutOptions<'a> {
    /// When the key expires.
    pub expiry: Expiry,
    /// What the key must be.
    pub condition: Condition<'a>,
    /// The value is structured: it is marked so, and only
    /// [`Operation::GetStructured`](crate::Operation::GetStructured) reads it. Default: no.
    pub structured: bool,
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
        /// The new value is structured.
        structured: bool,
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

/// What is known of a key beside its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The version.
    pub version: Version,
    /// Bytes of the value.
    pub length: u64,
    /// When the key expires, in milliseconds since 1970; `None` if it does not.
    pub expiry_ms: Option<u64>,
    /// The value is structured.
    pub structured: bool,
}

/// Bytes of encoded metadata.
pub(crate) const METADATA_BYTES: usize = 16;
/// Set in an encoded length if the value is structured.
const STRUCTURED: u64 = 1 << 63;

impl Metadata {
    /// The metadata that an [`Answer::Value`](crate::Answer::Value) to an
    /// [`Operation::Inspect`](crate::Operation::Inspect), an append or a range carries; `None` if
    /// the value is not that.
    #[must_use]
    pub fn decode(version: Version, value: &[u8]) -> Option<Self> {
        let encoded: &[u8; METADATA_BYTES] = value.try_into().ok()?;
        let (length, expiry) = encoded.split_first_chunk()?;
        let length = u64::from_le_bytes(*length);
        let expiry_ms = u64::from_le_bytes(*expiry.first_chunk()?);
        Some(Self {
            version,
            length: length & !STRUCTURED,
            expiry_ms: (expiry_ms != u64::MAX).then_some(expiry_ms),
            structured: length & STRUCTURED != 0,
        })
    }

    /// The value that carries length and expiry, and whether the value is structured.
    pub(crate) fn encode(
        length: usize,
        expiry_ms: Option<u64>,
        structured: bool,
    ) -> [u8; METADATA_BYTES] {
        let mut encoded = [0; METADATA_BYTES];
        let mark = if structured { STRUCTURED } else { 0 };
        encoded[..8].copy_from_slice(&(length as u64 | mark).to_le_bytes());
        encoded[8..].copy_from_slice(&expiry_ms.unwrap_or(u64::MAX).to_le_bytes());
        encoded
    }
}

/// A record as a change finds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Current<'a> {
    pub(crate) version: Version,
    pub(crate) value: &'a [u8],
    /// When it expires, later than now.
    pub(crate) expiry_ms: Option<u64>,
    /// The value is structured.
    pub(crate) structured: bool,
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
    /// It is structured.
    pub(crate) structured: bool,
}

impl<'a> Decision<'a> {
    const fn nothing(reply: Reply) -> Self {
        Self {
            effect: Effect::None,
            reply,
            value: &[],
            expiry_ms: None,
            structured: false,
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
            structured: false,
        }
    }
}

const PUT: u8 = 0;
const DELETE: u8 = 1;
const INCREMENT: u8 = 2;
const INCREMENT_FLOAT: u8 = 3;
const APPEND: u8 = 4;
const SET_RANGE: u8 = 5;
const SET_EXPIRY: u8 = 6;

/// The bits of an encoded change that say what is answered and stored.
const PREVIOUS: u8 = 1;
const IS_STRUCTURED: u8 = 2;

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
            structured: false,
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
        let mut bits = if previous { PREVIOUS } else { 0 };
        if let Self::Put {
            structured: true, ..
        } = self
        {
            bits |= IS_STRUCTURED;
        }
        let mut head = [0; CHANGE_BYTES];
        head[..4].copy_from_slice(&[kind, condition, bits, expiry_kind]);
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
        let previous = head[2] & PREVIOUS != 0;
        Some(match head[0] {
            PUT => Self::Put {
                value: bytes,
                expiry,
                condition,
                previous,
                structured: head[2] & IS_STRUCTURED != 0,
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

    /// Decides what the change does to a key. A value that must be made is made in `scratch`.
    /// Counters, appends and ranges keep the key's expiry.
    ///
    /// # Errors
    /// [`Error::Structured`], [`Error::NotANumber`], [`Error::CounterOverflow`],
    /// [`Error::ValueTooLong`]: nothing changes.
    pub(crate) fn decide<'b>(
        &self,
        current: Option<&Current<'_>>,
        circumstances: Circumstances,
        scratch: &'b mut Vec<u8>,
    ) -> Result<Decision<'b>, Error>
    where
        'a: 'b,
    {
        let is_structured = current.is_some_and(|current| current.structured);
        if is_structured && self.needs_value() {
            return Err(Error::Structured);
        }
        let decision = self.decide_bytes(current, circumstances, scratch)?;
        let structured = match *self {
            Self::Put { structured, .. } => structured,
            // The value stays.
            Self::SetExpiry { .. } => is_structured,
            _ => false,
        };
        Ok(Decision {
            structured: structured && decision.effect == Effect::Store,
            ..decision
        })
    }

    /// The same without regard to whether values are structured.
    fn decide_bytes<'b>(
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

/// Writes an integer in decimal.
fn write_decimal(number: i64, into: &mut Vec<u8>) {
    // As many digits as the least integer has, and its sign.
    let mut text = [0; 20];
    let mut start = text.len();
    let mut rest = number.unsigned_abs();
    loop {
        start -= 1;
        text[start] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        start -= 1;
        text[start] = b'-';
    }
    into.clear();
    into.extend_from_slice(&text[start..]);
}

/// The number that a value holds in decimal; 0 for an absent key. It must be written as it would be
/// stored: no sign but `-`, no blanks, no leading zeros.
fn integer(value: &[u8], present: bool) -> Result<i64, Error> {
    if !present {
        return Ok(0);
    }
    let text = std::str::from_utf8(value).ok();
    let number = text.filter(|text| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        *text == "0" || digits.starts_with(|first| matches!(first, '1'..='9'))
    });
    number
        .and_then(|text| text.parse().ok())
        .ok_or(Error::NotANumber {
            reason: "the value is no decimal integer of 64 bits",
        })
}

fn finite(sum: f64) -> Result<f64, Error> {
    let reason = "the sum is not finite";
    let sum = Some(sum).filter(|sum| sum.is_finite());
    sum.ok_or(Error::NotANumber { reason })
}

fn float(value: &[u8], present: bool) -> Result<f64, Error> {
    if !present {
        return Ok(0.0);
    }
    let text = std::str::from_utf8(value).ok();
    let number = text.and_then(|text| text.parse().ok());
    number
        .filter(|number: &f64| number.is_finite())
        .ok_or(Error::NotANumber {
            reason: "the value is no finite decimal number",
        })
}

#[cfg(test)]
mod tests;
