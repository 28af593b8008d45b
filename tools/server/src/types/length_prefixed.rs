//! Texts behind their lengths, as structured records hold them.
//!
//! ```text
//! text:   | length | bytes |
//! length: 7 bits a byte, the lowest first; the highest bit of a byte says that more follow
//! ```
//!
//! - I1: no bytes panic.

/// Bytes of a length, at most.
pub(crate) const LENGTH_BYTES_MAX: usize = 5;

/// Adds a text.
pub(crate) fn push(bytes: &mut Vec<u8>, text: &[u8]) {
    let mut length = text.len();
    while length >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "7 bits and a mark")]
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 128")]
    bytes.push(length as u8);
    bytes.extend_from_slice(text);
}

/// The text at the start of `bytes`, and what follows.
#[inline]
pub(crate) fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut length, mut shift, mut rest) = (0_usize, 0, bytes);
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        length |= usize::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return rest.split_at_checked(length);
        }
        shift += 7;
        if shift == 7 * LENGTH_BYTES_MAX {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_all_lengths_are_split_as_they_were_added() {
        for length in [0, 1, 127, 128, 16_383, 16_384, 1 << 20] {
            let text = vec![b'x'; length];
            let mut bytes = Vec::new();
            push(&mut bytes, &text);
            assert!(bytes.len() <= length + LENGTH_BYTES_MAX);
            bytes.push(b'.');
            assert_eq!(split(&bytes), Some((&text[..], &b"."[..])));
            let part = &bytes[..bytes.len() - 2];
            assert_eq!(split(part).is_some(), length == 0 && !part.is_empty());
        }
        assert_eq!(split(&[0x80; 6]), None);
        assert_eq!(split(&[0xFF; 9]), None);
    }
}
