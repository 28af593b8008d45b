//! Reads keys for replicas: a connection as a client's, whose other end a core serves.

use std::collections::VecDeque;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use farcore::{Cursor, Version};
use rustix::event::PollFlags;

use super::super::source::write_command;
use super::super::unsent::Unsent;

/// Bytes that are received at once.
const RECEIVE_BYTES: usize = 64 << 10;
/// Keys that are read at once.
const UNDER_WAY_MAX: usize = 64;

/// What was asked.
#[derive(Debug)]
enum Question {
    Page,
    Key(Arc<[u8]>),
}

/// A key of a page: as it is stored, its version, when it expires, and its value, unless it must be
/// read as a payload.
#[derive(Debug)]
pub(super) struct PageKey {
    pub(super) key: Vec<u8>,
    pub(super) version: Version,
    pub(super) expiry_ms: Option<u64>,
    pub(super) value: Option<Vec<u8>>,
}

/// What was read.
#[derive(Debug)]
pub(super) enum Answer {
    /// Keys, and where the next page begins.
    Page(Vec<PageKey>, Option<Cursor>),
    /// A key: its version, when it expires, and its payload; `None` if it is absent.
    Key(Arc<[u8]>, Option<(Version, Option<u64>, Vec<u8>)>),
    /// A key that was lost with a memory node.
    Lost(Arc<[u8]>),
}

/// Why keys cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("the connection by which keys are read has ended: {0}")]
    Io(#[from] io::Error),
    #[error("the connection by which keys are read has ended")]
    Closed,
    #[error("a key cannot be read: {0}")]
    Refused(String),
}

/// A value of a reply.
#[derive(Debug)]
enum Value {
    Bulk(Vec<u8>),
    Integer(i64),
    Null,
}

/// The connection.
#[derive(Debug)]
pub(super) struct Reader {
    socket: UnixStream,
    unsent: Unsent,
    received: Vec<u8>,
    /// Of them, those that were taken.
    taken: usize,
    /// Bytes from which on a look at them makes sense.
    needed: usize,
    questions: VecDeque<Question>,
}

impl Reader {
    /// That of a socket whose other end a core serves.
    pub(super) fn new(socket: UnixStream) -> Self {
        Self {
            socket,
            unsent: Unsent::default(),
            received: Vec::new(),
            taken: 0,
            needed: 0,
            questions: VecDeque::new(),
        }
    }

    /// True if more keys may be wanted.
    pub(super) fn has_room(&self) -> bool {
        self.questions.len() < UNDER_WAY_MAX
    }

    /// True if nothing is awaited.
    pub(super) fn is_idle(&self) -> bool {
        self.questions.is_empty()
    }

    /// Has a page be read.
    pub(super) fn want_page(&mut self, from: Cursor) {
        let words: [&[u8]; 3] = [b"REPLCONF", b"farcore-page", &from.to_bytes()];
        write_command(&words, self.unsent.end());
        self.questions.push_back(Question::Page);
    }

    /// Has a key be read.
    pub(super) fn want_key(&mut self, key: Arc<[u8]>) {
        write_command(&[b"REPLCONF", b"farcore-key", &key], self.unsent.end());
        self.questions.push_back(Question::Key(key));
    }

    /// What is waited for at its socket. `receives`: answers are wanted now.
    pub(super) fn interest(&self, receives: bool) -> (BorrowedFd<'_>, PollFlags) {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, receives && !self.questions.is_empty());
        flags.set(PollFlags::OUT, !self.unsent.is_empty());
        (self.socket.as_fd(), flags)
    }

    /// Sends what the socket takes now.
    pub(super) fn send(&mut self) -> Result<(), ReadError> {
        self.unsent.send(&mut self.socket)?;
        Ok(())
    }

    /// The next answer, if it is there.
    pub(super) fn next(&mut self) -> Result<Option<Answer>, ReadError> {
        loop {
            let waiting = &self.received[self.taken..];
            if waiting.len() >= self.needed.max(1) {
                let mut parts = Parts {
                    rest: waiting,
                    needed: 0,
                };
                match parts.reply() {
                    Ok(values) => {
                        self.taken = self.received.len() - parts.rest.len();
                        self.needed = 0;
                        return self.answer(values).map(Some);
                    }
                    Err(NoReply::Incomplete) => self.needed = waiting.len() + parts.needed.max(1),
                    Err(NoReply::Error(text)) => return Err(ReadError::Refused(text)),
                }
            }
            self.received.drain(..self.taken);
            self.taken = 0;
            let start = self.received.len();
            self.received.resize(start + RECEIVE_BYTES, 0);
            let read = self.socket.read(&mut self.received[start..]);
            let count = *read.as_ref().unwrap_or(&0);
            self.received.truncate(start + count);
            match read {
                Ok(0) => return Err(ReadError::Closed),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.received.is_empty() {
                        self.received.shrink_to(RECEIVE_BYTES);
                    }
                    return Ok(None);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn answer(&mut self, values: Vec<Value>) -> Result<Answer, ReadError> {
        let question = self.questions.pop_front();
        let malformed = || ReadError::Refused("the reply is malformed".to_owned());
        let mut values = values.into_iter();
        let answer = match question {
            None => None,
            Some(Question::Key(key)) => match (values.next(), values.next(), values.next()) {
                (None, None, None) => Some(Answer::Lost(key)),
                (Some(Value::Null), None, None) => Some(Answer::Key(key, None)),
                (
                    Some(Value::Integer(version)),
                    Some(Value::Integer(expiry)),
                    Some(Value::Bulk(payload)),
                ) => {
                    let version = u64::try_from(version).unwrap_or(0);
                    let expiry_ms = u64::try_from(expiry).ok();
                    Some(Answer::Key(key, Some((version, expiry_ms, payload))))
                }
                _ => None,
            },
            Some(Question::Page) => {
                let Some(Value::Bulk(next)) = values.next() else {
                    return Err(malformed());
                };
                let mut keys = Vec::new();
                while let Some(Value::Bulk(key)) = values.next() {
                    let (Some(Value::Integer(version)), Some(Value::Integer(expiry)), Some(value)) =
                        (values.next(), values.next(), values.next())
                    else {
                        return Err(malformed());
                    };
                    keys.push(PageKey {
                        key,
                        version: u64::try_from(version).unwrap_or(0),
                        expiry_ms: u64::try_from(expiry).ok(),
                        value: match value {
                            Value::Bulk(value) => Some(value),
                            _ => None,
                        },
                    });
                }
                let next = next.as_array().copied().map(Cursor::from_bytes);
                Some(Answer::Page(keys, next))
            }
        };
        answer.ok_or_else(malformed)
    }
}

/// Why bytes are no reply.
#[derive(Debug)]
enum NoReply {
    Incomplete,
    Error(String),
}

/// The parts of a reply.
struct Parts<'b> {
    rest: &'b [u8],
    /// Bytes that are missing, about.
    needed: usize,
}

impl Parts<'_> {
    /// The values of a reply: of an array all, else the only one.
    fn reply(&mut self) -> Result<Vec<Value>, NoReply> {
        let count = match self.rest.first() {
            Some(b'*') => self.head()?.1,
            _ => 1,
        };
        let count = usize::try_from(count).unwrap_or(0);
        let mut values = Vec::with_capacity(count.min(4096));
        for _ in 0..count {
            values.push(self.value()?);
        }
        Ok(values)
    }

    /// The kind of a line, and its number.
    fn head(&mut self) -> Result<(u8, i64), NoReply> {
        let end = self.rest.iter().take(512).position(|byte| *byte == b'\n');
        let end = end.ok_or(NoReply::Incomplete)?;
        let line = self.rest[..end].trim_ascii_end();
        self.rest = &self.rest[end + 1..];
        let text = String::from_utf8_lossy(line.get(1..).unwrap_or_default());
        match line.first() {
            Some(kind @ (b'*' | b'$' | b':' | b'_')) => {
                let number = match text.is_empty() {
                    true => -1,
                    false => (text.parse()).map_err(|_| NoReply::Error(text.into_owned()))?,
                };
                Ok((*kind, number))
            }
            _ => Err(NoReply::Error(text.into_owned())),
        }
    }

    fn value(&mut self) -> Result<Value, NoReply> {
        let (kind, number) = self.head()?;
        if kind == b':' {
            return Ok(Value::Integer(number));
        }
        let Ok(bytes) = usize::try_from(number) else {
            return Ok(Value::Null);
        };
        if self.rest.len() < bytes + 2 {
            self.needed = bytes + 2 - self.rest.len();
            return Err(NoReply::Incomplete);
        }
        let value = self.rest[..bytes].to_vec();
        self.rest = &self.rest[bytes + 2..];
        Ok(Value::Bulk(value))
    }
}
