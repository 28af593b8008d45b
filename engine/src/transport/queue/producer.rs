//! The half that puts requests in.

use std::ptr::{self, NonNull};

use farcore_rdma::prefetch_to_write;

use crate::constants::LINE_BYTES;
use crate::message::hash::IndexHash;
use crate::message::operation::RequestParts;
use crate::message::request::{Origin, Request, RequestShape};
use crate::transport::atomics::{Arc, Ordering};
use crate::transport::queue::{ENTRY, RequestConsumer, Shared, Size};
use crate::transport::ring::{PREFETCH_AHEAD, PREFETCH_BYTES_MAX, Tail};

/// The half that puts requests in.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct RequestProducer {
    entries: *mut Request<'static>,
    room: NonNull<u8>,
    /// One less than there are entries.
    mask: usize,
    pub(super) tail: usize,
    /// Up to where entries may be written, as far as was seen of the intake.
    pub(super) limit: usize,
    /// Up to where they were taken; `usize::MAX` if both halves are one thread's.
    pub(super) owned: usize,
    /// One less than the room's bytes.
    room_mask: usize,
    pub(super) room_tail: usize,
    /// Up to where the room may be written.
    pub(super) room_limit: usize,
    /// Up to where it was taken.
    pub(super) room_owned: usize,
    /// Bytes of the longest value that lies in the room.
    inline_max: usize,
    published: usize,
    /// Where the room in use ended when an entry was put in.
    ends: Box<[usize]>,
    /// The entry of the request that lies beside the room, if that may not be served yet.
    long: Option<usize>,
    shown: Tail,
    pub(super) shared: Arc<Shared>,
}

// SAFETY: by I2 what the pointers lead to is reachable for one half at a time, and `shared` keeps
// it alive.
unsafe impl Send for RequestProducer {}

impl RequestProducer {
    /// Of a queue that nothing was put in yet.
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

    /// Nobody takes its lines away: the intake is the same thread's.
    pub(super) fn own_all(&mut self) {
        self.owned = usize::MAX;
    }

    /// True if both halves are one thread's.
    #[inline]
    fn is_alone(&self) -> bool {
        self.owned == usize::MAX
    }

    /// Puts a request in, copied; false if there is no room. The intake sees it after
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
        // SAFETY: by I2 entry and bytes are the outbox's. There are as many as all parts take: in
        // the room, and its apron is as long as the longest of those; or beside it. They stay as
        // they are until the intake is done with the entry.
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

    /// Looks how far the intake has come. Answers where so many bytes have room, and how many of
    /// them are the room's.
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
        // SAFETY: no entry that the intake has yet to serve refers to it.
        let long = unsafe { &mut *self.shared.long.get() };
        *long = vec![0; bytes];
        Some((NonNull::from(&mut **long).cast(), 0))
    }

    /// Looks how far the intake has come.
    fn look(&mut self) -> usize {
        let head = self.shared.head.get().load(Ordering::Acquire);
        self.limit = head + self.mask + 1;
        self.room_limit = match head.checked_sub(1) {
            // By I3 nothing is known.
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

    /// Takes the lines that will be written next away from the shard's cache, which read them last;
    /// several at once, so that most requests need not look.
    #[inline(never)]
    fn prefetch_for_write(&mut self) {
        let end = (self.tail + PREFETCH_AHEAD).min(self.limit);
        let mut owned = self.owned.max(self.tail);
        while owned < end {
            prefetch_to_write(self.entries.wrapping_add(owned & self.mask).cast());
            owned += LINE_BYTES / ENTRY;
        }
        self.owned = owned;
        // The next requests will take as much as the last ones have.
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

    /// Shows the intake what was put in; answers how many requests that is.
    #[inline]
    pub(crate) fn publish(&mut self) -> usize {
        let count = self.tail - self.published;
        if count > 0 {
            self.shown.get().store(self.tail, Ordering::Release);
            self.published = self.tail;
            if count >= PREFETCH_AHEAD / 2 && !self.is_alone() {
                // The intake will read up to there, and its processor on past it: what was taken
                // ahead is taken once more.
                (self.owned, self.room_owned) = (self.tail, self.room_tail);
            }
        } else if self.long.is_some() {
            // What a long value took is given back.
            self.look();
        }
        count
    }

    /// Both halves begin anew where nothing waits, so that they use the same lines over and over.
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

    /// True if the intake was shown everything.
    #[inline]
    pub(crate) fn is_published(&self) -> bool {
        self.tail == self.published
    }

    /// Visits the requests that the intake never took, and drops them.
    ///
    /// # Safety
    /// The intake's thread has stopped, and that has been seen.
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
