//! The shard's end of a lane: the consumer of requests and the producer of answers.
//!
//! It belongs to the thread that serves the shard. Room for an answer can be reserved before the
//! request is carried out: in the ring, or beside it for a long value. A closing shard has room for
//! every answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::Error;
use crate::message::operation::Version;
use crate::message::outcome::{Answer, AnswerMeta, OwnedAnswer, WORD};
use crate::message::request::Origin;
use crate::transport::lane::Shared;
use crate::transport::queue::RequestConsumer;
use crate::transport::ring::Producer;

/// The shard's end of a lane.
#[derive(Debug)]
pub(crate) struct LaneServer {
    pub(crate) requests: RequestConsumer,
    /// Those under a section, and those that begin and end one.
    pub(crate) sections: RequestConsumer,
    pub(crate) answers: AnswerProducer,
}

/// Produces the answers of a shard.
#[derive(Debug)]
pub(crate) struct AnswerProducer {
    ring: Producer,
    shared: Arc<Shared>,
    inline_max: usize,
    closing: bool,
    /// Bytes reserved for values beside the ring.
    oversize_reserved: usize,
}

impl AnswerProducer {
    pub(super) fn new(ring: Producer, shared: Arc<Shared>, inline_max: usize) -> Self {
        Self {
            ring,
            shared,
            inline_max,
            closing: false,
            oversize_reserved: 0,
        }
    }

    /// From now on every answer has room: it is queued beside the ring, which stays as published.
    pub(crate) fn close(&mut self) {
        if !self.closing {
            self.ring.publish();
            self.closing = true;
            self.ring.unreserve_all();
            self.oversize_reserved = 0;
        }
    }

    /// Reserves room for one answer with a value of at most this many bytes; false if there is
    /// none. Other answers do not use it. After [`AnswerProducer::unreserve`] that answer has room.
    pub(crate) fn reserve(&mut self, value_bytes: usize) -> bool {
        if self.closing {
            return true;
        }
        // A shorter value may turn out to fit the ring.
        let inline = value_bytes.min(self.inline_max);
        let beside = if value_bytes > inline { value_bytes } else { 0 };
        let free =
            (beside == 0 || self.has_oversize_room(beside)) && self.ring.reserve(2 * WORD + inline);
        if free {
            self.oversize_reserved += beside;
        }
        free
    }

    /// True if a quarter of the ring or more is reserved.
    pub(crate) fn reserves_much(&self) -> bool {
        self.ring.reserves_a_quarter()
    }

    /// Releases what [`AnswerProducer::reserve`] reserved for a value of this many bytes.
    pub(crate) fn unreserve(&mut self, value_bytes: usize) {
        if self.closing {
            return;
        }
        let inline = value_bytes.min(self.inline_max);
        self.ring.unreserve(2 * WORD + inline);
        if value_bytes > inline {
            self.oversize_reserved -= value_bytes;
        }
    }

    fn has_oversize_room(&self, value_bytes: usize) -> bool {
        let oversize = &self.shared.oversize;
        oversize.has_room(value_bytes, self.oversize_reserved)
    }

    /// True if an answer with a value of this many bytes has room.
    #[inline]
    pub(crate) fn has_room(&self, value_bytes: usize) -> bool {
        if value_bytes > self.inline_max {
            let free = self.has_oversize_room(value_bytes) && self.ring.fits(2 * WORD);
            return free || self.closing;
        }
        self.ring.fits(2 * WORD + value_bytes) || self.closing
    }

    /// Appends an answer.
    ///
    /// # Panics
    /// If there is no room. A shard checks [`AnswerProducer::has_room`] before it acts, because an
    /// answer without room would be lost.
    #[inline(always)]
    pub(crate) fn answer(&mut self, origin: Origin, token: u64, answer: Answer<'_>) {
        let has_room = self.try_answer(origin, token, answer);
        assert!(has_room, "room for an answer was promised");
    }

    /// Appends an answer; false if there is no room.
    ///
    /// Inlined where the answer's kind is known, so that only the code for that kind remains.
    #[inline(always)]
    pub(crate) fn try_answer(&mut self, origin: Origin, token: u64, answer: Answer<'_>) -> bool {
        if self.closing {
            return self.answer_late(origin, token, answer);
        }
        let (kind, version, value) = answer.parts();
        let meta = AnswerMeta::new(origin, kind);
        if value.len() > self.inline_max {
            return self.answer_long(meta, token, version, value);
        }
        let pushed = self.push(meta, token, version, value);
        if pushed && let Some(error) = answer.error() {
            self.keep_error(error);
        }
        pushed
    }

    /// Queues the error of a failed answer beside the ring, before the answer is published.
    #[cold]
    fn keep_error(&self, error: &Error) {
        self.shared.errors.push(error.clone());
    }

    /// Answers beside the ring, which may stay full because the client does not poll.
    #[cold]
    fn answer_late(&mut self, origin: Origin, token: u64, answer: Answer<'_>) -> bool {
        self.shared
            .overflow
            .push((origin, token, OwnedAnswer::of(&answer)));
        // ORDERING: Release pairs with the Acquire in `Shared::has_late`.
        self.shared.overflowed.store(true, Ordering::Release);
        true
    }

    /// Sends a value that is too long for the ring beside it.
    #[cold]
    fn answer_long(
        &mut self,
        meta: AnswerMeta,
        token: u64,
        version: Option<Version>,
        value: &[u8],
    ) -> bool {
        if !self.has_room(value.len()) {
            return false;
        }
        let value = value.to_vec();
        let pushed = self.push(meta.oversize(), token, version, &[]);
        if pushed {
            // Message and value are published together: nothing may fail in between.
            self.shared.oversize.push(value);
        }
        pushed
    }

    #[inline(always)]
    fn push(
        &mut self,
        meta: AnswerMeta,
        token: u64,
        version: Option<Version>,
        value: &[u8],
    ) -> bool {
        let words = if version.is_some() { 2 } else { 1 };
        let Some(place) = self.ring.push(meta.0, words * WORD + value.len()) else {
            return false;
        };
        let (first, rest) = place.split_at_mut(WORD);
        first.copy_from_slice(&token.to_le_bytes());
        if let Some(version) = version {
            let (second, rest) = rest.split_at_mut(WORD);
            second.copy_from_slice(&version.to_le_bytes());
            rest.copy_from_slice(value);
        }
        true
    }

    /// Makes the answers visible to the client and wakes it.
    #[inline]
    pub(crate) fn publish(&mut self) {
        self.ring.publish();
        if let Some(client_waker) = &self.shared.client_waker {
            client_waker.notify();
        }
    }
}

impl Drop for AnswerProducer {
    fn drop(&mut self) {
        // No more answers come: wake the client so that it sees that.
        if let Some(client_waker) = &self.shared.client_waker {
            client_waker.notify();
        }
    }
}

#[cfg(all(test, not(farcore_loom)))]
impl AnswerProducer {
    /// Checks the ring of answers and the values beside it.
    pub(super) fn check(&self) {
        self.ring.check();
        if !self.closing {
            self.shared.oversize.check();
        }
    }
}
