//! How often each code of an error was replied: what `INFO errorstats` shows.
//!
//! - I1: a code is letters, and few: no text of a client is shown.

/// Codes that are counted; as Redis. Others are not, so that no client fills memory.
const CODES_MAX: usize = 128;
/// Letters of a code, at most.
const LETTERS_MAX: usize = 32;

/// Errors by their code.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failures(Vec<(String, u64)>);

impl Failures {
    /// Counts an error by the first word of its text, if that is a code.
    #[cold]
    pub(crate) fn note(&mut self, text: &str) {
        let code = text.split_ascii_whitespace().next().unwrap_or_default();
        let is_code = (1..=LETTERS_MAX).contains(&code.len())
            && code.bytes().all(|letter| letter.is_ascii_alphabetic());
        if is_code {
            self.add(code, 1);
        }
    }

    fn add(&mut self, code: &str, count: u64) {
        if let Some((_, known)) = self.0.iter_mut().find(|(known, _)| known == code) {
            *known += count;
        } else if self.0.len() < CODES_MAX {
            self.0.push((code.to_owned(), count));
        }
    }

    /// Adds those of another core.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (code, count) in &other.0 {
            self.add(code, *count);
        }
    }

    /// The codes with their counts, in their order.
    pub(crate) fn sorted(mut self) -> Vec<(String, u64)> {
        self.0.sort();
        self.0
    }

    /// Counts anew.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_counted_by_their_code() {
        let (mut one, mut other) = (Failures::default(), Failures::default());
        one.note("ERR syntax error");
        one.note("WRONGPASS no");
        other.note("ERR no such key");
        one.merge(&other);
        let counts = [("ERR".to_owned(), 2), ("WRONGPASS".to_owned(), 1)];
        assert_eq!(one.clone().sorted(), counts);
        one.clear();
        assert!(one.sorted().is_empty());
    }

    #[test]
    fn only_codes_are_counted() {
        let mut failures = Failures::default();
        let longest = "A".repeat(LETTERS_MAX);
        for text in [
            &longest,
            &format!("{longest}A"),
            "",
            "-ERR",
            "ERR:x",
            "4",
            "\u{c4}RR",
            "ERR\r\nfar:1",
        ] {
            failures.note(text);
        }
        let counts = [(longest, 1), ("ERR".to_owned(), 1)];
        assert_eq!(failures.sorted(), counts);
    }

    #[test]
    fn codes_beyond_the_limit_are_not_kept() {
        let (mut one, mut other) = (Failures::default(), Failures::default());
        let letter = |place: usize| char::from(b'A' + u8::try_from(place % 26).expect("a letter"));
        for place in 0..CODES_MAX + 9 {
            let code = format!("{}{}", letter(place / 26), letter(place));
            one.note(&code);
            other.note(&format!("X{code}"));
        }
        one.note("AA again");
        one.merge(&other);
        let counts = one.sorted();
        assert_eq!(counts.len(), CODES_MAX);
        assert_eq!(counts[0], ("AA".to_owned(), 2));
    }
}
