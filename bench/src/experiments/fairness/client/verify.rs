//! Verifies the answers to a client's requests.

use farcore::{Answer, Error};
use farcore_command::words;

use super::PUT;
use crate::experiments::fairness::keys::Keys;
use crate::experiments::fairness::notes::Notes;

/// Counts an answer that is wrong or failed. `expected` is the nonce of the value, if this client
/// is the only writer of the key.
pub(super) fn verify(
    keys: &Keys,
    notes: &Notes,
    token: u64,
    expected: Option<u64>,
    answer: &Answer<'_>,
) {
    let (index, is_put) = (token & !PUT, token & PUT != 0);
    let what = if is_put { "put" } else { "get" };
    let right = match *answer {
        Answer::Value { value, .. } => !is_put && keys.is_value(index, expected, value),
        Answer::Stored { .. } => is_put,
        Answer::Failed(error) => {
            if is_put {
                notes.doubt(index);
            }
            return notes.failed(error, || failure(what, index, error));
        }
        _ => false,
    };
    if !right {
        // A write that failed may have taken effect or not.
        let is_possible = match *answer {
            Answer::Value { value, .. } => !is_put && keys.is_value(index, None, value),
            Answer::Absent => !is_put,
            _ => false,
        };
        notes.wrong(index, is_possible, || match answer {
            Answer::Value { value, .. } => {
                let bytes = value.len();
                format!("a {what} of key {index} was answered with a value of {bytes} bytes")
            }
            other => format!("a {what} of key {index} was answered with {other:?}"),
        });
    }
}

fn failure(what: &str, index: u64, error: &Error) -> String {
    let why = words::in_flags(&error.to_string());
    format!("a {what} of key {index} failed: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::fairness::settings::{Form, Request, Settings};
    use crate::record::Scratch;

    fn keys() -> Keys {
        let settings = Settings {
            flooders: 1,
            flooder_puts_percent: 0,
            sleepers: 0,
            sleeper_window: 1,
            value_bytes: vec![64],
            sleeper_value_bytes: vec![64],
            measured: Request::ALL.to_vec(),
            form: Form::Wait,
            seconds: 1.0,
            give_up_seconds: 1.0,
            one_thread: false,
            client_cores: Vec::new(),
            machine_cores: 2,
        };
        Keys::new(&settings, 10, 7)
    }

    #[test]
    fn every_wrong_or_failed_answer_is_counted() {
        let keys = keys();
        let mut scratch = Scratch::default();
        let value = keys.put(3, 9, &mut scratch).value().to_vec();
        let value = Answer::Value {
            version: 1,
            value: &value,
        };
        let stored = Answer::Stored { version: 1 };
        let error = Error::Closed;
        let failed = Answer::Failed(&error);
        for (token, expected, answer, faults) in [
            (3, None, value, (0, 0)),
            (3, Some(9), value, (0, 0)),
            (3, Some(8), value, (1, 0)),
            (4, None, value, (1, 0)),
            (3 | PUT, None, value, (1, 0)),
            (3, None, Answer::Absent, (1, 0)),
            (3, None, stored, (1, 0)),
            (3 | PUT, None, stored, (0, 0)),
            (3 | PUT, None, failed, (0, 1)),
            (3, None, failed, (0, 1)),
        ] {
            let notes = Notes::default();
            verify(&keys, &notes, token, expected, &answer);
            assert_eq!(notes.faults(), faults, "{token} {answer:?}");
            assert_eq!(notes.complaint().is_some(), faults != (0, 0));
        }
    }

    #[test]
    fn a_key_in_doubt_may_be_absent_or_hold_any_value_that_was_put() {
        let keys = keys();
        let mut scratch = Scratch::default();
        let sound = keys.put(3, 9, &mut scratch).value().to_vec();
        let torn = [&keys.put(3, 8, &mut scratch).value()[..32], &sound[32..]].concat();
        let value = |value| Answer::Value { version: 1, value };
        for (answer, wrong) in [
            (Answer::Absent, 0),
            (value(&sound), 0),
            (value(&torn), 1),
            (value(&sound[..32]), 1),
            (Answer::Stored { version: 1 }, 1),
        ] {
            let notes = Notes::default();
            notes.doubt(3);
            verify(&keys, &notes, 3, Some(8), &answer);
            let unverified = 1 - wrong;
            assert_eq!(
                (notes.faults(), notes.unverified()),
                ((wrong, 0), unverified)
            );
        }
    }
}
