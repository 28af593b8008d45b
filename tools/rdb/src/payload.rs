//! The payload of `DUMP` and `RESTORE`: a value's type, the value, and a footer.
//!
//! ```text
//! type:8 | value | version:16 | CRC-64 of all before
//! ```

use crate::crc64::Crc64;
use crate::{VERSION_MAX, VERSION_WRITTEN};

/// Bytes of the footer.
pub const FOOTER_BYTES: usize = 10;
const CHECKSUM_BYTES: usize = 8;

/// The bytes of a payload before its checksum, and the checksum; `None` if it is too short, or of
/// a version that is not read.
#[must_use]
pub fn split(payload: &[u8]) -> Option<(&[u8], u64)> {
    let (summed, checksum) = payload.split_last_chunk::<CHECKSUM_BYTES>()?;
    let (_, version) = summed.split_last_chunk()?;
    let version = u16::from_le_bytes(*version);
    (version <= VERSION_MAX).then(|| (summed, u64::from_le_bytes(*checksum)))
}

/// The version of the bytes before a checksum.
#[must_use]
pub fn version(summed: &[u8]) -> Option<u16> {
    let (_, version) = summed.split_last_chunk()?;
    Some(u16::from_le_bytes(*version))
}

/// The type and the value of the bytes before a checksum.
#[must_use]
pub fn value(summed: &[u8]) -> Option<(u8, &[u8])> {
    let end = summed.len().checked_sub(FOOTER_BYTES - CHECKSUM_BYTES)?;
    let (value_type, value) = summed.get(..end)?.split_first()?;
    Some((*value_type, value))
}

/// The footer of a payload whose type and value have a checksum.
#[must_use]
pub fn footer(mut crc: Crc64) -> [u8; FOOTER_BYTES] {
    let version = VERSION_WRITTEN.to_le_bytes();
    crc.add(&version);
    let mut footer = [0; FOOTER_BYTES];
    footer[..2].copy_from_slice(&version);
    footer[2..].copy_from_slice(&crc.value().to_le_bytes());
    footer
}
