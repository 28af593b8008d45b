//! The client's end of a lane.

#![allow(unsafe_code)] // answers are visited where they lie

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Shared;
use super::message::{AnswerKind, AnswerMeta, RequestMeta, WORD, split_word};
use crate::bytes::copy;
use crate::error::Error;
use crate::kept::Kept;
use crate::operation::{Answer, Demand, Kind, Version};
use crate::ring::{Consumer, Producer};
use crate::routing::IndexHash;
use crate::shard::Mark;

/// What one outstanding request takes.
pub(super) const OUTSTANDING_BYTES: usize = size_of::<Outstanding>();
/// No slot.
const NONE: u16 = u16::MAX;

/// A request that was sent and not answered; or a free slot, whose token is the next free one.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    token: u64,
    client: u8,
    mark: Mark,
}

/// All requests of a lane that were sent and not answered, by slot.
#[derive(Debug)]
struct Table {
    slots: Box<[Outstanding]>,
    /// The first free slot. Each comes back to the front, so that few are used over and over.
    free: u16,
}

impl Table {
    fn new(slots: usize) -> Self {
        let last = slots.saturating_sub(1);
        let empty = |slot| Outstanding {
            token: if slot == last {
                u64::from(NONE)
            } else {
                slot as u64 + 1
            },
            client: 0,
            mark: Mark::NONE,
        };
        Self {
            slots: (0..slots).map(empty).collect(),
            free: if slots == 0 { NONE } else { 0 },
        }
    }

    /// Uses the first free slot, which there is.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "it was made from a slot")]
    fn put(&mut self, request: Outstanding) {
        let entry = &mut self.slots[usize::from(self.free)];
        self.free = entry.token as u16;
        *entry = request;
    }

    /// Frees a slot. Before the visit, which may panic: no answer comes twice.
    #[inline]
    fn take(&mut self, slot: u16) -> Outstanding {
        let entry = &mut self.slots[usize::from(slot)];
        let request = *entry;
        entry.token = u64::from(self.free);
        self.free = slot;
        request
    }
}

/// The client's end.
#[derive(Debug)]
pub(crate) struct LaneClient {
    requests: Producer,
    answers: Consumer,
    shared: Arc<Shared>,
    inline_max: usize,
    outstanding: Table,
}

impl LaneClient {
    pub(super) fn new(
        requests: Producer,
        answers: Consumer,
        shared: Arc<Shared>,
        inline_max: usize,
        outstanding_max: usize,
    ) -> Self {
        Self {
            requests,
            answers,
            shared,
            inline_max,
            outstanding: Table::new(outstanding_max),
        }
    }

    /// Puts a request in; false if there is no room. The shard sees it after [`LaneClient::publish`].
    #[inline]
    pub(crate) fn send(
        &mut self,
        token: u64,
        (client, mark): (u8, Mark),
        hash: IndexHash,
        demand: &Demand<'_>,
    ) -> bool {
        let slot = self.outstanding.free;
        let sent = slot != NONE && self.put_in(slot, hash, demand);
        if sent {
            self.outstanding.put(Outstanding {
                token,
                client,
                mark,
            });
        }
        sent
    }

    #[inline]
    fn put_in(&mut self, slot: u16, hash: IndexHash, demand: &Demand<'_>) -> bool {
        if demand.value.len() > self.inline_max {
            return self.put_in_long(slot, hash, demand);
        }
        self.push(slot, hash, demand, false)
    }

    /// A value that is too long for the ring goes into the pocket.
    #[cold]
    fn put_in_long(&mut self, slot: u16, hash: IndexHash, demand: &Demand<'_>) -> bool {
        if !self.shared.request_pocket.is_free() {
            return false;
        }
        let value = demand.value.to_vec();
        let without = Demand {
            value: &[],
            ..*demand
        };
        let sent = self.push(slot, hash, &without, true);
        if sent {
            // The shard is shown both at once: nothing may fail in between.
            self.shared.request_pocket.fill(value);
        }
        sent
    }

    #[inline(always)]
    fn push(&mut self, slot: u16, hash: IndexHash, demand: &Demand<'_>, pocket: bool) -> bool {
        let Demand {
            kind,
            key,
            value,
            expected,
        } = *demand;
        let swap = kind == Kind::Swap;
        let head = WORD + usize::from(swap) * WORD + key.len();
        let meta = RequestMeta::new(slot, key.len(), kind, pocket);
        let Some(place) = self.requests.push(meta.0, head + value.len()) else {
            return false;
        };
        let (first, mut place) = place.split_at_mut(WORD);
        first.copy_from_slice(&hash.0.to_le_bytes());
        if swap {
            let (second, rest) = place.split_at_mut(WORD);
            second.copy_from_slice(&expected.to_le_bytes());
            place = rest;
        }
        let (key_place, value_place) = place.split_at_mut(key.len());
        copy(key_place, key);
        copy(value_place, value);
        true
    }

    /// Shows the shard what was sent; true if it must be told.
    #[inline]
    pub(crate) fn publish(&mut self) -> bool {
        self.requests.publish()
    }

    /// Asks for answers that have come: they are here when [`LaneClient::receive`] takes them.
    #[inline]
    pub(crate) fn glance(&mut self) {
        self.answers.glance();
    }

    /// Answers with [`Error::Closed`] every request that the shard did not take before it stopped.
    ///
    /// # Safety
    /// The shard has stopped, and that has been seen.
    pub(crate) unsafe fn abandon(&mut self, mut visit: impl FnMut((u8, Mark), u64, Answer<'_>)) {
        let table = &mut self.outstanding;
        // SAFETY: by this function's contract.
        unsafe {
            self.requests.take_back(|message| {
                let request = table.take(RequestMeta(message.meta).slot());
                let client = (request.client, request.mark);
                visit(client, request.token, Answer::Failed(&Error::Closed));
            });
        }
    }

    /// Visits the answers that [`LaneClient::glance`] has seen: client, token, answer. Answers how many.
    #[inline]
    pub(crate) fn receive(&mut self, mut visit: impl FnMut((u8, Mark), u64, Answer<'_>)) -> usize {
        let mut count = 0;
        let Self {
            shared,
            outstanding,
            answers,
            ..
        } = self;
        // What the answer that is visited borrows, where that does not lie in the ring.
        let mut held = None;
        let mut taken = Taken {
            cursor: answers.cursor(),
            answers,
        };
        // One visit for all, so that it is inlined and nothing that it needs has to lie in memory.
        loop {
            let (client, token, answer) = if let Some(message) = taken.answers.peek(taken.cursor) {
                let payload: *const [u8] = message.payload;
                let (meta, after) = (AnswerMeta(message.meta), message.after);
                // SAFETY: the message is released only when `taken` goes, after it was visited.
                let (version, value) = split_word(unsafe { &*payload });
                let request = outstanding.take(meta.slot());
                taken.cursor = after;
                let answer = match meta.kind() {
                    _ if meta.is_in_pocket() => shared.take_long(version, &mut held).answer(),
                    AnswerKind::Value => Answer::Value { version, value },
                    AnswerKind::Absent => Answer::Absent,
                    AnswerKind::Stored => Answer::Stored { version },
                    AnswerKind::Deleted => Answer::Deleted,
                    AnswerKind::Mismatch => Answer::Mismatch { current: version },
                    AnswerKind::Failed => shared.take_error(&mut held).answer(),
                };
                (request.answered(meta.has_waited()), request.token, answer)
            } else if let Some((slot, waited, late)) = shared.take_late(&mut held) {
                let request = outstanding.take(slot);
                (request.answered(waited), request.token, late.answer())
            } else {
                break;
            };
            count += 1;
            visit(client, token, answer);
        }
        count
    }
}

impl Shared {
    /// The error of the next answer that failed.
    #[cold]
    fn take_error<'a>(&self, held: &'a mut Option<Kept>) -> &'a Kept {
        let error = self.errors.pop().unwrap_or(Error::Closed);
        held.insert(Kept::Failed(error))
    }

    /// The value that lies in the pocket, which is empty then.
    #[cold]
    fn take_long<'a>(&self, version: Version, held: &'a mut Option<Kept>) -> &'a Kept {
        let value = self.answer_pocket.take();
        held.insert(Kept::Value(version, value))
    }

    /// The next of the answers that found no room in the ring, because they came while the shard was closing: its slot, whether it
    /// waited, and itself.
    #[inline]
    fn take_late<'a>(&self, held: &'a mut Option<Kept>) -> Option<(u16, bool, &'a Kept)> {
        // ORDERING: Acquire pairs with the Release in `LaneServer::answer_late`.
        if self.overflowed.load(Ordering::Acquire) {
            return self.pop_late(held);
        }
        None
    }

    #[cold]
    fn pop_late<'a>(&self, held: &'a mut Option<Kept>) -> Option<(u16, bool, &'a Kept)> {
        let (slot, waited, kept) = self.overflow.pop()?;
        Some((slot, waited, held.insert(kept)))
    }
}

impl Outstanding {
    /// The client, with all marks.
    #[inline]
    fn answered(self, waited: bool) -> (u8, Mark) {
        (self.client, self.mark.waited_if(waited))
    }
}

/// Gives back the messages that were visited, also when a visitor panics: none is seen twice.
struct Taken<'a> {
    answers: &'a mut Consumer,
    cursor: usize,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.answers.release(self.cursor);
    }
}
