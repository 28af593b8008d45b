//! Replies, appended to a buffer in the version of the protocol that a connection speaks.
//!
//! RESP2 lacks most types. It gets what Redis sends in their place: a map is an array of keys and
//! values, a set and a push are arrays, a double, a big number and a verbatim string are bulk
//! strings, a boolean is 1 or 0.

use std::fmt;
use std::io::Write as _;

use super::double::DoubleText;
use super::score::ScoreText;

/// Bytes around a bulk string: `$`, a length and two ends of lines.
const FRAMING_BYTES_MAX: usize = 32;
/// Bytes of a verbatim string before its text: its format and a colon.
const FORMAT_BYTES: usize = 4;

/// The version of the protocol that a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Protocol {
    /// RESP2, in which a connection begins.
    #[default]
    Resp2,
    /// RESP3, after `HELLO 3`.
    Resp3,
}

/// Appends replies to a buffer.
///
/// The caller appends as many replies after the head of an array, map, set or push as it announced.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    protocol: Protocol,
}

impl<'a> Writer<'a> {
    /// A writer that appends to `out`.
    #[inline]
    pub fn new(out: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        Self { out, protocol }
    }

    /// The version that it writes.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Bytes of the buffer that it writes to.
    #[must_use]
    pub fn written(&self) -> usize {
        self.out.len()
    }

    /// A simple string. Ends of lines in it become spaces.
    #[inline]
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// An error: a code in capitals, a space and a text. Ends of lines become spaces.
    pub fn error(&mut self, text: &str) {
        self.line(b'-', text.as_bytes());
    }

    /// An error, as [`error`](Self::error), from `format_args!`.
    pub fn error_fmt(&mut self, text: fmt::Arguments<'_>) {
        self.out.push(b'-');
        let start = self.out.len();
        // Only a `Display` that fails by itself fails here. What it wrote is kept.
        let _ = self.out.write_fmt(text);
        clean(&mut self.out[start..]);
        self.end();
    }

    /// An integer.
    #[inline]
    pub fn integer(&mut self, value: i64) {
        self.head(b':', value);
    }

    /// A number of things.
    pub fn count(&mut self, count: usize) {
        self.integer(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A bulk string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.out.reserve(bytes.len() + FRAMING_BYTES_MAX);
        self.head(b'$', bytes.len());
        self.out.extend_from_slice(bytes);
        self.end();
    }

    /// An integer as a bulk string.
    pub fn bulk_integer(&mut self, value: i64) {
        self.bulk(itoa::Buffer::new().format(value).as_bytes());
    }

    /// No value, in the place of a bulk string.
    #[inline]
    pub fn null(&mut self) {
        self.either(b"$-1\r\n", b"_\r\n");
    }

    /// No value, in the place of an array.
    pub fn null_array(&mut self) {
        self.either(b"*-1\r\n", b"_\r\n");
    }

    /// The head of an array of `count` replies.
    #[inline]
    pub fn array(&mut self, count: usize) {
        self.head(b'*', count);
    }

    /// The head of a map of `count` pairs: twice as many replies, each key before its value.
    pub fn map(&mut self, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.head(b'*', count.saturating_mul(2)),
            Protocol::Resp3 => self.head(b'%', count),
        }
    }

    /// The head of a set of `count` replies.
    pub fn set(&mut self, count: usize) {
        self.aggregate(b'~', count);
    }

    /// The head of a push of `count` replies: a message that answers no request.
    pub fn push(&mut self, count: usize) {
        self.aggregate(b'>', count);
    }

    /// A double.
    pub fn double(&mut self, value: f64) {
        let text = DoubleText::of(value);
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.bytes()),
            Protocol::Resp3 => self.line(b',', text.bytes()),
        }
    }

    /// A score of a member of a sorted set: a double of 17 digits at most.
    pub fn score(&mut self, value: f64) {
        let text = ScoreText::of(value);
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.bytes()),
            Protocol::Resp3 => self.line(b',', text.bytes()),
        }
    }

    /// A score as a bulk string.
    pub fn bulk_score(&mut self, value: f64) {
        self.bulk(ScoreText::of(value).bytes());
    }

    /// A boolean.
    pub fn boolean(&mut self, value: bool) {
        if value {
            self.either(b":1\r\n", b"#t\r\n");
        } else {
            self.either(b":0\r\n", b"#f\r\n");
        }
    }

    /// A text of a format, such as `txt` or `mkd`.
    pub fn verbatim(&mut self, format: [u8; 3], text: &[u8]) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text),
            Protocol::Resp3 => {
                self.out.reserve(text.len() + FRAMING_BYTES_MAX);
                self.head(b'=', text.len() + FORMAT_BYTES);
                self.out.extend_from_slice(&format);
                self.out.push(b':');
                self.out.extend_from_slice(text);
                self.end();
            }
        }
    }

    /// What comes before such a text of `bytes`, which a line end follows.
    pub fn verbatim_head(&mut self, format: [u8; 3], bytes: usize) {
        match self.protocol {
            Protocol::Resp2 => self.bulk_head(bytes),
            Protocol::Resp3 => {
                self.head(b'=', bytes + FORMAT_BYTES);
                self.out.extend_from_slice(&format);
                self.out.push(b':');
            }
        }
    }

    /// An integer of any length, as decimal digits.
    pub fn big_number(&mut self, digits: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(digits.as_bytes()),
            Protocol::Resp3 => self.line(b'(', digits.as_bytes()),
        }
    }

    /// The head of what is an array in RESP2.
    fn aggregate(&mut self, kind: u8, count: usize) {
        match self.protocol {
            Protocol::Resp2 => self.head(b'*', count),
            Protocol::Resp3 => self.head(kind, count),
        }
    }

    #[inline]
    fn head(&mut self, kind: u8, number: impl itoa::Integer) {
        self.out.push(kind);
        let mut digits = itoa::Buffer::new();
        self.out.extend_from_slice(digits.format(number).as_bytes());
        self.end();
    }

    /// The start of a bulk string of which the bytes and an end of a line follow.
    pub fn bulk_head(&mut self, bytes: usize) {
        self.head(b'$', bytes);
    }

    /// Bytes of replies that were written before.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// An integer from its decimal text.
    #[inline]
    pub fn integer_text(&mut self, text: &[u8]) {
        self.out.push(b':');
        self.out.extend_from_slice(text);
        self.end();
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        let start = self.out.len();
        self.out.extend_from_slice(text);
        clean(&mut self.out[start..]);
        self.end();
    }

    #[inline]
    fn either(&mut self, resp2: &[u8], resp3: &[u8]) {
        self.out.extend_from_slice(match self.protocol {
            Protocol::Resp2 => resp2,
            Protocol::Resp3 => resp3,
        });
    }

    #[inline]
    fn end(&mut self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Replaces what would end a line.
fn clean(text: &mut [u8]) {
    for byte in text {
        if matches!(byte, b'\r' | b'\n') {
            *byte = b' ';
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::ProtocolError;

    #[track_caller]
    fn check(write: impl Fn(&mut Writer<'_>), resp2: &[u8], resp3: &[u8]) {
        for (protocol, expected) in [(Protocol::Resp2, resp2), (Protocol::Resp3, resp3)] {
            let mut out = b"before".to_vec();
            write(&mut Writer::new(&mut out, protocol));
            let out = out.strip_prefix(b"before").expect("nothing was replaced");
            let (out, expected) = (out.escape_ascii(), expected.escape_ascii());
            assert_eq!(out.to_string(), expected.to_string(), "{protocol:?}");
        }
    }

    #[track_caller]
    fn check_same(write: impl Fn(&mut Writer<'_>), expected: &[u8]) {
        check(write, expected, expected);
    }

    #[test]
    fn a_connection_begins_in_resp2() {
        assert_eq!(Protocol::default(), Protocol::Resp2);
        let mut out = Vec::new();
        assert_eq!(
            Writer::new(&mut out, Protocol::Resp3).protocol(),
            Protocol::Resp3
        );
    }

    #[test]
    fn lines() {
        check_same(|to| to.simple("OK"), b"+OK\r\n");
        check_same(|to| to.simple("a\r\nb\n"), b"+a  b \r\n");
        check_same(|to| to.error("ERR no such key"), b"-ERR no such key\r\n");
        check_same(|to| to.error("ERR a\r\n+OK"), b"-ERR a  +OK\r\n");
    }

    #[test]
    fn formatted_errors() {
        let error = ProtocolError::BulkExpected { found: b'\r' };
        check_same(
            |to| to.error_fmt(format_args!("ERR {error}")),
            b"-ERR Protocol error: expected '$', got ' '\r\n",
        );
        check_same(|to| to.error_fmt(format_args!("{}", 7)), b"-7\r\n");
    }

    #[test]
    fn integers() {
        check_same(|to| to.integer(0), b":0\r\n");
        check_same(|to| to.integer(i64::MIN), b":-9223372036854775808\r\n");
        check_same(|to| to.integer(i64::MAX), b":9223372036854775807\r\n");
        check_same(|to| to.bulk_integer(-12), b"$3\r\n-12\r\n");
    }

    #[test]
    fn bulk_strings() {
        check_same(|to| to.bulk(b""), b"$0\r\n\r\n");
        check_same(|to| to.bulk(b"a\r\n\0\xff"), b"$5\r\na\r\n\0\xff\r\n");
        check_same(|to| to.bulk(&[b'x'; 10]), b"$10\r\nxxxxxxxxxx\r\n");
    }

    #[test]
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the path is of one lifetime"
    )]
    fn nulls() {
        check(|to| to.null(), b"$-1\r\n", b"_\r\n");
        check(|to| to.null_array(), b"*-1\r\n", b"_\r\n");
    }

    #[test]
    fn aggregates() {
        check_same(|to| to.array(0), b"*0\r\n");
        check_same(|to| to.array(12), b"*12\r\n");
        check(|to| to.map(3), b"*6\r\n", b"%3\r\n");
        check(|to| to.set(2), b"*2\r\n", b"~2\r\n");
        check(|to| to.push(3), b"*3\r\n", b">3\r\n");
    }

    #[test]
    fn numbers_and_booleans() {
        check(|to| to.double(1.5), b"$3\r\n1.5\r\n", b",1.5\r\n");
        check(|to| to.double(f64::INFINITY), b"$3\r\ninf\r\n", b",inf\r\n");
        check(
            |to| to.double(f64::NEG_INFINITY),
            b"$4\r\n-inf\r\n",
            b",-inf\r\n",
        );
        check(|to| to.double(f64::NAN), b"$3\r\nnan\r\n", b",nan\r\n");
        check(|to| to.boolean(true), b":1\r\n", b"#t\r\n");
        check(|to| to.boolean(false), b":0\r\n", b"#f\r\n");
        check(|to| to.big_number("-123"), b"$4\r\n-123\r\n", b"(-123\r\n");
    }

    #[test]
    fn verbatim_strings() {
        check(
            |to| to.verbatim(*b"txt", b"a\r\nb"),
            b"$4\r\na\r\nb\r\n",
            b"=8\r\ntxt:a\r\nb\r\n",
        );
    }
}
