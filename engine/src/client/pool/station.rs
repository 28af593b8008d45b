//! A station: the lanes of one handle, used by one thread at a time for all its callers.
//!
//! - I1: what a thread finds inside it uses only between entering and leaving.
//! - I2: while a task waits, the lanes' waker is the station itself: the shard's thread that has
//!   answers enters and hands them out, or notifies the thread that is inside.
//! - I3: a thread leaves only after it has looked for answers since the station was armed as the
//!   lanes' waker, or while it still is.
//! - I4: a thread that panics inside leaves as well: what is inside is whole at each call of a
//!   caller's code.

#![allow(unsafe_code)] // exclusive use is decided by a word

use std::cell::{Cell, UnsafeCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};

use crossbeam_queue::SegQueue;

use super::seats::Seats;
use crate::client::handle::Handle;
use crate::client::lanes::Shared;
use crate::error::{Error, Result};
use crate::message::outcome::Answer;
use crate::transport::exclusive::Exclusive;

/// Attempts to enter before the task waits to be woken: others are inside for less than a
/// microsecond.
const ATTEMPTS: u32 = 100;

/// What is inside.
#[derive(Debug, Default)]
struct Inside {
    /// `None` until the station is opened, and once it is closed.
    handle: Option<Handle>,
    seats: Seats,
    /// The lanes have the station as their waker.
    is_watching: bool,
    /// The next answers wake it.
    is_armed: bool,
}

impl Inside {
    /// Publishes requests and takes answers to their seats. With `serves`, requests to shards that
    /// have nothing to do are served here; the thread of a shard that is in its turn must not.
    fn pump(&mut self, serves: bool) -> Pumped {
        let Self {
            handle,
            seats,
            is_armed,
            ..
        } = self;
        let Some(handle) = handle else {
            return Pumped {
                is_stopped: true,
                received: 0,
            };
        };
        // Read before the answers: those that shards sent before they stopped are then there.
        let is_stopped = handle.is_stopped();
        let receive = |token, answer: Answer<'_>| seats.receive(token, &answer);
        let received = if serves {
            // The answers that are made here are taken here.
            if std::mem::take(is_armed) {
                handle.disarm();
            }
            handle.poll(receive)
        } else {
            handle.poll_in_turn(receive)
        };
        // Each answer has made room for a request. If none is under way any more, no later answer
        // would wake those who are left.
        if seats.is_room_wanted() {
            let is_idle = handle.in_flight() == 0;
            seats.wake_for_room(if is_idle { usize::MAX } else { received });
        }
        Pumped {
            is_stopped,
            received,
        }
    }

    /// True if the next answers are to be taken in soon: a task waits for one, or a section is left
    /// when there is room for that.
    fn wants_answers(&self) -> bool {
        let handle = self.handle.as_ref();
        self.seats.is_anyone_waiting() || handle.is_some_and(Handle::owes_leaves)
    }

    /// Gives back what a section holds.
    fn end_section(&mut self, number: u16) {
        if let Some(handle) = &mut self.handle {
            handle.end_section(number);
        }
    }

    /// Takes in what other threads have notified this one of: perhaps answers, and then the lanes
    /// have let go of their waker.
    fn handle_notice(&mut self) {
        (self.is_watching, self.is_armed) = (false, false);
        self.pump(false);
    }
}

/// What a look for answers found.
#[derive(Clone, Copy, Debug)]
struct Pumped {
    /// No more answers come: all shards had stopped before.
    is_stopped: bool,
    received: usize,
}

/// Which look of a call at its station this is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Look<'w> {
    /// Before answers are received: a request that is sent now may be answered in this poll.
    First,
    /// After that: a call that is not done has its task woken.
    Last {
        /// `None` for a caller that looks again by itself.
        waker: Option<&'w Waker>,
        /// No more answers come.
        is_stopped: bool,
    },
}

/// The lanes of one handle, and the seats of those who use them.
#[derive(Debug)]
pub(super) struct Station {
    shared: Arc<Shared>,
    /// It has lanes.
    is_open: AtomicBool,
    /// Threads whose station it is.
    pub(super) threads: AtomicUsize,
    use_of: Exclusive,
    inside: UnsafeCell<Inside>,
    /// Seats of dropped calls.
    left: SegQueue<u32>,
    /// Sections that have ended.
    left_sections: SegQueue<u16>,
    /// Tasks that found another thread inside.
    outside: SegQueue<Waker>,
}

// SAFETY: `inside` is used only between `Exclusive`'s enter and leave, whose ordering passes it
// from thread to thread; a handle may move between threads.
unsafe impl Sync for Station {}

impl Station {
    pub(super) fn new(shared: &Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            shared: Arc::clone(shared),
            is_open: AtomicBool::new(false),
            threads: AtomicUsize::new(0),
            use_of: Exclusive::default(),
            inside: UnsafeCell::default(),
            left: SegQueue::new(),
            left_sections: SegQueue::new(),
            outside: SegQueue::new(),
        })
    }

    /// True if the station has lanes. Takes some if it has none and some are free.
    #[inline]
    pub(super) fn open(self: &Arc<Self>) -> bool {
        // ORDERING: Acquire pairs with the Release in `open_now`.
        self.is_open.load(Ordering::Acquire) || self.open_now()
    }

    #[cold]
    fn open_now(self: &Arc<Self>) -> bool {
        if !self.use_of.enter_or_notify() {
            // Another thread opens it at this moment.
            return false;
        }
        let leaves = Leaves(self);
        // SAFETY: entered just now (I1).
        let inside = unsafe { &mut *self.inside.get() };
        if inside.handle.is_none()
            && let Some(lanes) = self.shared.take_lanes()
        {
            inside.handle = Some(Handle::new(Arc::clone(&self.shared), lanes));
        }
        let is_open = inside.handle.is_some();
        // ORDERING: Release publishes that there is a handle.
        self.is_open.store(is_open, Ordering::Release);
        drop(leaves);
        is_open
    }

    /// Enters, runs `step`, takes answers to their seats, and runs `step` again if it is not done.
    /// If another thread is inside, the task is woken when that leaves.
    pub(super) fn poll<R>(
        self: &Arc<Self>,
        waker: Option<&Waker>,
        mut step: impl FnMut(&mut Handle, &mut Seats, Look<'_>) -> Poll<Result<R>>,
    ) -> Poll<Result<R>> {
        if !self.enter(waker) {
            return Poll::Pending;
        }
        let _leaves = Leaves(self);
        // SAFETY: entered just now (I1).
        let inside = unsafe { &mut *self.inside.get() };
        let _runs = RunsCaller::new(self);
        let mut visit = |inside: &mut Inside, look| match &mut inside.handle {
            Some(handle) => step(handle, &mut inside.seats, look),
            None => Poll::Ready(Err(Error::Closed)),
        };
        let mut result = visit(inside, Look::First);
        if result.is_pending() {
            let is_stopped = inside.pump(true).is_stopped;
            result = visit(inside, Look::Last { waker, is_stopped });
        }
        result
    }

    /// Enters. If others are inside for long, has the task be woken when they leave.
    fn enter(&self, waker: Option<&Waker>) -> bool {
        for _ in 0..ATTEMPTS {
            if self.use_of.try_enter() {
                return true;
            }
            std::hint::spin_loop();
        }
        assert!(
            INSIDE.get() != self.address(),
            "a client was called by a visitor or an iterator of its own call"
        );
        let Some(waker) = waker else { return false };
        self.outside.push(waker.clone());
        self.use_of.enter_or_notify()
    }

    /// Leaves, after news of others was taken in.
    fn leave(self: &Arc<Self>) {
        loop {
            // SAFETY: this thread has entered and not left (I1).
            let inside = unsafe { &mut *self.inside.get() };
            // Looking costs less than popping.
            while !self.left.is_empty()
                && let Some(seat) = self.left.pop()
            {
                inside.seats.leave(seat);
            }
            let mut ends_any = false;
            while !self.left_sections.is_empty()
                && let Some(number) = self.left_sections.pop()
            {
                ends_any = true;
                inside.end_section(number);
            }
            if ends_any {
                inside.pump(false);
            }
            if inside.wants_answers() && !inside.is_armed {
                self.watch(inside);
            }
            while !self.outside.is_empty()
                && let Some(waker) = self.outside.pop()
            {
                waker.wake();
            }
            if self.use_of.leave() {
                return;
            }
            inside.handle_notice();
        }
    }

    /// Has the station be woken by the next answers, and takes in those that came before (I3).
    fn watch(self: &Arc<Self>, inside: &mut Inside) {
        while inside.wants_answers() {
            let Some(handle) = &inside.handle else { return };
            if !std::mem::replace(&mut inside.is_watching, true) {
                handle.watch(&Waker::from(Arc::clone(self)));
            }
            handle.arm();
            inside.is_armed = true;
            let pumped = inside.pump(false);
            if pumped.is_stopped {
                inside.seats.wake_all();
            }
            if pumped.received == 0 {
                return;
            }
        }
    }

    /// Returns its lanes. Calls under way end with [`Error::Closed`].
    pub(super) fn close(self: &Arc<Self>) {
        while !self.use_of.try_enter() {
            std::thread::yield_now();
        }
        // SAFETY: entered just now (I1).
        let inside = unsafe { &mut *self.inside.get() };
        // The lanes outlive the station, which their waker would keep.
        if let Some(handle) = &inside.handle {
            handle.unwatch();
        }
        inside.handle = None;
        (inside.is_watching, inside.is_armed) = (false, false);
        inside.seats.wake_all();
        drop(Leaves(self));
    }

    /// Ends a section.
    pub(super) fn end_section(self: &Arc<Self>, number: u16) {
        self.left_sections.push(number);
        if self.use_of.enter_or_notify() {
            drop(Leaves(self));
        }
    }

    /// Ends a call that was dropped.
    pub(super) fn abandon(self: &Arc<Self>, seat: u32) {
        self.left.push(seat);
        if self.use_of.enter_or_notify() {
            drop(Leaves(self));
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

/// Leaves a station when dropped, also when a caller's code panics inside.
struct Leaves<'a>(&'a Arc<Station>);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

thread_local! {
    /// The station whose caller's code this thread runs; 0 if none.
    static INSIDE: Cell<usize> = const { Cell::new(0) };
}

/// Notes that this thread runs a caller's code inside a station, until dropped.
struct RunsCaller(usize);

impl RunsCaller {
    fn new(station: &Station) -> Self {
        Self(INSIDE.replace(station.address()))
    }
}

impl Drop for RunsCaller {
    fn drop(&mut self) {
        INSIDE.set(self.0);
    }
}

impl Wake for Station {
    /// Answers have come while tasks wait: hands them out, on the thread of the shard.
    fn wake(self: Arc<Self>) {
        if self.use_of.enter_or_notify() {
            let _leaves = Leaves(&self);
            // SAFETY: entered just now (I1).
            unsafe { &mut *self.inside.get() }.handle_notice();
        }
    }
}
