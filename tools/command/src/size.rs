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

#[cfg(test)]
mod tests {
    use super::parse_size;

    #[test]
    fn any_text_is_a_size_or_refused() {
        farcore_fuzz::Target::new("size")
            .seed("256MiB")
            .seed("4.5 GB")
            .words(&["KiB", "EiB", "18446744073709551616", ".", "-", "e", "1e400"])
            .longest(40)
            .run(|bytes| {
                let Ok(text) = str::from_utf8(bytes) else {
                    return;
                };
                let plain = text.parse::<u64>();
                if let (Ok(plain), Ok(size)) = (plain, parse_size(text)) {
                    assert_eq!(plain, size, "{text}");
                }
            });
    }
}
