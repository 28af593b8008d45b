//! Numbers in flags as people write them: `4096`, `4_096`, `16k`, `2M`, `1.5G`, `1e9`. The console
//! takes the same.

/// How a whole number may be written, for errors.
const WHOLE: &str = "write a whole number, as 4096, 16k, 2M or 1e9";
const REAL: &str = "write a number, as 0.5, 16k, 2M or 1e9";
/// Powers of ten beyond which no number fits.
const POWER_MAX: i32 = 400;

/// A number in parts: digits of the whole and the broken part, and the power of ten.
struct Parts {
    is_negative: bool,
    digits: String,
    power: i32,
}

fn parts(text: &str) -> Option<Parts> {
    let text = text.trim();
    let (text, suffix) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 3),
        (at, 'M') => (&text[..at], 6),
        (at, 'G') => (&text[..at], 9),
        (at, 'T') => (&text[..at], 12),
        _ => (text, 0),
    };
    let (text, is_negative) = match text.strip_prefix('-') {
        Some(rest) => (rest, true),
        None => (text.strip_prefix('+').unwrap_or(text), false),
    };
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, broken) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: String = [whole, broken].concat().replace('_', "");
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let exponent: i32 = exponent.parse().ok()?;
    let broken = i32::try_from(broken.replace('_', "").len()).ok()?;
    let power = exponent.checked_add(suffix)?.checked_sub(broken)?;
    (is_number && power.abs() <= POWER_MAX).then_some(Parts {
        is_negative,
        digits,
        power,
    })
}

/// Parses a whole number, exactly.
pub(super) fn whole<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let parts = parts(text).filter(|parts| !parts.is_negative);
    let Parts { digits, power, .. } = parts.ok_or(WHOLE)?;
    // Digits behind the point that are none: 1.50e3 is whole.
    let zeros = digits
        .bytes()
        .rev()
        .take_while(|&byte| byte == b'0')
        .count();
    let (kept, power) = match usize::try_from(-power) {
        Ok(cut) if cut <= zeros => (&digits[..digits.len() - cut], 0),
        Ok(0) | Err(_) => (&digits[..], power),
        Ok(_) if zeros == digits.len() => ("0", 0),
        Ok(_) => return Err(WHOLE.to_owned()),
    };
    let beyond = || "it is too large".to_owned();
    let kept = kept.trim_start_matches('0');
    if kept.is_empty() {
        return T::try_from(0).map_err(|_| beyond());
    }
    let number = kept.parse::<u64>().ok();
    let factor = u32::try_from(power)
        .ok()
        .and_then(|power| 10_u64.checked_pow(power));
    let number = number
        .zip(factor)
        .and_then(|(number, factor)| number.checked_mul(factor));
    let number = number.ok_or_else(beyond)?;
    T::try_from(number).map_err(|_| beyond())
}

/// Parses a number.
pub(super) fn real(text: &str) -> Result<f64, String> {
    let Parts {
        is_negative,
        digits,
        power,
    } = parts(text).ok_or(REAL)?;
    let number: f64 = format!("{digits}e{power}").parse().map_err(|_| REAL)?;
    Ok(if is_negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_people_write_them() {
        for (text, number) in [
            ("0", 0),
            ("4096", 4_096),
            ("4_096", 4_096),
            ("16k", 16_000),
            ("64K", 64_000),
            ("2M", 2_000_000),
            ("1e9", 1_000_000_000),
            ("1.5G", 1_500_000_000),
            ("1.50e1", 15),
            ("100e-2", 1),
            ("0.0", 0),
            ("+7", 7),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(whole::<u64>(text), Ok(number), "{text}");
            assert_eq!(real(text), Ok(number as f64), "{text}");
        }
        for text in [
            "", "k", "x", "16x", "1e", "1.2.3", "1,000", "0x10", "nan", "inf", "1e999",
        ] {
            assert!(whole::<u64>(text).is_err(), "{text}");
            assert!(real(text).is_err(), "{text}");
        }
        assert_eq!(real("-0.5"), Ok(-0.5));
        assert_eq!(real("1e-3"), Ok(0.001));
        assert_eq!(real("0.1k"), Ok(100.0));
        for text in ["-1", "0.5", "1.5", "15e-1"] {
            assert_eq!(whole::<u64>(text), Err(WHOLE.to_owned()), "{text}");
        }
        for text in ["18446744073709551616", "1e20", "20000000T"] {
            assert_eq!(
                whole::<u64>(text),
                Err("it is too large".to_owned()),
                "{text}"
            );
        }
        assert_eq!(whole::<u32>("4294967295"), Ok(u32::MAX));
        assert!(whole::<u32>("5G").is_err());
    }
}
