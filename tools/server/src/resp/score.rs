//! The text of a score, as Redis 7.0 writes it: C's `%.17g`.

use std::io::Write as _;

/// Bytes of the longest text: a sign, `0.000`, 17 digits; or 17 digits, a point, `e-308`.
const TEXT_BYTES_MAX: usize = 40;
/// Significant digits.
const DIGITS: i32 = 17;
/// The least decimal exponent without `e`.
const PLAIN_EXPONENT_MIN: i32 = -4;
/// Integers below it are written as such.
const INTEGER_MAX: f64 = 1e15;

/// A text that is built without allocation.
pub(super) struct ScoreText {
    bytes: [u8; TEXT_BYTES_MAX],
    length: usize,
}

impl ScoreText {
    /// The text of `value`.
    pub(super) fn of(value: f64) -> Self {
        let mut text = Self {
            bytes: [0; TEXT_BYTES_MAX],
            length: 0,
        };
        if value.is_sign_negative() && !value.is_nan() {
            text.push(b"-");
        }
        let value = value.abs();
        if value.is_nan() {
            text.push(b"nan");
        } else if value.is_infinite() {
            text.push(b"inf");
        } else if value < INTEGER_MAX && value.fract() == 0.0 {
            #[expect(clippy::cast_possible_truncation, reason = "a short integer")]
            text.push(itoa::Buffer::new().format(value as i64).as_bytes());
        } else {
            text.push_rounded(value);
        }
        text
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn push(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        self.bytes[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }

    /// Adds a positive value, rounded to 17 digits without the zeros at their end.
    fn push_rounded(&mut self, value: f64) {
        let mut scientific = [0; TEXT_BYTES_MAX];
        let mut rest = &mut scientific[..];
        // The longest such text is shorter than the buffer.
        let written = write!(rest, "{value:.16e}");
        debug_assert!(written.is_ok());
        let length = TEXT_BYTES_MAX - rest.len();
        let mark = scientific[..length].iter().position(|&byte| byte == b'e');
        let mark = mark.unwrap_or(length);
        let exponent = scientific.get(mark + 1..length).unwrap_or_default();
        let exponent = str::from_utf8(exponent).unwrap_or_default();
        let exponent: i32 = exponent.parse().unwrap_or(0);
        // The first digit moves into the place of the point.
        scientific[1] = scientific[0];
        let zeros = scientific[1..mark].iter().rev();
        let zeros = zeros.take_while(|&&byte| byte == b'0').count();
        let digits = &scientific[1..(mark - zeros).max(2)];
        if (PLAIN_EXPONENT_MIN..DIGITS).contains(&exponent) {
            self.push_plain(digits, exponent);
            return;
        }
        self.push(&digits[..1]);
        if digits.len() > 1 {
            self.push(b".");
            self.push(&digits[1..]);
        }
        self.push(if exponent < 0 { b"e-" } else { b"e+" });
        let exponent = exponent.unsigned_abs();
        if exponent < 10 {
            self.push(b"0");
        }
        self.push(itoa::Buffer::new().format(exponent).as_bytes());
    }

    /// Adds digits, the first of which stands for this power of ten, without an exponent.
    fn push_plain(&mut self, digits: &[u8], exponent: i32) {
        let Ok(exponent) = usize::try_from(exponent) else {
            self.push(b"0.");
            for _ in 1..exponent.unsigned_abs() {
                self.push(b"0");
            }
            return self.push(digits);
        };
        let (whole, fraction) = digits.split_at(digits.len().min(exponent + 1));
        self.push(whole);
        for _ in whole.len()..=exponent {
            self.push(b"0");
        }
        if !fraction.is_empty() {
            self.push(b".");
            self.push(fraction);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(value: f64) -> String {
        String::from_utf8(ScoreText::of(value).bytes().to_vec()).unwrap()
    }

    #[test]
    fn scores_look_as_in_redis() {
        for (value, expected) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-17.0, "-17"),
            (1.5, "1.5"),
            (0.1, "0.10000000000000001"),
            (-0.5, "-0.5"),
            (1e15, "1000000000000000"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1.5e300, "1.5000000000000001e+300"),
            (1e-4, "0.0001"),
            (1e-5, "1.0000000000000001e-05"),
            (0.000_123, "0.00012300000000000001"),
            (1e-7, "9.9999999999999995e-08"),
            (3.25e-100, "3.2500000000000001e-100"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (1_234_567_890.125, "1234567890.125"),
            (f64::MAX, "1.7976931348623157e+308"),
            (5e-324, "4.9406564584124654e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(text(value), expected);
        }
    }

    proptest! {
        #[test]
        fn a_score_reads_back(value: f64) {
            prop_assert_eq!(text(value).parse::<f64>().unwrap(), value);
        }
    }
}
