//! A ring of messages between one producer thread and one consumer thread.
//!
//! ```text
//! | length:4 | meta:4 | payload ... padded to 16 |
//! ```
//!
//! A message is contiguous. One that begins near the end of the ring continues past it into the
//! *apron*, which is as long as the longest message. The bytes at the start of the ring that it
//! displaces stay unused meanwhile.
//!
//! - I1: `head <= tail <= head + capacity`. Both count bytes and never wrap.
//! - I2: bytes from `head` to the published `tail` belong to the consumer, all others to the
//!   producer.
//! - I3: `tail + reserved <= head + capacity`: a message with reserved room always fits.
//!
//! ORDERING: the producer's Release store of `tail` pairs with the consumer's Acquire load; the
//! consumer's Release store of `head` pairs with the producer's Acquire load. Each side publishes
//! once a batch.

#![allow(unsafe_code)] // both halves reach into the same memory, disjointly

use std::cell::{Cell, UnsafeCell};

use farcore_rdma::{prefetch_burst, prefetch_to_write};

use crate::constants::LINE_BYTES;
use crate::transport::atomics::{Arc, AtomicUsize, Ordering};

const GRAIN: usize = 16;
const HEADER: usize = 8;
/// Bytes that a consumer prefetches ahead of where it reads.
const AHEAD: usize = 1024;
/// Messages whose lines a producer prefetches for write; never fewer than half as many. Lines that
/// are prefetched earlier are lost again, because the consumer's processor prefetches past the
/// published end. Source: measured between two cores; 24 are as good for close cores, 8 for distant
/// ones.
pub(crate) const PREFETCH_AHEAD: usize = 12;
/// Bytes that a producer prefetches for write, at most.
pub(crate) const PREFETCH_BYTES_MAX: usize = 4096;

/// A counter on cache lines of its own (two, because lines are fetched in pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CacheAligned(AtomicUsize);

impl CacheAligned {
    #[inline]
    pub(crate) fn get(&self) -> &AtomicUsize {
        &self.0
    }
}

/// The tails of two queues and of a ring that one thread writes and one other reads. They share a
/// line, so that the reader polls them with one load. The fourth is free.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct RingTails([AtomicUsize; 4]);

impl RingTails {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self([0; 4].map(AtomicUsize::new)))
    }
}

/// One of the tails.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    tails: Arc<RingTails>,
    place: usize,
}

impl Tail {
    pub(crate) fn new(tails: &Arc<RingTails>, place: usize) -> Self {
        Self {
            tails: Arc::clone(tails),
            place,
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> &AtomicUsize {
        &self.tails.0[self.place % 4]
    }
}

/// A piece of a ring, aligned so that no message of half a line spans two lines.
#[repr(align(64))]
pub(crate) struct Line(#[expect(dead_code, reason = "reached by pointers")] [u8; LINE_BYTES]);

impl Default for Line {
    fn default() -> Self {
        Self([0; LINE_BYTES])
    }
}

const _: () = assert!(size_of::<Line>() == LINE_BYTES);

struct Shared {
    head: CacheAligned,
    /// The ring and its apron.
    lines: Box<[UnsafeCell<Line>]>,
    /// One less than the capacity.
    mask: usize,
    /// Under the model checker, one cell a word: it notices two threads in one place.
    #[cfg(farcore_loom)]
    watched: Box<[loom::cell::UnsafeCell<()>]>,
}

// SAFETY: by I2 no byte is reachable for both halves at once, and each half belongs to one thread.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// The bytes of a ring, as its halves reach them.
#[derive(Clone, Copy, Debug)]
struct Span {
    base: *mut u8,
    /// One less than the capacity, a power of two.
    mask: usize,
}

impl Span {
    #[inline]
    fn capacity(self) -> usize {
        self.mask + 1
    }

    #[inline]
    fn pointer(self, at: usize) -> *mut u8 {
        self.base.wrapping_add(at & self.mask)
    }
}

/// Bytes that a message with this payload occupies in the ring.
#[inline]
fn message_bytes(payload: usize) -> usize {
    (HEADER + payload + GRAIN - 1) & !(GRAIN - 1)
}

impl Shared {
    fn span(&self) -> Span {
        Span {
            // From the whole slice, not from one line: a message is longer than that.
            base: UnsafeCell::raw_get(self.lines.as_ptr()).cast::<u8>(),
            mask: self.mask,
        }
    }

    /// True if a message there ends within the ring and its apron.
    fn holds(&self, at: usize, bytes: usize) -> bool {
        (at & self.mask) + bytes <= self.lines.len() * LINE_BYTES
    }

    #[cfg(farcore_loom)]
    fn watch(&self, at: usize, bytes: usize, write: bool) {
        let start = at & self.mask;
        for place in (start..start + bytes).step_by(GRAIN) {
            crate::transport::atomics::touch(&self.watched[place / GRAIN], write);
        }
    }

    #[cfg(not(farcore_loom))]
    #[inline]
    fn watch(&self, _: usize, _: usize, _: bool) {}
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("capacity", &self.span().capacity())
            .finish_non_exhaustive()
    }
}

/// A ring of a power of two of bytes for payloads of at most `longest`, as its two halves.
pub(crate) fn ring(bytes: usize, longest: usize) -> (Producer, Consumer) {
    ring_with(bytes, longest, &RingTails::new(), 0)
}

/// A ring of a power of two of bytes for payloads of at most `longest`, with a tail of a
/// [`RingTails`] that no other ring uses.
pub(crate) fn ring_with(
    bytes: usize,
    longest: usize,
    tails: &Arc<RingTails>,
    place: usize,
) -> (Producer, Consumer) {
    let tail = Tail::new(tails, place);
    let bytes = bytes.next_power_of_two().max(2 * GRAIN);
    let whole = bytes + message_bytes(longest);
    let shared = Arc::new(Shared {
        head: CacheAligned::default(),
        lines: (0..whole.div_ceil(LINE_BYTES))
            .map(|_| UnsafeCell::new(Line::default()))
            .collect(),
        mask: bytes - 1,
        #[cfg(farcore_loom)]
        watched: (0..whole / GRAIN)
            .map(|_| loom::cell::UnsafeCell::new(()))
            .collect(),
    });
    let span = shared.span();
    let producer = Producer {
        shared: Arc::clone(&shared),
        shown: tail.clone(),
        span,
        tail: 0,
        published: 0,
        unshown: 0,
        owned: 0,
        longest,
        reserved: 0,
        limit: Cell::new(span.capacity()),
    };
    (
        producer,
        Consumer {
            shared,
            shown: tail,
            span,
            head: 0,
            tail: 0,
            ahead: 0,
        },
    )
}

/// The half that writes messages.
#[derive(Debug)]
pub(crate) struct Producer {
    shared: Arc<Shared>,
    shown: Tail,
    span: Span,
    tail: usize,
    published: usize,
    /// Messages written since the last publish.
    unshown: usize,
    /// Up to where lines were prefetched for write.
    owned: usize,
    /// Bytes of the longest payload.
    longest: usize,
    /// Bytes reserved for later messages.
    reserved: usize,
    /// Up to where the ring may be written by the last known head, less the reserved bytes.
    limit: Cell<usize>,
}

// SAFETY: by I2 what the span leads to is reachable for one half at a time, and `shared` keeps it
// alive.
unsafe impl Send for Producer {}

impl Producer {
    /// True if a message of this many bytes has room now.
    #[inline]
    pub(crate) fn fits(&self, payload: usize) -> bool {
        payload <= self.longest && self.has(message_bytes(payload))
    }

    #[inline]
    fn has(&self, bytes: usize) -> bool {
        self.tail + bytes <= self.limit.get() || self.has_after_a_look(bytes)
    }

    #[cold]
    fn has_after_a_look(&self, bytes: usize) -> bool {
        let head = self.shared.head.0.load(Ordering::Acquire);
        self.limit.set(head + self.span.capacity() - self.reserved);
        self.tail + bytes <= self.limit.get()
    }

    /// Reserves room for a message of at most this many bytes; false if there is none. Other
    /// messages do not use it.
    pub(crate) fn reserve(&mut self, payload: usize) -> bool {
        let fits = self.fits(payload);
        if fits {
            let bytes = message_bytes(payload);
            self.reserved += bytes;
            self.limit.set(self.limit.get() - bytes);
        }
        fits
    }

    /// True if a quarter of the ring or more is reserved.
    pub(crate) fn reserves_a_quarter(&self) -> bool {
        4 * self.reserved >= self.span.capacity()
    }

    /// Releases what [`Producer::reserve`] reserved for a message of this many bytes. The message
    /// has room now.
    pub(crate) fn unreserve(&mut self, payload: usize) {
        let bytes = message_bytes(payload);
        assert!(bytes <= self.reserved, "more is released than was reserved");
        self.reserved -= bytes;
        self.limit.set(self.limit.get() + bytes);
    }

    /// Releases all reserved room.
    pub(crate) fn unreserve_all(&mut self) {
        self.limit
            .set(self.limit.get() + std::mem::take(&mut self.reserved));
    }

    /// Appends a message and returns where its payload goes; `None` if there is no room. The caller
    /// writes the payload before [`Producer::publish`], which makes the message visible.
    #[must_use = "the payload is written there"]
    #[inline(always)]
    pub(crate) fn push(&mut self, meta: u32, payload: usize) -> Option<&mut [u8]> {
        if !self.fits(payload) {
            return None;
        }
        let bytes = message_bytes(payload);
        self.shared.watch(self.tail, bytes, true);
        let start = self.span.pointer(self.tail);
        debug_assert!(self.shared.holds(self.tail, bytes));
        // SAFETY: by I2 these bytes are the producer's. No message is longer than the apron that
        // follows the ring. Messages in the ring at one time begin less than a capacity apart, so
        // that no two of them share a byte of the apron.
        let place = unsafe {
            #[expect(clippy::cast_possible_truncation, reason = "less than the ring")]
            start.cast::<[u32; 2]>().write([payload as u32, meta]);
            std::slice::from_raw_parts_mut(start.add(HEADER), payload)
        };
        self.tail += bytes;
        self.unshown += 1;
        let ahead = (PREFETCH_AHEAD * bytes).min(PREFETCH_BYTES_MAX);
        if self.tail + ahead / 2 > self.owned {
            self.prefetch_for_write(ahead);
        }
        Some(place)
    }

    /// Prefetches for write the lines that come next; the consumer's cache holds them. Several at
    /// once, so that most messages need no check.
    #[inline(never)]
    fn prefetch_for_write(&mut self, bytes: usize) {
        let end = (self.tail + bytes).min(self.limit.get());
        let mut owned = self.owned.max(self.tail & !(LINE_BYTES - 1));
        while owned < end {
            prefetch_to_write(self.span.pointer(owned));
            owned += LINE_BYTES;
        }
        self.owned = owned;
    }

    /// Makes the messages visible to the consumer; true if there were any.
    #[inline]
    pub(crate) fn publish(&mut self) -> bool {
        if self.published == self.tail {
            return false;
        }
        self.shown.get().store(self.tail, Ordering::Release);
        self.published = self.tail;
        if self.unshown >= PREFETCH_AHEAD / 2 {
            // The consumer reads up to here and its processor prefetches further, which invalidates
            // the lines prefetched for write. They are prefetched again.
            self.owned = self.tail;
        }
        self.unshown = 0;
        true
    }
}

/// A message as it lies in the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    /// The producer's metadata.
    pub(crate) meta: u32,
    pub(crate) payload: &'a [u8],
    /// The cursor after the message.
    pub(crate) after: usize,
}

/// The half that reads messages.
#[derive(Debug)]
pub(crate) struct Consumer {
    shared: Arc<Shared>,
    shown: Tail,
    span: Span,
    head: usize,
    /// The last tail seen.
    tail: usize,
    /// Up to where lines were prefetched.
    ahead: usize,
}

// SAFETY: as for the producer.
unsafe impl Send for Consumer {}

impl Consumer {
    /// Prefetches the lines that follow. They are in the producer's cache, and missing them one by
    /// one would cost a trip each. Several at once, so that most messages need no check.
    #[inline]
    fn prefetch(&mut self, cursor: usize) {
        if cursor + AHEAD / 2 > self.ahead {
            let end = self.tail.min(cursor + AHEAD);
            self.ahead = self.ahead.max(cursor & !(LINE_BYTES - 1));
            while self.ahead < end {
                prefetch_burst(self.span.pointer(self.ahead));
                self.ahead += LINE_BYTES;
            }
        }
    }

    /// Where the next message starts.
    pub(crate) fn cursor(&self) -> usize {
        self.head
    }

    /// Reads how far the producer has written, and prefetches the first new lines. They arrive from
    /// the other core's cache while the caller does something else.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        let tail = self.shown.get().load(Ordering::Acquire);
        if tail != self.tail {
            // The line that the last message ended in was written again after its prefetch.
            self.ahead = self.ahead.min(self.tail & !(LINE_BYTES - 1));
            self.tail = tail;
            self.prefetch(self.head);
        }
    }

    /// The message at a cursor, if the last [`Consumer::refresh`] saw it. Reading the tail after
    /// each batch would cost a trip to the producer's cache for the few messages that came
    /// meanwhile.
    #[inline]
    pub(crate) fn peek(&mut self, cursor: usize) -> Option<Message<'_>> {
        if cursor == self.tail {
            return None;
        }
        self.prefetch(cursor);
        let start = self.span.pointer(cursor);
        // SAFETY: by I2 everything before `tail` is the consumer's.
        let [length, meta] = unsafe { start.cast::<[u32; 2]>().read() };
        let bytes = message_bytes(length as usize);
        debug_assert!(self.shared.holds(cursor, bytes));
        self.shared.watch(cursor, bytes, false);
        // SAFETY: as above; the slice borrows this half, and only `release` gives the bytes back.
        let payload = unsafe { std::slice::from_raw_parts(start.add(HEADER), length as usize) };
        Some(Message {
            meta,
            payload,
            after: cursor + bytes,
        })
    }

    /// Returns everything before a cursor to the producer.
    #[inline]
    pub(crate) fn release(&mut self, cursor: usize) {
        if cursor != self.head {
            self.head = cursor;
            self.shared.head.0.store(cursor, Ordering::Release);
        }
    }
}

#[cfg(all(test, not(farcore_loom)))]
impl Producer {
    /// Checks how far the ring is written.
    pub(crate) fn check(&self) {
        let head = self.shared.head.0.load(Ordering::Acquire);
        let end = head + self.span.capacity();
        let is_written = head <= self.published && self.published <= self.tail;
        assert!(is_written && self.tail <= end, "ring I1: the tail");
        assert!(self.tail + self.reserved <= end, "ring I3: reserved room");
        let limit = self.limit.get() + self.reserved;
        assert!(limit <= end, "ring I3: the limit");
    }
}

#[cfg(all(test, not(farcore_loom)))]
mod tests {
    use std::collections::VecDeque;

    use farcore_fuzz::Input;

    use super::*;
    use crate::breach::assert_breaks;

    #[test]
    fn a_planted_breach_of_a_ring_is_found() {
        type Breach = fn(&mut Producer);
        let breaches: [(&str, Breach); 4] = [
            ("ring I1", |producer| producer.tail += 1024),
            ("ring I1", |producer| {
                producer.published = producer.tail + 16;
            }),
            ("ring I3", |producer| producer.reserved += 1024),
            ("ring I3", |producer| producer.limit.set(2048)),
        ];
        for (invariant, plant) in breaches {
            let (mut producer, _consumer) = ring(1024, 290);
            assert!(producer.push(1, 40).is_some() && producer.reserve(100));
            producer.check();
            plant(&mut producer);
            assert_breaks(invariant, || producer.check());
        }
    }

    #[test]
    fn messages_come_out_as_they_went_in() {
        let run = |bytes: &[u8]| {
            let mut input = Input::new(bytes);
            let (mut producer, mut consumer) = ring(1024, 290);
            let (mut model, mut shown, mut next) = (VecDeque::new(), 0usize, 0u8);
            let mut reserved: Vec<usize> = Vec::new();
            while !input.is_empty() {
                let (act, size) = (input.below(7), usize::from(input.short()) % 340);
                match act {
                    0 | 1 => {
                        next = next.wrapping_add(1);
                        let fits = producer.fits(size);
                        assert!(size <= 290 || !fits);
                        let pushed = producer
                            .push(u32::from(next), size)
                            .map(|place| place.fill(next))
                            .is_some();
                        assert_eq!(fits, pushed);
                        if pushed {
                            model.push_back((u32::from(next), vec![next; size]));
                        }
                    }
                    2 => {
                        producer.publish();
                        shown = model.len();
                    }
                    3 => consumer.refresh(),
                    4 => {
                        let fits = producer.fits(size);
                        assert_eq!(producer.reserve(size), fits);
                        if fits {
                            reserved.push(size);
                        }
                    }
                    5 => {
                        // Reserved room stays, whatever was pushed in between.
                        if let Some(most) = reserved.pop() {
                            producer.unreserve(most);
                            next = next.wrapping_add(1);
                            let size = size.min(most);
                            let place = producer.push(u32::from(next), size);
                            assert!(place.is_some(), "{} of {}", size, most);
                            if let Some(place) = place {
                                place.fill(next);
                            }
                            model.push_back((u32::from(next), vec![next; size]));
                        }
                    }
                    _ => {
                        consumer.refresh();
                        let mut cursor = consumer.cursor();
                        while let Some(message) = consumer.peek(cursor) {
                            assert!(shown > 0);
                            let (meta, payload) = model.pop_front().unwrap();
                            assert_eq!((message.meta, message.payload), (meta, &payload[..]));
                            shown -= 1;
                            cursor = message.after;
                        }
                        assert_eq!(shown, 0);
                        consumer.release(cursor);
                    }
                }
                producer.check();
            }
        };
        let pushes = [0, 100, 0, 0, 20, 0, 2, 0, 0, 3, 0, 0, 6, 0, 0];
        let reserves = [4, 200, 0, 0, 7, 0, 5, 9, 0, 2, 0, 0, 6, 0, 0];
        farcore_fuzz::Target::new("ring")
            .seed(pushes.repeat(20))
            .seed(reserves.repeat(20))
            .longest(1200)
            .run(run);
    }

    #[test]
    fn lines_are_prefetched_ahead_and_again_after_some_are_published() {
        let (mut producer, mut consumer) = ring(4096, 60);
        let bytes = message_bytes(24);
        for count in (0..10).cycle().take(1000) {
            for _ in 0..count {
                assert!(producer.push(0, 24).is_some());
                let ahead = producer.owned - producer.tail;
                let room = producer.limit.get() - producer.tail;
                assert!(ahead >= room.min(PREFETCH_AHEAD / 2 * bytes), "{ahead}");
                assert!(ahead < PREFETCH_AHEAD * bytes + LINE_BYTES, "{ahead}");
            }
            let owned = producer.owned;
            assert_eq!(producer.publish(), count > 0);
            let again = count >= PREFETCH_AHEAD / 2;
            let expected = if again { producer.tail } else { owned };
            assert_eq!(producer.owned, expected, "{count} were published");
            consumer.refresh();
            let mut cursor = consumer.cursor();
            while let Some(message) = consumer.peek(cursor) {
                cursor = message.after;
            }
            consumer.release(cursor);
        }
    }

    #[test]
    fn two_threads_pass_a_million_messages() {
        let (mut producer, mut consumer) = ring(4096, 60);
        let sender = std::thread::spawn(move || {
            for number in 0..1_000_000u64 {
                let bytes = 8 + (number % 50) as usize;
                loop {
                    if let Some(place) = producer.push(0, bytes) {
                        place[..8].copy_from_slice(&number.to_le_bytes());
                        break;
                    }
                    producer.publish();
                    std::thread::yield_now();
                }
                if number % 7 == 0 {
                    producer.publish();
                }
            }
            producer.publish();
        });
        let (mut expected, mut cursor) = (0u64, consumer.cursor());
        while expected < 1_000_000 {
            match consumer.peek(cursor) {
                Some(Message { payload, after, .. }) => {
                    assert_eq!(
                        u64::from_le_bytes(*payload.first_chunk().unwrap()),
                        expected
                    );
                    assert_eq!(payload.len(), 8 + (expected % 50) as usize);
                    expected += 1;
                    cursor = after;
                }
                None => {
                    consumer.release(cursor);
                    consumer.refresh();
                    std::thread::yield_now();
                }
            }
        }
        sender.join().unwrap();
    }
}

#[cfg(all(test, farcore_loom))]
mod model {
    use super::*;

    /// Sends messages of these lengths over a ring of this capacity while another thread reads
    /// them.
    fn never_shares_a_byte(capacity: usize, payloads: &'static [usize]) {
        loom::model(move || {
            let longest = payloads.iter().copied().max().unwrap();
            let (mut producer, mut consumer) = ring(capacity, longest);
            let sender = loom::thread::spawn(move || {
                let mut sent = 0usize;
                for _ in payloads {
                    let fill = u8::try_from(sent).unwrap() + 1;
                    if let Some(place) = producer.push(7, payloads[sent]) {
                        place.fill(fill);
                        sent += 1;
                        producer.publish();
                    }
                }
                sent
            });
            let mut seen = 0usize;
            let mut cursor = consumer.cursor();
            let mut take = |cursor: &mut usize, consumer: &mut Consumer| {
                consumer.refresh();
                let Some(message) = consumer.peek(*cursor) else {
                    return false;
                };
                let fill = u8::try_from(seen).unwrap() + 1;
                let expected = vec![fill; payloads[seen]];
                seen += 1;
                assert_eq!((message.meta, message.payload), (7, &expected[..]));
                *cursor = message.after;
                consumer.release(*cursor);
                true
            };
            for _ in 0..payloads.len() - 1 {
                take(&mut cursor, &mut consumer);
            }
            let sent = sender.join().unwrap();
            while take(&mut cursor, &mut consumer) {}
            assert_eq!(seen, sent);
        });
    }

    #[test]
    fn a_ring_of_two_messages_never_shares_a_byte() {
        never_shares_a_byte(32, &[8, 8, 8]);
    }

    #[test]
    fn a_message_past_the_end_shares_no_byte() {
        // 16, 32, 32 and 16 bytes in a ring of 64: the third continues past the end, and the fourth
        // may be written while the third is read.
        never_shares_a_byte(64, &[8, 24, 24, 8]);
    }
}
