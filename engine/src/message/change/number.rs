//! Numbers that a value holds in decimal.

use crate::error::Error;

/// Writes an integer in decimal.
pub(super) fn write_decimal(number: i64, into: &mut Vec<u8>) {
    // As many digits as the least integer has, and its sign.
    let mut text = [0; 20];
    let mut start = text.len();
    let mut rest = number.unsigned_abs();
    loop {
        start -= 1;
        text[start] = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        start -= 1;
        text[start] = b'-';
    }
    into.clear();
    into.extend_from_slice(&text[start..]);
}

/// The number that a value holds in decimal; 0 for an absent key. It must be written as it would be
/// stored: no sign but `-`, no blanks, no leading zeros.
pub(super) fn integer(value: &[u8], present: bool) -> Result<i64, Error> {
    if !present {
        return Ok(0);
    }
    let text = std::str::from_utf8(value).ok();
    let number = text.filter(|text| {
        let digits = text.strip_prefix('-').unwrap_or(text);
        *text == "0" || digits.starts_with(|first| matches!(first, '1'..='9'))
    });
    number
        .and_then(|text| text.parse().ok())
        .ok_or(Error::NotANumber {
            reason: "the value is no decimal integer of 64 bits",
        })
}

pub(super) fn finite(sum: f64) -> Result<f64, Error> {
    let reason = "the sum is not finite";
    let sum = Some(sum).filter(|sum| sum.is_finite());
    sum.ok_or(Error::NotANumber { reason })
}

pub(super) fn float(value: &[u8], present: bool) -> Result<f64, Error> {
    if !present {
        return Ok(0.0);
    }
    let text = std::str::from_utf8(value).ok();
    let number = text.and_then(|text| text.parse().ok());
    number
        .filter(|number: &f64| number.is_finite())
        .ok_or(Error::NotANumber {
            reason: "the value is no finite decimal number",
        })
}
