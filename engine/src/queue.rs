//! A queue of requests from one thread to one shard. They lie where they were put until they are served.
//!
//! ```text
//! entries: | request:32 | request:32 | ...    a circle of them, two to a cache line
//! room:    | parts | parts | ... | apron      a circle of bytes that they refer to: keys, values, expected versions
//! ```
//!
//! The parts of a request lie one behind the other. Those that begin near the end of the room go on past it, in the *apron*, which
//! is as long as the longest. A value that is too long for the room lies beside it, one at a time.
//!
//! - I1: `head <= tail <= head + capacity`; both count requests and never wrap back.
//! - I2: entries from `head` to the `tail` that was shown, and what they refer to, belong to the intake, all others to the outbox.
//! - I3: `room_limit` holds only while there are free entries: in a full circle what it follows from was written over.
//!
//! ORDERING: as in a ring: the outbox's Release store of `tail` pairs with the intake's Acquire load, the intake's Release store of
//! `head` with the outbox's Acquire load.

#![allow(unsafe_code)] // both halves reach into the same memory, disjointly

use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};
use std::slice;

use farcore_rdma::{prefetch, prefetch_to_write};

use crate::constants::{KEY_BYTES_MAX, LINE_BYTES};
use crate::operation::{Demand, Version};
use crate::ring::{Apart, Line, Tail, Tails};
use crate::routing::IndexHash;
use crate::shard::{Origin, Request, Shape};
use crate::sync::{Arc, Ordering};

/// Entries that an intake asks for when it learns of them.
const AHEAD: usize = 32;
/// Entries that an outbox takes at once ahead of where it writes.
const OWNED_AHEAD: usize = 48;
/// Bytes of the room that it takes so.
const ROOM_OWNED_AHEAD: usize = 1024;

/// Bytes of an entry.
const ENTRY: usize = size_of::<Request<'static>>();
/// Bytes of what the longest request borrows beside its value.
const BESIDE_VALUE: usize = size_of::<Version>() + KEY_BYTES_MAX;

/// How large a queue is.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Entries, a power of two.
    entries: usize,
    /// Bytes of the room without its apron, a power of two.
    room: usize,
}

impl Size {
    /// Half of the bytes for each.
    fn of(bytes: usize) -> Self {
        let half = bytes.next_power_of_two() / 2;
        Self {
            entries: half / ENTRY,
            room: half,
        }
    }

    /// The longest value that lies in the room.
    const fn inline_max(self) -> usize {
        self.room / 4
    }

    fn room_lines(self) -> usize {
        (self.room + BESIDE_VALUE + self.inline_max()).div_ceil(LINE_BYTES)
    }
}

/// Of a core to its own shard: a turn empties it.
const OWN: Size = Size {
    entries: 256,
    room: 128 << 10,
};
/// The longest value that lies in its room.
pub(crate) const OWN_INLINE_MAX: usize = OWN.inline_max();

/// Bytes that a queue of this many takes with its apron and all else.
pub(crate) fn queue_bytes(bytes: usize) -> usize {
    let size = Size::of(bytes);
    size.room_lines() * LINE_BYTES + size.entries * (ENTRY + size_of::<usize>())
}

fn lines(count: usize) -> Box<[UnsafeCell<Line>]> {
    (0..count)
        .map(|_| UnsafeCell::new(Line::default()))
        .collect()
}

struct Shared {
    head: Apart,
    entries: Box<[UnsafeCell<Line>]>,
    /// The room and its apron.
    room: Box<[UnsafeCell<Line>]>,
    /// The parts of the one request that is too long for the room.
    long: UnsafeCell<Vec<u8>>,
    /// Under the model checker, a cell for each entry and one for each byte of the room, the last of them for what lies beside it: it
    /// notices two threads in one place.
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

    /// An entry and what it refers to in the room are looked at or changed.
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
            if write {
                cell.with_mut(|_| ());
            } else {
                cell.with(|_| ());
            }
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
pub(crate) fn queue(bytes: usize) -> (Outbox, Intake) {
    queue_with(bytes, &Tails::new(), 0)
}

/// A queue for one thread alone, of a core to its own shard.
pub(crate) fn own_queue() -> (Outbox, Intake) {
    let (mut outbox, intake) = queue_of(OWN, &Tails::new(), 0);
    // Nobody takes its lines away.
    (outbox.owned, outbox.room_owned) = (usize::MAX, usize::MAX);
    (outbox, intake)
}

/// The same with one of two tails that are used by nothing else.
pub(crate) fn queue_with(bytes: usize, tails: &Arc<Tails>, place: usize) -> (Outbox, Intake) {
    queue_of(Size::of(bytes), tails, place)
}

fn queue_of(size: Size, tails: &Arc<Tails>, place: usize) -> (Outbox, Intake) {
    // Else a long key would be refused for ever. The model checker needs less.
    assert!(
        cfg!(farcore_loom) || BESIDE_VALUE + size.inline_max() <= size.room,
        "{size:?} is too short for the longest key"
    );
    let shown = Tail::new(tails, place);
    let shared = Arc::new(Shared {
        head: Apart::default(),
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
    let outbox = Outbox {
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
        shown: shown.clone(),
        shared: Arc::clone(&shared),
    };
    let intake = Intake {
        entries: shared.entries(),
        mask: size.entries - 1,
        head: 0,
        tail: 0,
        shown,
        shared,
    };
    (outbox, intake)
}

/// The half that puts requests in.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Outbox {
    entries: *mut Request<'static>,
    room: NonNull<u8>,
    /// One less than there are entries.
    mask: usize,
    tail: usize,
    /// Up to where entries may be written, as far as was seen of the intake.
    limit: usize,
    /// Up to where they were taken.
    owned: usize,
    /// One less than the room's bytes.
    room_mask: usize,
    room_tail: usize,
    /// Up to where the room may be written.
    room_limit: usize,
    /// Up to where it was taken.
    room_owned: usize,
    /// Bytes of the longest value that lies in the room.
    inline_max: usize,
    published: usize,
    /// Where the room in use ended when an entry was put in.
    ends: Box<[usize]>,
    /// The entry of the request that lies beside the room, if that may not be served yet.
    long: Option<usize>,
    shown: Tail,
    shared: Arc<Shared>,
}

// SAFETY: by I2 what the pointers lead to is reachable for one half at a time, and `shared` keeps it alive.
unsafe impl Send for Outbox {}

impl Outbox {
    /// Puts a request in, copied; false if there is no room. The intake sees it after [`Outbox::publish`].
    #[inline(always)]
    pub(crate) fn push(
        &mut self,
        hash: IndexHash,
        token: u64,
        origin: Origin,
        demand: &Demand<'_>,
    ) -> bool {
        let (bytes, value_bytes) = (Shape::of(demand).bytes(), demand.value.len());
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
        // SAFETY: by I2 entry and bytes are the outbox's. There are as many as all parts take: in the room, and its apron is as long as
        // the longest of those; or beside it. They stay as they are until the intake is done with the entry.
        unsafe {
            let request = Request::copied(start, hash, token, origin, demand);
            self.entries.add(place).write(request);
        }
        self.room_tail += taken;
        self.ends[place] = self.room_tail;
        self.tail += 1;
        if self.tail + OWNED_AHEAD / 2 > self.owned
            || self.room_tail + ROOM_OWNED_AHEAD / 2 > self.room_owned
        {
            self.own_ahead();
        }
        true
    }

    /// Where the room in use ends.
    #[inline]
    fn room_end(&self) -> NonNull<u8> {
        // SAFETY: the room and its apron are longer than the mask.
        unsafe { self.room.add(self.room_tail & self.room_mask) }
    }

    /// Looks how far the intake has come. Answers where so many bytes have room, and how many of them are the room's.
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

    /// Takes the lines that will be written next away from the shard's cache, which read them last; several at once, so that most
    /// requests need not look.
    #[inline(never)]
    fn own_ahead(&mut self) {
        let end = (self.tail + OWNED_AHEAD).min(self.limit);
        let mut owned = self.owned.max(self.tail);
        while owned < end {
            prefetch_to_write(self.entries.wrapping_add(owned & self.mask).cast());
            owned += LINE_BYTES / ENTRY;
        }
        self.owned = self.tail + OWNED_AHEAD;
        let end = (self.room_tail + ROOM_OWNED_AHEAD).min(self.room_limit);
        let mut owned = self.room_owned.max(self.room_tail & !(LINE_BYTES - 1));
        while owned < end {
            prefetch_to_write(self.room.as_ptr().wrapping_add(owned & self.room_mask));
            owned += LINE_BYTES;
        }
        self.room_owned = self.room_tail + ROOM_OWNED_AHEAD;
    }

    /// Shows the intake what was put in; answers how many requests that is.
    #[inline]
    pub(crate) fn publish(&mut self) -> usize {
        let count = self.tail - self.published;
        if count > 0 {
            self.shown.get().store(self.tail, Ordering::Release);
            self.published = self.tail;
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
    pub(crate) fn rewind(&mut self, intake: &mut Intake) {
        assert!(Arc::ptr_eq(&self.shared, &intake.shared));
        if intake.head != self.tail {
            return;
        }
        if self.long.is_some() {
            self.look();
        }
        (intake.head, intake.tail) = (0, 0);
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
        let mut intake = Intake {
            entries: self.entries,
            mask: self.mask,
            head: self.shared.head.get().load(Ordering::Acquire),
            tail: self.tail,
            shown: self.shown.clone(),
            shared: Arc::clone(&self.shared),
        };
        while let Some(&Request { origin, token, .. }) = intake.waiting(1).first() {
            // Before the visit, which may panic.
            intake.release(1);
            visit(origin, token);
        }
    }
}

/// The half that takes requests out.
#[derive(Debug)]
pub(crate) struct Intake {
    entries: *mut Request<'static>,
    /// One less than there are entries.
    mask: usize,
    head: usize,
    /// What was last seen of the outbox.
    tail: usize,
    shown: Tail,
    shared: Arc<Shared>,
}

// SAFETY: as for the outbox.
unsafe impl Send for Intake {}

impl Intake {
    /// Looks how far the outbox has come, and asks for the first lines of what is new: they lie in another core's cache, and come while
    /// something else is done.
    #[inline]
    pub(crate) fn glance(&mut self) {
        let tail = self.shown.get().load(Ordering::Acquire);
        if tail != self.tail {
            for at in (self.tail..tail.min(self.tail + AHEAD)).step_by(LINE_BYTES / ENTRY) {
                prefetch(self.entries.wrapping_add(at & self.mask).cast());
            }
            self.tail = tail;
        }
    }

    /// [`Intake::glance`], and true if there are any.
    #[inline]
    pub(crate) fn has_news(&mut self) -> bool {
        self.glance();
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

    /// The first of those that a glance has seen, so many at most: fewer where the circle ends. Looking again after each batch would
    /// cost a trip to the outbox's cache, for whatever came meanwhile.
    #[inline]
    pub(crate) fn waiting(&self, most: usize) -> &[Request<'_>] {
        let place = self.head & self.mask;
        let count = self.count().min(most).min(self.mask + 1 - place);
        // SAFETY: by I2 everything before `tail` is written and the intake's, and only `release` gives it back.
        let waiting = unsafe { slice::from_raw_parts(self.entries.add(place), count) };
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

#[cfg(all(test, not(farcore_loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::operation::Kind;
    use crate::shard::Mark;

    const BYTES: usize = 8192;

    #[derive(Clone, Debug)]
    enum Act {
        /// Kind, bytes of key and value.
        Push(u8, usize, usize),
        Publish,
        Glance,
        /// So many are taken, at most.
        Take(usize),
        Rewind,
    }

    fn act() -> impl Strategy<Value = Act> {
        let value = prop_oneof![9 => 0usize..400, 1 => 900usize..4_000];
        prop_oneof![
            40 => (0u8..4, 1usize..40, value).prop_map(|(kind, key, value)| Act::Push(kind, key, value)),
            20 => Just(Act::Publish),
            10 => Just(Act::Glance),
            20 => (1usize..20).prop_map(Act::Take),
            2 => Just(Act::Rewind),
        ]
    }

    /// What was asked, owned.
    type Asked = (u64, u64, Origin, Kind, Vec<u8>, Vec<u8>, Version);

    fn seen(request: &Request<'_>) -> Asked {
        (
            request.hash.0,
            request.token,
            request.origin,
            request.kind(),
            request.key().to_vec(),
            request.value().to_vec(),
            request.expected(),
        )
    }

    fn push(outbox: &mut Outbox, asked: &Asked) -> bool {
        let (hash, token, origin, kind, key, value, expected) = asked;
        let demand = Demand {
            kind: *kind,
            key,
            value,
            expected: *expected,
        };
        outbox.push(IndexHash(*hash), *token, *origin, &demand)
    }

    proptest! {
        #[test]
        fn requests_come_out_as_they_went_in(own: bool, acts in prop::collection::vec(act(), 1..400)) {
            let (mut outbox, mut intake) = if own { own_queue() } else { queue(BYTES) };
            let (mut model, mut shown) = (VecDeque::<Asked>::new(), 0);
            let size = if own { OWN } else { Size::of(BYTES) };
            for (token, act) in (0u64..).zip(acts) {
                match act {
                    Act::Push(kind, key_bytes, value_bytes) => {
                        let kind = [Kind::Get, Kind::Put, Kind::Delete, Kind::Swap][usize::from(kind)];
                        let fill = token.to_le_bytes()[0];
                        let mark = Mark::timed(token % 2 == 0);
                        let expected = if kind == Kind::Swap { token * 3 } else { 0 };
                        let asked = (token * 7, token, Origin::new(fill, mark), kind, vec![fill; key_bytes], vec![!fill; value_bytes], expected);
                        let long = |asked: &Asked| asked.5.len() > size.inline_max();
                        let used: usize = model.iter().filter(|asked| !long(asked)).map(|asked| asked.4.len() + asked.5.len() + 8).sum();
                        let has_room = model.len() < size.entries
                            && if long(&asked) { !model.iter().any(long) } else { used + key_bytes + value_bytes + 8 <= size.room };
                        let pushed = push(&mut outbox, &asked);
                        // Of a swap alone eight bytes more are used.
                        prop_assert!(pushed || !has_room);
                        if pushed {
                            prop_assert!(model.len() < size.entries);
                            prop_assert!(!long(&asked) || !model.iter().any(long));
                            model.push_back(asked);
                        }
                    }
                    Act::Publish => {
                        prop_assert_eq!(outbox.publish() + shown, model.len());
                        shown = model.len();
                    }
                    Act::Glance => intake.glance(),
                    Act::Take(most) => {
                        intake.glance();
                        prop_assert_eq!((intake.count(), intake.has_waiting()), (shown, shown > 0));
                        let waiting = intake.waiting(most);
                        prop_assert!(waiting.len() <= most && waiting.is_empty() == (shown == 0));
                        let taken: Vec<_> = waiting.iter().map(seen).collect();
                        intake.release(taken.len());
                        shown -= taken.len();
                        for asked in taken {
                            prop_assert_eq!(Some(asked), model.pop_front());
                        }
                    }
                    Act::Rewind => {
                        outbox.rewind(&mut intake);
                        if model.is_empty() {
                            prop_assert_eq!((outbox.tail, intake.head), (0, 0));
                        }
                    }
                }
                prop_assert_eq!(outbox.is_published(), shown == model.len());
            }
            let mut left = Vec::new();
            // SAFETY: both halves are this thread's, and the intake is not used any more.
            unsafe { outbox.take_back(|origin, token| left.push((origin, token))) };
            prop_assert_eq!(left, model.iter().map(|asked| (asked.2, asked.1)).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_full_circle_takes_one_for_each_that_is_taken() {
        for long_at in [None, Some(5), Some(127)] {
            let (mut outbox, mut intake) = queue(BYTES);
            let entries = Size::of(BYTES).entries as u64;
            let asked = |number: u64| -> Asked {
                let long = long_at.is_some_and(|at| number % entries == at);
                let value = vec![7; if long { 3_000 } else { 0 }];
                (
                    number,
                    number,
                    Origin::default(),
                    Kind::Put,
                    vec![1],
                    value,
                    0,
                )
            };
            for number in 0..entries {
                assert!(push(&mut outbox, &asked(number)));
            }
            for number in entries..4 * entries {
                assert!(!push(&mut outbox, &asked(number)), "it is full");
                // Once to show it, once to look.
                outbox.publish();
                outbox.publish();
                assert!(!push(&mut outbox, &asked(number)), "it is still full");
                intake.glance();
                assert_eq!(seen(&intake.waiting(1)[0]), asked(number - entries));
                intake.release(1);
                assert!(push(&mut outbox, &asked(number)));
            }
        }
    }

    #[test]
    fn a_long_value_is_given_back_once_it_was_served() {
        let (mut outbox, mut intake) = queue(BYTES);
        let long = vec![7; 1 << 16];
        let asked: Asked = (1, 2, Origin::default(), Kind::Put, vec![9], long, 0);
        assert!(push(&mut outbox, &asked));
        assert!(!push(&mut outbox, &asked), "one at a time");
        outbox.publish();
        intake.glance();
        assert_eq!(seen(&intake.waiting(1)[0]), asked);
        intake.release(1);
        outbox.publish();
        // SAFETY: no entry refers to it.
        assert_eq!(unsafe { &*outbox.shared.long.get() }.capacity(), 0);
        assert!(push(&mut outbox, &asked), "there is room for the next");
    }

    #[test]
    fn two_threads_pass_a_million_requests() {
        const COUNT: u64 = 1_000_000;
        let (mut outbox, mut intake) = queue(BYTES);
        let asked = |number: u64| -> Asked {
            let fill = number.to_le_bytes()[0];
            let bytes = usize::from(fill) % 90;
            let kind = Kind::Put;
            (
                number,
                number + 1,
                Origin::default(),
                kind,
                vec![fill; 1 + bytes % 20],
                vec![!fill; bytes],
                0,
            )
        };
        let sender = std::thread::spawn(move || {
            for number in 0..COUNT {
                while !push(&mut outbox, &asked(number)) {
                    outbox.publish();
                    std::thread::yield_now();
                }
                if number % 7 == 0 {
                    outbox.publish();
                }
            }
            outbox.publish();
        });
        let mut next = 0;
        while next < COUNT {
            intake.glance();
            let waiting = intake.waiting(50);
            let count = waiting.len();
            for request in waiting {
                assert_eq!(seen(request), asked(next));
                next += 1;
            }
            intake.release(count);
            if count == 0 {
                std::thread::yield_now();
            }
        }
        sender.join().unwrap();
    }
}

#[cfg(all(test, farcore_loom))]
mod model {
    use super::*;
    use crate::operation::Kind;

    /// Requests with keys and values of so many bytes over a queue of two entries and 64 bytes of room, while another thread takes them.
    fn never_shares_a_byte(requests: &'static [(usize, usize)]) {
        loom::model(move || {
            let (mut outbox, mut intake) = queue(4 * ENTRY);
            let sender = loom::thread::spawn(move || {
                let mut sent = 0;
                for _ in requests {
                    let (key_bytes, value_bytes) = requests[sent];
                    let (key, value) = (vec![sent as u8; key_bytes], vec![sent as u8; value_bytes]);
                    let demand = Demand {
                        kind: Kind::Put,
                        key: &key,
                        value: &value,
                        expected: 0,
                    };
                    if outbox.push(IndexHash(sent as u64), 0, Origin::default(), &demand) {
                        sent += 1;
                    }
                    outbox.publish();
                }
                sent
            });
            let mut seen = 0;
            let mut take = |intake: &mut Intake| {
                intake.glance();
                let waiting = intake.waiting(1);
                let count = waiting.len();
                for request in waiting {
                    let (key_bytes, value_bytes) = requests[seen];
                    assert_eq!(request.hash.0, seen as u64);
                    assert_eq!(request.key(), vec![seen as u8; key_bytes]);
                    assert_eq!(request.value(), vec![seen as u8; value_bytes]);
                    seen += 1;
                }
                intake.release(count);
                count > 0
            };
            for _ in 0..requests.len() - 1 {
                take(&mut intake);
            }
            let sent = sender.join().unwrap();
            while take(&mut intake) {}
            assert_eq!(seen, sent);
        });
    }

    #[test]
    fn a_queue_of_two_requests_never_shares_an_entry() {
        never_shares_a_byte(&[(4, 4); 3]);
    }

    #[test]
    fn a_request_past_the_end_shares_no_byte() {
        // 40, 32 and 24 bytes of 64: the second goes past the end, and the third may be written while it is read.
        never_shares_a_byte(&[(24, 16), (16, 16), (8, 16)]);
    }

    #[test]
    fn a_long_value_is_not_given_back_while_it_is_read() {
        never_shares_a_byte(&[(4, 17), (4, 17), (4, 4)]);
    }
}
