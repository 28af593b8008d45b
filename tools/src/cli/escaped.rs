//! Bytes as text that a terminal shows and JSON takes.
//!
//! - I1: no control character, and nothing that changes the direction of text, is printed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// Bytes as text: `\xNN` for those that are no UTF-8, escapes for what cannot be seen.
pub(super) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\'' | '"' => text.push(c),
                _ => text.extend(c.escape_debug()),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Sets a field to bytes: as text, or in base64 with a second field that says so.
pub(super) fn set_bytes(object: &mut Map<String, Value>, field: &str, bytes: &[u8]) {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => {
            object.insert(format!("{field}_encoding"), "base64".into());
            STANDARD.encode(bytes)
        }
    };
    object.insert(field.to_owned(), text.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_escaped() {
        for (bytes, text) in [
            (&b"plain 'text' \"x\""[..], "plain 'text' \"x\""),
            ("gr\u{fc}n \u{1f600}".as_bytes(), "gr\u{fc}n \u{1f600}"),
            (b"a\tb\nc\\", "a\\tb\\nc\\\\"),
            (b"\x1b[2J\x07", "\\u{1b}[2J\\u{7}"),
            ("\u{202e}x".as_bytes(), "\\u{202e}x"),
            (b"\xff\xc3x\x80", "\\xff\\xc3x\\x80"),
            (b"", ""),
        ] {
            assert_eq!(escaped(bytes), text);
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_marked() {
        let mut object = Map::new();
        set_bytes(&mut object, "key", "k\u{fc}".as_bytes());
        set_bytes(&mut object, "value", b"\xff\x00\x01");
        let text = Value::from(object).to_string();
        assert_eq!(
            text,
            "{\"key\":\"k\u{fc}\",\"value\":\"/wAB\",\"value_encoding\":\"base64\"}"
        );
    }
}
