//! Scores as clients write them: as C's `strtod` reads them, which Redis does.

/// A text that is no score of a member, as Redis says it.
pub(crate) const NO_SCORE: &str = "ERR value is not a valid float";
/// A sum of scores that is no number, as Redis says it.
pub(crate) const NO_SUM: &str = "ERR resulting score is not a number (NaN)";

/// Digits of a hexadecimal number that are kept; of further ones it is known whether all are 0.
const HEX_DIGITS_MAX: u32 = 15;

/// What is read of the beginning of a text.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Beginning {
    value: f64,
    /// Bytes that were read; 0 if there is no number.
    bytes: usize,
    /// The value is too large or too small, and infinite or 0 instead.
    is_out_of_range: bool,
}

/// The score of a member; none if the text is no number, or one out of range.
pub(crate) fn parsed_score(text: &[u8]) -> Option<f64> {
    let is_spaced = text.first().is_none_or(|&first| is_space(first));
    let read = beginning(text);
    let is_all = read.bytes == text.len() && !read.is_out_of_range && !read.value.is_nan();
    (is_all && !is_spaced).then_some(read.value)
}

/// A score that limits a range. As Redis, which takes more than it does for members: no text is 0,
/// blanks may come first, and what is out of range is infinite.
pub(crate) fn parsed_limit(text: &[u8]) -> Option<f64> {
    let read = beginning(text);
    let is_all = matches!(text.get(read.bytes), None | Some(0));
    (is_all && !read.value.is_nan()).then_some(read.value)
}

/// What decides the place of an element that is sorted by numbers. As Redis, which takes no text as
/// 0, but nothing that is out of range.
pub(crate) fn parsed_weight(text: &[u8]) -> Option<f64> {
    let limit = parsed_limit(text)?;
    (!beginning(text).is_out_of_range).then_some(limit)
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

fn digits(text: &[u8], is_digit: impl Fn(&u8) -> bool) -> usize {
    text.iter().take_while(|byte| is_digit(byte)).count()
}

/// Reads a number at the beginning of a text.
fn beginning(text: &[u8]) -> Beginning {
    let blanks = digits(text, |&byte| is_space(byte));
    let rest = &text[blanks..];
    let (is_negative, sign) = match rest.first() {
        Some(b'-') => (true, 1),
        Some(b'+') => (false, 1),
        _ => (false, 0),
    };
    let mut read = unsigned(&rest[sign..]);
    if read.bytes == 0 {
        return Beginning::default();
    }
    read.bytes += blanks + sign;
    if is_negative {
        read.value = -read.value;
    }
    read
}

fn unsigned(text: &[u8]) -> Beginning {
    let begins = |word: &[u8]| {
        let start = text.get(..word.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(word))
    };
    let of = |value, bytes| Beginning {
        value,
        bytes,
        is_out_of_range: false,
    };
    if begins(b"infinity") {
        return of(f64::INFINITY, 8);
    }
    if begins(b"inf") {
        return of(f64::INFINITY, 3);
    }
    if begins(b"nan") {
        return of(f64::NAN, 3);
    }
    if begins(b"0x")
        && let Some(read) = hexadecimal(&text[2..])
    {
        return Beginning {
            bytes: read.bytes + 2,
            ..read
        };
    }
    decimal(text)
}

/// The bytes of an exponent behind a letter, and its value; none if there are no digits.
fn exponent(text: &[u8]) -> Option<(usize, i64)> {
    let (is_negative, sign) = match text.first() {
        Some(b'-') => (true, 1),
        Some(b'+') => (false, 1),
        _ => (false, 0),
    };
    let count = digits(&text[sign..], u8::is_ascii_digit);
    if count == 0 {
        return None;
    }
    let value = text[sign..sign + count].iter().fold(0_i64, |value, digit| {
        (value * 10 + i64::from(digit - b'0')).min(1 << 40)
    });
    Some((sign + count, if is_negative { -value } else { value }))
}

fn decimal(text: &[u8]) -> Beginning {
    let whole = digits(text, u8::is_ascii_digit);
    let mut end = whole;
    let mut fraction = 0;
    if text.get(whole) == Some(&b'.') {
        fraction = digits(&text[whole + 1..], u8::is_ascii_digit);
        end += 1 + fraction;
    }
    if whole + fraction == 0 {
        return Beginning::default();
    }
    let is_zero = text[..end].iter().all(|byte| matches!(byte, b'0' | b'.'));
    if matches!(text.get(end), Some(b'e' | b'E'))
        && let Some((bytes, _)) = exponent(&text[end + 1..])
    {
        end += 1 + bytes;
    }
    let value = str::from_utf8(&text[..end]).ok();
    let value = value.and_then(|text| text.parse::<f64>().ok());
    let value = value.unwrap_or_default();
    Beginning {
        value,
        bytes: end,
        is_out_of_range: value.is_infinite() || (value == 0.0 && !is_zero),
    }
}

/// A hexadecimal number, which may have a binary exponent; none if there are no digits.
fn hexadecimal(text: &[u8]) -> Option<Beginning> {
    let (mut mantissa, mut kept, mut scale, mut is_inexact) = (0_u64, 0, 0_i64, false);
    let (mut count, mut has_point, mut end) = (0, false, 0);
    for &byte in text {
        let digit = match byte {
            b'.' if !has_point => {
                has_point = true;
                end += 1;
                continue;
            }
            byte => char::from(byte).to_digit(16),
        };
        let Some(digit) = digit else {
            break;
        };
        end += 1;
        count += 1;
        scale -= if has_point { 4 } else { 0 };
        if kept < HEX_DIGITS_MAX {
            mantissa = mantissa << 4 | u64::from(digit);
            kept += u32::from(mantissa != 0);
        } else {
            is_inexact |= digit != 0;
            scale += 4;
        }
    }
    if count == 0 {
        return None;
    }
    if matches!(text.get(end), Some(b'p' | b'P'))
        && let Some((bytes, exponent)) = exponent(&text[end + 1..])
    {
        end += 1 + bytes;
        scale = scale.saturating_add(exponent);
    }
    // A bit below all that are kept decides a tie.
    mantissa = mantissa << 1 | u64::from(is_inexact);
    let mut scale = scale.saturating_sub(1).clamp(-3000, 3000);
    #[expect(clippy::cast_precision_loss, reason = "it is rounded")]
    let mut value = mantissa as f64;
    while scale != 0 {
        let step = scale.clamp(-1000, 1000);
        value *= 2_f64.powi(i32::try_from(step).unwrap_or(0));
        scale -= step;
    }
    Some(Beginning {
        value,
        bytes: end,
        is_out_of_range: value.is_infinite() || (value == 0.0 && mantissa != 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read_as_redis_does() {
        for (text, score) in [
            ("1", 1.0),
            ("-1.5", -1.5),
            ("+3", 3.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("1E-3", 0.001),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("+INF", f64::INFINITY),
            ("0x10", 16.0),
            ("0x.8p1", 1.0),
            ("-0xAp-1", -5.0),
            ("0x1fffffffffffff", 9_007_199_254_740_991.0),
            ("0x20000000000001", 9_007_199_254_740_992.0),
            (
                "0x20000000000001000000000000000001p-72",
                9_007_199_254_740_994.0,
            ),
            ("5e-324", 5e-324),
        ] {
            assert_eq!(parsed_score(text.as_bytes()), Some(score), "{text}");
            assert_eq!(parsed_limit(text.as_bytes()), Some(score), "{text}");
        }
        for text in [
            "", " 1", "1 ", "x", "1x", "nan", "-nan", "1e", "1e+", "0x", "1e400", "-1e400",
            "1e-400", ".", "e5", "+-1", "1\0", "infinit",
        ] {
            assert_eq!(parsed_score(text.as_bytes()), None, "{text}");
        }
        for (text, score) in [
            ("", 0.0),
            (" 1", 1.0),
            ("1e400", f64::INFINITY),
            ("-1e400", f64::NEG_INFINITY),
            ("1e-400", 0.0),
            ("1\0x", 1.0),
        ] {
            assert_eq!(parsed_limit(text.as_bytes()), Some(score), "{text:?}");
        }
        for text in ["1 ", "x", "nan", "1e", "0x", "."] {
            assert_eq!(parsed_limit(text.as_bytes()), None, "{text}");
        }
    }
}
