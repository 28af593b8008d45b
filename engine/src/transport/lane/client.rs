//! The client's end of a lane: the producer of its requests and the consumer of its answers.
//!
//! It belongs to the client's thread. Answers are visited where they lie in the ring; the room of
//! each returns to the shard after its visit, also when the visitor panics, so no answer is visited
//! twice.

#![allow(unsafe_code)] // answers are visited where they lie

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::Error;
use crate::message::outcome::{Answer, AnswerKind, AnswerMeta, OwnedAnswer, split_word};
use crate::message::request::Origin;
use crate::transport::lane::Shared;
use crate::transport::queue::RequestProducer;
use crate::transport::ring::Consumer;

/// The client's end of a lane.
#[derive(Debug)]
pub(crate) struct LaneClient {
    pub(crate) requests: RequestProducer,
    /// Those under a section, and those that begin and end one.
    pub(crate) sections: RequestProducer,
    pub(crate) answers: AnswerConsumer,
}

impl LaneClient {
    /// Answers every request that the shard did not serve before it stopped with [`Error::Closed`].
    ///
    /// # Safety
    /// The shard has stopped, and the caller has synchronized with that.
    pub(crate) unsafe fn abandon(&mut self, mut visit: impl FnMut(Origin, u64, Answer<'_>)) {
        for queue in [&mut self.requests, &mut self.sections] {
            // SAFETY: by this function's contract.
            unsafe {
                queue.take_back(|origin, token| {
                    visit(origin, token, Answer::Failed(&Error::Closed));
                });
            }
        }
    }
}

/// Consumes the answers of a shard.
#[derive(Debug)]
pub(crate) struct AnswerConsumer {
    ring: Consumer,
    shared: Arc<Shared>,
}

impl AnswerConsumer {
    pub(super) fn new(ring: Consumer, shared: Arc<Shared>) -> Self {
        Self { ring, shared }
    }

    /// Reads how far the shard has answered, and prefetches the first answers for
    /// [`AnswerConsumer::receive`].
    #[inline]
    pub(crate) fn refresh(&mut self) {
        self.ring.refresh();
    }

    /// Visits the answers that the last [`AnswerConsumer::refresh`] saw, with origin and token.
    /// Returns how many.
    #[inline]
    pub(crate) fn receive(&mut self, mut visit: impl FnMut(Origin, u64, Answer<'_>)) -> usize {
        let mut count = 0;
        let Self { shared, ring } = self;
        // What the visited answer borrows, if that is not in the ring.
        let mut held = None;
        let mut has_looked = false;
        let mut taken = Taken {
            cursor: ring.cursor(),
            ring,
        };
        // One call of `visit`, so that it is inlined and its captures need no memory.
        loop {
            let (origin, token, answer) = if let Some(message) = taken.ring.peek(taken.cursor) {
                let payload: *const [u8] = message.payload;
                let (meta, after) = (AnswerMeta(message.meta), message.after);
                // SAFETY: the message is released only when `taken` is dropped, after the visit.
                let (token, rest) = split_word(unsafe { &*payload });
                // Before the visit, which may panic: no answer is visited twice.
                taken.cursor = after;
                let decoded = if meta.is_oversize() {
                    None
                } else {
                    meta.kind().decode(rest)
                };
                let answer = match decoded {
                    Some(answer) => answer,
                    None => shared.take_beside(meta, rest, &mut held).answer(),
                };
                (meta.origin(), token, answer)
            } else if !shared.has_late() {
                break;
            } else if !has_looked {
                // Answers in the ring are older, and were published before those.
                has_looked = true;
                taken.ring.refresh();
                continue;
            } else if let Some((origin, token, late)) = shared.pop_late(&mut held) {
                (origin, token, late.answer())
            } else {
                break;
            };
            count += 1;
            visit(origin, token, answer);
        }
        count
    }
}

impl Shared {
    /// The answer whose value or error travels beside the ring, or a conflict, which is rare.
    #[cold]
    fn take_beside<'a>(
        &self,
        meta: AnswerMeta,
        message: &[u8],
        held: &'a mut Option<OwnedAnswer>,
    ) -> &'a OwnedAnswer {
        held.insert(if meta.is_oversize() {
            let (version, _) = split_word(message);
            OwnedAnswer::value(version, self.oversize.take())
        } else if meta.kind() == AnswerKind::Conflict {
            let (word, _) = split_word(message);
            OwnedAnswer::conflict(word)
        } else {
            OwnedAnswer::failed(self.errors.pop().unwrap_or(Error::Closed))
        })
    }

    /// True if answers came beside the ring because the shard was closing.
    #[inline]
    fn has_late(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `AnswerProducer::answer_late`.
        self.overflowed.load(Ordering::Acquire)
    }

    /// The next of those answers, with its origin and token.
    #[cold]
    fn pop_late<'a>(
        &self,
        held: &'a mut Option<OwnedAnswer>,
    ) -> Option<(Origin, u64, &'a OwnedAnswer)> {
        let (origin, token, kept) = self.overflow.pop()?;
        Some((origin, token, held.insert(kept)))
    }
}

/// Releases the visited messages when dropped, also when a visitor panics: no answer is visited
/// twice.
struct Taken<'a> {
    ring: &'a mut Consumer,
    cursor: usize,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.ring.release(self.cursor);
    }
}
