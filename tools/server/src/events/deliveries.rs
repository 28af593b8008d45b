//! Messages and events on their way to the subscribers of a core: some of them each turn.
//!
//! A message that few subscribers get is handed to them at once, by the command that publishes it.
//! Any other waits in the queue of each core that has subscribers, and so do events of keys.
//!
//! - I1: the matches and the deliveries of a turn cost at most [`STEPS_A_TURN`], and one match or
//!   delivery more.
//! - I2: what waits is delivered in the order in which it came, and nothing overtakes it.
//! - I3: each subscriber gets a message once for each subscription that it has when its turn comes.
//! - I4: what waits is charged: a message as shared bytes, events as those under way to the core.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cores::answers::Answers;
use crate::events::classes::EventClasses;
use crate::events::key_events::KeyEvent;
use crate::events::publication::Publication;

/// What the matches and the deliveries of a turn cost: a step is a byte that is compared or copied.
pub(crate) const STEPS_A_TURN: usize = 1 << 20;
/// What a delivery costs beside its bytes.
pub(crate) const DELIVERY_STEPS: usize = 128;
/// What it costs besides if it is a connection's first output of the turn: a call to send.
pub(crate) const SEND_STEPS: usize = STEPS_A_TURN / 256;
/// What it costs to look at an event.
pub(crate) const EVENT_STEPS: usize = 64;

/// What is left of a turn.
#[derive(Debug)]
pub(crate) struct Steps(usize);

impl Steps {
    /// Those of a turn.
    pub(crate) fn of_turn() -> Self {
        Self(STEPS_A_TURN)
    }

    pub(crate) fn left(&self) -> usize {
        self.0
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.0 == 0
    }

    pub(crate) fn spend(&mut self, steps: usize) {
        self.0 = self.0.saturating_sub(steps);
    }
}

/// How far a message has come: to which pattern, and to which of its subscribers.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The subscribers of its channel have it.
    pub(crate) has_passed_channel: bool,
    pub(crate) pattern: Option<Arc<[u8]>>,
    pub(crate) after: Option<usize>,
}

/// What waits for the subscribers of a core.
#[derive(Debug)]
pub(crate) enum Delivery {
    Message {
        message: Arc<Publication>,
        progress: Progress,
        count: usize,
        /// Where the publisher learns how many have it.
        answers: Answers<usize>,
    },
    Events {
        events: Arc<[KeyEvent]>,
        classes: EventClasses,
        next: usize,
        /// Of the events before `next`, those that are not delivered.
        messages: VecDeque<Publication>,
        progress: Progress,
        bytes: usize,
    },
}

/// What waits for a core's subscribers, and what is left of its turn.
#[derive(Debug)]
pub(crate) struct Deliveries {
    pub(crate) waiting: VecDeque<Delivery>,
    pub(crate) steps: Steps,
}

impl Default for Deliveries {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            steps: Steps::of_turn(),
        }
    }
}

impl Deliveries {
    /// True if nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// True if a message that costs so much at most may be delivered at once.
    pub(crate) fn may_begin(&self, steps: usize) -> bool {
        self.is_empty() && steps <= self.steps.left()
    }

    pub(crate) fn spend(&mut self, steps: usize) {
        self.steps.spend(steps);
    }
}
