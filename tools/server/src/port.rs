//! How other threads reach a core's loop: connections and messages for it, and the event
//! that wakes it.
//!
//! - I1: a sender pushes before it looks at the sleep flag, and a core sets the flag before it
//!   looks for messages. Both are sequentially consistent, so a message is seen or the event is
//!   signalled.
//! - I2: a message to a core that has ended is dropped, by the core or by its sender, so a client
//!   that waits for an answer learns that none will come.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crossbeam_queue::SegQueue;
use farcore_rdma::PeerArrival;
use rustix::event::{EventfdFlags, eventfd};

use crate::serving::Serving;

/// What another thread sends to a core.
pub(crate) enum Message {
    /// A connection to serve, and whether it is encrypted.
    Connection(TcpStream, SocketAddr, bool),
    /// A connection of a native client, not yet accepted.
    Peer(PeerArrival),
    /// Something to do in the core's loop.
    Run(Box<dyn FnOnce(&mut Serving) + Send>),
}

/// One core as other threads see it.
#[derive(Debug)]
pub(crate) struct CorePort {
    messages: SegQueue<Message>,
    is_asleep: AtomicBool,
    /// The core serves no more.
    has_ended: AtomicBool,
    wake_event: OwnedFd,
    /// Connections that the core serves, and those on their way to it.
    pub(crate) connections: AtomicUsize,
    /// The same of native clients.
    pub(crate) native_connections: AtomicUsize,
    /// Subscriptions of its connections to channels. Only the core changes it.
    pub(crate) subscriptions: AtomicUsize,
    /// Bytes of events of keys that are on their way to it.
    pub(crate) event_bytes: AtomicUsize,
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
            has_ended: AtomicBool::new(false),
            wake_event: eventfd(0, EventfdFlags::CLOEXEC)?,
            connections: AtomicUsize::new(0),
            native_connections: AtomicUsize::new(0),
            subscriptions: AtomicUsize::new(0),
            event_bytes: AtomicUsize::new(0),
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
    }

    /// Wakes the core if it sleeps.
    pub(crate) fn wake(&self) {
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            // The counter cannot overflow: it is at most 1 a sleep.
            #[expect(
                clippy::host_endian_bytes,
                reason = "the kernel reads a number of this host"
            )]
            let _ = rustix::io::write(&self.wake_event, &1_u64.to_ne_bytes());
        }
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

    /// Sets the sleep flag; false if there are messages, which must be served first.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.is_asleep.store(true, Ordering::SeqCst);
        let may_sleep = self.messages.is_empty();
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

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Peer(arrival) => f.debug_tuple("Peer").field(&arrival.peer()).finish(),
            Self::Connection(_, peer, _) => f.debug_tuple("Connection").field(peer).finish(),
            Self::Run(_) => f.write_str("Run"),
        }
    }
}
