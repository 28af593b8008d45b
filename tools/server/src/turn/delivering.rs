//! How a core delivers the messages and events that wait for its subscribers: some of them each
//! turn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cores::answers::Answers;
use crate::events::classes::EventClasses;
use crate::events::deliveries::{Delivery, EVENT_STEPS, Progress, Steps};
use crate::events::key_events::{KeyEvent, messages};
use crate::events::publication::{CHANNEL_BYTES_MAX, Publication};
use crate::serving::Serving;

impl Serving {
    /// Has a message delivered; the answer is how many have got it.
    pub(super) fn deliver_message(&mut self, message: Arc<Publication>, answers: Answers<usize>) {
        self.deliveries.waiting.push_back(Delivery::Message {
            message,
            progress: Progress::default(),
            count: 0,
            answers,
        });
    }

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
                    answers.put(*count);
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
                for message in messages(event, *classes, &self.shared.databases) {
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
