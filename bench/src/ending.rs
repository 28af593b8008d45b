//! How a command ends: its exit status, and the last line on standard error.
//!
//! | status | meaning |
//! |---|---|
//! | 0 | every request was answered, and every answer was right |
//! | 1 | an answer was wrong, whatever else happened |
//! | 2 | the command cannot be run as written: a flag, its value, or what this machine allows |
//! | 3 | requests ended with an error, or a client hung; no answer was wrong |
//! | 4 | the command failed: an engine could not be opened, a file could not be written |
//! | 128 + n | signal n ended it; the figures are those of what had run |

use crate::failures::{self, ErrorCounts};
use crate::{stop, words};

/// The exit statuses, for `--help`.
pub const STATUSES: &str = "\
Exit status:
  0        every request was answered, and every answer was right
  1        an answer was wrong
  2        the command cannot be run as written
  3        requests ended with an error, or a client hung; no answer was wrong
  4        the command failed: an engine could not be opened, a file not be written
  128 + n  signal n ended the command; what it had measured is printed and written";

const WRONG: u8 = 1;
const USAGE: u8 = 2;
const ERRORS: u8 = 3;
const FAILED: u8 = 4;

/// The end of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// The exit status.
    pub status: u8,
    /// The last line on standard error.
    pub message: Option<String>,
}

impl Ending {
    const SOUND: Self = Self {
        status: 0,
        message: None,
    };

    fn with(status: u8, message: impl Into<String>) -> Self {
        Self {
            status,
            message: Some(message.into()),
        }
    }

    /// The command cannot be run as written.
    #[must_use]
    pub fn usage(error: &anyhow::Error) -> Self {
        Self::with(USAGE, words::describe(error))
    }

    /// The command failed.
    #[must_use]
    pub fn failed(error: &anyhow::Error) -> Self {
        Self::with(FAILED, words::describe(error))
    }

    /// The end of a command that measured something. `hung`: what hung, in words.
    #[must_use]
    pub fn of(wrong: u64, errors: &ErrorCounts, hung: Option<String>) -> Self {
        let failed = failures::total(errors);
        if wrong > 0 {
            return Self::with(WRONG, format!("{wrong} answers were wrong"));
        }
        if let Some(status) = stop::status() {
            return Self::with(status, "ended by a signal: the figures are partial");
        }
        if failed > 0 {
            let kinds = failures::describe(errors);
            let message = format!("{failed} requests ended with an error: {kinds}");
            return Self::with(ERRORS, message);
        }
        hung.map_or(Self::SOUND, |hung| Self::with(ERRORS, hung))
    }

    /// The end of a command that did what it was for.
    #[must_use]
    pub const fn sound() -> Self {
        Self::SOUND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_tells_wrong_values_from_errors() {
        let none = ErrorCounts::new();
        let some = ErrorCounts::from([("FarFull".to_owned(), 3)]);
        assert_eq!(Ending::of(0, &none, None), Ending::sound());
        let of = |wrong, errors, hung: Option<&str>| {
            Ending::of(wrong, errors, hung.map(str::to_owned)).status
        };
        assert_eq!(of(1, &some, Some("one")), 1);
        assert_eq!(of(0, &some, None), 3);
        assert_eq!(of(0, &none, Some("one")), 3);
        let message = Ending::of(0, &some, None).message;
        assert_eq!(
            message.as_deref(),
            Some("3 requests ended with an error: 3 FarFull")
        );
    }
}
