//! Connection slots and adapters: what the code that connects shares with a thread's endpoint.
//!
//! An [`Adapter`] creates queue pairs; a [`ConnectionSlot`] hands an established one to the
//! endpoint. A [`Line`] reports the peer's end. Single-threaded: all of them stay on the endpoint's
//! thread.

use std::cell::{Cell, RefCell};
use std::os::fd::RawFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;

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
    fatal: RefCell<Vec<u32>>,
    dead: Cell<bool>,
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
            fatal: RefCell::default(),
            dead: Cell::new(false),
        }
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        self.domain.context()
    }

    pub(super) fn queue_pair(&self) -> Result<QueuePair, VerbsError> {
        if self.dead.get() {
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
                    self.fatal.borrow_mut().push(number);
                }
                DeviceEvent::CompletionQueueFatal | DeviceEvent::DeviceFatal => {
                    tracing::error!(device, ?event, "the device has failed");
                    self.dead.set(true);
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
    pub(super) line: Rc<Line>,
}

/// Hands established connections to one queue pair.
#[derive(Debug)]
pub struct ConnectionSlot {
    adapter: Rc<Adapter>,
    offered: RefCell<Option<Connected>>,
    /// The line of the queue pair in use.
    line: RefCell<Weak<Line>>,
    number: Cell<u32>,
    connecting: Cell<bool>,
    broken: Cell<bool>,
}

impl ConnectionSlot {
    pub(super) fn new(adapter: Rc<Adapter>) -> Self {
        Self {
            adapter,
            offered: RefCell::default(),
            line: RefCell::default(),
            number: Cell::new(0),
            connecting: Cell::new(false),
            broken: Cell::new(false),
        }
    }

    /// The adapter that creates its queue pairs.
    #[must_use]
    pub fn adapter(&self) -> &Rc<Adapter> {
        &self.adapter
    }

    /// Offers a connection; the queue pair takes it when it is renewed.
    pub fn offer(&self, connection: Connected) {
        self.connecting.set(false);
        *self.offered.borrow_mut() = Some(connection);
    }

    /// Records whether a connection is being established.
    pub fn set_connecting(&self, connecting: bool) {
        self.connecting.set(connecting);
    }

    pub(super) fn is_connecting(&self) -> bool {
        self.connecting.get()
    }

    /// True while the queue pair has no connection and none is offered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.line.borrow().strong_count() == 0 && self.offered.borrow().is_none()
    }

    /// Fails the queue pair, or drops the offered connection, if the peer or the device has gone.
    /// Cost: two system calls.
    pub fn check(&self) {
        self.adapter.look();
        let line = self.line.borrow().upgrade();
        let dead = match &line {
            Some(line) => line.is_dead(),
            None => {
                let offered = self.offered.borrow();
                offered.as_ref().is_some_and(|one| one.line.is_dead())
            }
        };
        let number = self.number.get();
        let fatal = {
            let mut fatal = self.adapter.fatal.borrow_mut();
            let before = fatal.len();
            fatal.retain(|other| line.is_none() || *other != number);
            fatal.len() < before
        };
        if dead || fatal || self.adapter.dead.get() {
            self.fail();
        }
    }

    /// The descriptor that is readable when the peer has gone.
    pub(super) fn line_descriptor(&self) -> Option<RawFd> {
        self.line.borrow().upgrade()?.descriptor()
    }

    /// Makes the queue pair fail at its next poll.
    pub fn fail(&self) {
        self.offered.borrow_mut().take();
        self.broken.set(self.line.borrow().strong_count() > 0);
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.get()
    }

    pub(super) fn take_broken(&self) -> bool {
        self.broken.take()
    }

    pub(super) fn take_offered(&self) -> Option<Connected> {
        let connected = self.offered.borrow_mut().take()?;
        *self.line.borrow_mut() = Rc::downgrade(&connected.line);
        let number = connected.queue_pair.number();
        // A failure recorded for this number belongs to an earlier queue pair.
        self.adapter
            .fatal
            .borrow_mut()
            .retain(|other| *other != number);
        self.number.set(number);
        Some(connected)
    }
}
