//! Events from the keepers and the steward of a core to its shard, each with a reply. They share no
//! other state with the reactor.
//!
//! - I1: a core does not sleep while an event is in its queue.
//! - I2: a keeper waits for the reply, so the core has processed one event before the keeper acts
//!   on the next.

use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use farcore_rdma::RemoteSlice;

use crate::executor::sleep;
use crate::shard::NodeId;

/// How often a keeper checks for the reply, which the core's next turn sends.
const REPLY_TICK: Duration = Duration::from_micros(100);

/// A change of a core's far memory, or a question about it.
#[derive(Debug)]
pub(crate) enum FarChange {
    /// How many extents can be added? The reply is the count.
    Room,
    /// Extents were claimed. The reply is how many of them, from the first on, were added.
    Claimed {
        /// The node that lends them.
        node: NodeId,
        /// A page each.
        pieces: Vec<RemoteSlice>,
    },
    /// The session at a node has ended: what the node lent is gone.
    Lost(NodeId),
    /// A node joins, in a zone.
    Joins {
        node: NodeId,
        name: Arc<str>,
        zone: usize,
    },
    /// Pages are to leave a node; or it stays after all.
    Leaves { node: NodeId, leaves: bool },
    /// How many pages and requests keep a node from leaving? The reply is the count.
    CountLeft(NodeId),
    /// How many pages would be lost with a node? The reply is the count.
    CountAlone(NodeId),
    /// A node has left, and nothing of the shard lies there.
    Vacated(NodeId),
    /// The session at a node is down.
    Down(NodeId),
    /// A node answers, or lent more extents: retry what was given up.
    Back(NodeId),
}

/// A change, and where its reply is sent.
#[derive(Debug)]
pub(crate) struct FarEvent {
    pub(crate) change: FarChange,
    pub(crate) reply: mpsc::Sender<usize>,
}

/// The keepers' end: sends events to one core.
#[derive(Clone)]
pub(crate) struct FarEvents {
    events: mpsc::Sender<FarEvent>,
    /// Wakes the core, which may sleep until an event comes.
    wake: Rc<dyn Fn()>,
}

/// The core's end: receives events.
#[derive(Debug)]
pub(crate) struct FarEventQueue {
    events: mpsc::Receiver<FarEvent>,
    /// An event that was received to see whether there is one.
    next: Option<FarEvent>,
}

impl FarEventQueue {
    /// True if an event was not processed yet. A core checks it before it sleeps.
    pub(crate) fn has_event(&mut self) -> bool {
        self.next = self.next.take().or_else(|| self.events.try_recv().ok());
        self.next.is_some()
    }

    pub(crate) fn pop(&mut self) -> Option<FarEvent> {
        self.next.take().or_else(|| self.events.try_recv().ok())
    }
}

/// Both ends of a core's events; `wake` wakes the core.
pub(crate) fn far_events(wake: impl Fn() + 'static) -> (FarEvents, FarEventQueue) {
    let (events, received) = mpsc::channel();
    let wake = Rc::new(wake);
    let queue = FarEventQueue {
        events: received,
        next: None,
    };
    (FarEvents { events, wake }, queue)
}

impl FarEvents {
    /// Sends a change and wakes the core. Returns where the reply arrives; nothing does if the core
    /// has stopped.
    pub(crate) fn post(&self, change: FarChange) -> mpsc::Receiver<usize> {
        let (reply, replied) = mpsc::channel();
        if self.events.send(FarEvent { change, reply }).is_ok() {
            (self.wake)();
        }
        replied
    }

    /// Sends a change and waits until the core has processed it; 0 if the core has stopped.
    pub(crate) async fn send(&self, change: FarChange) -> usize {
        self.ask(change).await.unwrap_or(0)
    }

    /// As [`FarEvents::send`], but `None` if the core has stopped.
    pub(crate) async fn ask(&self, change: FarChange) -> Option<usize> {
        let replied = self.post(change);
        loop {
            match replied.try_recv() {
                Ok(count) => return Some(count),
                Err(mpsc::TryRecvError::Disconnected) => return None,
                Err(mpsc::TryRecvError::Empty) => sleep(REPLY_TICK).await,
            }
        }
    }
}
