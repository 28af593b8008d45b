//! Requests that the engine answered with an error, counted by the kind of the error. They are no
//! wrong values: nothing was stored or read that should not have been.
//!
//! A kind is the name of a variant of `farcore::Error`, such as `FarFull` or `Unavailable`. It is
//! found by the variant's discriminant, so that counting a million of them formats only one.

use std::collections::BTreeMap;
use std::mem::{Discriminant, discriminant};

use farcore::Error;
use farcore_command::words;

/// Requests by the kind of their error; the form that `--json` writes.
pub type ErrorCounts = BTreeMap<String, u64>;

/// The failed requests of one worker in one phase.
#[derive(Debug, Default)]
pub struct Failures {
    kinds: Vec<(Discriminant<Error>, String, u64)>,
    first: Option<String>,
}

impl Failures {
    /// Counts a failed request; `name` describes it if it is the first one.
    #[cold]
    pub fn count(&mut self, error: &Error, name: impl FnOnce() -> String) {
        if self.first.is_none() {
            let why = words::in_flags(&error.to_string());
            self.first = Some(format!("{} failed: {why}", name()));
        }
        let kind = discriminant(error);
        match self.kinds.iter_mut().find(|one| one.0 == kind) {
            Some(known) => known.2 += 1,
            None => self.kinds.push((kind, kind_of(error), 1)),
        }
    }

    /// Failed requests so far.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.kinds.iter().map(|one| one.2).sum()
    }

    /// A description of the first one.
    pub fn take_first(&mut self) -> Option<String> {
        self.first.take()
    }

    /// The counts by kind.
    #[must_use]
    pub fn counts(&self) -> ErrorCounts {
        let kinds = self.kinds.iter();
        kinds.map(|one| (one.1.clone(), one.2)).collect()
    }
}

/// The kind of an error: its variant's name.
#[must_use]
pub fn kind_of(error: &Error) -> String {
    let text = format!("{error:?}");
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.chars().take_while(|&letter| is_name(letter)).collect()
}

/// Adds counts to a sum.
pub fn add(sum: &mut ErrorCounts, more: &ErrorCounts) {
    for (kind, count) in more {
        *sum.entry(kind.clone()).or_default() += count;
    }
}

/// The number of all failed requests.
#[must_use]
pub fn total(counts: &ErrorCounts) -> u64 {
    counts.values().sum()
}

/// The counts in words, such as `12 FarFull, 3 Unavailable`.
#[must_use]
pub fn describe(counts: &ErrorCounts) -> String {
    let kinds: Vec<String> = counts
        .iter()
        .map(|(kind, count)| format!("{count} {kind}"))
        .collect();
    kinds.join(", ")
}

/// Wrong values and errors in one line, such as `wrong values: 0, errors: 3 (3 FarFull)`.
#[must_use]
pub fn faults(wrong: u64, errors: &ErrorCounts) -> String {
    let total = total(errors);
    let kinds = match total {
        0 => String::new(),
        _ => format!(" ({})", describe(errors)),
    };
    format!("wrong values: {wrong}, errors: {total}{kinds}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_the_name_of_their_variant() {
        let full = |used| Error::FarFull {
            shard: None,
            used,
            limit: 9,
        };
        let mut failures = Failures::default();
        for error in [full(1), Error::Closed, full(2)] {
            failures.count(&error, || "key 7".into());
        }
        assert_eq!(failures.total(), 3);
        assert_eq!(describe(&failures.counts()), "1 Closed, 2 FarFull");
        let first = failures.take_first().unwrap();
        assert!(
            first.starts_with("key 7 failed: far memory is full: 1 byte of 9"),
            "{first}"
        );
        let mut sum = failures.counts();
        add(&mut sum, &failures.counts());
        assert_eq!(total(&sum), 6);
        let text = "wrong values: 1, errors: 6 (2 Closed, 4 FarFull)";
        assert_eq!(faults(1, &sum), text);
        let none = faults(0, &ErrorCounts::new());
        assert_eq!(none, "wrong values: 0, errors: 0");
    }
}
