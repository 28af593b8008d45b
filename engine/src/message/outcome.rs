//! What a shard answers: [`Answer`] where it borrows, [`OwnedAnswer`] where it must outlive its
//! place, and the one codec of both.
//!
//! An answer in a ring has a word of metadata beside its length, then a token, a version if its
//! kind has one, and a value if its kind has one:
//!
//! ```text
//! bit 31    24 23     16 15              0
//! |    0:8    | kind:8  |    origin:16   |
//!
//! kind: 0 value · 1 absent · 2 stored · 3 deleted · 4 mismatch · 5 conflict · 6 failed · +16 its value
//! travels beside the ring, as does the error of a failed one
//!
//! version of a conflict, bit 0 least significant: | place:16 | version:48 |
//! ```
//!
//! A new outcome is a variant of [`Answer`] and a line in `answer_kinds!`. The compiler then names
//! the arms that are missing in [`Answer::parts`], [`AnswerKind::has_version`] and
//! [`AnswerKind::with`].

use std::fmt;

use super::operation::Version;
use super::request::Origin;
use super::transaction::Absence;
use crate::constants::TRANSACTION_KEYS_MAX;
use crate::error::Error;

/// The answer to one [`Operation`]. What it borrows is valid until the visitor returns.
// In the order of `AnswerKind`, so that one is the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// A get found the key.
    Value {
        /// The record's version.
        version: Version,
        /// The value; valid until the visitor returns.
        value: &'a [u8],
    },
    /// A get or a delete found no such key.
    Absent,
    /// A put, or a compare-and-swap whose version matched, stored its value under this version. A
    /// transaction happened, and its last write has this version.
    Stored {
        /// The new record's version.
        version: Version,
    },
    /// A delete removed the key.
    Deleted,
    /// A compare-and-swap found another version and changed nothing; `0` means that the key is
    /// absent.
    Mismatch {
        /// The version of the key.
        current: Version,
    },
    /// A transaction found a key with another version than it expects, and changed nothing.
    Conflict(Conflict),
    /// The operation failed and changed nothing that was stored, with one exception: a delete of a
    /// key whose record was lost or is damaged leaves the key absent.
    Failed(&'a Error),
}

/// Bits of a version.
const VERSION_BITS: u32 = 48;

/// The first key of a transaction that has another version than was expected.
// One word, in the place of other answers' versions, so that decoding an answer takes no branch.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Conflict(u64);

/// In a conflict: the key is absent, and the version is that of its shard.
const ABSENT: u64 = 1 << 63;

impl Conflict {
    /// That of a key that is absent now, while its shard has this version.
    pub(crate) fn absent(place: usize, shard_version: Version) -> Self {
        Self(Self::new(place, shard_version).0 | ABSENT)
    }

    pub(crate) fn new(place: usize, current: Version) -> Self {
        debug_assert!(place < TRANSACTION_KEYS_MAX && current >> VERSION_BITS == 0);
        Self((place as u64) << VERSION_BITS | current)
    }

    /// The key's place in the transaction, from 0.
    #[must_use]
    pub fn place(self) -> usize {
        usize::try_from((self.0 & !ABSENT) >> VERSION_BITS).unwrap_or(usize::MAX)
    }

    /// The version that the key has; `0` means that it is absent.
    #[must_use]
    pub fn current(self) -> Version {
        if self.0 & ABSENT == 0 {
            self.0 & ((1 << VERSION_BITS) - 1)
        } else {
            0
        }
    }

    /// The key's absence from now on, if the transaction has expected one and the key is absent.
    #[must_use]
    pub fn absence(self) -> Option<Absence> {
        let since = self.0 & ((1 << VERSION_BITS) - 1);
        (self.0 & ABSENT != 0).then(|| Absence::since(since))
    }
}

impl fmt::Debug for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conflict")
            .field("place", &self.place())
            .field("current", &self.current())
            .finish()
    }
}

const _: () = assert!(TRANSACTION_KEYS_MAX <= 1 << (u64::BITS - 1 - VERSION_BITS));
const _: () = assert!(size_of::<Answer<'_>>() == 4 * size_of::<u64>());

impl<'a> Answer<'a> {
    /// The value that the answer carries; empty if it carries none.
    #[inline]
    #[must_use]
    pub fn value(&self) -> &'a [u8] {
        match *self {
            Answer::Value { value, .. } => value,
            _ => &[],
        }
    }

    /// The error of a failed answer.
    #[inline(always)]
    pub(crate) fn error(&self) -> Option<&'a Error> {
        match *self {
            Answer::Failed(error) => Some(error),
            _ => None,
        }
    }

    /// Kind, version and value of the answer; `None` and empty where the kind has none.
    #[inline(always)]
    pub(crate) fn parts(&self) -> (AnswerKind, Option<Version>, &'a [u8]) {
        match *self {
            Answer::Value { version, value } => (AnswerKind::Value, Some(version), value),
            Answer::Absent => (AnswerKind::Absent, None, &[]),
            Answer::Stored { version } => (AnswerKind::Stored, Some(version), &[]),
            Answer::Deleted => (AnswerKind::Deleted, None, &[]),
            Answer::Mismatch { current } => (AnswerKind::Mismatch, Some(current), &[]),
            Answer::Failed(_) => (AnswerKind::Failed, None, &[]),
            Answer::Conflict(Conflict(word)) => (AnswerKind::Conflict, Some(word), &[]),
        }
    }
}

/// One list of the kinds, for the type and for its codes.
macro_rules! answer_kinds {
    ($($kind:ident = $code:literal,)+) => {
        /// The kind of an answer.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum AnswerKind {
            $($kind = $code,)+
        }

        impl AnswerKind {
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$kind,)+];

            /// The kind of a code that `AnswerMeta::new` wrote.
            #[inline(always)]
            fn of(code: u32) -> Self {
                match code {
                    $($code => Self::$kind,)+
                    _ => Self::Failed,
                }
            }
        }
    };
}

answer_kinds! {
    Value = 0,
    Absent = 1,
    Stored = 2,
    Deleted = 3,
    Mismatch = 4,
    Conflict = 5,
    Failed = 6,
}

impl AnswerKind {
    /// True if a usual answer of this kind has a version.
    #[inline(always)]
    fn has_version(self) -> bool {
        match self {
            Self::Value | Self::Stored | Self::Mismatch => true,
            Self::Absent | Self::Deleted | Self::Conflict | Self::Failed => false,
        }
    }

    /// The answer of this kind with a version and a value; `None` if it is a conflict or carries an
    /// error. Fewer kinds take fewer instructions of every answer.
    #[inline(always)]
    pub(crate) fn with(self, version: Version, value: &[u8]) -> Option<Answer<'_>> {
        Some(match self {
            Self::Value => Answer::Value { version, value },
            Self::Absent => Answer::Absent,
            Self::Stored => Answer::Stored { version },
            Self::Deleted => Answer::Deleted,
            Self::Mismatch => Answer::Mismatch { current: version },
            Self::Conflict | Self::Failed => return None,
        })
    }

    /// The answer of this kind with its parts.
    #[inline(always)]
    pub(crate) fn answer<'a>(
        self,
        version: Version,
        value: &'a [u8],
        error: Option<&'a Error>,
    ) -> Answer<'a> {
        match self.with(version, value) {
            Some(answer) => answer,
            None if self == Self::Conflict => Answer::Conflict(Conflict(version)),
            None => Answer::Failed(error.unwrap_or(&Error::Closed)),
        }
    }

    /// The answer of this kind from the bytes of a message after the token, as [`Answer::parts`]
    /// wrote them.
    #[inline(always)]
    pub(crate) fn decode(self, message: &[u8]) -> Option<Answer<'_>> {
        if self.has_version() {
            let (version, value) = split_word(message);
            self.with(version, value)
        } else {
            self.with(0, &[])
        }
    }
}

const KIND_SHIFT: u32 = 16;
const KIND: u32 = 0xF;
const OVERSIZE: u32 = 0x10 << KIND_SHIFT;

/// Bytes of a token, and of a version.
pub(crate) const WORD: usize = 8;

/// Splits a payload into its first word and the rest.
///
/// # Panics
/// If the payload is shorter; no message is.
#[inline]
pub(crate) fn split_word(payload: &[u8]) -> (u64, &[u8]) {
    let Some((word, rest)) = payload.split_first_chunk() else {
        unreachable!("a message has a word at least");
    };
    (u64::from_le_bytes(*word), rest)
}

/// The metadata of an answer in a ring: kind, origin, and whether its value travels beside the
/// ring.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct AnswerMeta(pub(crate) u32);

impl AnswerMeta {
    #[inline]
    pub(crate) fn new(origin: Origin, kind: AnswerKind) -> Self {
        Self(u32::from(origin.0) | (kind as u32) << KIND_SHIFT)
    }

    /// This metadata with the mark of a value that travels beside the ring.
    pub(crate) fn oversize(self) -> Self {
        Self(self.0 | OVERSIZE)
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the origin is the lower half"
    )]
    pub(crate) fn origin(self) -> Origin {
        Origin(self.0 as u16)
    }

    #[inline]
    pub(crate) fn kind(self) -> AnswerKind {
        AnswerKind::of(self.0 >> KIND_SHIFT & KIND)
    }

    #[inline]
    pub(crate) fn is_oversize(self) -> bool {
        self.0 & OVERSIZE != 0
    }
}

impl fmt::Debug for AnswerMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerMeta")
            .field("origin", &self.origin())
            .field("kind", &self.kind())
            .field("oversize", &self.is_oversize())
            .finish()
    }
}

/// An answer that outlives its place.
#[derive(Debug)]
pub(crate) struct OwnedAnswer {
    kind: AnswerKind,
    version: Version,
    value: Vec<u8>,
    /// The error of a failed answer.
    error: Option<Error>,
}

impl OwnedAnswer {
    pub(crate) fn of(answer: &Answer<'_>) -> Self {
        let (kind, version, value) = answer.parts();
        Self {
            kind,
            version: version.unwrap_or(0),
            value: value.to_vec(),
            error: answer.error().cloned(),
        }
    }

    /// A copy of an answer, its value in a buffer that the caller has no more use for.
    pub(crate) fn in_buffer(answer: &Answer<'_>, mut buffer: Vec<u8>) -> Self {
        let (kind, version, value) = answer.parts();
        buffer.clear();
        buffer.extend_from_slice(value);
        Self {
            kind,
            version: version.unwrap_or(0),
            value: buffer,
            error: answer.error().cloned(),
        }
    }

    /// A value that was read.
    pub(crate) fn value(version: Version, value: Vec<u8>) -> Self {
        Self {
            kind: AnswerKind::Value,
            version,
            value,
            error: None,
        }
    }

    /// A conflict, from the word that it was sent as.
    pub(crate) fn conflict(word: u64) -> Self {
        Self {
            kind: AnswerKind::Conflict,
            version: word,
            value: Vec::new(),
            error: None,
        }
    }

    /// A failure.
    pub(crate) fn failed(error: Error) -> Self {
        Self {
            kind: AnswerKind::Failed,
            version: 0,
            value: Vec::new(),
            error: Some(error),
        }
    }

    /// Always inlined: a call would return the answer in memory, also where most answers are none
    /// of these.
    #[inline(always)]
    pub(crate) fn answer(&self) -> Answer<'_> {
        (self.kind).answer(self.version, &self.value, self.error.as_ref())
    }

    /// The bytes of its value.
    pub(crate) fn into_value(self) -> Vec<u8> {
        self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answer_survives_the_codec_and_being_kept() {
        let error = Error::Closed;
        for &kind in AnswerKind::ALL {
            let answer = kind.answer(7, b"value", Some(&error));
            assert_eq!(answer.parts().0, kind);
            assert_eq!(OwnedAnswer::of(&answer).answer(), answer);
            let (kind, version, value) = answer.parts();
            let mut message = Vec::new();
            message.extend(version.iter().flat_map(|version| version.to_le_bytes()));
            message.extend(value);
            let meta = AnswerMeta::new(Origin(3), kind);
            assert_eq!((meta.kind(), meta.origin()), (kind, Origin(3)));
            assert!(!meta.is_oversize() && meta.oversize().is_oversize());
            assert_eq!(meta.oversize().kind(), kind);
            match kind.decode(&message) {
                Some(decoded) => assert_eq!(decoded, answer),
                None if kind == AnswerKind::Conflict => {
                    let (word, _) = split_word(&message);
                    assert_eq!(OwnedAnswer::conflict(word).answer(), answer);
                }
                None => assert!(matches!(answer, Answer::Failed(_))),
            }
        }
    }

    #[test]
    fn a_conflict_keeps_place_and_version() {
        for (place, current) in [(0, 0), (127, 1), (3, (1 << 48) - 1)] {
            let conflict = Conflict::new(place, current);
            assert_eq!((conflict.place(), conflict.current()), (place, current));
            assert_eq!(conflict.absence(), None);
            let conflict = Conflict::absent(place, current);
            assert_eq!((conflict.place(), conflict.current()), (place, 0));
            assert_eq!(conflict.absence(), Some(Absence::since(current)));
        }
    }
}
