//! The half that takes requests out.

use std::slice;

use farcore_rdma::prefetch_burst;

use crate::constants::LINE_BYTES;
use crate::message::request::Request;
use crate::transport::atomics::{Arc, Ordering};
use crate::transport::queue::{ENTRY, Shared};
use crate::transport::ring::Tail;

/// Entries that are asked for when they are learnt of.
const AHEAD: usize = 32;

/// The half that takes requests out.
#[derive(Debug)]
pub(crate) struct RequestConsumer {
    entries: *mut Request<'static>,
    /// One less than there are entries.
    mask: usize,
    head: usize,
    /// What was last seen of the outbox.
    tail: usize,
    /// Up to where they were looked at ahead.
    ahead: usize,
    shown: Tail,
    shared: Arc<Shared>,
}

// SAFETY: as for the outbox.
unsafe impl Send for RequestConsumer {}

impl RequestConsumer {
    /// Of a queue of so many entries that nothing was taken from yet.
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

    /// Goes on from there.
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

    /// Looks how far the outbox has come, and asks for the first lines of what is new: they lie in
    /// another core's cache, and come while something else is done.
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

    /// [`RequestConsumer::refresh`], and true if there are any.
    #[inline]
    pub(crate) fn has_news(&mut self) -> bool {
        self.refresh();
        self.has_waiting()
    }

    /// True if a glance has seen requests that were not taken.
    #[inline]
    pub(crate) fn has_waiting(&self) -> bool {
        self.head != self.tail
    }

    /// Requests that wait, as far as was seen.
    #[inline]
    pub(crate) fn count(&self) -> usize {
        self.tail - self.head
    }

    /// The first of those that a glance has seen, so many at most: fewer where the circle ends.
    /// Looking again after each batch would cost a trip to the outbox's cache, for whatever came
    /// meanwhile.
    #[inline]
    pub(crate) fn waiting(&self, most: usize) -> &[Request<'_>] {
        self.between(self.head, self.end_of(most))
    }

    /// Of the first so many that wait, those that were not shown here before: a look at what will
    /// be served soon. Each is shown once, even if it is not taken afterwards. Fewer where the
    /// circle ends.
    #[inline]
    pub(crate) fn ahead(&mut self, most: usize) -> &[Request<'_>] {
        let from = self.ahead.max(self.head);
        self.ahead = self.end_of(most).max(from);
        self.between(from, self.ahead)
    }

    /// Where the first so many that wait end, or the circle does behind the first of them.
    #[inline]
    fn end_of(&self, most: usize) -> usize {
        let circle_end = (self.head | self.mask) + 1;
        (self.head + self.count().min(most)).min(circle_end)
    }

    /// Requests that wait, all in one piece.
    #[inline]
    fn between(&self, from: usize, end: usize) -> &[Request<'_>] {
        debug_assert!(self.head <= from && from <= end && end <= self.tail);
        let place = from & self.mask;
        debug_assert!(place + (end - from) <= self.mask + 1);
        // SAFETY: by I2 everything before `tail` is written and the intake's, and only `release`
        // gives it back.
        let waiting = unsafe { slice::from_raw_parts(self.entries.add(place), end - from) };
        if cfg!(farcore_loom) {
            for (at, request) in (place..).zip(waiting) {
                let parts = request.parts();
                self.shared.watch(at, parts.as_ptr(), parts.len(), false);
            }
        }
        waiting
    }

    /// Gives the first so many back to the outbox.
    #[inline]
    pub(crate) fn release(&mut self, count: usize) {
        if count > 0 {
            debug_assert!(count <= self.count());
            self.head += count;
            self.shared.head.get().store(self.head, Ordering::Release);
        }
    }
}
