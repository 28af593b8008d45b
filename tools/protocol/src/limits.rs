//! Every limit of the protocol.

/// The version of the protocol.
pub const PROTOCOL_VERSION: u16 = 1;
/// Bytes of a header.
pub const HEADER_BYTES: usize = 48;
/// The longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 1024;
/// The longest value, in bytes.
pub const VALUE_BYTES_MAX: u64 = 64 << 20;
/// Values below this length travel in messages, by default.
pub const SMALL_BYTES: usize = 4096;
/// The least that [`SMALL_BYTES`] can be set to: answers have texts and entries of batches.
pub const SMALL_BYTES_MIN: usize = 512;
/// The most that [`SMALL_BYTES`] can be set to.
pub const SMALL_BYTES_MAX: usize = 48 << 10;
/// Bytes of a transfer slot at first.
pub const TRANSFER_SLOT_BYTES: usize = 64 << 10;
/// Bytes of the longest transfer slot.
pub const TRANSFER_SLOT_BYTES_MAX: usize = 1 << 20;
/// Receives that a side posts, at least: fewer could not keep a credit back.
pub const CREDITS_MIN: u16 = 4;
/// Receives that a side posts, at most.
pub const CREDITS_MAX: u16 = 1024;
/// The longest name of a client, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Bytes of the longest message: header, key and a small value.
#[must_use]
pub const fn message_bytes(small_bytes: usize) -> usize {
    HEADER_BYTES + KEY_BYTES_MAX + small_bytes
}

const _: () = assert!(TRANSFER_SLOT_BYTES >= HEADER_BYTES + KEY_BYTES_MAX + SMALL_BYTES);
const _: () = assert!(SMALL_BYTES_MAX + HEADER_BYTES + KEY_BYTES_MAX <= TRANSFER_SLOT_BYTES);
const _: () = assert!(SMALL_BYTES_MIN < SMALL_BYTES && SMALL_BYTES < SMALL_BYTES_MAX);
