//! How the thread of a link waits, and is ended or interrupted by others.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::time::Timespec;

/// Ends the thread of a link, or its session.
#[derive(Debug)]
pub(crate) struct Stop {
    is_set: AtomicBool,
    /// The session is to end, and another one to begin.
    is_cut: AtomicBool,
    event: OwnedFd,
}

impl Stop {
    /// One that is not set.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            is_set: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// Has the thread end.
    pub(crate) fn set(&self) {
        // ORDERING: relaxed; nothing is read by it, and the event wakes a thread that waits.
        self.is_set.store(true, Ordering::Relaxed);
        self.wake();
    }

    /// Has the session end.
    pub(crate) fn cut(&self) {
        // ORDERING: relaxed; as in `set`.
        self.is_cut.store(true, Ordering::Relaxed);
        self.wake();
    }

    fn wake(&self) {
        let _ = rustix::io::write(&self.event, &1u64.to_le_bytes());
    }

    /// True once, if the session is to end.
    pub(super) fn take_cut(&self) -> bool {
        let is_cut = self.is_cut.swap(false, Ordering::Relaxed);
        if is_cut && !self.is_set() {
            // It wakes the next wait no more.
            let _ = rustix::io::read(&self.event, &mut [0; 8]);
        }
        is_cut
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Waits until a socket is ready, the time is over, or this is set.
    pub(super) fn wait(&self, sockets: &[(BorrowedFd<'_>, PollFlags)], limit: Duration) {
        let wanted = sockets.iter().filter(|(_, flags)| !flags.is_empty());
        let mut all: Vec<_> = wanted
            .map(|(socket, flags)| PollFd::from_borrowed_fd(*socket, *flags))
            .collect();
        all.push(PollFd::from_borrowed_fd(self.event.as_fd(), PollFlags::IN));
        // A wait that was interrupted is over.
        let _ = poll(&mut all, Timespec::try_from(limit).ok().as_ref());
    }
}
