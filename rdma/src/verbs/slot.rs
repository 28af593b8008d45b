//! Connection slots and adapters: what the code that connects shares with a thread's endpoint.
//!
//! An [`Adapter`] creates queue pairs; a [`ConnectionSlot`] hands an established one to the
//! endpoint. A [`Line`] reports the peer's end. Any thread may use them.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::fabric::VerbsOptions;
use crate::tcp;
use crate::verbs::context::{Access, CompletionQueue, Context, DeviceEvent, Domain};
use crate::verbs::error::VerbsError;
use crate::verbs::queue_pair::QueuePair;
use crate::verbs::rdma_cm::{AcceptedLine, CmLine};

/// The objects from which one thread's queue pairs are created.
#[derive(Debug)]
pub struct Adapter {
    pub(super) domain: Arc<Domain>,
    pub(super) completion_queue: Arc<CompletionQueue>,
    pub(super) options: VerbsOptions,
    pub(super) access: Access,
    pub(super) depth: u16,
    /// Numbers of queue pairs that the device has given up.
    fatal: Mutex<Vec<u32>>,
    dead: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Adapter {
    pub(super) fn new(
        domain: Arc<Domain>,
        completion_queue: Arc<CompletionQueue>,
        options: VerbsOptions,
        access: Access,
        depth: u16,
    ) -> Self {
        Self {
            domain,
            completion_queue,
            options,
            access,
            depth,
            fatal: Mutex::default(),
            dead: AtomicBool::new(false),
        }
    }

    // ORDERING: relaxed; the flag guards no other memory.
    fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        self.domain.context()
    }

    pub(super) fn queue_pair(&self) -> Result<QueuePair, VerbsError> {
        if self.is_dead() {
            let gone = std::io::Error::other("the device has failed: reopen the endpoint");
            return Err(self.context().refused("cannot create a queue pair", gone));
        }
        QueuePair::new(
            &self.domain,
            &self.completion_queue,
            self.depth,
            &self.options,
        )
    }

    /// Takes and logs the device's events.
    fn look(&self) {
        while let Some(event) = self.context().take_event() {
            let device = self.context().name();
            match event {
                DeviceEvent::PortUp(port) => tracing::info!(device, port, "the port is up"),
                DeviceEvent::PortDown(port) => tracing::warn!(device, port, "the port is down"),
                DeviceEvent::QueuePairFatal(number) => {
                    tracing::warn!(device, number, "a queue pair has failed");
                    locked(&self.fatal).push(number);
                }
                DeviceEvent::CompletionQueueFatal | DeviceEvent::DeviceFatal => {
                    tracing::error!(device, ?event, "the device has failed");
                    self.dead.store(true, Ordering::Relaxed);
                }
                DeviceEvent::Other(number) => tracing::debug!(device, number, "device event"),
            }
        }
    }
}

/// Reports whether a queue pair's peer has gone.
#[derive(Debug)]
pub(super) enum Line {
    /// The connection over which the facts were exchanged; it stays open.
    Socket(tcp::Connected),
    /// RDMA-CM reports when the peer disconnects.
    Cm(CmLine),
    /// The listener that accepted it receives its events; the connection lasts as long as this.
    Accepted(AcceptedLine),
    /// Both ends are in this process.
    Loopback,
}

impl Line {
    fn is_dead(&self) -> bool {
        match self {
            // Neither side sends anything more over it.
            Self::Socket(socket) => !socket.is_silent(),
            Self::Cm(line) => line.is_dead(),
            Self::Accepted(line) => line.is_dead(),
            Self::Loopback => false,
        }
    }

    /// Readable when the peer has gone.
    fn descriptor(&self) -> Option<RawFd> {
        match self {
            Self::Socket(socket) => Some(socket.raw()),
            Self::Cm(line) => Some(line.descriptor()),
            Self::Accepted(line) => line.descriptor(),
            Self::Loopback => None,
        }
    }
}

/// A queue pair that is ready to send, to be adopted by the endpoint it was created for.
#[derive(Debug)]
pub struct Connected {
    pub(super) queue_pair: QueuePair,
    pub(super) line: Arc<Line>,
}

/// Hands established connections to one queue pair, from any thread.
#[derive(Debug)]
pub struct ConnectionSlot {
    adapter: Arc<Adapter>,
    held: Mutex<Held>,
    connecting: AtomicBool,
    broken: AtomicBool,
}

#[derive(Debug, Default)]
struct Held {
    offered: Option<Connected>,
    /// The line of the queue pair in use.
    line: Weak<Line>,
    number: u32,
}

// ORDERING: the flags are relaxed. They guard no other memory: what is offered lies behind the
// lock.
impl ConnectionSlot {
    pub(super) fn new(adapter: Arc<Adapter>) -> Self {
        Self {
            adapter,
            held: Mutex::default(),
            connecting: AtomicBool::new(false),
            broken: AtomicBool::new(false),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        locked(&self.held)
    }

    /// The adapter that creates its queue pairs.
    #[must_use]
    pub fn adapter(&self) -> &Arc<Adapter> {
        &self.adapter
    }

    /// Offers a connection; the queue pair takes it when it is renewed.
    pub fn offer(&self, connection: Connected) {
        self.set_connecting(false);
        self.held().offered = Some(connection);
    }

    /// Records whether a connection is being established.
    pub fn set_connecting(&self, connecting: bool) {
        self.connecting.store(connecting, Ordering::Relaxed);
    }

    pub(super) fn is_connecting(&self) -> bool {
        self.connecting.load(Ordering::Relaxed)
    }

    /// True while the queue pair has no connection and none is offered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        let held = self.held();
        held.line.strong_count() == 0 && held.offered.is_none()
    }

    /// Fails the queue pair, or drops the offered connection, if the peer or the device has gone.
    /// Cost: two system calls.
    pub fn check(&self) {
        self.adapter.look();
        let (dead, fatal) = {
            let held = self.held();
            let line = held.line.upgrade();
            let dead = match &line {
                Some(line) => line.is_dead(),
                None => held.offered.as_ref().is_some_and(|one| one.line.is_dead()),
            };
            let mut fatal = locked(&self.adapter.fatal);
            let before = fatal.len();
            fatal.retain(|other| line.is_none() || *other != held.number);
            (dead, fatal.len() < before)
        };
        if dead || fatal || self.adapter.is_dead() {
            self.fail();
        }
    }

    /// The descriptor that is readable when the peer has gone.
    pub(super) fn line_descriptor(&self) -> Option<RawFd> {
        self.held().line.upgrade()?.descriptor()
    }

    /// Makes the queue pair fail at its next poll.
    pub fn fail(&self) {
        let mut held = self.held();
        held.offered = None;
        let has_line = held.line.strong_count() > 0;
        self.broken.store(has_line, Ordering::Relaxed);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    pub(super) fn take_broken(&self) -> bool {
        self.is_broken() && self.broken.swap(false, Ordering::Relaxed)
    }

    pub(super) fn take_offered(&self) -> Option<Connected> {
        let mut held = self.held();
        let connected = held.offered.take()?;
        held.line = Arc::downgrade(&connected.line);
        held.number = connected.queue_pair.number();
        // A failure recorded for this number belongs to an earlier queue pair.
        locked(&self.adapter.fatal).retain(|other| *other != held.number);
        Some(connected)
    }
}
