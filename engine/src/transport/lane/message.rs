//! What an answer says of itself in the 32 bits beside its length.
//!
//! ```text
//! bit 31    24 23     16 15              0
//! |    0:8    | kind:8  |    origin:16   |
//!
//! kind: 0 value · 1 absent · 2 stored · 3 deleted · 4 mismatch · 5 failed · 16 its value travels beside the ring
//! ```

use std::fmt;

use crate::message::request::Origin;

const KIND_SHIFT: u32 = 16;
const KIND: u32 = 0xF;
const OVERSIZE: u32 = 0x10 << KIND_SHIFT;

/// Bytes of a token, and of a version.
pub(super) const WORD: usize = 8;

/// A payload's first word, and what follows it.
///
/// # Panics
/// If it is shorter, which none is.
#[inline]
pub(super) fn split_word(payload: &[u8]) -> (u64, &[u8]) {
    let Some((word, rest)) = payload.split_first_chunk() else {
        unreachable!("a message has a word at least");
    };
    (u64::from_le_bytes(*word), rest)
}

/// Of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct AnswerMeta(pub(super) u32);

impl AnswerMeta {
    #[inline]
    pub(super) fn new(origin: Origin, kind: AnswerKind) -> Self {
        Self(u32::from(origin.0) | (kind as u32) << KIND_SHIFT)
    }

    /// The same with its value beside the ring.
    pub(super) fn oversize(self) -> Self {
        Self(self.0 | OVERSIZE)
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the origin is the lower half"
    )]
    pub(super) fn origin(self) -> Origin {
        Origin(self.0 as u16)
    }

    #[inline]
    pub(super) fn kind(self) -> AnswerKind {
        match self.0 >> KIND_SHIFT & KIND {
            0 => AnswerKind::Value,
            1 => AnswerKind::Absent,
            2 => AnswerKind::Stored,
            3 => AnswerKind::Deleted,
            4 => AnswerKind::Mismatch,
            _ => AnswerKind::Failed,
        }
    }

    #[inline]
    pub(super) fn is_oversize(self) -> bool {
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

/// What came of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AnswerKind {
    Value = 0,
    Absent = 1,
    Stored = 2,
    Deleted = 3,
    Mismatch = 4,
    Failed = 5,
}
