//! The consumer's half of a request queue.
//!
//! It belongs to the shard's thread and serves requests where they lie. It owns the entries from
//! `head` to the published `tail` and the parts that they refer to (I2 of the queue);
//! [`RequestConsumer::release`] returns them to the producer.

use std::slice;

use farcore_rdma::prefetch_burst;

use crate::constants::LINE_BYTES;
use crate::message::request::Request;
use crate::transport::atomics::{Arc, Ordering};
use crate::transport::queue::{ENTRY, Shared};
use crate::transport::ring::Tail;

/// Entries that are prefetched when a refresh finds them.
const AHEAD: usize = 32;

/// The half that reads requests.
#[derive(Debug)]
pub(crate) struct RequestConsumer {
    entries: *mut Request<'static>,
    /// One less than the number of entries.
    mask: usize,
    head: usize,
    /// The last tail seen.
    tail: usize,
    /// Up to where [`RequestConsumer::ahead`] has returned entries.
    ahead: usize,
    shown: Tail,
    shared: Arc<Shared>,
}

// SAFETY: as for the producer.
unsafe impl Send for RequestConsumer {}

impl RequestConsumer {
    /// The consumer of a queue of this many entries from which nothing was read yet.
    pub(super) fn new(shared: Arc<Shared>, shown: Tail, entries: usize) -> Self {
        Self {
            entries: shared.entries(),
            mask: entries - 1,
            head: 0,
            tail: 0,
            ahead: 0,
            shown,
            shared,
        }
    }

    /// Continues from this head and tail.
    #[inline]
    pub(super) fn resume(&mut self, head: usize, tail: usize) {
        (self.head, self.tail, self.ahead) = (head, tail, head);
    }

    pub(super) fn head(&self) -> usize {
        self.head
    }

    #[inline]
    pub(super) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Reads how far the producer has written, and prefetches the first new lines. They arrive from
    /// the other core's cache while the caller does something else.
    #[inline]
    pub(crate) fn refresh(&mut self) {
        let tail = self.shown.get().load(Ordering::Acquire);
        if tail != self.tail {
            for at in (self.tail..tail.min(self.tail + AHEAD)).step_by(LINE_BYTES / ENTRY) {
                prefetch_burst(self.entries.wrapping_add(at & self.mask).cast());
            }
            self.tail = tail;
        }
    }

    /// [`RequestConsumer::refresh`]; true if requests wait.
    #[inline]
    pub(crate) fn has_news(&mut self) -> bool {
        self.refresh();
        self.has_waiting()
    }

    /// True if the last refresh saw requests that were not released.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.head != self.tail
    }

    /// Requests that wait, as of the last refresh.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.tail - self.head
    }

    /// The first waiting requests that the last refresh saw, at most `most`; fewer where the
    /// entries wrap. Reading the tail after each batch would cost a trip to the producer's cache
    /// for the few requests that came meanwhile.
    #[inline]
    pub(crate) fn waiting(&self, most: usize) -> &[Request<'_>] {
        self.between(self.head, self.end_of(most))
    }

    /// Of the first `most` waiting requests, those not returned here before: for prefetching what
    /// they need. Each is returned once, even if it is not released afterwards. Fewer where the
    /// entries wrap.
    #[inline]
    pub(crate) fn ahead(&mut self, most: usize) -> &[Request<'_>] {
        let from = self.ahead.max(self.head);
        self.ahead = self.end_of(most).max(from);
        self.between(from, self.ahead)
    }

    /// The end of the first `most` waiting requests, or where the entries wrap before that.
    #[inline]
    fn end_of(&self, most: usize) -> usize {
        let circle_end = (self.head | self.mask) + 1;
        (self.head + self.count().min(most)).min(circle_end)
    }

    /// Waiting requests, contiguous.
    #[inline]
    fn between(&self, from: usize, end: usize) -> &[Request<'_>] {
        debug_assert!(self.head <= from && from <= end && end <= self.tail);
        let place = from & self.mask;
        debug_assert!(place + (end - from) <= self.mask + 1);
        // SAFETY: by I2 everything before `tail` is written and belongs to the consumer, and only
        // `release` returns it.
        let waiting = unsafe { slice::from_raw_parts(self.entries.add(place), end - from) };
        if cfg!(farcore_loom) {
            for (at, request) in (place..).zip(waiting) {
                let parts = request.parts();
                self.shared.watch(at, parts.as_ptr(), parts.len(), false);
            }
        }
        waiting
    }

    /// Returns the first `count` entries to the producer.
    #[inline]
    pub(crate) fn release(&mut self, count: usize) {
        if count > 0 {
            debug_assert!(count <= self.count());
            self.head += count;
            self.shared.head.get().store(self.head, Ordering::Release);
        }
    }
}
