//! Reads a trace line by line, within limits.

use std::io::{BufRead, Read};

use super::{HEADING, Recording, RecordingBuilder, TraceError, operation};
use crate::handle::Handle;
use crate::token::Token;
use crate::workload::MESSAGE_KEYS_MAX;

/// Longest line, in bytes; one with four handles and the longest time has 63.
const LINE_MAX: u64 = 256;

/// What a trace may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceLimits {
    /// Messages; the reader stops after them.
    pub messages: usize,
    /// Handles; more are an error.
    pub handles: usize,
}

impl Default for TraceLimits {
    fn default() -> Self {
        Self {
            messages: 20_000_000,
            handles: 4 << 16,
        }
    }
}

impl Recording {
    /// Reads a trace.
    ///
    /// # Errors
    /// A line is wrong or too long, there are too many handles, or the input cannot be read.
    pub fn read(input: impl BufRead, limits: TraceLimits) -> Result<Self, TraceError> {
        let mut reader = Reader {
            input,
            line: 0,
            text: Vec::new(),
        };
        let mut builder = RecordingBuilder::default();
        let heading = reader.next()?.map(str::to_owned);
        if heading.as_deref() != Some(HEADING) {
            return Err(reader.wrong(format!("the first line of a trace is `{HEADING}`")));
        }
        let mut time_ns = 0;
        while builder.messages() < limits.messages {
            let Some(text) = reader.next()? else {
                break;
            };
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let added = add(&mut builder, text, time_ns);
            time_ns = added.map_err(|why| reader.wrong(why))?;
            if builder.handles() > limits.handles {
                let limit = limits.handles;
                return Err(reader.wrong(format!("more than {limit} handles")));
            }
        }
        Ok(builder.finish())
    }
}

/// Adds a line; returns its time.
fn add(builder: &mut RecordingBuilder, text: &str, before_ns: u64) -> Result<u64, String> {
    let mut words = text.split_ascii_whitespace();
    let first = words.next().unwrap_or_default();
    if first == "token" {
        let mut word = || {
            let digits = words.next().unwrap_or_default();
            hexadecimal(digits, 16).ok_or_else(|| {
                format!("`{digits}` is no word of a token: write 16 hexadecimal digits")
            })
        };
        let token = Token::from_words([word()?, word()?]);
        token.unpack().map_err(|error| error.to_string())?;
        if words.next().is_some() {
            return Err("a token has two words".to_owned());
        }
        builder.add_token(token);
        return Ok(before_ns);
    }
    let time_ns = first.parse().map_err(|_| {
        format!("`{first}` is neither `token` nor a time: write nanoseconds as a whole number")
    })?;
    if time_ns < before_ns {
        return Err(format!("the time {time_ns} is before {before_ns}"));
    }
    let word = words.next().unwrap_or_default();
    let operation = operation(word).ok_or_else(|| {
        format!("`{word}` is no operation: write read, relaxed, strict or replace")
    })?;
    let mut handles = Vec::with_capacity(MESSAGE_KEYS_MAX);
    for digits in words {
        let bits = hexadecimal(digits, 8).and_then(|bits| u32::try_from(bits).ok());
        let handle = bits.map(Handle::from_bits);
        let handle = handle.filter(|handle| handle.kind().is_some());
        handles.push(handle.ok_or_else(|| {
            format!("`{digits}` is no handle: write 8 hexadecimal digits, the first two 01 to 04")
        })?);
    }
    if !builder.add(time_ns, operation, &handles) {
        let count = handles.len();
        return Err(format!(
            "a message has 1 to {MESSAGE_KEYS_MAX} handles, and this has {count}"
        ));
    }
    Ok(time_ns)
}

/// A number that is written as exactly `count` hexadecimal digits.
fn hexadecimal(digits: &str, count: usize) -> Option<u64> {
    let plain = digits.len() == count && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(digits, 16).ok())?
}

struct Reader<R> {
    input: R,
    line: u64,
    text: Vec<u8>,
}

impl<R: BufRead> Reader<R> {
    /// The next line without its end; `None` after the last.
    fn next(&mut self) -> Result<Option<&str>, TraceError> {
        self.line += 1;
        self.text.clear();
        let line = self.line;
        let read = (&mut self.input)
            .take(LINE_MAX + 1)
            .read_until(b'\n', &mut self.text)
            .map_err(|source| TraceError::Read { line, source })?;
        if read == 0 {
            return Ok(None);
        }
        if read as u64 > LINE_MAX {
            return Err(self.wrong(format!("longer than {LINE_MAX} bytes")));
        }
        let text = std::str::from_utf8(&self.text);
        let text = text.map_err(|_| TraceError::Line {
            line,
            why: "not UTF-8".to_owned(),
        })?;
        Ok(Some(text.trim()))
    }

    fn wrong(&self, why: String) -> TraceError {
        TraceError::Line {
            line: self.line,
            why,
        }
    }
}
