//! Strings, which may be stored as integers.

use std::ops::Deref;

/// Bytes of the longest integer.
const INTEGER_BYTES_MAX: usize = 20;

/// A string of a value.
#[derive(Clone, Copy, Debug)]
pub enum Text<'a> {
    /// Its bytes.
    Bytes(&'a [u8]),
    /// The digits of an integer, and how many there are.
    Digits([u8; INTEGER_BYTES_MAX], u8),
}

impl Text<'_> {
    pub(crate) fn of_integer(number: i64) -> Self {
        let (mut digits, mut at) = ([0; INTEGER_BYTES_MAX], INTEGER_BYTES_MAX);
        let mut left = number.unsigned_abs();
        loop {
            at -= 1;
            digits[at] = b'0' + u8::try_from(left % 10).unwrap_or(0);
            left /= 10;
            if left == 0 {
                break;
            }
        }
        if number < 0 {
            at -= 1;
            digits[at] = b'-';
        }
        digits.copy_within(at.., 0);
        Self::Digits(digits, u8::try_from(INTEGER_BYTES_MAX - at).unwrap_or(0))
    }
}

impl Deref for Text<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Digits(digits, count) => &digits[..usize::from(*count)],
        }
    }
}

/// The integer that a text is, exactly as one is written.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > INTEGER_BYTES_MAX {
        return None;
    }
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (*Text::of_integer(number) == *text).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_written_as_they_are_shown() {
        for number in [0, 7, -7, 10, -128, i64::MAX, i64::MIN] {
            let text = Text::of_integer(number);
            assert_eq!(&*text, number.to_string().as_bytes());
            assert_eq!(integer(&text), Some(number));
        }
        for text in ["", "-", "+1", "01", "-0", "1 ", "9223372036854775808"] {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }
}
