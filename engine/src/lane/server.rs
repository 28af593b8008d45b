//! The shard's end of a lane.

#![allow(unsafe_code)] // requests are served where they lie

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Shared;
use super::message::{AnswerKind, AnswerMeta, RequestMeta, WORD, split_word};
use crate::error::Error;
use crate::kept::Kept;
use crate::operation::{Answer, Demand, Kind, Version};
use crate::ring::{Consumer, Message, Producer};
use crate::routing::IndexHash;

const EMPTY: &[u8] = &[];

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
        let (hash, mut rest) = split_word(payload);
        let mut expected = 0;
        if meta.kind() == Kind::Swap {
            (expected, rest) = split_word(rest);
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

    /// Puts the answer to the request of a slot in.
    ///
    /// # Panics
    /// If there is no room: a shard asks [`LaneServer::has_room`] before it acts, for an answer that finds none would be lost.
    #[inline(always)]
    pub(crate) fn answer(&mut self, slot: u16, waited: bool, answer: Answer<'_>) {
        let has_room = self.try_answer(slot, waited, answer);
        assert!(has_room, "room for an answer was promised");
    }

    /// Puts the answer to the request of a slot in; false if there is no room.
    ///
    /// Inlined where the kind of the answer is known, so that only its part is left.
    #[inline(always)]
    pub(crate) fn try_answer(&mut self, slot: u16, waited: bool, answer: Answer<'_>) -> bool {
        if self.closing {
            return self.answer_late(slot, waited, answer);
        }
        let (kind, version, value) = match answer {
            Answer::Value { version, value } => (AnswerKind::Value, version, value),
            Answer::Absent => (AnswerKind::Absent, 0, EMPTY),
            Answer::Stored { version } => (AnswerKind::Stored, version, EMPTY),
            Answer::Deleted => (AnswerKind::Deleted, 0, EMPTY),
            Answer::Mismatch { current } => (AnswerKind::Mismatch, current, EMPTY),
            Answer::Failed(_) => (AnswerKind::Failed, 0, EMPTY),
        };
        let meta = AnswerMeta::new(slot, kind, waited);
        if value.len() > self.inline_max {
            return self.answer_long(meta, version, value);
        }
        let pushed = self.push(meta, version, value);
        if pushed && let Answer::Failed(error) = answer {
            self.keep_error(error);
        }
        pushed
    }

    /// Puts what an answer that is in the ring failed with beside it, before both are shown.
    #[cold]
    fn keep_error(&self, error: &Error) {
        self.shared.errors.push(error.clone());
    }

    /// Where the ring may be full for ever.
    #[cold]
    fn answer_late(&mut self, slot: u16, waited: bool, answer: Answer<'_>) -> bool {
        self.shared.overflow.push((slot, waited, Kept::of(&answer)));
        // ORDERING: Release pairs with the Acquire in `Shared::take_late`.
        self.shared.overflowed.store(true, Ordering::Release);
        true
    }

    /// A value that is too long for the ring goes into the pocket.
    #[cold]
    fn answer_long(&mut self, meta: AnswerMeta, version: Version, value: &[u8]) -> bool {
        if !self.has_room(value.len()) {
            return false;
        }
        let value = value.to_vec();
        let pushed = self.push(meta.in_pocket(), version, EMPTY);
        if pushed {
            // The client is shown both at once: nothing may fail in between.
            self.shared.answer_pocket.fill(value);
        }
        pushed
    }

    #[inline(always)]
    fn push(&mut self, meta: AnswerMeta, version: Version, value: &[u8]) -> bool {
        let Some(place) = self.answers.push(meta.0, WORD + value.len()) else {
            return false;
        };
        let (first, rest) = place.split_at_mut(WORD);
        first.copy_from_slice(&version.to_le_bytes());
        rest.copy_from_slice(value);
        true
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

impl Drop for LaneServer {
    fn drop(&mut self) {
        // Nothing more comes: whoever waits for it must look.
        if let Some(mailbox) = &self.shared.mailbox {
            mailbox.notify();
        }
    }
}
