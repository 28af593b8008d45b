//! Arguments of commands: numbers, expiries, options.

use farcore::{Expiry, ExpiryCondition};

use super::Refusal;
use crate::databases::{OUT_OF_RANGE, number as database_number};
use crate::glob::PATTERN_BYTES_MAX;
use crate::types::sorted::score::parsed_score;
use crate::words::{NO_FLOAT, NO_INTEGER, parsed_integer};

/// An integer as Redis takes it.
pub(crate) fn integer(text: &[u8]) -> Result<i64, Refusal> {
    parsed_integer(text).ok_or_else(|| NO_INTEGER.into())
}

/// A number that is not negative.
pub(crate) fn count(text: &[u8]) -> Result<u64, Refusal> {
    u64::try_from(integer(text)?).map_err(|_| NO_INTEGER.into())
}

/// A number of elements or keys from `min` on, or this refusal.
pub(super) fn number(text: &[u8], min: usize, refusal: &str) -> Result<usize, Refusal> {
    let number = integer(text).map_err(|_| Refusal::from(refusal))?;
    let number = usize::try_from(number).ok().filter(|number| *number >= min);
    number.ok_or_else(|| refusal.into())
}

/// The number of a database that a client names.
pub(super) fn database(text: &[u8]) -> Result<u8, Refusal> {
    let value = integer(text)?;
    if i32::try_from(value).is_err() {
        return Err(
            "ERR value is out of range, value must between -2147483648 and 2147483647".into(),
        );
    }
    database_number(value).ok_or_else(|| OUT_OF_RANGE.into())
}

/// A cursor as C reads an unsigned number: it may have a sign, and no text is 0.
pub(super) fn cursor(text: &[u8]) -> Result<u64, Refusal> {
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let number = match text {
        [] => Some(0),
        _ => std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| digits.parse::<u64>().ok()),
    };
    let number = number.filter(|_| is_number || text.is_empty());
    let number = number.ok_or("ERR invalid cursor")?;
    Ok(if is_negative {
        number.wrapping_neg()
    } else {
        number
    })
}

/// A finite or infinite number as Redis takes it.
pub(crate) fn float(text: &[u8]) -> Result<f64, Refusal> {
    parsed_score(text).ok_or_else(|| NO_FLOAT.into())
}

/// Refuses a command that names more of something than it takes.
pub(super) fn at_most(what: &str, (count, count_max): (usize, usize)) -> Result<(), Refusal> {
    if count <= count_max {
        return Ok(());
    }
    Err(Refusal(format!(
        "ERR {what}: at most {count_max} at once, these are {count}"
    )))
}

/// A pattern that is not too long to be matched.
pub(crate) fn pattern(text: &[u8]) -> Result<&[u8], Refusal> {
    if text.len() <= PATTERN_BYTES_MAX {
        return Ok(text);
    }
    let bytes = text.len();
    Err(Refusal(format!(
        "ERR a pattern has at most {PATTERN_BYTES_MAX} bytes, this one has {bytes}"
    )))
}

/// True if an argument is this option, in letters of any size.
pub(crate) fn is_option(argument: &[u8], option: &str) -> bool {
    argument.eq_ignore_ascii_case(option.as_bytes())
}

/// How a command gives a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TimeUnit {
    Seconds,
    Milliseconds,
    /// Seconds since 1970.
    AtSeconds,
    /// Milliseconds since 1970.
    AtMilliseconds,
}

impl TimeUnit {
    /// The unit that an option of `SET` or `GETEX` names.
    pub(crate) fn of_option(argument: &[u8]) -> Option<Self> {
        let options = [
            ("ex", Self::Seconds),
            ("px", Self::Milliseconds),
            ("exat", Self::AtSeconds),
            ("pxat", Self::AtMilliseconds),
        ];
        let found = options
            .iter()
            .find(|(option, _)| is_option(argument, option));
        found.map(|&(_, unit)| unit)
    }

    /// When a key with this time expires; `None` if the time is out of range.
    pub(crate) fn expiry(self, time: i64) -> Option<Expiry> {
        let milliseconds = match self {
            Self::Seconds | Self::AtSeconds => time.checked_mul(1000)?,
            Self::Milliseconds | Self::AtMilliseconds => time,
        };
        let is_relative = matches!(self, Self::Seconds | Self::Milliseconds);
        if is_relative {
            let now_ms = i64::try_from(farcore_tuning::system_ms()).unwrap_or(i64::MAX);
            now_ms.checked_add(milliseconds)?;
        }
        // What lies in the past deletes the key.
        let milliseconds = u64::try_from(milliseconds).unwrap_or(0);
        Some(if is_relative {
            Expiry::In(milliseconds)
        } else {
            Expiry::At(milliseconds)
        })
    }
}

/// A time that must be positive, for a command.
pub(crate) fn positive_expiry(
    text: &[u8],
    unit: TimeUnit,
    command: &str,
) -> Result<Expiry, Refusal> {
    let time = integer(text)?;
    let expiry = (time > 0).then(|| unit.expiry(time)).flatten();
    expiry.ok_or_else(|| invalid_expiry(command))
}

/// The refusal of a time.
pub(crate) fn invalid_expiry(command: &str) -> Refusal {
    Refusal(format!("ERR invalid expire time in '{command}' command"))
}

/// The condition that the options of `EXPIRE` state.
pub(crate) fn expiry_condition<'a>(
    options: impl Iterator<Item = &'a [u8]>,
) -> Result<ExpiryCondition, Refusal> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in options {
        match () {
            () if is_option(option, "nx") => nx = true,
            () if is_option(option, "xx") => xx = true,
            () if is_option(option, "gt") => gt = true,
            () if is_option(option, "lt") => lt = true,
            () => {
                let option = String::from_utf8_lossy(option);
                return Err(Refusal(format!("ERR Unsupported option {option}")));
            }
        }
    }
    if nx && (xx || gt || lt) {
        return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
    }
    if gt && lt {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    Ok(match (nx, xx, gt, lt) {
        (true, ..) => ExpiryCondition::Unset,
        (_, _, true, _) => ExpiryCondition::Later,
        (_, true, _, true) => ExpiryCondition::EarlierIfSet,
        (_, _, _, true) => ExpiryCondition::Earlier,
        (_, true, ..) => ExpiryCondition::Set,
        _ => ExpiryCondition::Always,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_out_of_range_are_refused() {
        assert_eq!(TimeUnit::Seconds.expiry(2), Some(Expiry::In(2000)));
        assert_eq!(TimeUnit::AtSeconds.expiry(-5), Some(Expiry::At(0)));
        assert_eq!(TimeUnit::Seconds.expiry(i64::MAX), None);
        assert_eq!(TimeUnit::Milliseconds.expiry(i64::MAX), None);
        assert!(positive_expiry(b"0", TimeUnit::Seconds, "set").is_err());
    }
}
