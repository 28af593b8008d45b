//! What the keepers of a core send to its shard: events with replies. No state is shared.

use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use farcore_rdma::RemoteSlice;

use crate::executor::sleep;
use crate::shard::NodeId;

/// How often a keeper checks for the reply: the core's next turn makes it.
const REPLY_TICK: Duration = Duration::from_micros(100);

/// A change of a core's far memory, or a question about it.
#[derive(Debug)]
pub(crate) enum FarChange {
    /// How many extents can be added? The reply is that count.
    Room,
    /// Extents were claimed. The reply is how many of them, from the first on, were added.
    Claimed {
        /// The node that lends them.
        node: NodeId,
        /// A page each.
        pieces: Vec<RemoteSlice>,
    },
    /// The session at a node is over: what it lent is gone.
    Lost(NodeId),
    /// A node answers, or gave more extents: what was given up is tried again.
    Back,
}

/// A change, and where its reply goes.
#[derive(Debug)]
pub(crate) struct FarEvent {
    pub(crate) change: FarChange,
    pub(crate) reply: mpsc::Sender<usize>,
}

/// A keeper's end: sends events to one core.
#[derive(Clone)]
pub(crate) struct FarEvents {
    events: mpsc::Sender<FarEvent>,
    /// The core may be asleep, and wait for just this.
    wake: Rc<dyn Fn()>,
}

/// Both ends of a core's events; `wake` wakes the core.
pub(crate) fn far_events(wake: impl Fn() + 'static) -> (FarEvents, mpsc::Receiver<FarEvent>) {
    let (events, received) = mpsc::channel();
    let wake = Rc::new(wake);
    (FarEvents { events, wake }, received)
}

impl FarEvents {
    /// Sends a change and waits until the core has processed it; 0 if the core has stopped.
    pub(crate) async fn send(&self, change: FarChange) -> usize {
        let (reply, replied) = mpsc::channel();
        if self.events.send(FarEvent { change, reply }).is_err() {
            return 0;
        }
        (self.wake)();
        loop {
            match replied.try_recv() {
                Ok(count) => return count,
                Err(mpsc::TryRecvError::Disconnected) => return 0,
                Err(mpsc::TryRecvError::Empty) => sleep(REPLY_TICK).await,
            }
        }
    }
}
