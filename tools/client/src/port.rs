//! How callers reach the client's thread: a queue, and an event that wakes it.
//!
//! - I1: a caller pushes before it looks at the sleep flag, and the thread sets the flag before it
//!   looks at the queue. Both are sequentially consistent, so a command is seen or the event is
//!   signalled.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;
use rustix::event::{EventfdFlags, eventfd};

use crate::command::Command;
use crate::error::{Error, Result};
use crate::figures::Counters;

/// What callers share with the client's thread.
#[derive(Debug)]
pub(crate) struct Port {
    queue: ArrayQueue<Command>,
    is_asleep: AtomicBool,
    is_closed: AtomicBool,
    event: OwnedFd,
    pub(crate) counters: Counters,
}

impl Port {
    /// # Errors
    /// No file descriptor is left.
    pub(crate) fn new(queue: usize) -> io::Result<Self> {
        Ok(Self {
            queue: ArrayQueue::new(queue.max(1)),
            is_asleep: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            counters: Counters::default(),
        })
    }

    /// Queues a command, which is ended if the queue is full.
    pub(crate) fn send(&self, command: Command) {
        if self.is_closed() {
            return command.end(Err(Error::Closed), &mut Vec::new());
        }
        match self.queue.push(command) {
            Ok(()) => self.wake(),
            Err(command) => {
                let limit = self.queue.capacity();
                command.end(Err(Error::QueueFull { limit }), &mut Vec::new());
            }
        }
        // The thread may have ended meanwhile, and takes nothing more.
        if self.is_closed() {
            self.end_all();
        }
    }

    /// Ends all commands that wait.
    pub(crate) fn end_all(&self) {
        while let Some(command) = self.queue.pop() {
            command.end(Err(Error::Closed), &mut Vec::new());
        }
    }

    pub(crate) fn receive(&self) -> Option<Command> {
        self.queue.pop()
    }

    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.wake();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn wake(&self) {
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            #[expect(
                clippy::host_endian_bytes,
                reason = "the kernel reads a number of this host"
            )]
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Sets the sleep flag; false if there are commands, or the client was closed.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::SeqCst);
        let may_sleep = self.queue.is_empty();
        if !may_sleep {
            self.is_asleep.store(false, Ordering::SeqCst);
        }
        may_sleep
    }

    /// Clears the sleep flag, and takes the event.
    pub(crate) fn wake_up(&self) {
        self.is_asleep.store(false, Ordering::SeqCst);
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// The outcome of an operation whose answer has no value of interest.
pub(crate) fn checked(key: &[u8], max: usize) -> Result<()> {
    if (1..=max).contains(&key.len()) {
        Ok(())
    } else {
        Err(Error::KeyLength {
            bytes: key.len(),
            max,
        })
    }
}
