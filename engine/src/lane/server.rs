//! The shard's end of a lane.

#![allow(unsafe_code)] // requests are served where they lie

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Shared;
use super::message::{AnswerKind, AnswerMeta, RequestMeta};
use crate::kept::Kept;
use crate::operation::{Answer, Demand, Kind};
use crate::ring::{Consumer, Message, Producer};
use crate::routing::IndexHash;

const WORD: usize = 8;

/// One request as it lies in a lane.
pub(crate) struct Received<'a> {
    /// The place that its answer names.
    pub(crate) slot: u16,
    pub(crate) hash: IndexHash,
    pub(crate) demand: Demand<'a>,
    /// Its value lies in the pocket.
    pub(crate) pocket: bool,
    /// The cursor after it.
    pub(crate) after: usize,
}

/// The shard's end.
#[derive(Debug)]
pub(crate) struct LaneServer {
    pub(crate) requests: Consumer,
    answers: Producer,
    shared: Arc<Shared>,
    inline_max: usize,
    closing: bool,
}

impl LaneServer {
    pub(super) fn new(
        requests: Consumer,
        answers: Producer,
        shared: Arc<Shared>,
        inline_max: usize,
    ) -> Self {
        Self {
            requests,
            answers,
            shared,
            inline_max,
            closing: false,
        }
    }

    /// The request at a cursor.
    ///
    /// # Safety
    /// It is not released while the result lives.
    #[inline]
    pub(crate) unsafe fn peek<'a>(&mut self, cursor: usize) -> Option<Received<'a>> {
        let Message {
            meta,
            payload,
            after,
        } = self.requests.peek(cursor)?;
        let payload: *const [u8] = payload;
        // SAFETY: by this function's contract.
        let payload: &'a [u8] = unsafe { &*payload };
        let meta = RequestMeta(meta);
        let pocket = meta.is_in_pocket();
        let (hash, mut rest) = Self::word(payload);
        let mut expected = 0;
        if meta.kind() == Kind::Swap {
            (expected, rest) = Self::word(rest);
        }
        let (key, inline) = rest.split_at(meta.key_bytes());
        let value = if pocket {
            // SAFETY: the pocket is the consumer's until the request is done with.
            unsafe { &*std::ptr::from_ref(self.shared.request_pocket.value()) }
        } else {
            inline
        };
        Some(Received {
            slot: meta.slot(),
            hash: IndexHash(hash),
            demand: Demand {
                kind: meta.kind(),
                key,
                value,
                expected,
            },
            pocket,
            after,
        })
    }

    #[inline]
    fn word(bytes: &[u8]) -> (u64, &[u8]) {
        let (word, rest) = bytes.split_first_chunk().unwrap_or((&[0; WORD], &[]));
        (u64::from_le_bytes(*word), rest)
    }

    /// Gives the request pocket back.
    pub(crate) fn clear_pocket(&self) {
        self.shared.request_pocket.clear();
    }

    /// From now on there is room for every answer.
    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    /// True if an answer with a value of this many bytes has room.
    #[inline]
    pub(crate) fn has_room(&self, value_bytes: usize) -> bool {
        if value_bytes > self.inline_max {
            let free = self.shared.answer_pocket.is_free() && self.answers.fits(WORD);
            return free || self.closing;
        }
        self.answers.fits(WORD + value_bytes) || self.closing
    }

    /// Puts the answer to the request of a slot in; [`LaneServer::has_room`] was asked before.
    #[inline(always)]
    pub(crate) fn answer(&mut self, slot: u16, waited: bool, answer: &Answer<'_>) {
        if self.closing {
            return self.answer_late(slot, waited, answer);
        }
        match answer {
            Answer::Value { version, value } => self.push_value(slot, waited, *version, value),
            Answer::Absent => self.push(slot, AnswerKind::Absent, waited, 0),
            Answer::Stored { version } => self.push(slot, AnswerKind::Stored, waited, *version),
            Answer::Deleted => self.push(slot, AnswerKind::Deleted, waited, 0),
            Answer::Mismatch { current } => self.push(slot, AnswerKind::Mismatch, waited, *current),
            Answer::Failed(error) => {
                self.shared.errors.push(error.clone());
                self.push(slot, AnswerKind::Failed, waited, 0);
            }
        }
    }

    /// Where the ring may be full for ever.
    #[cold]
    fn answer_late(&mut self, slot: u16, waited: bool, answer: &Answer<'_>) {
        self.shared.overflow.push((slot, waited, Kept::of(answer)));
        // ORDERING: Release pairs with the Acquire in `LaneClient::receive`.
        self.shared.overflowed.store(true, Ordering::Release);
    }

    /// An answer without a value.
    #[inline]
    fn push(&mut self, slot: u16, kind: AnswerKind, waited: bool, version: u64) {
        let meta = AnswerMeta::new(slot, kind, waited);
        let pushed = self.answers.push(meta.0, WORD, |place| {
            place.copy_from_slice(&version.to_le_bytes());
        });
        was_promised(pushed);
    }

    #[inline]
    fn push_value(&mut self, slot: u16, waited: bool, version: u64, value: &[u8]) {
        let meta = AnswerMeta::new(slot, AnswerKind::Value, waited);
        if value.len() > self.inline_max {
            return self.push_long(meta, version, value);
        }
        let pushed = self.answers.push(meta.0, WORD + value.len(), |place| {
            let (first, rest) = place.split_at_mut(WORD);
            first.copy_from_slice(&version.to_le_bytes());
            rest.copy_from_slice(value);
        });
        was_promised(pushed);
    }

    /// A value that is too long for the ring goes into the pocket.
    #[cold]
    fn push_long(&mut self, meta: AnswerMeta, version: u64, value: &[u8]) {
        self.shared.answer_pocket.fill(value.to_vec());
        let meta = meta.in_pocket();
        let pushed = self.answers.push(meta.0, WORD, |place| {
            place.copy_from_slice(&version.to_le_bytes());
        });
        was_promised(pushed);
    }

    /// Shows the client its answers.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.answers.publish();
        if let Some(mailbox) = &self.shared.mailbox {
            mailbox.notify();
        }
    }
}

/// A shard asks for room before it acts: an answer that finds none would be lost.
#[inline]
fn was_promised(pushed: bool) {
    assert!(pushed, "room for an answer was promised");
}

impl Drop for LaneServer {
    fn drop(&mut self) {
        // Nothing more comes: whoever waits for it must look.
        if let Some(mailbox) = &self.shared.mailbox {
            mailbox.notify();
        }
    }
}
