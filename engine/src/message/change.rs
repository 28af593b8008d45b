//! Changes of one key that depend on what the key holds: conditional puts and deletes, counters,
//! appends and ranges. A shard carries each out in one step, so no client sees a half of it.
//!
//! A [`Change`] is sent as the value of a request:
//!
//! ```text
//! | kind:8 | condition:8 | previous:8 | 0:8 | compared bytes:32 | word:64 | compared | bytes |
//!
//! word:  the version of a condition, the addend, or the offset
//! ```
//!
//! [`Change::decide`] is the rule of each change, without shard or memory.

use crate::error::Error;
use crate::message::operation::Version;

/// Bytes of an encoded change beside its value and what it compares.
pub(crate) const CHANGE_BYTES: usize = 16;

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

/// A change that depends on what the key holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change<'a> {
    /// Store a value if the condition holds. Answers [`Answer::Stored`](crate::Answer::Stored), or
    /// with `previous` the value before as [`Answer::Value`](crate::Answer::Value) or
    /// [`Answer::Absent`](crate::Answer::Absent).
    Put {
        /// The new value.
        value: &'a [u8],
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
}

impl Metadata {
    /// The metadata that an [`Answer::Value`](crate::Answer::Value) to an
    /// [`Operation::Inspect`](crate::Operation::Inspect), an append or a range carries; `None` if
    /// the value is not that.
    #[must_use]
    pub fn decode(version: Version, value: &[u8]) -> Option<Self> {
        let length = u64::from_le_bytes(value.try_into().ok()?);
        Some(Self { version, length })
    }

    /// The value that carries the length.
    pub(crate) fn encode(length: usize) -> [u8; 8] {
        (length as u64).to_le_bytes()
    }
}

/// A record as a change finds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Current<'a> {
    pub(crate) version: Version,
    pub(crate) value: &'a [u8],
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
    /// The new value's length, under the new version.
    Length,
}

/// What a change does, decided from the record that it finds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decision<'a> {
    pub(crate) effect: Effect,
    pub(crate) reply: Reply,
    /// The value to store.
    pub(crate) value: &'a [u8],
}

impl<'a> Decision<'a> {
    const fn of(effect: Effect, reply: Reply, value: &'a [u8]) -> Self {
        Self {
            effect,
            reply,
            value,
        }
    }
}

const PUT: u8 = 0;
const DELETE: u8 = 1;
const INCREMENT: u8 = 2;
const INCREMENT_FLOAT: u8 = 3;
const APPEND: u8 = 4;
const SET_RANGE: u8 = 5;

impl<'a> Change<'a> {
    /// The bytes that the change stores or adds; empty if it carries none.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        match *self {
            Self::Put { value: bytes, .. }
            | Self::Append { tail: bytes }
            | Self::SetRange { bytes, .. } => bytes,
            Self::Delete { .. } | Self::Increment { .. } | Self::IncrementFloat { .. } => &[],
        }
    }

    /// True if neither what it does nor its answer depends on what the key holds.
    pub(crate) fn is_blind(&self) -> bool {
        matches!(
            self,
            Self::Put {
                condition: Condition::Always,
                previous: false,
                ..
            }
        )
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

    /// Writes the change as a request's value.
    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
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
            Self::Increment { by } => (INCREMENT, Condition::Always, false, by.cast_unsigned()),
            Self::IncrementFloat { by } => {
                (INCREMENT_FLOAT, Condition::Always, false, by.to_bits())
            }
            Self::Append { .. } => (APPEND, Condition::Always, false, 0),
            Self::SetRange { offset, .. } => (SET_RANGE, Condition::Always, false, offset),
        };
        let (condition, word) = match condition {
            Condition::Always => (0, word),
            Condition::Absent => (1, word),
            Condition::Present => (2, word),
            Condition::Version(version) => (3, version),
            Condition::Equals(_) => (4, word),
        };
        let compared = self.compared();
        into.clear();
        into.extend([kind, condition, u8::from(previous), 0]);
        into.extend(
            u32::try_from(compared.len())
                .unwrap_or(u32::MAX)
                .to_le_bytes(),
        );
        into.extend(word.to_le_bytes());
        into.extend_from_slice(compared);
        into.extend_from_slice(self.bytes());
    }

    /// The change that [`Change::encode`] wrote; `None` if it wrote no such bytes.
    pub(crate) fn decode(encoded: &'a [u8]) -> Option<Self> {
        let (head, rest) = encoded.split_first_chunk::<CHANGE_BYTES>()?;
        let compared_bytes = u32::from_le_bytes(*head[4..].first_chunk()?);
        let word = u64::from_le_bytes(*head[8..].first_chunk()?);
        let (compared, bytes) = rest.split_at_checked(compared_bytes as usize)?;
        let condition = match head[1] {
            0 => Condition::Always,
            1 => Condition::Absent,
            2 => Condition::Present,
            3 => Condition::Version(word),
            4 => Condition::Equals(compared),
            _ => return None,
        };
        let previous = head[2] != 0;
        Some(match head[0] {
            PUT => Self::Put {
                value: bytes,
                condition,
                previous,
            },
            DELETE => Self::Delete {
                condition,
                previous,
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

    /// Decides what the change does to a key. A value that must be made is made in `scratch`; it
    /// has at most `value_bytes_max` bytes.
    ///
    /// # Errors
    /// [`Error::NotANumber`], [`Error::CounterOverflow`], [`Error::ValueTooLong`]: nothing changes.
    pub(crate) fn decide<'b>(
        &self,
        current: Option<&Current<'_>>,
        value_bytes_max: usize,
        scratch: &'b mut Vec<u8>,
    ) -> Result<Decision<'b>, Error>
    where
        'a: 'b,
    {
        let before = current.map_or(&[][..], |current| current.value);
        Ok(match *self {
            Self::Put { condition, .. } | Self::Delete { condition, .. }
                if !condition.holds(current) =>
            {
                Decision::of(Effect::None, Reply::Mismatch, &[])
            }
            Self::Put {
                value, previous, ..
            } => {
                let reply = if previous {
                    Reply::Previous
                } else {
                    Reply::Stored
                };
                Decision::of(Effect::Store, reply, value)
            }
            Self::Delete { .. } if current.is_none() => {
                Decision::of(Effect::None, Reply::Absent, &[])
            }
            Self::Delete { previous, .. } => {
                let reply = if previous {
                    Reply::Previous
                } else {
                    Reply::Deleted
                };
                Decision::of(Effect::Delete, reply, &[])
            }
            Self::Increment { by } => {
                let number = integer(before, current.is_some())?;
                let sum = number.checked_add(by);
                let sum = sum.ok_or(Error::CounterOverflow {
                    current: number,
                    by,
                })?;
                *scratch = sum.to_string().into_bytes();
                Decision::of(Effect::Store, Reply::New, scratch)
            }
            Self::IncrementFloat { by } => {
                let sum = float(before, current.is_some())? + by;
                if !sum.is_finite() {
                    return Err(Error::NotANumber {
                        reason: "the sum is not finite",
                    });
                }
                *scratch = sum.to_string().into_bytes();
                Decision::of(Effect::Store, Reply::New, scratch)
            }
            Self::Append { tail } => {
                fits(before.len() as u64 + tail.len() as u64, value_bytes_max)?;
                scratch.clear();
                scratch.extend_from_slice(before);
                scratch.extend_from_slice(tail);
                Decision::of(Effect::Store, Reply::Length, scratch)
            }
            Self::SetRange { bytes: [], .. } => {
                scratch.clear();
                scratch.extend_from_slice(before);
                Decision::of(Effect::None, Reply::Length, scratch)
            }
            Self::SetRange { offset, bytes } => {
                fits(offset.saturating_add(bytes.len() as u64), value_bytes_max)?;
                let start = usize::try_from(offset).unwrap_or(usize::MAX);
                scratch.clear();
                scratch.extend_from_slice(before);
                scratch.resize(before.len().max(start + bytes.len()), 0);
                scratch[start..start + bytes.len()].copy_from_slice(bytes);
                Decision::of(Effect::Store, Reply::Length, scratch)
            }
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

/// The number that a value holds in decimal; 0 for an absent key. No sign but `-`, no blanks.
fn integer(value: &[u8], present: bool) -> Result<i64, Error> {
    if !present {
        return Ok(0);
    }
    let text = std::str::from_utf8(value).ok();
    let number = text.filter(|text| !text.starts_with('+'));
    number
        .and_then(|text| text.parse().ok())
        .ok_or(Error::NotANumber {
            reason: "the value is no decimal integer of 64 bits",
        })
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decided(
        change: Change<'_>,
        before: Option<(Version, &[u8])>,
    ) -> Result<(Effect, Reply, Vec<u8>), Error> {
        let current = before.map(|(version, value)| Current { version, value });
        let mut scratch = Vec::new();
        let decision = change.decide(current.as_ref(), 1_000, &mut scratch)?;
        Ok((decision.effect, decision.reply, decision.value.to_vec()))
    }

    #[test]
    fn a_condition_decides_whether_a_put_happens() {
        let present = Some((7, &b"old"[..]));
        for (condition, on_present, on_absent) in [
            (Condition::Always, true, true),
            (Condition::Absent, false, true),
            (Condition::Present, true, false),
            (Condition::Version(7), true, false),
            (Condition::Version(0), false, true),
            (Condition::Equals(b"old"), true, false),
            (Condition::Equals(b""), false, false),
        ] {
            for (before, happens) in [(present, on_present), (None, on_absent)] {
                let put = Change::Put {
                    value: b"new",
                    condition,
                    previous: false,
                };
                let expected = if happens {
                    (Effect::Store, Reply::Stored, b"new".to_vec())
                } else {
                    (Effect::None, Reply::Mismatch, Vec::new())
                };
                assert_eq!(
                    decided(put, before),
                    Ok(expected),
                    "{condition:?} {before:?}"
                );
            }
        }
    }

    #[test]
    fn counters_refuse_what_is_no_number_and_what_overflows() {
        let by = |by| Change::Increment { by };
        let sum = |text: &str| Ok((Effect::Store, Reply::New, text.as_bytes().to_vec()));
        assert_eq!(decided(by(-3), None), sum("-3"));
        assert_eq!(decided(by(2), Some((1, b"40"))), sum("42"));
        let max = i64::MAX.to_string();
        assert_eq!(
            decided(by(1), Some((1, max.as_bytes()))),
            Err(Error::CounterOverflow {
                current: i64::MAX,
                by: 1
            })
        );
        for wrong in ["", " 1", "1 ", "+1", "1.5", "a", "99999999999999999999"] {
            let refused = decided(by(1), Some((1, wrong.as_bytes())));
            assert!(
                matches!(refused, Err(Error::NotANumber { .. })),
                "{wrong:?}"
            );
        }
        let float = |by| Change::IncrementFloat { by };
        assert_eq!(decided(float(0.25), Some((1, b"1.5"))), sum("1.75"));
        for (by, before) in [(f64::MAX, "1e308"), (1.0, "inf"), (f64::NAN, "1")] {
            let refused = decided(float(by), Some((1, before.as_bytes())));
            assert!(
                matches!(refused, Err(Error::NotANumber { .. })),
                "{by} {before}"
            );
        }
    }

    #[test]
    fn ranges_fill_gaps_with_zeros_and_keep_to_the_limit() {
        let set = |offset, bytes| Change::SetRange { offset, bytes };
        let stored = |bytes: &[u8]| Ok((Effect::Store, Reply::Length, bytes.to_vec()));
        assert_eq!(decided(set(1, b"x"), Some((1, b"abc"))), stored(b"axc"));
        assert_eq!(decided(set(4, b"x"), Some((1, b"ab"))), stored(b"ab\0\0x"));
        assert_eq!(decided(set(1, b"x"), None), stored(b"\0x"));
        let nothing = decided(set(9, b""), None);
        assert_eq!(nothing, Ok((Effect::None, Reply::Length, Vec::new())));
        for offset in [1_000, u64::MAX] {
            let refused = decided(set(offset, b"x"), None);
            assert!(matches!(
                refused,
                Err(Error::ValueTooLong { max: 1_000, .. })
            ));
        }
        let tail = [1; 999];
        let append = |tail| Change::Append { tail };
        assert_eq!(decided(append(b"c"), Some((1, b"ab"))), stored(b"abc"));
        let refused = decided(append(&tail), Some((1, b"ab")));
        assert!(matches!(
            refused,
            Err(Error::ValueTooLong { bytes: 1_001, .. })
        ));
    }

    fn conditions() -> impl Strategy<Value = (u8, Version, Vec<u8>)> {
        (
            0u8..5,
            any::<Version>(),
            prop::collection::vec(any::<u8>(), 0..40),
        )
    }

    proptest! {
        #[test]
        fn a_change_survives_its_encoding(
            kind in 0u8..6,
            (which, version, compared) in conditions(),
            previous: bool,
            word: u64,
            bytes in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let condition = match which {
                0 => Condition::Always,
                1 => Condition::Absent,
                2 => Condition::Present,
                3 => Condition::Version(version),
                _ => Condition::Equals(&compared),
            };
            let change = match kind {
                PUT => Change::Put { value: &bytes, condition, previous },
                DELETE => Change::Delete { condition, previous },
                INCREMENT => Change::Increment { by: word.cast_signed() },
                INCREMENT_FLOAT => Change::IncrementFloat { by: f64::from(u32::from(previous)) + 0.5 },
                APPEND => Change::Append { tail: &bytes },
                _ => Change::SetRange { offset: word, bytes: &bytes },
            };
            let mut encoded = vec![1; 3];
            change.encode(&mut encoded);
            prop_assert_eq!(Change::decode(&encoded), Some(change));
            prop_assert_eq!(Change::decode(&encoded[..CHANGE_BYTES - 1]), None);
        }

        #[test]
        fn any_bytes_decode_without_a_panic(encoded in prop::collection::vec(any::<u8>(), 0..60)) {
            if let Some(change) = Change::decode(&encoded) {
                let current = Current { version: 1, value: b"12" };
                let _ = change.decide(Some(&current), 100, &mut Vec::new());
                let _ = change.decide(None, 100, &mut Vec::new());
            }
        }
    }
}
