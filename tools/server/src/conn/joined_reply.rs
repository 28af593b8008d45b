//! A reply that several answers make: one for each key of a command.

use farcore::{Answer, Error};

use crate::conn::reply_token::PARTS_MAX;
use crate::limits::LARGE_BYTES;
use crate::long::read::LongReplies;
use crate::long::record_read::{RecordRead, RecordReply};
use crate::resp::{Protocol, Writer};
use crate::types::replies::{ReplyKind, error_text, write_answer};
use crate::types::search::Search;

/// How the answers make one reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JoinedReplyKind {
    /// An array of values and nulls.
    Values,
    /// How many of them found or removed their key.
    Count,
    /// `OK`.
    Stored,
    /// What a search in one answer finds.
    Found,
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
    /// What is searched in the answer, and the key of that.
    search: Option<(Search, Vec<u8>)>,
    /// What is found is too long for a reply that is made at once.
    is_too_long: bool,
    /// Places and keys of values that must be read in pieces.
    long: Vec<(usize, Vec<u8>)>,
}

impl JoinedReply {
    /// No answers yet, of `count`.
    pub(crate) fn new(kind: JoinedReplyKind, count: usize) -> Self {
        let replies = match kind {
            JoinedReplyKind::Values | JoinedReplyKind::Found => vec![Vec::new(); count],
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
            search: None,
            is_too_long: false,
            long: Vec::new(),
        }
    }

    /// A reply of one answer, in which something is searched.
    pub(crate) fn of_search(search: Search, key: &[u8]) -> Self {
        Self {
            outstanding: 1,
            search: Some((search, key.to_vec())),
            ..Self::new(JoinedReplyKind::Found, 1)
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

    /// Takes an answer, of which a reply of `bytes_max` may be made; true if it was the last one.
    pub(crate) fn take(
        &mut self,
        part: usize,
        (protocol, bytes_max): (Protocol, usize),
        answer: &Answer<'_>,
    ) -> bool {
        self.left -= 1;
        self.outstanding -= 1;
        match (answer, self.replies.get_mut(self.base + part)) {
            // Among strings, what is none counts as absent; as Redis.
            (Answer::Failed(Error::Structured | Error::Collection), Some(reply))
                if self.search.is_none() =>
            {
                Writer::new(reply, protocol).null();
            }
            // It was not kept while a task polled.
            (Answer::Failed(Error::LongValue { .. }), Some(_)) if self.search.is_some() => {
                self.is_too_long = true;
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
                match &self.search {
                    Some((search, _))
                        if answer.value().len() > LARGE_BYTES
                            && search.bytes_max(answer) > bytes_max =>
                    {
                        self.is_too_long = true;
                    }
                    Some((search, _)) => search.write(answer, &mut writer),
                    None => write_answer(ReplyKind::Value, answer, &mut writer),
                }
                self.held_bytes += reply.len();
            }
            (Answer::Absent | Answer::Mismatch { .. }, None) => {}
            (_, None) => self.count += 1,
        }
        self.left == 0
    }

    /// The read whose reply is too long to be made at once, if it is.
    pub(crate) fn record_read(&mut self) -> Option<RecordRead> {
        if !self.is_too_long {
            return None;
        }
        let (search, key) = self.search.take()?;
        let reply = RecordReply::Search(search);
        Some(RecordRead { key, reply })
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
            JoinedReplyKind::Found => self.replies.iter().for_each(|reply| writer.raw(reply)),
            JoinedReplyKind::Count => writer.integer(self.count),
            JoinedReplyKind::Stored => writer.simple("OK"),
        }
    }
}
