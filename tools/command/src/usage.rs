//! Errors of the command line in plain words. The parsers of the standard library say what they
//! met, such as an invalid digit; a user needs to know what to write.

use std::ffi::OsString;

use clap::error::ErrorKind;
use farcore_tuning::LogFormat;

/// What parsers say, and what to write.
const WORDS: [(&str, &str); 6] = [
    ("invalid digit found in string", "write a whole number"),
    (
        "cannot parse integer from empty string",
        "write a whole number",
    ),
    ("invalid float literal", "write a number"),
    ("cannot parse float from empty string", "write a number"),
    (
        "number too large to fit in target type",
        "the number is too large",
    ),
    (
        "invalid socket address syntax",
        "write it as ADDRESS:PORT in numbers, with a port up to 65535, e.g. 127.0.0.1:9401",
    ),
];
/// Flags whose values may come from a variable of the environment, of `farcore`, too.
const VARIABLES: [(&str, &str); 2] = [
    ("--log-format", LogFormat::VARIABLE),
    ("--server", "FARCORE_SERVER"),
];
/// How clap names a range such as `1..=1000`.
const RANGE: &str = " is not in ";
const TO: &str = "..=";
/// How it names the end of a range that has none.
const FROM: &str = "..18446744073709551615";

/// The text with the variable that holds the value, if its flag was not typed.
fn with_variable(text: String, is_typed: impl Fn(&str) -> bool) -> String {
    for (flag, variable) in VARIABLES {
        if let Some((before, rest)) = text.split_once(&format!("for '{flag} <"))
            && let Some((_, after)) = rest.split_once('\'')
            && !is_typed(flag)
        {
            return format!("{before}for {variable}{after}");
        }
    }
    text
}

/// The error with plain words for what a parser of the standard library said.
#[must_use]
pub fn plain(error: clap::Error) -> clap::Error {
    if error.kind() != ErrorKind::ValueValidation {
        return error;
    }
    let said = error.to_string();
    let mut text = said.clone();
    for (theirs, ours) in WORDS {
        text = text.replace(theirs, ours);
    }
    if let Some((before, range)) = text.split_once(RANGE) {
        // The value stands there twice.
        let before = before
            .rsplit_once(": ")
            .map_or(before, |(before, _)| before);
        let range = range.replace(TO, " to ").replace(FROM, " or more");
        text = format!("{before}: it must be {range}");
    }
    let is_typed = |flag: &str| {
        let is_it = |word: OsString| word.to_string_lossy().split('=').next() == Some(flag);
        std::env::args_os().any(is_it)
    };
    let text = with_variable(text, is_typed);
    if text == said {
        return error;
    }
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    clap::Error::raw(error.kind(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_the_environment_is_named_by_its_variable() {
        let said = "error: invalid value 'x' for '--server <ADDRESS>': `x` has no scheme";
        assert_eq!(
            with_variable(said.into(), |_| false),
            "error: invalid value 'x' for FARCORE_SERVER: `x` has no scheme"
        );
        assert_eq!(with_variable(said.into(), |flag| flag == "--server"), said);
    }
}
