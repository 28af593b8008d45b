//! How other threads reach a core's loop: the messages for it, and the event that wakes it.
//!
//! - I1: who wakes a core leaves what it is woken for, notes the call, and then looks at the sleep
//!   flag; a core sets the flag before it looks for calls. Both are sequentially consistent, so the
//!   call is seen or the event is signalled, also if it comes after the core has looked at what it
//!   is called for.
//! - I2: a message to a core that has ended is dropped, by the core or by its sender, so a client
//!   that waits for an answer learns that none will come.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crossbeam_queue::SegQueue;
use rustix::event::{EventfdFlags, eventfd};

use crate::cores::message::Message;
use crate::events::key_events::SentEvents;

/// One core as other threads see it.
#[derive(Debug)]
pub(crate) struct CorePort {
    messages: SegQueue<Message>,
    is_asleep: AtomicBool,
    /// Something was left for the core since it last fell asleep.
    is_called: AtomicBool,
    /// The core serves no more.
    has_ended: AtomicBool,
    wake_event: OwnedFd,
    /// Connections that the core serves, and those on their way to it.
    pub(crate) connections: AtomicUsize,
    /// Those of them that have not authenticated, without native ones.
    pub(crate) unauthenticated: AtomicUsize,
    /// Connections of native clients, likewise.
    pub(crate) native_connections: AtomicUsize,
    /// Subscriptions of its connections to channels. Only the core changes it.
    pub(crate) subscriptions: AtomicUsize,
    /// Its connections that cache keys. Only the core changes it.
    pub(crate) trackers: AtomicUsize,
    /// Bytes of changed keys that are on their way to it.
    pub(crate) changed_bytes: AtomicUsize,
    /// Bytes of events of keys that are on their way to it.
    pub(crate) event_bytes: AtomicUsize,
    /// These events, in the order in which they are delivered. A message follows each.
    pub(crate) key_events: SegQueue<SentEvents>,
    /// Turns of its loop whose events are sent.
    events_turns: AtomicU64,
    /// Those that see the commands of all clients.
    pub(crate) monitors: AtomicUsize,
    /// Where the shard's keys end in the order of scans, once it was searched; else 0.
    pub(crate) keys_end: AtomicU64,
}

impl CorePort {
    /// A port without messages.
    ///
    /// # Errors
    /// No file descriptor is left.
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            messages: SegQueue::new(),
            is_asleep: AtomicBool::new(false),
            is_called: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            wake_event: eventfd(0, EventfdFlags::CLOEXEC)?,
            connections: AtomicUsize::new(0),
            unauthenticated: AtomicUsize::new(0),
            native_connections: AtomicUsize::new(0),
            subscriptions: AtomicUsize::new(0),
            trackers: AtomicUsize::new(0),
            changed_bytes: AtomicUsize::new(0),
            event_bytes: AtomicUsize::new(0),
            key_events: SegQueue::new(),
            events_turns: AtomicU64::new(0),
            monitors: AtomicUsize::new(0),
            keys_end: AtomicU64::new(0),
        })
    }

    /// Sends a message, and wakes the core if it sleeps.
    pub(crate) fn send(&self, message: Message) {
        self.messages.push(message);
        if self.has_ended.load(Ordering::SeqCst) {
            self.drop_messages();
        }
        self.wake();
    }

    /// Notes that the core serves no more.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
        self.drop_messages();
    }

    /// True once the core serves no more.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    fn drop_messages(&self) {
        while self.messages.pop().is_some() {}
        while self.key_events.pop().is_some() {}
    }

    /// Has the core look at what was left for it, also if it falls asleep now.
    pub(crate) fn wake(&self) {
        self.is_called.store(true, Ordering::SeqCst);
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            // The counter cannot overflow: it is at most 1 a sleep.
            #[expect(
                clippy::host_endian_bytes,
                reason = "the kernel reads a number of this host"
            )]
            let _ = rustix::io::write(&self.wake_event, &1_u64.to_ne_bytes());
        }
    }

    /// Notes that the events of a turn are sent. Only the core calls it.
    #[inline]
    pub(crate) fn note_events_turn(&self) {
        let turns = self.events_turns.load(Ordering::Relaxed);
        self.events_turns.store(turns + 1, Ordering::SeqCst);
    }

    /// Turns whose events are sent.
    pub(crate) fn events_turns(&self) -> u64 {
        self.events_turns.load(Ordering::SeqCst)
    }

    /// True if all events are sent of answers that were there when `turns` had ended: the
    /// turn that ran then may have been past the answers. A core that sleeps or has ended has taken
    /// all answers.
    pub(crate) fn has_sent_events_of(&self, turns: u64) -> bool {
        self.events_turns() >= turns + 2
            || self.is_asleep.load(Ordering::SeqCst)
            || self.has_ended()
    }

    /// How many messages there are.
    pub(crate) fn message_count(&self) -> usize {
        self.messages.len()
    }

    /// The next message.
    pub(crate) fn receive(&self) -> Option<Message> {
        self.messages.pop()
    }

    /// Connections of all clients.
    pub(crate) fn load(&self) -> usize {
        let native = self.native_connections.load(Ordering::Relaxed);
        self.connections.load(Ordering::Relaxed) + native
    }

    /// Sets the sleep flag; false if the core was called since the last time, and must look first.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::SeqCst);
        let was_called = self.is_called.swap(false, Ordering::SeqCst);
        let may_sleep = !was_called && self.messages.is_empty();
        if !may_sleep {
            self.wake_up();
        }
        may_sleep
    }

    /// Clears the sleep flag.
    pub(crate) fn wake_up(&self) {
        self.is_asleep.store(false, Ordering::SeqCst);
    }

    /// The event that wakes the core.
    pub(crate) fn wake_event(&self) -> BorrowedFd<'_> {
        self.wake_event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_was_called_looks_again_before_it_sleeps() {
        let port = CorePort::new().expect("descriptors");
        assert!(port.fall_asleep());
        port.wake_up();
        // What it is called for it has looked at already, and found nothing.
        port.wake();
        assert!(!port.fall_asleep());
        assert!(port.fall_asleep());
        // A call in its sleep is not forgotten either, and signals the event once.
        port.wake();
        port.wake();
        let mut count = [0; 8];
        rustix::io::read(port.wake_event(), &mut count).expect("a signal");
        assert_eq!(count.iter().sum::<u8>(), 1);
        port.wake_up();
        assert!(!port.fall_asleep());
    }
}
