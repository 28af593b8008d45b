//! How a command ends: its exit status, and the last line on standard error.
//!
//! | status | meaning |
//! |---|---|
//! | 0 | every request was answered, and every answer was right |
//! | 1 | an answer was wrong, whatever else happened |
//! | 2 | the command cannot be run as written: a flag, its value, or what this machine allows |
//! | 3 | requests ended with an error, or a client hung; no answer was wrong |
//! | 4 | a run failed, or a file could not be written; the figures are those of what had run |
//! | 128 + n | signal n ended it; the figures are those of what had run |

use farcore_command::{stop, words};

use crate::failures::{self, ErrorCounts};

/// The exit statuses, for `--help`.
pub const STATUSES: &str = "\
Exit status:
  0        every request was answered, and every answer was right
  1        an answer was wrong
  2        the command cannot be run as written
  3        requests ended with an error, or a client hung; no answer was wrong
  4        a run failed, or a file could not be written; what was measured is printed
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

    /// The end of a command that measured something. `hung`: what hung, in words; `failures`: runs
    /// that failed and files that could not be written. The message has all of them, the status is
    /// that of the gravest.
    #[must_use]
    pub fn of(
        wrong: u64,
        errors: &ErrorCounts,
        hung: Option<String>,
        failures: &[anyhow::Error],
    ) -> Self {
        let mut causes = Vec::new();
        if wrong > 0 {
            causes.push((WRONG, format!("{wrong} answers were wrong")));
        }
        causes.extend(failures.iter().map(|why| (FAILED, words::describe(why))));
        if let Some(status) = stop::status() {
            causes.push((status, "ended by a signal".into()));
        }
        let failed = failures::total(errors);
        if failed > 0 {
            let kinds = failures::describe(errors);
            let message = format!("{failed} requests ended with an error: {kinds}");
            causes.push((ERRORS, message));
        }
        causes.extend(hung.map(|hung| (ERRORS, hung)));
        let Some(&(status, _)) = causes.first() else {
            return Self::SOUND;
        };
        let messages: Vec<String> = causes.into_iter().map(|(_, message)| message).collect();
        Self::with(status, messages.join("; "))
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
    fn the_status_distinguishes_wrong_values_from_errors() {
        let none = ErrorCounts::new();
        let some = ErrorCounts::from([("FarFull".to_owned(), 3)]);
        assert_eq!(Ending::of(0, &none, None, &[]), Ending::sound());
        let of = |wrong, errors, hung: Option<&str>| {
            Ending::of(wrong, errors, hung.map(str::to_owned), &[]).status
        };
        assert_eq!(of(1, &some, Some("one")), 1);
        assert_eq!(of(0, &some, None), 3);
        assert_eq!(of(0, &none, Some("one")), 3);
        let message = Ending::of(0, &some, None, &[]).message;
        assert_eq!(
            message.as_deref(),
            Some("3 requests ended with an error: 3 FarFull")
        );
    }

    #[test]
    fn a_failure_is_graver_than_errors_and_a_wrong_answer_than_a_failure() {
        let some = ErrorCounts::from([("FarFull".to_owned(), 3)]);
        let failures = [anyhow::anyhow!("--json x cannot be written")];
        let ending = Ending::of(0, &some, None, &failures);
        assert_eq!(ending.status, 4);
        assert_eq!(
            ending.message.as_deref(),
            Some("--json x cannot be written; 3 requests ended with an error: 3 FarFull")
        );
        let ending = Ending::of(2, &ErrorCounts::new(), None, &failures);
        assert_eq!(ending.status, 1);
        assert_eq!(
            ending.message.as_deref(),
            Some("2 answers were wrong; --json x cannot be written")
        );
    }
}
