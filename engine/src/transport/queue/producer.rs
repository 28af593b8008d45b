//! The producer's half of a request queue.
//!
//! It belongs to the client's thread. It copies each request into the queue and owns all entries
//! and room that are not published (I2 of the queue). It learns what the consumer has released only
//! when its own figures say that the queue is full.

use std::ptr::{self, NonNull};

use farcore_rdma::prefetch_to_write;

use crate::constants::LINE_BYTES;
use crate::message::hash::IndexHash;
use crate::message::operation::RequestParts;
use crate::message::request::{Origin, Request, RequestShape};
use crate::transport::atomics::{Arc, Ordering};
use crate::transport::queue::{ENTRY, RequestConsumer, Shared, Size};
use crate::transport::ring::{PREFETCH_AHEAD, PREFETCH_BYTES_MAX, Tail};

/// The half that writes requests.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct RequestProducer {
    entries: *mut Request<'static>,
    room: NonNull<u8>,
    /// One less than the number of entries.
    mask: usize,
    pub(super) tail: usize,
    /// Up to where entries may be written, by the last head seen.
    pub(super) limit: usize,
    /// Up to where entries were prefetched for write; `usize::MAX` if one thread has both halves.
    pub(super) owned: usize,
    /// One less than the room's bytes.
    room_mask: usize,
    pub(super) room_tail: usize,
    /// Up to where the room may be written.
    pub(super) room_limit: usize,
    /// Up to where the room was prefetched for write.
    pub(super) room_owned: usize,
    /// Bytes of the longest value that lies in the room.
    inline_max: usize,
    published: usize,
    /// By entry, where the room in use ended after it was written.
    ends: Box<[usize]>,
    /// The entry of the request that lies beside the room, until it is known to be served.
    long: Option<usize>,
    shown: Tail,
    pub(super) shared: Arc<Shared>,
}

// SAFETY: by I2 what the pointers lead to is reachable for one half at a time, and `shared` keeps
// it alive.
unsafe impl Send for RequestProducer {}

impl RequestProducer {
    /// The producer of an empty queue.
    pub(super) fn new(shared: Arc<Shared>, shown: Tail, size: Size) -> Self {
        Self {
            entries: shared.entries(),
            room: shared.room(),
            mask: size.entries - 1,
            tail: 0,
            limit: size.entries,
            owned: 0,
            room_mask: size.room - 1,
            room_tail: 0,
            room_limit: size.room,
            room_owned: 0,
            inline_max: size.inline_max(),
            published: 0,
            ends: vec![0; size.entries].into(),
            long: None,
            shown,
            shared,
        }
    }

    /// Both halves are on one thread; skip the prefetch for write.
    pub(super) fn own_all(&mut self) {
        self.owned = usize::MAX;
    }

    /// True if one thread has both halves.
    #[inline]
    fn is_alone(&self) -> bool {
        self.owned == usize::MAX
    }

    /// Copies a request into the queue; false if there is no room. The consumer sees it after
    /// [`RequestProducer::publish`].
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        hash: IndexHash,
        token: u64,
        origin: Origin,
        parts: &RequestParts<'_>,
    ) -> bool {
        let (bytes, value_bytes) = (RequestShape::of(parts).bytes(), parts.value.len());
        let (start, taken) = if self.tail != self.limit
            && self.room_tail + bytes <= self.room_limit
            && value_bytes <= self.inline_max
        {
            (self.room_end(), bytes)
        } else {
            match self.look_for_room(bytes, value_bytes) {
                Some(found) => found,
                None => return false,
            }
        };
        let place = self.tail & self.mask;
        self.shared.watch(place, start.as_ptr(), bytes, true);
        // SAFETY: by I2 entry and bytes are the producer's. The bytes are as many as all parts
        // take: in the room, whose apron is as long as the longest of those, or beside it. They
        // stay unchanged until the consumer is done with the entry.
        unsafe {
            let request = Request::copied(start, hash, token, origin, parts);
            self.entries.add(place).write(request);
        }
        self.room_tail += taken;
        self.ends[place] = self.room_tail;
        self.tail += 1;
        if self.tail + PREFETCH_AHEAD / 2 > self.owned {
            self.prefetch_for_write();
        }
        true
    }

    /// Where the room in use ends.
    #[inline]
    fn room_end(&self) -> NonNull<u8> {
        // SAFETY: the room and its apron are longer than the mask.
        unsafe { self.room.add(self.room_tail & self.room_mask) }
    }

    /// Refreshes the head, then returns where this many bytes have room, and how many of them are
    /// in the room. `None` if the queue is full.
    #[cold]
    #[inline(never)]
    fn look_for_room(&mut self, bytes: usize, value_bytes: usize) -> Option<(NonNull<u8>, usize)> {
        let head = self.look();
        if self.tail == self.limit {
            return None;
        }
        if value_bytes <= self.inline_max {
            let fits = self.room_tail + bytes <= self.room_limit;
            return fits.then_some((self.room_end(), bytes));
        }
        debug_assert!(head <= self.tail);
        if self.long.is_some() {
            return None;
        }
        self.long = Some(self.tail);
        // SAFETY: no unserved entry refers to it.
        let long = unsafe { &mut *self.shared.long.get() };
        *long = vec![0; bytes];
        Some((NonNull::from(&mut **long).cast(), 0))
    }

    /// Reads how far the consumer has served, and frees the value beside the room if its request is
    /// served. Returns the head.
    fn look(&mut self) -> usize {
        let head = self.shared.head.get().load(Ordering::Acquire);
        self.limit = head + self.mask + 1;
        self.room_limit = match head.checked_sub(1) {
            // By I3 the end of the used room is unknown.
            _ if self.tail == self.limit => self.room_tail,
            Some(last) => self.ends[last & self.mask] + self.room_mask + 1,
            None => self.room_mask + 1,
        };
        if let Some(entry) = self.long.filter(|&entry| entry < head) {
            self.long = None;
            self.shared.watch(entry & self.mask, ptr::null(), 0, true);
            // SAFETY: the entry that referred to it was served.
            drop(std::mem::take(unsafe { &mut *self.shared.long.get() }));
        }
        head
    }

    /// Prefetches for write the lines that come next; the consumer's cache holds them. Several at
    /// once, so that most requests need no check.
    #[inline(never)]
    fn prefetch_for_write(&mut self) {
        let end = (self.tail + PREFETCH_AHEAD).min(self.limit);
        let mut owned = self.owned.max(self.tail);
        while owned < end {
            prefetch_to_write(self.entries.wrapping_add(owned & self.mask).cast());
            owned += LINE_BYTES / ENTRY;
        }
        self.owned = owned;
        // Assume that the next requests are as long as the last ones.
        let before = self.ends[self.tail.wrapping_sub(PREFETCH_AHEAD / 2 + 1) & self.mask];
        let ahead = 2 * self.room_tail.saturating_sub(before);
        let end = (self.room_tail + ahead.min(PREFETCH_BYTES_MAX)).min(self.room_limit);
        let mut owned = self.room_owned.max(self.room_tail & !(LINE_BYTES - 1));
        while owned < end {
            prefetch_to_write(self.room.as_ptr().wrapping_add(owned & self.room_mask));
            owned += LINE_BYTES;
        }
        self.room_owned = owned;
    }

    /// Makes the requests visible to the consumer; returns how many.
    #[inline]
    pub(crate) fn publish(&mut self) -> usize {
        let count = self.tail - self.published;
        if count > 0 {
            self.shown.get().store(self.tail, Ordering::Release);
            self.published = self.tail;
            if count >= PREFETCH_AHEAD / 2 && !self.is_alone() {
                // The consumer reads up to here and its processor prefetches further, which
                // invalidates the lines prefetched for write. They are prefetched again.
                (self.owned, self.room_owned) = (self.tail, self.room_tail);
            }
        } else if self.long.is_some() {
            // Free the memory of a long value that was served.
            self.look();
        }
        count
    }

    /// True while a request lies beside the room that is not known to be served.
    pub(crate) fn has_long(&self) -> bool {
        self.long.is_some()
    }

    /// Frees the memory of the request beside the room, if it is served.
    #[cold]
    pub(crate) fn free_served(&mut self) {
        if self.long.is_some() {
            self.look();
        }
    }

    /// Restarts both halves at the first entry if no request waits, so that they reuse the same
    /// cache lines.
    ///
    /// # Panics
    /// If they are not of one queue.
    #[inline]
    pub(crate) fn rewind(&mut self, consumer: &mut RequestConsumer) {
        assert!(consumer.is_of(&self.shared));
        if consumer.head() != self.tail {
            return;
        }
        if self.long.is_some() {
            self.look();
        }
        consumer.resume(0, 0);
        (self.tail, self.published, self.room_tail) = (0, 0, 0);
        (self.limit, self.room_limit) = (self.mask + 1, self.room_mask + 1);
        self.shown.get().store(0, Ordering::Relaxed);
        self.shared.head.get().store(0, Ordering::Relaxed);
    }

    /// True if everything is published.
    #[inline]
    pub(crate) fn is_published(&self) -> bool {
        self.tail == self.published
    }

    /// Visits the requests that the consumer never served, and drops them.
    ///
    /// # Safety
    /// The consumer's thread has stopped, and the caller has synchronized with that.
    pub(crate) unsafe fn take_back(&mut self, mut visit: impl FnMut(Origin, u64)) {
        self.publish();
        let (shared, shown) = (Arc::clone(&self.shared), self.shown.clone());
        let mut consumer = RequestConsumer::new(shared, shown, self.mask + 1);
        consumer.resume(self.shared.head.get().load(Ordering::Acquire), self.tail);
        while let Some(&Request { origin, token, .. }) = consumer.waiting(1).first() {
            // Before the visit, which may panic.
            consumer.release(1);
            visit(origin, token);
        }
    }
}

#[cfg(all(test, not(farcore_loom)))]
impl RequestProducer {
    /// Checks how far the entries and the room are written.
    pub(super) fn check(&self) {
        let head = self.shared.head.get().load(Ordering::Acquire);
        let end = head + self.mask + 1;
        let is_written = head <= self.published && self.published <= self.tail;
        assert!(is_written && self.tail <= end, "queue I1: the tail");
        assert!(self.limit <= end, "queue I1: the limit");
        let is_full = self.tail == self.limit;
        let has_room = self.room_tail <= self.room_limit;
        assert!(has_room || is_full, "queue I3: the room's limit");
    }
}
