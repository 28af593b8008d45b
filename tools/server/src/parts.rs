//! A reply that several answers make: one for each key of a command.

use farcore::Answer;

use crate::replies::{ReplyKind, error_text, write_answer};
use crate::resp::{Protocol, Writer};

/// How the answers make one reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartsKind {
    /// An array of values and nulls.
    Values,
    /// How many of them found or removed their key.
    Count,
    /// `OK`.
    Stored,
}

/// The answers so far.
#[derive(Debug)]
pub(crate) struct Parts {
    kind: PartsKind,
    left: usize,
    count: i64,
    /// The replies of values, by part.
    replies: Vec<Vec<u8>>,
    error: Option<String>,
}

impl Parts {
    /// No answers yet, of `count`.
    pub(crate) fn new(kind: PartsKind, count: usize) -> Self {
        let replies = match kind {
            PartsKind::Values => vec![Vec::new(); count],
            PartsKind::Count | PartsKind::Stored => Vec::new(),
        };
        Self {
            kind,
            left: count,
            count: 0,
            replies,
            error: None,
        }
    }

    /// Takes an answer; true if it was the last one.
    pub(crate) fn take(&mut self, part: usize, protocol: Protocol, answer: &Answer<'_>) -> bool {
        self.left -= 1;
        match (answer, self.replies.get_mut(part)) {
            (Answer::Failed(error), _) => {
                self.error.get_or_insert_with(|| error_text(error));
            }
            (answer, Some(reply)) => {
                write_answer(ReplyKind::Value, answer, &mut Writer::new(reply, protocol));
            }
            (Answer::Absent | Answer::Mismatch { .. }, None) => {}
            (_, None) => self.count += 1,
        }
        self.left == 0
    }

    /// Writes the whole reply.
    pub(crate) fn write(&self, writer: &mut Writer<'_>) {
        if let Some(error) = &self.error {
            return writer.error(error);
        }
        match self.kind {
            PartsKind::Values => {
                writer.array(self.replies.len());
                for reply in &self.replies {
                    writer.raw(reply);
                }
            }
            PartsKind::Count => writer.integer(self.count),
            PartsKind::Stored => writer.simple("OK"),
        }
    }
}
