//! Ends the reading of a JSON file whose string is too long for memory.
//!
//! A JSON reader collects a string before it gives it to anyone. This reader stands in front of it
//! and counts the bytes between quotes.

use std::cell::Cell;
use std::io::{self, Read};
use std::rc::Rc;

/// Whether a string was too long.
pub(super) type TooLong = Rc<Cell<bool>>;

/// Passes bytes on until a string has more than a limit.
#[derive(Debug)]
pub(super) struct StringGuard<R> {
    input: R,
    limit: usize,
    /// Bytes since the opening quote.
    inside: Option<usize>,
    is_escaped: bool,
    too_long: TooLong,
}

impl<R> StringGuard<R> {
    /// Limits strings to texts of `text_bytes_max`. Written as escapes, a text has six times as
    /// many bytes.
    pub(super) fn new(input: R, text_bytes_max: usize, too_long: TooLong) -> Self {
        Self {
            input,
            limit: text_bytes_max.saturating_mul(6).saturating_add(6),
            inside: None,
            is_escaped: false,
            too_long,
        }
    }

    fn add(&mut self, byte: u8) -> bool {
        let Some(length) = self.inside else {
            self.inside = (byte == b'"').then_some(0);
            return true;
        };
        if self.is_escaped {
            self.is_escaped = false;
        } else if byte == b'"' {
            self.inside = None;
            return true;
        } else {
            self.is_escaped = byte == b'\\';
        }
        self.inside = Some(length + 1);
        length < self.limit
    }
}

impl<R: Read> Read for StringGuard<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        for &byte in &buffer[..count] {
            if !self.add(byte) {
                self.too_long.set(true);
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(text: &str) -> bool {
        let too_long = TooLong::default();
        let mut guard = StringGuard::new(text.as_bytes(), 2, Rc::clone(&too_long));
        let passed = guard.read_to_string(&mut String::new()).is_ok();
        assert_eq!(passed, !too_long.get());
        passed
    }

    #[test]
    fn only_bytes_of_strings_count() {
        let many = " ".repeat(100);
        assert!(passes(&format!(
            "{many}\"{}\"{many}\"a\"{many}",
            "x".repeat(18)
        )));
        assert!(!passes(&format!("[\"{}\"]", "x".repeat(19))));
        // An escaped quote does not end a string.
        assert!(!passes(&format!("\"\\\"{}\"", "x".repeat(18))));
        assert!(passes(&format!("\"\\\\\"{many}\"{}\"", "x".repeat(18))));
    }
}
