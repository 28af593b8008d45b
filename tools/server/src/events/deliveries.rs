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
use std::sync::atomic::Ordering;

use crossbeam_queue::SegQueue;

use crate::events::classes::EventClasses;
use crate::events::key_events::{KeyEvent, messages};
use crate::events::subscriptions::{CHANNEL_BYTES_MAX, Message};
use crate::shared::Shared;
use crate::turn::core_answers::CoreAnswers;
use crate::turn::core_port::Message as PortMessage;
use crate::turn::serving::Serving;

/// What the matches and the deliveries of a turn cost: a step is a byte that is compared or copied.
pub(crate) const STEPS_A_TURN: usize = 1 << 20;
/// What a delivery costs beside its bytes.
pub(crate) const DELIVERY_STEPS: usize = 128;
/// What it costs besides if it is a connection's first output of the turn: a call to send.
pub(crate) const SEND_STEPS: usize = STEPS_A_TURN / 256;
/// What it costs to look at an event.
const EVENT_STEPS: usize = 64;

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

/// What waits.
#[derive(Debug)]
enum Delivery {
    Message {
        message: Arc<Message>,
        progress: Progress,
        count: usize,
        /// Where the publisher learns how many have it.
        answers: Arc<SegQueue<usize>>,
    },
    Events {
        events: Arc<[KeyEvent]>,
        classes: EventClasses,
        next: usize,
        /// Of the events before `next`, those that are not delivered.
        messages: VecDeque<Message>,
        progress: Progress,
        bytes: usize,
    },
}

/// What waits for a core's subscribers, and what is left of its turn.
#[derive(Debug)]
pub(crate) struct Deliveries {
    waiting: VecDeque<Delivery>,
    steps: Steps,
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

/// Sends a message to the cores that have subscribers; each answers how many have got it.
pub(crate) fn publish_to_cores(shared: &Shared, message: &Arc<Message>) -> CoreAnswers<usize> {
    let has_subscribers = shared.cores.iter();
    let wanted: Vec<_> = has_subscribers
        .filter(|core| core.subscriptions.load(Ordering::Acquire) > 0)
        .collect();
    let gathered = CoreAnswers::new(wanted.len());
    for core in wanted {
        let (message, answers) = (Arc::clone(message), gathered.answers());
        core.send(PortMessage::Run(Box::new(move |serving| {
            serving.deliveries.waiting.push_back(Delivery::Message {
                message,
                progress: Progress::default(),
                count: 0,
                answers,
            });
        })));
    }
    gathered
}

impl Serving {
    /// Has events delivered, which are counted as under way to this core until they are.
    pub(crate) fn deliver_events(
        &mut self,
        events: Arc<[KeyEvent]>,
        classes: EventClasses,
        bytes: usize,
    ) {
        self.deliveries.waiting.push_back(Delivery::Events {
            events,
            classes,
            next: 0,
            messages: VecDeque::new(),
            progress: Progress::default(),
            bytes,
        });
    }

    /// Delivers what waits, as much as in a turn. True if something has waited.
    pub(crate) fn deliveries_turn(&mut self) -> bool {
        let mut waiting = std::mem::take(&mut self.deliveries.waiting);
        let mut steps = std::mem::replace(&mut self.deliveries.steps, Steps::of_turn());
        let is_busy = !waiting.is_empty();
        while let Some(first) = waiting.front_mut() {
            if !self.deliver(first, &mut steps) {
                break;
            }
            waiting.pop_front();
        }
        debug_assert!(self.deliveries.is_empty(), "a delivery begins no other");
        self.deliveries.waiting = waiting;
        is_busy
    }

    /// Goes on with a delivery; true if it has ended.
    fn deliver(&mut self, delivery: &mut Delivery, steps: &mut Steps) -> bool {
        match delivery {
            Delivery::Message {
                message,
                progress,
                count,
                answers,
            } => {
                let (got, is_done) = self.publish_some(message, None, (progress, steps));
                *count += got;
                if is_done {
                    answers.push(*count);
                }
                is_done
            }
            Delivery::Events {
                events,
                classes,
                next,
                messages: made,
                progress,
                bytes,
            } => loop {
                if let Some(message) = made.front() {
                    if !self.publish_some(message, None, (progress, steps)).1 {
                        return false;
                    }
                    *progress = Progress::default();
                    made.pop_front();
                    continue;
                }
                if steps.is_spent() && *next < events.len() {
                    return false;
                }
                let Some(event) = events.get(*next) else {
                    let under_way = &self.shared.cores[self.place].event_bytes;
                    // ORDERING: it is a count, which orders nothing.
                    under_way.fetch_sub(*bytes, Ordering::Relaxed);
                    return true;
                };
                *next += 1;
                steps.spend(EVENT_STEPS);
                for message in messages(event, *classes) {
                    if message.channel.len() > CHANNEL_BYTES_MAX {
                        // Only patterns can have subscribed to it.
                        self.counters().unsent_events.add(1);
                    } else {
                        made.push_back(message);
                    }
                }
            },
        }
    }
}
