//! A lane: the pair of rings between one client and one shard.
//!
//! ```text
//! request:  | token:8 | hash:8 | expected version:8 | key bytes:2 | kind:1 | client:1 | value bytes:4 | key | value |
//! answer:   | token:8 | version:8 | kind:1 | client:1 | 0:2 | value bytes:4 | value |
//! ```
//!
//! A value longer than an eighth of the ring travels in the lane's side pocket, one at a time and direction. What a
//! lane holds stays valid when its client goes away.

#![allow(unsafe_code)] // the pocket is shared by the two ends of a lane

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

use atomic_waker::AtomicWaker;
use crossbeam_queue::{ArrayQueue, SegQueue};

use crate::error::Error;
use crate::kept::Kept;
use crate::operation::{Answer, Operation};
use crate::ring::{Consumer, Producer, ring};
use crate::routing::IndexHash;
use crate::shard::Mark;

const REQUEST_HEADER: usize = 32;
const ANSWER_HEADER: usize = 24;
const POCKET: u8 = 0x80;
/// What is left of a kind beside the pocket and the marks.
const KIND: u8 = !(POCKET | Mark::ALL);
const ERRORS: usize = 64;
/// Lanes that one shard can have.
pub(crate) const LANES_MAX: usize = 255;

/// Room for one long value. Full: the consumer's; empty: the producer's.
#[derive(Debug, Default)]
struct Pocket {
    full: AtomicBool,
    value: UnsafeCell<Vec<u8>>,
}

// SAFETY: `full` says whose the value is, and each side only touches it while it is its own.
unsafe impl Sync for Pocket {}

impl Pocket {
    fn is_free(&self) -> bool {
        // ORDERING: pairs with the Release in `clear`.
        !self.full.load(Ordering::Acquire)
    }

    /// Called by the producer while the pocket is free.
    fn fill(&self, value: &[u8]) {
        // SAFETY: the pocket is free, so it is the producer's.
        unsafe { *self.value.get() = value.to_vec() };
        // ORDERING: pairs with the ring's publication, which comes after; Release for `is_free` of a later producer.
        self.full.store(true, Ordering::Release);
    }

    /// Called by the consumer while it handles the message that came with the pocket.
    fn value(&self) -> &[u8] {
        // SAFETY: the pocket is full and the message was received, so it is the consumer's until `clear`.
        unsafe { &*self.value.get() }
    }

    fn clear(&self) {
        // SAFETY: as in `value`.
        unsafe { *self.value.get() = Vec::new() };
        // ORDERING: pairs with the Acquire in `is_free`.
        self.full.store(false, Ordering::Release);
    }
}

/// Where a client waits for answers.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    waiting: AtomicBool,
    pub(crate) waker: AtomicWaker,
}

impl Mailbox {
    /// The client is about to sleep: it looks once more after this, then sleeps.
    pub(crate) fn wait(&self) {
        // ORDERING: SeqCst, with the fence in `notify`: either the shard sees the flag or the client sees the answer.
        self.waiting.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Something was published for the client.
    #[inline]
    pub(crate) fn notify(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) && self.waiting.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}

/// How lanes tell a shard that they have news, and wake it.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    dirty: [AtomicU64; 4],
    asleep: AtomicBool,
    pub(crate) waker: AtomicWaker,
}

impl Bell {
    /// A lane has news.
    #[inline]
    pub(crate) fn ring(&self, lane: u8) {
        // ORDERING: SeqCst on both words: either the shard sees the mark before it sleeps, or this sees it asleep.
        self.dirty[usize::from(lane) / 64].fetch_or(1 << (lane % 64), Ordering::SeqCst);
        self.wake();
    }

    /// Wakes the shard if it sleeps.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.asleep.load(Ordering::SeqCst) {
            self.waker.wake();
        }
    }

    /// Takes the marks of 64 lanes.
    #[inline]
    pub(crate) fn take(&self, word: usize) -> u64 {
        if self.dirty[word].load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.dirty[word].swap(0, Ordering::SeqCst)
    }

    /// Says that the shard is about to sleep, or is awake; true if a lane has news.
    pub(crate) fn set_asleep(&self, asleep: bool) -> bool {
        self.asleep.store(asleep, Ordering::SeqCst);
        self.dirty
            .iter()
            .any(|word| word.load(Ordering::SeqCst) != 0)
    }
}

#[derive(Debug)]
struct Shared {
    request_pocket: Pocket,
    answer_pocket: Pocket,
    errors: ArrayQueue<Error>,
    /// Answers that found no room while the shard was closing: then nobody is made to wait for a client that does not
    /// look.
    overflow: SegQueue<((u8, Mark), u64, Kept)>,
    /// Where the client waits, unless it polls for ever, as a core does.
    mailbox: Option<Arc<Mailbox>>,
}

/// A lane's two ends.
pub(crate) fn lane(bytes: usize, mailbox: Option<Arc<Mailbox>>) -> (LaneClient, LaneServer) {
    let (request_producer, request_consumer) = ring(bytes);
    let (answer_producer, answer_consumer) = ring(bytes);
    let shared = Arc::new(Shared {
        request_pocket: Pocket::default(),
        answer_pocket: Pocket::default(),
        errors: ArrayQueue::new(ERRORS),
        overflow: SegQueue::new(),
        mailbox,
    });
    let inline_max = bytes / 8;
    let client = LaneClient {
        requests: request_producer,
        answers: answer_consumer,
        shared: Arc::clone(&shared),
        inline_max,
    };
    let server = LaneServer {
        requests: request_consumer,
        answers: answer_producer,
        shared,
        inline_max,
        closing: false,
    };
    (client, server)
}

/// The client's end.
#[derive(Debug)]
pub(crate) struct LaneClient {
    requests: Producer,
    answers: Consumer,
    shared: Arc<Shared>,
    inline_max: usize,
}

impl LaneClient {
    /// Puts a request in; false if there is no room. The shard sees it after [`LaneClient::publish`].
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "keys and values were checked against their limits"
    )]
    pub(crate) fn send(
        &mut self,
        token: u64,
        (client, mark): (u8, Mark),
        hash: IndexHash,
        operation: &Operation<'_>,
    ) -> bool {
        let (key, value) = (operation.key(), operation.value());
        let long = value.len() > self.inline_max;
        let inline = if long { 0 } else { value.len() };
        if long
            && !(self.shared.request_pocket.is_free()
                && self.requests.fits(REQUEST_HEADER + key.len()))
        {
            return false;
        }
        let (kind, expected) = match *operation {
            Operation::Get { .. } => (0, 0),
            Operation::Put { .. } => (1, 0),
            Operation::Delete { .. } => (2, 0),
            Operation::CompareAndSwap { expected, .. } => (3, expected),
        };
        if long {
            self.shared.request_pocket.fill(value);
        }
        self.requests
            .push(REQUEST_HEADER + key.len() + inline, |place| {
                let (header, body) = place.split_at_mut(REQUEST_HEADER);
                header[0..8].copy_from_slice(&token.to_le_bytes());
                header[8..16].copy_from_slice(&hash.0.to_le_bytes());
                header[16..24].copy_from_slice(&expected.to_le_bytes());
                header[24..26].copy_from_slice(&(key.len() as u16).to_le_bytes());
                header[26] = kind | mark.0 | if long { POCKET } else { 0 };
                header[27] = client;
                header[28..32].copy_from_slice(&(inline as u32).to_le_bytes());
                body[..key.len()].copy_from_slice(key);
                body[key.len()..].copy_from_slice(&value[..inline]);
            })
    }

    /// Shows the shard what was sent; true if the bell must be rung.
    #[inline]
    pub(crate) fn publish(&mut self) -> bool {
        self.requests.publish()
    }

    /// Answers with [`Error::Closed`] every request that the shard did not take before it stopped.
    ///
    /// # Safety
    /// The shard has stopped, and that has been seen.
    pub(crate) unsafe fn abandon(&mut self, mut visit: impl FnMut((u8, Mark), u64, Answer<'_>)) {
        // SAFETY: by this function's contract.
        unsafe {
            self.requests.take_back(|payload| {
                let token = u64::from_le_bytes(payload[..8].try_into().unwrap_or_default());
                let client = (payload[27], Mark(payload[26] & Mark::ALL));
                visit(client, token, Answer::Failed(Error::Closed));
            });
        }
    }

    /// Visits the answers that have come: client, token, answer. Answers how many.
    #[inline]
    pub(crate) fn receive(&mut self, mut visit: impl FnMut((u8, Mark), u64, Answer<'_>)) -> usize {
        let mut count = 0;
        let mut taken = Taken {
            cursor: self.answers.cursor(),
            answers: &mut self.answers,
            pocket: None,
        };
        while let Some((payload, after)) = taken.answers.peek(taken.cursor) {
            let payload: *const [u8] = payload;
            // SAFETY: the message is released only when `taken` goes, after it was visited.
            let payload = unsafe { &*payload };
            let word =
                |at: usize| u64::from_le_bytes(payload[at..at + 8].try_into().unwrap_or_default());
            let (token, version) = (word(0), word(8));
            let (kind, client) = (payload[16], (payload[17], Mark(payload[16] & Mark::ALL)));
            taken.cursor = after;
            let value = if kind & POCKET != 0 {
                taken.pocket = Some(&self.shared.answer_pocket);
                self.shared.answer_pocket.value()
            } else {
                &payload[ANSWER_HEADER..]
            };
            let answer = match kind & KIND {
                0 => Answer::Value { version, value },
                1 => Answer::Absent,
                2 => Answer::Stored { version },
                3 => Answer::Deleted,
                4 => Answer::Mismatch { current: version },
                _ => Answer::Failed(self.shared.errors.pop().unwrap_or(Error::Closed)),
            };
            visit(client, token, answer);
            if let Some(pocket) = taken.pocket.take() {
                pocket.clear();
            }
            count += 1;
        }
        drop(taken);
        // What came while the shard was closing found no room in the ring.
        while let Some((client, token, kept)) = self.shared.overflow.pop() {
            visit(client, token, kept.answer());
            count += 1;
        }
        count
    }
}

/// Gives back the messages that were visited, also when a visitor panics: none is seen twice.
struct Taken<'a> {
    answers: &'a mut Consumer,
    cursor: usize,
    /// The pocket that the message being visited came with.
    pocket: Option<&'a Pocket>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(pocket) = self.pocket {
            pocket.clear();
        }
        self.answers.release(self.cursor);
    }
}

/// One request as it lies in a lane.
pub(crate) struct Received<'a> {
    pub(crate) client: (u8, Mark),
    pub(crate) token: u64,
    pub(crate) hash: IndexHash,
    pub(crate) operation: Operation<'a>,
    pub(crate) pocket: bool,
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
    /// Takes a request apart.
    ///
    /// # Safety
    /// `payload` was peeked from this lane's requests and is not released while the result lives.
    #[inline]
    pub(crate) unsafe fn decode<'a>(&self, payload: *const [u8]) -> Received<'a> {
        // SAFETY: by this function's contract.
        let payload: &'a [u8] = unsafe { &*payload };
        let word =
            |at: usize| u64::from_le_bytes(payload[at..at + 8].try_into().unwrap_or_default());
        let key_bytes = usize::from(u16::from_le_bytes([payload[24], payload[25]]));
        let (kind, client) = (payload[26], (payload[27], Mark(payload[26] & Mark::ALL)));
        let (key, inline) = payload[REQUEST_HEADER..].split_at(key_bytes);
        let pocket = kind & POCKET != 0;
        let value = if pocket {
            // SAFETY: the pocket is the consumer's until the request is done with.
            unsafe { &*std::ptr::from_ref(self.shared.request_pocket.value()) }
        } else {
            inline
        };
        let operation = match kind & KIND {
            0 => Operation::Get { key },
            1 => Operation::Put { key, value },
            2 => Operation::Delete { key },
            _ => Operation::CompareAndSwap {
                key,
                expected: word(16),
                value,
            },
        };
        Received {
            client,
            token: word(0),
            hash: IndexHash(word(8)),
            operation,
            pocket,
        }
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
        self.closing || self.has_room_in_ring(value_bytes)
    }

    #[inline]
    fn has_room_in_ring(&self, value_bytes: usize) -> bool {
        if value_bytes > self.inline_max {
            return self.shared.answer_pocket.is_free() && self.answers.fits(ANSWER_HEADER);
        }
        self.answers.fits(ANSWER_HEADER + value_bytes) && !self.shared.errors.is_full()
    }

    /// Puts an answer in; [`LaneServer::has_room`] was asked before.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "values were checked against their limit"
    )]
    pub(crate) fn answer(&mut self, client: u8, mark: Mark, token: u64, answer: &Answer<'_>) {
        if self.closing {
            let client = (client, mark);
            return self.shared.overflow.push((client, token, Kept::of(answer)));
        }
        let (kind, version, value): (u8, u64, &[u8]) = match answer {
            Answer::Value { version, value } => (0, *version, value),
            Answer::Absent => (1, 0, &[]),
            Answer::Stored { version } => (2, *version, &[]),
            Answer::Deleted => (3, 0, &[]),
            Answer::Mismatch { current } => (4, *current, &[]),
            Answer::Failed(error) => {
                let pushed = self.shared.errors.push(error.clone());
                debug_assert!(pushed.is_ok(), "room was promised");
                (5, 0, &[])
            }
        };
        let long = value.len() > self.inline_max;
        let inline = if long { 0 } else { value.len() };
        if long {
            self.shared.answer_pocket.fill(value);
        }
        let pushed = self.answers.push(ANSWER_HEADER + inline, |place| {
            let (header, body) = place.split_at_mut(ANSWER_HEADER);
            header[0..8].copy_from_slice(&token.to_le_bytes());
            header[8..16].copy_from_slice(&version.to_le_bytes());
            header[16] = kind | mark.0 | if long { POCKET } else { 0 };
            header[17] = client;
            header[18..20].fill(0);
            header[20..24].copy_from_slice(&(inline as u32).to_le_bytes());
            body.copy_from_slice(&value[..inline]);
        });
        debug_assert!(pushed, "room was promised");
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
