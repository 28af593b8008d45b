//! What a message says of itself in the 32 bits beside its length.
//!
//! ```text
//! bit 31     16 15          5 4     0           bit 31     16 15     8 7       0
//! |   slot:16   | key bytes:11 | kind:5 |       |   slot:16   |   0:8  | kind:8  |
//!               request                                       answer
//!
//! kind of a request: 0 get · 1 put · 2 delete · 3 swap · 16 its value is in the pocket
//! kind of an answer: 0 value · 1 absent · 2 stored · 3 deleted · 4 mismatch · 5 failed · 16 pocket · 32 waited for far memory
//! ```

use std::fmt;

use crate::constants::KEY_BYTES_MAX;
use crate::operation::Kind;

const SLOT_SHIFT: u32 = 16;
const KEY_SHIFT: u32 = 5;
const KEY_BITS: u32 = 11;
const KIND: u32 = 0xF;
const POCKET: u32 = 0x10;
const WAITED: u32 = 0x20;

const _: () = assert!(KEY_SHIFT + KEY_BITS == SLOT_SHIFT && KEY_BYTES_MAX < 1 << KEY_BITS);

/// Bytes of a hash, and of a version.
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

/// Of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestMeta(pub(super) u32);

impl RequestMeta {
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a key has 1024 bytes at most"
    )]
    pub(super) fn new(slot: u16, key_bytes: usize, kind: Kind, pocket: bool) -> Self {
        debug_assert!(key_bytes <= KEY_BYTES_MAX);
        let pocket = if pocket { POCKET } else { 0 };
        let key_bytes = (key_bytes as u32) << KEY_SHIFT;
        Self(u32::from(slot) << SLOT_SHIFT | key_bytes | pocket | kind as u32)
    }

    #[inline]
    pub(super) fn slot(self) -> u16 {
        (self.0 >> SLOT_SHIFT) as u16
    }

    #[inline]
    pub(super) fn key_bytes(self) -> usize {
        (self.0 >> KEY_SHIFT) as usize & ((1 << KEY_BITS) - 1)
    }

    #[inline]
    pub(super) fn kind(self) -> Kind {
        // All of a kind's values are taken, so that this is no more than a mask.
        match self.0 & 3 {
            0 => Kind::Get,
            1 => Kind::Put,
            2 => Kind::Delete,
            _ => Kind::Swap,
        }
    }

    #[inline]
    pub(super) fn is_in_pocket(self) -> bool {
        self.0 & POCKET != 0
    }
}

impl fmt::Debug for RequestMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestMeta")
            .field("slot", &self.slot())
            .field("key_bytes", &self.key_bytes())
            .field("kind", &self.kind())
            .field("pocket", &self.is_in_pocket())
            .finish()
    }
}

/// Of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct AnswerMeta(pub(super) u32);

impl AnswerMeta {
    #[inline]
    pub(super) fn new(slot: u16, kind: AnswerKind, waited: bool) -> Self {
        let waited = if waited { WAITED } else { 0 };
        Self(u32::from(slot) << SLOT_SHIFT | waited | kind as u32)
    }

    /// The same with its value in the pocket.
    pub(super) fn in_pocket(self) -> Self {
        Self(self.0 | POCKET)
    }

    #[inline]
    pub(super) fn slot(self) -> u16 {
        (self.0 >> SLOT_SHIFT) as u16
    }

    #[inline]
    pub(super) fn kind(self) -> AnswerKind {
        match self.0 & KIND {
            0 => AnswerKind::Value,
            1 => AnswerKind::Absent,
            2 => AnswerKind::Stored,
            3 => AnswerKind::Deleted,
            4 => AnswerKind::Mismatch,
            _ => AnswerKind::Failed,
        }
    }

    #[inline]
    pub(super) fn is_in_pocket(self) -> bool {
        self.0 & POCKET != 0
    }

    #[inline]
    pub(super) fn has_waited(self) -> bool {
        self.0 & WAITED != 0
    }
}

impl fmt::Debug for AnswerMeta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerMeta")
            .field("slot", &self.slot())
            .field("kind", &self.kind())
            .field("pocket", &self.is_in_pocket())
            .field("waited", &self.has_waited())
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
