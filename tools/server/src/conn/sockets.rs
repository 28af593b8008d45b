//! The sockets of a core: which are ready, and how the core sleeps until one is.
//!
//! An epoll set names the sockets. While the core is awake it asks the set without waiting. A core
//! that goes to sleep has a small ring of its own poll the set once. The ring signals the core's
//! wake-up event, which other threads signal too, and the executor waits for that event as for any
//! file. So a sleeping core waits for sockets, messages and requests of other cores at once. A
//! timer in the set ends a sleep at the time at which a client has waited long enough.

#![allow(unsafe_code)] // submits to the ring, and shares the event's descriptor with the executor

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};

use glommio::io::BufferedFile;
use io_uring::{IoUring, opcode, types};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::net::SendFlags;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// How bytes are sent.
pub(crate) const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);

/// Sockets that one look reports.
const EVENTS: usize = 128;
/// Entries of the ring: the one poll, and what may still be under way.
const RING_ENTRIES: u32 = 4;
/// Bytes of the wake-up event's counter.
const EVENT_BYTES: usize = 8;

/// What is waited for at a socket. A failure is reported in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Interest {
    /// Bytes that its peer sends.
    pub(crate) input: bool,
    /// Room for bytes that are sent.
    pub(crate) room: bool,
    /// The end of what its peer sends, which comes without being received.
    pub(crate) end: bool,
}

impl Interest {
    /// That of a socket that is added.
    pub(crate) const INPUT: Self = Self {
        input: true,
        room: false,
        end: false,
    };
}

/// The sockets of a core.
pub(crate) struct Sockets {
    set: OwnedFd,
    ready: Vec<Event>,
    ring: IoUring,
    /// The ring's poll of the set is under way.
    is_polling: bool,
    wake_event: Option<BufferedFile>,
    timer: OwnedFd,
    /// When the timer ends the sleep, in milliseconds since 1970.
    deadline_ms: Option<u64>,
}

impl Sockets {
    /// No sockets. Must be called on the core's executor.
    ///
    /// # Errors
    /// No file descriptor or no ring is left.
    pub(crate) fn new(wake_event: BorrowedFd<'_>) -> io::Result<Self> {
        let ring = named("io_uring_setup", IoUring::new(RING_ENTRIES))?;
        let submitter = ring.submitter();
        let registered = submitter.register_eventfd(wake_event.as_raw_fd());
        named("io_uring_register", registered)?;
        let wake_event = named("fcntl", wake_event.try_clone_to_owned())?.into_raw_fd();
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC);
        let timer = named("timerfd_create", timer)?;
        named("timerfd_settime", arm(&timer, 0))?;
        let set = named("epoll_create1", epoll::create(CreateFlags::CLOEXEC))?;
        let added = epoll::add(&set, &timer, EventData::new_u64(TIMER), EventFlags::IN);
        named("epoll_ctl", added)?;
        let mut ready = Vec::with_capacity(EVENTS);
        let looked = epoll::wait(
            &set,
            rustix::buffer::spare_capacity(&mut ready),
            Some(&Timespec::default()),
        );
        named("epoll_wait", looked)?;
        ready.clear();
        Ok(Self {
            set,
            ready,
            ring,
            is_polling: false,
            // SAFETY: the descriptor was duplicated just now, and nothing else owns it.
            wake_event: Some(unsafe { BufferedFile::from_raw_fd(wake_event) }),
            timer,
            deadline_ms: None,
        })
    }

    /// Adds a socket under a number, to wait for its input.
    pub(crate) fn add(&self, socket: impl AsFd, number: u64) -> io::Result<()> {
        let data = EventData::new_u64(number);
        Ok(epoll::add(&self.set, socket, data, EventFlags::IN)?)
    }

    /// Changes what is waited for at a socket.
    pub(crate) fn change(&self, socket: impl AsFd, number: u64, interest: Interest) {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, interest.input);
        flags.set(EventFlags::OUT, interest.room);
        flags.set(EventFlags::RDHUP, interest.end);
        let data = EventData::new_u64(number);
        let changed = epoll::modify(&self.set, socket, data, flags);
        debug_assert!(changed.is_ok(), "the socket is in the set");
    }

    /// Removes a socket.
    pub(crate) fn remove(&self, socket: impl AsFd) {
        let _ = epoll::delete(&self.set, socket);
    }

    /// Looks which sockets are ready; returns how many. Cost: one system call.
    pub(crate) fn look(&mut self) -> usize {
        self.ready.clear();
        let now = Timespec::default();
        // An interrupted look finds its sockets next time.
        let _ = epoll::wait(
            &self.set,
            rustix::buffer::spare_capacity(&mut self.ready),
            Some(&now),
        );
        self.ready.len()
    }

    /// One of the sockets that are ready: its number, and what it is ready for.
    pub(crate) fn ready(&self, place: usize) -> (usize, EventFlags) {
        // Copied out: the event is packed.
        let Event { flags, data } = self.ready[place];
        (usize::try_from(data.u64()).unwrap_or(usize::MAX), flags)
    }

    /// True of the timer's number: it has ended the sleep, and needs nothing.
    pub(crate) fn is_timer(number: usize) -> bool {
        number as u64 == TIMER
    }

    /// Has the next sleep end at a time, in milliseconds since 1970. Cost: one system call if the
    /// time is another one.
    pub(crate) fn set_timer(&mut self, deadline_ms: Option<u64>, now_ms: u64) {
        if self.deadline_ms == deadline_ms {
            return;
        }
        self.deadline_ms = deadline_ms;
        // Without a deadline, zeros end the timer, also one whose time is over.
        let left_ms =
            deadline_ms.map_or(0, |deadline_ms| deadline_ms.saturating_sub(now_ms).max(1));
        let set = arm(&self.timer, left_ms);
        debug_assert!(set.is_ok(), "the time is one");
    }

    /// Waits until a socket is ready or another thread wakes the core. Cost: two system calls, and
    /// those of the wake-up.
    pub(crate) async fn sleep(&mut self) {
        let ended = self.ring.completion().count();
        self.is_polling &= ended == 0;
        if !self.is_polling {
            let poll = opcode::PollAdd::new(types::Fd(self.set.as_raw_fd()), POLL_IN).build();
            // SAFETY: the set outlives the ring, and a poll refers to no memory.
            let pushed = unsafe { self.ring.submission().push(&poll) };
            self.is_polling = pushed.is_ok() && self.ring.submit().is_ok();
        }
        if let Some(wake_event) = &self.wake_event
            && self.is_polling
        {
            // Its count does not matter.
            let _ = wake_event.read_at(0, EVENT_BYTES).await;
        }
    }

    /// Gives the event back to the system.
    pub(crate) async fn close(mut self) {
        if let Some(wake_event) = self.wake_event.take() {
            let _ = wake_event.close().await;
        }
    }
}

/// Has a timer end after `ms` milliseconds; 0 stops it.
fn arm(timer: &OwnedFd, ms: u64) -> rustix::io::Result<()> {
    let it_value = Timespec {
        tv_sec: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ms % 1000).unwrap_or(0) * 1_000_000,
    };
    let time = Itimerspec {
        it_interval: Timespec::default(),
        it_value,
    };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &time).map(drop)
}

/// The outcome of a system call; an error names the call.
pub(crate) fn named<T, E: Into<io::Error>>(call: &str, outcome: Result<T, E>) -> io::Result<T> {
    outcome.map_err(|error| {
        let error = error.into();
        io::Error::new(error.kind(), format!("{call}: {error}"))
    })
}

/// The timer's number; no connection has it.
const TIMER: u64 = u64::MAX;
/// `POLLIN`.
const POLL_IN: u32 = 1;

impl std::fmt::Debug for Sockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sockets")
            .field("set", &self.set)
            .field("is_polling", &self.is_polling)
            .finish_non_exhaustive()
    }
}
