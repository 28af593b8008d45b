//! A reply that several answers make: one for each key of a command.

use farcore::{Answer, Error};

use crate::conn::reply_token::PARTS_MAX;
use crate::long::read::LongReplies;
use crate::resp::{Protocol, Writer};
use crate::types::replies::{ReplyKind, error_text, write_answer};

/// How the answers make one reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JoinedReplyKind {
    /// An array of values and nulls.
    Values,
    /// How many of them found or removed their key.
    Count,
    /// `OK`.
    Stored,
}

/// The answers so far.
#[derive(Debug)]
pub(crate) struct JoinedReply {
    kind: JoinedReplyKind,
    left: usize,
    count: i64,
    /// The replies of values, by part.
    replies: Vec<Vec<u8>>,
    error: Option<String>,
    /// Bytes of the replies of values.
    held_bytes: usize,
    /// The first part of the batch under way.
    base: usize,
    /// Answers of it that are missing.
    outstanding: usize,
    /// Places and keys of values that must be read in pieces.
    long: Vec<(usize, Vec<u8>)>,
}

impl JoinedReply {
    /// No answers yet, of `count`.
    pub(crate) fn new(kind: JoinedReplyKind, count: usize) -> Self {
        let replies = match kind {
            JoinedReplyKind::Values => vec![Vec::new(); count],
            JoinedReplyKind::Count | JoinedReplyKind::Stored => Vec::new(),
        };
        Self {
            kind,
            left: count,
            count: 0,
            replies,
            error: None,
            held_bytes: 0,
            base: 0,
            outstanding: 0,
            long: Vec::new(),
        }
    }

    /// The number of a part in its batch, if it may be sent now. A batch has as many parts as
    /// tokens can tell apart.
    pub(crate) fn send(&mut self, part: usize) -> Option<usize> {
        if part == self.base + PARTS_MAX {
            if self.outstanding > 0 {
                return None;
            }
            self.base = part;
        }
        self.outstanding += 1;
        Some(part - self.base)
    }

    /// Notes that a part was not sent.
    pub(crate) fn unsend(&mut self) {
        self.outstanding -= 1;
    }

    /// Bytes of the replies so far.
    pub(crate) fn bytes(&self) -> usize {
        self.held_bytes
    }

    /// Takes an answer; true if it was the last one.
    pub(crate) fn take(&mut self, part: usize, protocol: Protocol, answer: &Answer<'_>) -> bool {
        self.left -= 1;
        self.outstanding -= 1;
        match (answer, self.replies.get_mut(self.base + part)) {
            // Among strings, what is none counts as absent; as Redis.
            (Answer::Failed(Error::Collection), Some(reply)) => {
                Writer::new(reply, protocol).null();
            }
            (Answer::Failed(Error::LongValue { key, .. }), Some(_)) => {
                self.long.push((self.base + part, key.to_vec()));
                self.held_bytes += key.len();
            }
            (Answer::Failed(error), _) => {
                self.error.get_or_insert_with(|| error_text(error));
            }
            (answer, Some(reply)) => {
                let mut writer = Writer::new(reply, protocol);
                write_answer(ReplyKind::Value, answer, &mut writer);
                self.held_bytes += reply.len();
            }
            (Answer::Absent | Answer::Mismatch { .. }, None) => {}
            (_, None) => self.count += 1,
        }
        self.left == 0
    }

    /// The values that are to be read in pieces, and the replies of the others, once all answers
    /// are there; `None` if the reply can be written.
    pub(crate) fn long_values(&mut self) -> Option<LongReplies> {
        if self.long.is_empty() || self.error.is_some() {
            return None;
        }
        let mut long = std::mem::take(&mut self.long);
        long.sort_unstable();
        Some(LongReplies {
            replies: std::mem::take(&mut self.replies),
            long,
            held_bytes: self.held_bytes,
        })
    }

    /// Writes the whole reply.
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        if let Some(error) = &self.error {
            return writer.error(error);
        }
        match self.kind {
            JoinedReplyKind::Values => {
                writer.array(self.replies.len());
                for reply in &self.replies {
                    writer.raw(reply);
                }
            }
            JoinedReplyKind::Count => writer.integer(self.count),
            JoinedReplyKind::Stored => writer.simple("OK"),
        }
    }
}
