//! The text of a double, as Redis 7.2 writes it: the shortest digits that read back as the same
//! value, and an exponent only where the plain form is long.

use std::io::Write as _;

/// Bytes of a double in Rust's scientific form: 17 digits, sign, point, `e-308`.
const SCIENTIFIC_BYTES: usize = 32;
/// Bytes of the longest text: a sign, 17 digits, a point and 7 zeros or an exponent.
pub(super) const TEXT_BYTES_MAX: usize = 32;
/// Zeros after the digits of an integer in the plain form.
const ZEROS_MAX: i32 = 7;
/// Digits after the point that are plain at any magnitude.
const FRACTION_DIGITS_MAX: i32 = 6;
/// Decimal exponents below it are plain with any fraction.
const PLAIN_EXPONENT: i32 = 4;
/// Integers up to it are written as such, 2^52.
const INTEGER_MAX: f64 = 4_503_599_627_370_496.0;

/// A text that is built without allocation.
#[derive(Default)]
pub(super) struct DoubleText {
    bytes: [u8; TEXT_BYTES_MAX],
    length: usize,
}

impl DoubleText {
    /// The text of `value`.
    pub(super) fn of(value: f64) -> Self {
        let mut text = Self::default();
        if value.is_nan() {
            text.push(b"nan");
            return text;
        }
        if value.is_sign_negative() {
            text.push(b"-");
        }
        if value.is_infinite() {
            text.push(b"inf");
        } else {
            text.push_finite(value.abs());
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

    fn push_zeros(&mut self, count: usize) {
        for _ in 0..count {
            self.push(b"0");
        }
    }

    fn push_integer(&mut self, value: impl itoa::Integer) {
        self.push(itoa::Buffer::new().format(value).as_bytes());
    }

    fn push_finite(&mut self, value: f64) {
        if value < INTEGER_MAX && value.fract() == 0.0 {
            #[expect(clippy::cast_possible_truncation, reason = "an integer below 2^52")]
            self.push_integer(value as i64);
            return;
        }
        let mut scientific = [0; SCIENTIFIC_BYTES];
        let (digits, exponent) = decimal(value, &mut scientific);
        let (first, others) = digits.split_at(1);
        let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
        // The digits are an integer times this power of ten.
        let scale = exponent + 1 - count;
        if scale >= 0 && exponent < count + ZEROS_MAX {
            self.push(digits);
            self.push_zeros(scale.unsigned_abs() as usize);
        } else if scale < 0 && (scale >= -FRACTION_DIGITS_MAX || exponent.abs() < PLAIN_EXPONENT) {
            match usize::try_from(exponent) {
                Ok(exponent) => {
                    let (whole, fraction) = digits.split_at(exponent + 1);
                    self.push(whole);
                    self.push(b".");
                    self.push(fraction);
                }
                Err(_) => {
                    self.push(b"0.");
                    self.push_zeros(exponent.unsigned_abs() as usize - 1);
                    self.push(digits);
                }
            }
        } else {
            self.push(first);
            if !others.is_empty() {
                self.push(b".");
                self.push(others);
            }
            self.push(if exponent < 0 { b"e-" } else { b"e+" });
            self.push_integer(exponent.unsigned_abs());
        }
    }
}

/// The shortest digits of a positive value, and the power of ten of the first of them.
fn decimal(value: f64, scientific: &mut [u8; SCIENTIFIC_BYTES]) -> (&[u8], i32) {
    let mut rest = &mut scientific[..];
    // The longest such text is shorter than the buffer.
    let written = write!(rest, "{value:e}");
    debug_assert!(written.is_ok());
    let length = SCIENTIFIC_BYTES - rest.len();
    let mark = scientific[..length].iter().position(|&byte| byte == b'e');
    let mark = mark.unwrap_or(length);
    let exponent = scientific.get(mark + 1..length).unwrap_or_default();
    let exponent = str::from_utf8(exponent).unwrap_or_default();
    let exponent = exponent.parse().unwrap_or(0);
    if mark > 2 {
        // The first digit moves into the place of the point.
        scientific[1] = scientific[0];
        (&scientific[1..mark], exponent)
    } else {
        (&scientific[..mark], exponent)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(value: f64) -> String {
        String::from_utf8(DoubleText::of(value).bytes().to_vec()).unwrap()
    }

    #[test]
    fn doubles_look_as_in_redis() {
        let expected = [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.0, "1"),
            (-17.0, "-17"),
            (1.5, "1.5"),
            (0.1, "0.1"),
            (-0.1, "-0.1"),
            (3.0e15, "3000000000000000"),
            (1e20, "1e+20"),
            (1.25e18, "1.25e+18"),
            (12_345_678_910_000_000.0, "12345678910000000"),
            (12_345_678_900_000_000.0, "1.23456789e+16"),
            (12_345.123_456_7, "1.23451234567e+4"),
            (-1_234.123_456_7, "-1234.1234567"),
            (12_345_678_901_234_567_000.0, "12345678901234567000"),
            (0.001, "0.001"),
            (0.000_001, "0.000001"),
            (1e-7, "1e-7"),
            (1.234e-9, "1.234e-9"),
            (0.001_234_567_89, "0.00123456789"),
            (123_456.789_012_345, "1.23456789012345e+5"),
            (999.123_456_789, "999.123456789"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (5e-324, "5e-324"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
            (-f64::NAN, "nan"),
        ];
        for (value, expected) in expected {
            assert_eq!(text(value), expected);
        }
    }

    proptest! {
        #[test]
        fn a_double_reads_back(value: f64) {
            prop_assert_eq!(text(value).parse::<f64>().unwrap(), value);
        }

        #[test]
        fn a_short_decimal_reads_back(digits in -1_000_000_000_i64..1_000_000_000, scale in -30..30) {
            let value: f64 = format!("{digits}e{scale}").parse().unwrap();
            prop_assert_eq!(text(value).parse::<f64>().unwrap(), value);
        }
    }
}
