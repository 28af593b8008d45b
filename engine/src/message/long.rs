//! Requests about long values, which are stored in pieces.
//!
//! ```text
//! begin:   key        | length:64 |                 -> value, version: id      | piece bytes:64 |
//! write:   id place   | bytes of the piece |        -> stored; absent if there is no such value
//! commit:  key        | id:64 | a put, encoded |    -> as the put
//! abort:   id place                                 -> deleted, or absent
//! open:    key        | 1 or 2 to keep the value:8, or nothing |
//!                                                   -> value  | length:64 | id:64 | piece bytes:64 |
//!                                                             | pin:64, 0 if it is not kept |
//!                                                             | expiry:64, 0 if it has none |
//!                                                      mismatch if the key holds a value in a record
//! release: id place   | pin:64 |                    -> deleted, or absent (an abort with a value)
//! read:    id place   | offset:32 | bytes:32 |      -> a part of the piece; absent if it is gone
//! ```
//!
//! `id place` is the piece's key in the log: 64 and 32 bits. All but the keys of callers are sent
//! to the shard of the caller's key.

use crate::message::operation::{OperationKind, RequestParts};

/// Bytes of an answer to an open.
pub(crate) const OPENED_BYTES: usize = 40;
/// The value of an open that keeps the long value.
pub(crate) const KEEP: &[u8] = &[1];
/// The value of an open that keeps the long value if few are kept.
pub(crate) const KEEP_IF_FEW: &[u8] = &[2];
/// Bytes before the put in a commit.
pub(crate) const COMMIT_HEAD_BYTES: usize = 8;
/// Bytes of a head's value.
pub(crate) const HEAD_BYTES: usize = 16;

/// A word of a message; 0 if it is too short.
pub(crate) fn word(bytes: &[u8], place: usize) -> u64 {
    let word = bytes.get(8 * place..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u64::from_le_bytes(*word))
}

/// The value of a head.
pub(crate) fn head_value(length: u64, id: u64) -> [u8; HEAD_BYTES] {
    let mut value = [0; HEAD_BYTES];
    value[..8].copy_from_slice(&length.to_le_bytes());
    value[8..].copy_from_slice(&id.to_le_bytes());
    value
}

/// A key of a piece: the value's id, and the piece's place.
pub(crate) fn piece_key(id: u64, place: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&id.to_le_bytes());
    key[8..].copy_from_slice(&place.to_le_bytes());
    key
}

/// Id and place from the key of a piece.
pub(crate) fn piece_of(key: &[u8]) -> Option<(u64, u32)> {
    let (id, rest) = key.split_first_chunk()?;
    let place = rest.first_chunk()?;
    Some((u64::from_le_bytes(*id), u32::from_le_bytes(*place)))
}

/// The parts of a request about a long value.
pub(crate) fn long_parts<'a>(
    kind: OperationKind,
    key: &'a [u8],
    value: &'a [u8],
) -> RequestParts<'a> {
    RequestParts {
        kind,
        key,
        value,
        expected: 0,
    }
}
