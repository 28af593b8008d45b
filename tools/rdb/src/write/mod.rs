//! Values as Redis 7.0 writes them, version 10.
//!
//! Each function adds to bytes, which a caller may take away between two. A value is its type, a
//! count that [`length`] writes, and its parts.

mod collections;
mod score;
mod stream;

use crate::lzf::Packer;
use crate::text as texts;

pub use self::collections::{ListNodes, Pairs, binary_score, integer, intset};
pub use self::stream::{StreamNodes, consumer, group, owned, pending, stream_head};

/// Types of values that are written.
pub mod types {
    /// A string.
    pub const STRING: u8 = 0;
    /// A set of any members.
    pub const SET: u8 = 2;
    /// A hash of any fields.
    pub const HASH: u8 = 4;
    /// A sorted set of any members, whose scores are doubles.
    pub const SORTED_SET: u8 = 5;
    /// A set of integers in one string.
    pub const INTEGERS: u8 = 11;
    /// A small hash in one string.
    pub const SMALL_HASH: u8 = 16;
    /// A small sorted set in one string.
    pub const SMALL_SORTED_SET: u8 = 17;
    /// A list.
    pub const LIST: u8 = 18;
    /// A stream.
    pub const STREAM: u8 = 19;
}

/// Bytes of the longest string that may be an integer.
const INTEGER_BYTES_MAX: usize = 11;
/// Bytes above which a string may be packed.
const UNPACKED_BYTES_MAX: usize = 20;
/// Bytes above which a string is not packed: it would take long.
const PACKED_BYTES_MAX: usize = 64 << 10;

/// Adds a length or a count.
pub fn length(into: &mut Vec<u8>, length: u64) {
    let low = |number: u64| u8::try_from(number & 0xff).unwrap_or(0);
    match length {
        0..=63 => into.push(low(length)),
        64..=16_383 => into.extend([0x40 | low(length >> 8), low(length)]),
        _ => match u32::try_from(length) {
            Ok(short) => {
                into.push(0x80);
                into.extend(short.to_be_bytes());
            }
            Err(_) => {
                into.push(0x81);
                into.extend(length.to_be_bytes());
            }
        },
    }
}

/// Adds a string, as an integer if it is a short one, packed if that saves something.
pub fn string(into: &mut Vec<u8>, text: &[u8], packer: &mut Packer) {
    if text.len() <= INTEGER_BYTES_MAX
        && let Some(number) = texts::integer(text)
        && let Ok(number) = i32::try_from(number)
    {
        let bytes = number.to_le_bytes();
        let (head, count) = match number {
            -0x80..=0x7f => (0xc0, 1),
            -0x8000..=0x7fff => (0xc1, 2),
            _ => (0xc2, 4),
        };
        into.push(head);
        into.extend_from_slice(&bytes[..count]);
        return;
    }
    let may_pack = text.len() > UNPACKED_BYTES_MAX && text.len() <= PACKED_BYTES_MAX;
    if may_pack && let Some(packed) = packer.pack(text) {
        into.push(0xc3);
        length(into, packed.len() as u64);
        length(into, text.len() as u64);
        into.extend_from_slice(packed);
        return;
    }
    length(into, text.len() as u64);
    into.extend_from_slice(text);
}
