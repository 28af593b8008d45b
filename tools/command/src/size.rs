//! A size as people write it: `256MiB`, `4GiB` or a number of bytes.

use std::str::FromStr;

use bytesize::ByteSize;

/// A size in bytes, with or without a unit.
///
/// # Errors
/// What a size looks like.
pub fn parse_size(text: &str) -> Result<u64, String> {
    ByteSize::from_str(text)
        .map(|size| size.as_u64())
        .map_err(|_| {
            format!("`{text}` is not a size: write e.g. 256MiB, 4GiB or a number of bytes")
        })
}
