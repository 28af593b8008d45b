//! Numbers as C prints them.

/// A number as `%.{precision}g` prints it.
pub(crate) fn general(number: f64, precision: usize) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() {
            "-nan"
        } else {
            "nan"
        }
        .to_owned();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf" } else { "inf" }.to_owned();
    }
    let precision = precision.clamp(1, 40);
    let scientific = format!("{number:.*e}", precision - 1);
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let least = i32::try_from(precision).unwrap_or(i32::MAX);
    if exponent < -4 || exponent >= least {
        let digits = without_zeros(digits);
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.unsigned_abs());
    }
    let decimals = usize::try_from(least - 1 - exponent).unwrap_or(0);
    let fixed = format!("{number:.decimals$}");
    without_zeros(&fixed).to_owned()
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}

/// A number as C converts it to an integer of 64 bits.
#[expect(
    clippy::cast_possible_truncation,
    reason = "what has no integer is the least one"
)]
pub(crate) fn integer(number: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    if (-END..END).contains(&number) {
        number as i64
    } else {
        i64::MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_by_c() {
        for (number, precision, expected) in [
            (0.1, 17, "0.10000000000000001"),
            (3.0, 17, "3"),
            (1e17, 17, "1e+17"),
            (123_456_789_012.0, 14, "123456789012"),
            (1e-5, 14, "1e-05"),
            (0.0001, 14, "0.0001"),
            (-2.5, 14, "-2.5"),
            (1e15, 14, "1e+15"),
            (0.0, 17, "0"),
            (f64::INFINITY, 17, "inf"),
        ] {
            assert_eq!(general(number, precision), expected);
        }
        assert_eq!(integer(1.9), 1);
        assert_eq!(integer(-1.9), -1);
        assert_eq!(integer(f64::NAN), i64::MIN);
        assert_eq!(integer(1e300), i64::MIN);
    }
}
