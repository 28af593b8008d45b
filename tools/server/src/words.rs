//! Words of clients: numbers as Redis takes them.

/// A text that is no number, as Redis says it.
pub(crate) const NO_FLOAT: &str = "ERR value is not a valid float";
/// A text that is no integer, as Redis says it.
pub(crate) const NO_INTEGER: &str = "ERR value is not an integer or out of range";

/// The integer that a text is, as Redis takes it: no sign but `-`, no leading zeros, no blanks.
pub(crate) fn parsed_integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_canonical = match digits {
        [b'0'] => digits.len() == text.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let text = std::str::from_utf8(text).ok().filter(|_| is_canonical)?;
    text.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_an_integer_as_it_is_written_or_none() {
        farcore_fuzz::Target::new("integer")
            .seed("-9223372036854775808")
            .seed("0")
            .words(&["-", "+", "0", "9223372036854775807", " "])
            .longest(30)
            .run(|bytes| {
                let canonical = str::from_utf8(bytes).ok().and_then(|text| {
                    let number: i64 = text.parse().ok()?;
                    (number.to_string() == text).then_some(number)
                });
                assert_eq!(parsed_integer(bytes), canonical);
            });
    }

    #[test]
    fn only_canonical_integers_are_taken() {
        for (text, number) in [("0", 0), ("-1", -1), ("9223372036854775807", i64::MAX)] {
            assert_eq!(parsed_integer(text.as_bytes()), Some(number));
        }
        for text in [
            "",
            "-",
            "+1",
            "01",
            "-0",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
            "x",
        ] {
            assert_eq!(parsed_integer(text.as_bytes()), None, "{text}");
        }
    }
}
