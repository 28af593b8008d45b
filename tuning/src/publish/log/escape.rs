//! Makes a formatted event safe to show and to parse: one line, without characters that reorder or
//! hide text, and, as JSON, without integers that a parser rounds.
//!
//! Parts of an event come from peers: names, reasons, keys. A terminal obeys control characters and
//! a viewer obeys bidirectional ones, so a peer could make a line read as another.
//!
//! - I1: the escaped JSON is the same value, but for integers beyond [`EXACT_MAX`], which become
//!   strings.
//!
//! Source: RFC 8259, sections 6 and 7; Unicode, UAX #9 and UTR #36.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

use super::LogFormat;

/// The largest integer up to which all fit a double: 2^53.
const EXACT_MAX: u128 = 1 << 53;

/// Whether a character reorders text, or is not seen.
fn is_hidden(one: char) -> bool {
    let is_direction = matches!(
        one,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    let is_width = matches!(one, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}');
    let is_line = matches!(one, '\u{2028}' | '\u{2029}');
    is_direction || is_width || is_line || one.is_control()
}

/// Writes a line of text with its hidden characters visible. Escape sequences are the format's own
/// colours: it escapes those of fields.
fn write_text(line: &str, out: &mut impl fmt::Write) -> fmt::Result {
    let body = line.strip_suffix('\n').unwrap_or(line);
    for one in body.chars() {
        match one {
            '\t' | '\u{1b}' => out.write_char(one)?,
            _ if is_hidden(one) => write!(out, "{}", one.escape_default())?,
            _ => out.write_char(one)?,
        }
    }
    out.write_str(&line[body.len()..])
}

/// Writes an integer of JSON, as a string if a double does not hold it.
fn write_number(number: &str, out: &mut impl fmt::Write) -> fmt::Result {
    let digits = number.strip_prefix('-').unwrap_or(number);
    let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit());
    // More digits than a u128 has are beyond it, too.
    if !is_integer || digits.parse().is_ok_and(|value: u128| value <= EXACT_MAX) {
        out.write_str(number)
    } else {
        write!(out, "\"{number}\"")
    }
}

/// Writes a line of JSON with its hidden characters escaped and its large integers as strings.
fn write_json(line: &str, out: &mut impl fmt::Write) -> fmt::Result {
    let body = line.strip_suffix('\n').unwrap_or(line);
    let mut rest = body;
    let mut in_string = false;
    while let Some(one) = rest.chars().next() {
        let taken = match one {
            '\\' if in_string => {
                // The next character belongs to the escape.
                let escape = rest.chars().take(2).map(char::len_utf8).sum();
                out.write_str(&rest[..escape])?;
                escape
            }
            '"' => {
                in_string = !in_string;
                out.write_char('"')?;
                1
            }
            '-' | '0'..='9' if !in_string => {
                let is_part = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
                let end = rest.bytes().position(|byte| !is_part(byte));
                let end = end.unwrap_or(rest.len());
                write_number(&rest[..end], out)?;
                end
            }
            _ if in_string && is_hidden(one) => {
                // All hidden characters are in the basic plane.
                write!(out, "\\u{:04x}", u32::from(one))?;
                one.len_utf8()
            }
            _ => {
                out.write_char(one)?;
                one.len_utf8()
            }
        };
        rest = &rest[taken..];
    }
    out.write_str(&line[body.len()..])
}

/// A format whose lines are escaped.
#[derive(Debug)]
pub(super) struct Escaped<F> {
    pub(super) inner: F,
    pub(super) format: LogFormat,
}

impl<S, N, F> FormatEvent<S, N> for Escaped<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.inner
            .format_event(context, Writer::new(&mut line), event)?;
        match self.format {
            LogFormat::Text => write_text(&line, &mut out),
            LogFormat::Json => write_json(&line, &mut out),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn json_of(value: &Value) -> String {
        let mut out = String::new();
        write_json(&value.to_string(), &mut out).expect("a string");
        out
    }

    fn text_of(line: &str) -> String {
        let mut out = String::new();
        write_text(line, &mut out).expect("a string");
        out
    }

    #[test]
    fn hidden_characters_are_escaped() {
        let name = "a\u{202e}b\u{2066}c\u{200b}d\u{7f}e\u{9b}f\u{1b}g\u{feff}h\u{2028}";
        let line = json_of(&json!({"name": name, name: 1}));
        assert!(!line.chars().any(is_hidden), "{line}");
        assert!(line.contains("a\\u202eb\\u2066c"), "{line}");
        let parsed: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(parsed, json!({"name": name, name: 1}));
        let text = text_of("peer=a\u{202e}b\nforged\u{9b}\n");
        assert_eq!(text, "peer=a\\u{202e}b\\nforged\\u{9b}\n");
        assert_eq!(
            text_of("a\tb \u{1b}[2mdim\u{e9}\n"),
            "a\tb \u{1b}[2mdim\u{e9}\n"
        );
    }

    #[test]
    fn integers_that_a_double_rounds_are_strings() {
        for (value, shown) in [
            (json!(1_u64 << 53), "9007199254740992"),
            (json!((1_u64 << 53) + 1), "\"9007199254740993\""),
            (json!(u64::MAX), "\"18446744073709551615\""),
            (json!(-(1_i64 << 53) - 1), "\"-9007199254740993\""),
            (json!(i64::MIN), "\"-9223372036854775808\""),
            (json!(-7), "-7"),
            (json!(0.5), "0.5"),
            (json!(1e300), "1e+300"),
            (json!("18446744073709551615"), "\"18446744073709551615\""),
            (
                json!("a \"18446744073709551615\\"),
                r#""a \"18446744073709551615\\""#,
            ),
        ] {
            assert_eq!(json_of(&value), shown);
        }
        let line = json_of(&json!({"a": [u64::MAX, 1], "b": {"c": u64::MAX}}));
        let parsed: Value = serde_json::from_str(&line).expect("JSON");
        let most = u64::MAX.to_string();
        assert_eq!(parsed, json!({"a": [most, 1], "b": {"c": most}}));
    }

    proptest! {
        #[test]
        fn any_text_stays_itself(key: String, text: String, number in -(1_i64 << 53)..(1_i64 << 53)) {
            let value = json!({key: [text, number, {"x": text}], "n": number});
            let line = json_of(&value);
            prop_assert!(!line.chars().any(is_hidden));
            prop_assert_eq!(serde_json::from_str::<Value>(&line).expect("JSON"), value);
        }

        #[test]
        fn any_line_is_escaped_without_a_panic(line: String) {
            let mut out = String::new();
            write_json(&line, &mut out).expect("a string");
            prop_assert!(!text_of(&line).trim_end_matches('\n').contains('\n'));
        }
    }
}
