//! Traces of a card as text: which tokens each message used.
//!
//! ```text
//! farcore-card-trace 1
//! # a comment
//! token 0407000022000100 0006000000000000
//! 0 relaxed 04070000 02000003 03000000
//! 125 read 04070000
//! ```
//!
//! The first line names the format and its version. A `token` line has the two words of a
//! [token](super::token) as hexadecimal digits; a handle without one is an object of which only the
//! name is known. Every other line is a message: its time in nanoseconds, which never decreases,
//! what it does with its first token (`read`, `relaxed`, `strict` or `replace`), and 1 to 4 handles
//! as 8 hexadecimal digits, in the order of use. After `replace` the index is used with its next
//! version; traces that were recorded name it so.
//!
//! - I1: a trace is untrusted: every line has a limit, and so have tokens and messages.
//! - I2: what [`Recording::write`] writes is read back as the same recording.

mod reader;

use std::collections::HashMap;
use std::io::{self, Write};

use thiserror::Error;

pub use self::reader::TraceLimits;
use super::handle::Handle;
use super::token::Token;
use super::workload::{MESSAGE_KEYS_MAX, Message, Operation};

/// The first line.
pub const HEADING: &str = "farcore-card-trace 1";

/// A trace that cannot be read.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The file cannot be read.
    #[error("line {line} cannot be read: {source}")]
    Read {
        /// The line.
        line: u64,
        /// The system's error.
        source: io::Error,
    },
    /// A line is wrong.
    #[error("line {line}: {why}")]
    Line {
        /// The line.
        line: u64,
        /// What is wrong, and what is expected.
        why: String,
    },
}

/// A trace in memory: 40 bytes a message. Handles are numbered by kind, index and version; these
/// numbers are the keys of the messages.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Recording {
    handles: Vec<Handle>,
    tokens: Vec<Option<Token>>,
    messages: Vec<Message>,
}

impl Recording {
    /// The handles, by key.
    #[must_use]
    pub fn handles(&self) -> &[Handle] {
        &self.handles
    }

    /// What is known of the handles' objects, by key.
    #[must_use]
    pub fn tokens(&self) -> &[Option<Token>] {
        &self.tokens
    }

    /// The messages, in order.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Makes a recording of messages whose keys number these tokens.
    ///
    /// # Panics
    /// A message has a key without a token.
    #[must_use]
    pub fn of(tokens: &[Token], messages: impl Iterator<Item = Message>) -> Self {
        let mut builder = RecordingBuilder::default();
        for token in tokens {
            builder.add_token(*token);
        }
        for message in messages {
            let mut handles = [Handle::default(); MESSAGE_KEYS_MAX];
            for (handle, &key) in handles.iter_mut().zip(message.keys()) {
                *handle = tokens[key as usize].handle();
            }
            let used = &handles[..message.keys().len()];
            builder.add(message.time_ns, message.operation, used);
        }
        builder.finish()
    }

    /// Writes the trace.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write(&self, mut output: impl Write) -> io::Result<()> {
        writeln!(output, "{HEADING}")?;
        for token in self.tokens.iter().flatten() {
            let [first, second] = token.words();
            writeln!(output, "token {first:016x} {second:016x}")?;
        }
        for message in &self.messages {
            write!(output, "{} {}", message.time_ns, message.operation.name())?;
            for &key in message.keys() {
                write!(output, " {:08x}", self.handles[key as usize].bits())?;
            }
            writeln!(output)?;
        }
        output.flush()
    }
}

/// Collects a recording while its handles are not all known yet.
#[derive(Debug, Default)]
pub struct RecordingBuilder {
    keys: HashMap<Handle, u32>,
    handles: Vec<Handle>,
    tokens: Vec<Option<Token>>,
    messages: Vec<Message>,
}

impl RecordingBuilder {
    fn key(&mut self, handle: Handle) -> u32 {
        // There are fewer than 2^32 handles.
        let next = u32::try_from(self.handles.len()).unwrap_or(u32::MAX);
        *self.keys.entry(handle).or_insert_with(|| {
            self.handles.push(handle);
            self.tokens.push(None);
            next
        })
    }

    /// The number of messages, so far.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.messages.len()
    }

    /// The number of handles, so far.
    #[must_use]
    pub fn handles(&self) -> usize {
        self.handles.len()
    }

    /// Adds what is known of an object.
    pub fn add_token(&mut self, token: Token) {
        let key = self.key(token.handle());
        self.tokens[key as usize] = Some(token);
    }

    /// Adds a message; false if it has not 1 to 4 handles. A time before the last one's becomes
    /// that.
    pub fn add(&mut self, time_ns: u64, operation: Operation, handles: &[Handle]) -> bool {
        let mut keys = [0; MESSAGE_KEYS_MAX];
        if handles.len() > keys.len() {
            return false;
        }
        for (key, &handle) in keys.iter_mut().zip(handles) {
            *key = self.key(handle);
        }
        let last_ns = self.messages.last().map_or(0, |last| last.time_ns);
        let message = Message::new(&keys[..handles.len()], operation, time_ns.max(last_ns));
        self.messages.extend(message);
        message.is_some()
    }

    /// Numbers the handles by kind, index and version, as neighbours in memory.
    #[must_use]
    pub fn finish(self) -> Recording {
        let count = u32::try_from(self.handles.len()).unwrap_or(u32::MAX);
        let mut order: Vec<u32> = (0..count).collect();
        order.sort_unstable_by_key(|&key| {
            let handle = self.handles[key as usize];
            (handle.kind(), handle.index(), handle.version())
        });
        let mut new_key = vec![0; self.handles.len()];
        for (new, &old) in (0..).zip(&order) {
            new_key[old as usize] = new;
        }
        let renumbered = self.messages.iter().filter_map(|message| {
            let mut keys = [0; MESSAGE_KEYS_MAX];
            let count = message.keys().len();
            for (new, &old) in keys.iter_mut().zip(message.keys()) {
                *new = new_key[old as usize];
            }
            Message::new(&keys[..count], message.operation, message.time_ns)
        });
        Recording {
            messages: renumbered.collect(),
            handles: order
                .iter()
                .map(|&key| self.handles[key as usize])
                .collect(),
            tokens: order.iter().map(|&key| self.tokens[key as usize]).collect(),
        }
    }
}

/// The operation of a word.
fn operation(word: &str) -> Option<Operation> {
    Operation::ALL.into_iter().find(|one| one.name() == word)
}

#[cfg(test)]
mod tests;
