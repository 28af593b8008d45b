//! A queue of requests from one thread to one shard. Requests lie in place until they are served.
//!
//! ```text
//! entries: | request:32 | request:32 | ...    in a ring, two to a cache line
//! room:    | parts | parts | ... | apron      a ring of bytes that they refer to: keys, values, expected versions
//! ```
//!
//! The parts of a request are contiguous. Those that begin near the end of the room continue past
//! it into the *apron*, which is as long as the longest parts. A request whose value is too long
//! for the room lies beside it, one at a time.
//!
//! - I1: `head <= tail <= head + capacity`. Both count requests and never wrap.
//! - I2: entries from `head` to the published `tail`, and what they refer to, belong to the
//!   consumer, all others to the producer.
//! - I3: `room_limit` holds only while there are free entries. When all entries are in use, the
//!   value it is derived from was overwritten.
//!
//! ORDERING: as in a ring. The producer's Release store of `tail` pairs with the consumer's Acquire
//! load, the consumer's Release store of `head` with the producer's Acquire load.

#![allow(unsafe_code)] // both halves reach into the same memory, disjointly

mod consumer;
#[cfg(all(test, farcore_loom))]
mod model;
mod producer;
#[cfg(all(test, not(farcore_loom)))]
mod tests;

use std::cell::UnsafeCell;
use std::ptr::NonNull;

use crate::constants::{KEY_BYTES_MAX, LINE_BYTES};
use crate::message::operation::Version;
use crate::message::request::Request;
use crate::transport::atomics::Arc;
use crate::transport::ring::{CacheAligned, Line, RingTails, Tail};

pub(crate) use self::consumer::RequestConsumer;
pub(crate) use self::producer::RequestProducer;

/// Bytes of an entry.
const ENTRY: usize = size_of::<Request<'static>>();
/// Bytes of the longest parts of a request without its value.
const BESIDE_VALUE: usize = size_of::<Version>() + KEY_BYTES_MAX;

/// Requests that can wait in a queue. Source: measured between two cores; 2048 gain nothing, and
/// with 16 384 deletes are slower.
const ENTRIES_MAX: usize = 1024;

/// How large a queue is.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Entries, a power of two.
    entries: usize,
    /// Bytes of the room without its apron, a power of two.
    room: usize,
}

impl Size {
    /// Half of the bytes for the room, at most as many for entries.
    fn of(bytes: usize) -> Self {
        let half = bytes.next_power_of_two() / 2;
        Self {
            entries: (half / ENTRY).min(ENTRIES_MAX),
            room: half,
        }
    }

    /// The longest value that lies in the room.
    const fn inline_max(self) -> usize {
        self.room / 4
    }

    const fn room_lines(self) -> usize {
        (self.room + BESIDE_VALUE + self.inline_max()).div_ceil(LINE_BYTES)
    }

    /// Bytes of entries and room, with apron and headers.
    const fn all_bytes(self) -> usize {
        self.room_lines() * LINE_BYTES + self.entries * (ENTRY + size_of::<usize>())
    }
}

/// The queue of a core to its own shard, which serves a batch from it each turn.
const OWN_QUEUE: Size = Size {
    entries: 256,
    room: 128 << 10,
};
/// The queue of a lane for requests under a section. One client a shard holds a section, and those
/// that wait for one have a request each.
const SECTION_QUEUE: Size = Size {
    entries: 64,
    room: 4 << 10,
};
/// The longest value that lies in that queue's room.
pub(crate) const SECTION_INLINE_MAX: usize = SECTION_QUEUE.inline_max();

/// The longest value that lies in the room of a core's own queue.
pub(crate) const OWN_INLINE_MAX: usize = OWN_QUEUE.inline_max();

/// Bytes that a queue of this size takes with its apron and headers.
pub(crate) fn queue_bytes(bytes: usize) -> usize {
    Size::of(bytes).all_bytes()
}

/// Bytes that the queue of a lane for requests under a section takes.
pub(crate) const fn section_queue_bytes() -> usize {
    SECTION_QUEUE.all_bytes()
}

fn lines(count: usize) -> Box<[UnsafeCell<Line>]> {
    (0..count)
        .map(|_| UnsafeCell::new(Line::default()))
        .collect()
}

struct Shared {
    head: CacheAligned,
    entries: Box<[UnsafeCell<Line>]>,
    /// The room and its apron.
    room: Box<[UnsafeCell<Line>]>,
    /// The parts of the one request that is too long for the room.
    long: UnsafeCell<Vec<u8>>,
    /// Under the model checker, a cell for each entry and one for each byte of the room; the last
    /// is for the request beside it. It detects two threads in one place.
    #[cfg(farcore_loom)]
    watched: [Box<[loom::cell::UnsafeCell<()>]>; 2],
}

// SAFETY: by I2 nothing is reachable for both halves at once, and each half belongs to one thread.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn entries(&self) -> *mut Request<'static> {
        UnsafeCell::raw_get(self.entries.as_ptr()).cast()
    }

    fn room(&self) -> NonNull<u8> {
        // From the whole slice, not from one line: a key is longer than that.
        NonNull::from(&*self.room).cast()
    }

    /// Reports a read or a write of an entry and of its parts in the room.
    #[cfg(farcore_loom)]
    fn watch(&self, entry: usize, start: *const u8, bytes: usize, write: bool) {
        let [entries, room] = &self.watched;
        let from = start.addr().wrapping_sub(self.room().addr().get());
        let in_room = from < room.len();
        let (from, bytes) = if in_room {
            (from, bytes)
        } else {
            (room.len() - 1, 1)
        };
        let entry = entries.iter().skip(entry).take(1);
        for cell in entry.chain(room.iter().skip(from).take(bytes)) {
            crate::transport::atomics::touch(cell, write);
        }
    }

    #[cfg(not(farcore_loom))]
    #[inline]
    fn watch(&self, _: usize, _: *const u8, _: usize, _: bool) {}
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}

/// A queue of this many bytes, as its two halves.
pub(crate) fn queue(bytes: usize) -> (RequestProducer, RequestConsumer) {
    queue_with(bytes, &RingTails::new(), 0)
}

/// A queue of a core to its own shard: one thread has both halves.
pub(crate) fn own_queue() -> (RequestProducer, RequestConsumer) {
    let (mut producer, consumer) = queue_of(OWN_QUEUE, &RingTails::new(), 0);
    producer.own_all();
    (producer, consumer)
}

/// A queue for requests under a section, with a tail of a [`RingTails`] that nothing else uses.
pub(crate) fn section_queue(
    tails: &Arc<RingTails>,
    place: usize,
) -> (RequestProducer, RequestConsumer) {
    queue_of(SECTION_QUEUE, tails, place)
}

/// A queue of this many bytes, with a tail of a [`RingTails`] that nothing else uses.
pub(crate) fn queue_with(
    bytes: usize,
    tails: &Arc<RingTails>,
    place: usize,
) -> (RequestProducer, RequestConsumer) {
    queue_of(Size::of(bytes), tails, place)
}

fn queue_of(
    size: Size,
    tails: &Arc<RingTails>,
    place: usize,
) -> (RequestProducer, RequestConsumer) {
    // Else a long key would never have room. The model checker needs less.
    assert!(
        cfg!(farcore_loom) || BESIDE_VALUE + size.inline_max() <= size.room,
        "{size:?} is too short for the longest key"
    );
    let shown = Tail::new(tails, place);
    let shared = Arc::new(Shared {
        head: CacheAligned::default(),
        entries: lines((size.entries * ENTRY).div_ceil(LINE_BYTES)),
        room: lines(size.room_lines()),
        long: UnsafeCell::default(),
        #[cfg(farcore_loom)]
        watched: [size.entries, size.room_lines() * LINE_BYTES].map(|count| {
            (0..count)
                .map(|_| loom::cell::UnsafeCell::new(()))
                .collect()
        }),
    });
    let producer = RequestProducer::new(Arc::clone(&shared), shown.clone(), size);
    (producer, RequestConsumer::new(shared, shown, size.entries))
}
