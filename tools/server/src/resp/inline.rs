//! Splits an inline command into arguments, by the rules of Redis's `sdssplitargs`.
//!
//! In double quotes `\xHH`, `\n`, `\r`, `\t`, `\b` and `\a` are escapes, and a backslash before any
//! other byte is dropped. In single quotes only `\'` is an escape. An argument ends where its quote
//! closes, so a space or the end of the line must follow.

use super::arguments::Span;
use super::error::ProtocolError;

/// Appends the arguments of a line to `text`, and their places in it to `spans`.
pub(super) fn split(
    line: &[u8],
    text: &mut Vec<u8>,
    spans: &mut Vec<Span>,
) -> Result<(), ProtocolError> {
    let mut rest = line;
    loop {
        let spaces = rest.iter().take_while(|&&byte| is_space(byte)).count();
        rest = &rest[spaces..];
        if rest.is_empty() {
            return Ok(());
        }
        let start = text.len();
        rest = argument(rest, text)?;
        spans.push(Span::in_text(start, text.len()));
    }
}

/// Appends one argument, and returns what follows it.
fn argument<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        match rest {
            // Fewer than `is_space`: a vertical tab or form feed here is part of the argument.
            [] | [b' ' | b'\n' | b'\r' | b'\t', ..] => return Ok(rest),
            [b'"', inside @ ..] => return double_quoted(inside, text),
            [b'\'', inside @ ..] => return single_quoted(inside, text),
            [byte, after @ ..] => {
                text.push(*byte);
                rest = after;
            }
        }
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, after) = match rest {
            [] => return Err(ProtocolError::Quotes),
            [b'"', after @ ..] => return closed(after),
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                (nibble(*high) << 4 | nibble(*low), after)
            }
            [b'\\', escaped, after @ ..] => (unescaped(*escaped), after),
            [byte, after @ ..] => (*byte, after),
        };
        text.push(byte);
        rest = after;
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        let (byte, after) = match rest {
            [] => return Err(ProtocolError::Quotes),
            [b'\'', after @ ..] => return closed(after),
            [b'\\', b'\'', after @ ..] => (b'\'', after),
            [byte, after @ ..] => (*byte, after),
        };
        text.push(byte);
        rest = after;
    }
}

/// What follows a closing quote, if it may.
fn closed(after: &[u8]) -> Result<&[u8], ProtocolError> {
    match after.first() {
        Some(&byte) if !is_space(byte) => Err(ProtocolError::Quotes),
        _ => Ok(after),
    }
}

fn unescaped(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

/// The value of a hexadecimal digit.
fn nibble(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// C's `isspace`.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
        let (mut text, mut spans) = (Vec::new(), Vec::new());
        split(line, &mut text, &mut spans)?;
        let bytes = |span: &Span| span.of_text(&text).unwrap_or_default().to_vec();
        Ok(spans.iter().map(bytes).collect())
    }

    #[track_caller]
    fn check(line: &[u8], expected: &[&[u8]]) {
        let found = arguments(line).unwrap();
        assert_eq!(found, expected, "{}", line.escape_ascii());
    }

    #[test]
    fn spaces_part_arguments() {
        check(b"", &[]);
        check(b" \t\x0b\x0c\r", &[]);
        check(b"PING", &[b"PING"]);
        check(b"  SET\tkey \x0b value  ", &[b"SET", b"key", b"value"]);
        check(b"a\x0bb c\x0c", &[b"a\x0bb", b"c\x0c"]);
        check(b"a\rb", &[b"a", b"b"]);
    }

    #[test]
    fn double_quotes_unescape() {
        check(br#""a b" "\n\r\t\b\a""#, &[b"a b", b"\n\r\t\x08\x07"]);
        check(br#""\x00\xfF\xA0" "\"\\\q""#, &[b"\x00\xff\xa0", b"\"\\q"]);
        check(br#""\xg0" "\x0" "\x""#, &[b"xg0", b"x0", b"x"]);
        check(br#""" "'""#, &[b"", b"'"]);
    }

    #[test]
    fn single_quotes_keep_all_but_a_quote() {
        check(br"'a b' '\n\x41' '\'' ''", &[b"a b", br"\n\x41", b"'", b""]);
        check(br#"'"' '\\n'"#, &[b"\"", br"\\n"]);
    }

    #[test]
    fn a_quote_may_open_within_an_argument() {
        check(br#"a"b c" d'e f'"#, &[b"ab c", b"de f"]);
        check(b"\"a\"\x0b'b'\x0c", &[b"a", b"b"]);
    }

    #[test]
    fn quotes_must_balance() {
        let lines: [&[u8]; 10] = [
            b"\"",
            b"'",
            b"\"a",
            b"'a",
            b"\"a\"b",
            b"'a'b",
            b"\"a\"\"b\"",
            b"\"\\\"",
            b"'\\'",
            b"'\\\\'",
        ];
        for line in lines {
            let found = arguments(line);
            assert_eq!(found, Err(ProtocolError::Quotes), "{}", line.escape_ascii());
        }
    }
}
