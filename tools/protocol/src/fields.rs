//! Little-endian fields of messages.

/// A word of two bytes; 0 where the bytes end before.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(part(bytes, at))
}

/// A word of four bytes; 0 where the bytes end before.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(part(bytes, at))
}

/// A word of eight bytes; 0 where the bytes end before.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(part(bytes, at))
}

/// `N` bytes from a place on; all zero where the bytes end before.
pub(crate) fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    if let Some(found) = bytes.get(at..).and_then(|rest| rest.first_chunk()) {
        part = *found;
    }
    part
}
