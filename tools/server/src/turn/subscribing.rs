//! Channels: how connections subscribe, and how a core hands messages to its subscribers.
//!
//! - I1: a core's count of subscriptions is right when a client reads that it has subscribed.
//! - I2: a subscriber that does not read has at most [`UNREAD_BYTES_MAX`], or an eighth of the
//!   memory for clients, waiting, and one message more; then it is disconnected.
//! - I3: a connection that is gone leaves [`FORGOTTEN_A_TURN`] of its subscriptions a turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::conn::connection::Connection;
use crate::conn::subscribed::subscription_bytes;
use crate::cores::message::Message;
use crate::events::deliveries::{Progress, SEND_STEPS, Steps};
use crate::events::publication::{Payload, Publication, Topic};
use crate::events::subscriptions::SUBSCRIPTIONS_A_TURN;
use crate::serving::Serving;
use crate::steps;

/// Bytes that wait for a subscriber, at most; as Redis.
const UNREAD_BYTES_MAX: usize = 8 << 20;
/// Subscriptions of a connection that is gone which end in a turn.
const FORGOTTEN_A_TURN: usize = 1024;
/// Subscriptions of one connection take at most this part of the memory for clients.
const SHARE_OF_MEMORY: usize = 4;
/// What waits for one subscriber takes at most this part of it.
const UNREAD_SHARE_OF_MEMORY: usize = 8;
/// Bytes of subscriptions that a connection has while others have much of the memory.
const FEW_BYTES: usize = 4 << 10;

impl Serving {
    fn subscription_count_changes(&self, by: impl FnOnce(usize) -> usize) {
        // There is one writer.
        let count = &self.shared.cores[self.place].subscriptions;
        count.store(by(count.load(Ordering::Relaxed)), Ordering::Release);
    }

    /// Subscribes a connection, and confirms it.
    pub(crate) fn subscribe(
        &mut self,
        (number, connection): (usize, &mut Connection),
        topic: Topic,
        name: &[u8],
        action: &str,
    ) {
        let subscribed = connection.subscribed.get_or_insert_default();
        if !subscribed.names(topic).contains(name) {
            let name = self.subscriptions.add(topic, name, number);
            subscribed.names_bytes += subscription_bytes(&name);
            subscribed.names(topic).insert(name);
            self.subscription_count_changes(|count| count + 1);
        }
        connection.confirm(action, topic, Some(name));
    }

    /// Ends a subscription of a connection, if it has it, and confirms it.
    pub(crate) fn unsubscribe(
        &mut self,
        (number, connection): (usize, &mut Connection),
        topic: Topic,
        name: &[u8],
        action: &str,
    ) {
        if let Some(subscribed) = &mut connection.subscribed
            && subscribed.names(topic).remove(name)
        {
            subscribed.names_bytes -= subscription_bytes(name);
            self.subscriptions.remove(topic, name, number);
            self.subscription_count_changes(|count| count.saturating_sub(1));
        }
        connection.confirm(action, topic, Some(name));
    }

    /// Ends subscriptions of a kind of a connection, and confirms each. False if some are left for
    /// a later turn.
    pub(crate) fn unsubscribe_some(
        &mut self,
        (number, connection): (usize, &mut Connection),
        topic: Topic,
        action: &str,
    ) -> bool {
        let first = |connection: &mut Connection| {
            let subscribed = connection.subscribed.as_mut()?;
            subscribed.names(topic).first().cloned()
        };
        if first(connection).is_none() {
            connection.confirm(action, topic, None);
        }
        for _ in 0..SUBSCRIPTIONS_A_TURN {
            let Some(name) = first(connection) else {
                return true;
            };
            self.unsubscribe((number, &mut *connection), topic, &name, action);
        }
        first(connection).is_none()
    }

    /// The most bytes that one connection's subscriptions may take, if they would be above it with
    /// these, or clients have no more memory for them.
    pub(crate) fn refuses_subscriptions<'a>(
        &self,
        connection: &Connection,
        names: impl Iterator<Item = &'a [u8]>,
    ) -> Option<usize> {
        let bytes: usize = names.map(subscription_bytes).sum();
        let memory = self.memory.server();
        let bytes_max = memory.limit() / SHARE_OF_MEMORY;
        let own = connection.subscription_bytes() + bytes;
        let is_over = own > bytes_max;
        // Half is for what has an end: requests, replies and what commands hold.
        let most = if own <= FEW_BYTES {
            memory.limit() / 8 * 7
        } else {
            memory.limit() / 2
        };
        let is_crowded = memory.taken() + bytes > most;
        (is_over || is_crowded).then_some(bytes_max)
    }

    /// Ends subscriptions of a connection that is gone, as many as in a turn.
    pub(crate) fn forget_subscriptions(&mut self, number: usize, connection: &mut Connection) {
        let Some(subscribed) = &mut connection.subscribed else {
            return;
        };
        subscribed.deferred.clear();
        // Many connections can end in one turn.
        let mut left = if steps::is_slice_over() {
            1
        } else {
            FORGOTTEN_A_TURN
        };
        for topic in [Topic::Channel, Topic::Pattern, Topic::ShardChannel] {
            while left > 0
                && let Some(name) = subscribed.names(topic).pop_first()
            {
                left -= 1;
                steps::count(1);
                subscribed.names_bytes -= subscription_bytes(&name);
                self.subscriptions.remove(topic, &name, number);
                self.subscription_count_changes(|count| count.saturating_sub(1));
            }
        }
        if subscribed.counts() == [0; 3] {
            connection.subscribed = None;
        }
    }

    /// A payload for subscribers. If shared bytes are above their limit, those subscribers of this
    /// core are disconnected that have most of them unread, until there is room; other cores do
    /// the same once.
    pub(crate) fn payload(&mut self, bytes: &[u8]) -> Option<Payload> {
        let shared = Arc::clone(&self.shared);
        if bytes.len() > shared.fanout.bytes_max() {
            return None;
        }
        loop {
            if let Some(payload) = Payload::new(&shared.fanout, bytes) {
                return Some(payload);
            }
            if !self.end_slowest_subscriber() {
                break;
            }
        }
        for (place, core) in shared.cores.iter().enumerate() {
            if place != self.place && core.subscriptions.load(Ordering::Acquire) > 0 {
                core.send(Message::EndSlowestSubscriber);
            }
        }
        None
    }

    /// Disconnects the subscriber that has most shared bytes unread; false if none has any.
    pub(super) fn end_slowest_subscriber(&mut self) -> bool {
        let served = self.connections.iter().enumerate();
        let most = served
            .filter_map(|(number, one)| Some((one.as_ref()?, number)))
            .filter(|(one, _)| !one.is_gone)
            .map(|(one, number)| (one.output.shared_bytes(), number))
            .max();
        let Some((1.., number)) = most else {
            return false;
        };
        self.counters().slow_subscribers.add(1);
        self.close(number);
        true
    }

    /// Hands a message to all subscribers of the core, which are few; returns how many have got it.
    pub(crate) fn publish(
        &mut self,
        message: &Publication,
        running: Option<(usize, &mut Connection)>,
    ) -> usize {
        let (mut progress, mut steps) = (Progress::default(), Steps::of_turn());
        let left = steps.left();
        let (count, is_done) = self.publish_some(message, running, (&mut progress, &mut steps));
        debug_assert!(is_done, "it costs no more than was said");
        self.deliveries.spend(left - steps.left());
        count
    }

    /// Bytes that a client may leave unread of what is sent to it without its request.
    pub(super) fn unread_bytes_max(&self) -> usize {
        UNREAD_BYTES_MAX.min(self.memory.server().limit() / UNREAD_SHARE_OF_MEMORY)
    }

    /// Hands a message to subscribers of the core, while there are steps left; returns how many
    /// have got it, and whether none is left. The connection of the command that runs, if there is
    /// one, gets it after its reply.
    pub(crate) fn publish_some(
        &mut self,
        message: &Publication,
        mut running: Option<(usize, &mut Connection)>,
        (progress, steps): (&mut Progress, &mut Steps),
    ) -> (usize, bool) {
        let subscriptions = std::mem::take(&mut self.subscriptions);
        let unread_bytes_max = self.unread_bytes_max();
        let mut count = 0;
        let is_done = subscriptions.hand_out(message, progress, steps, |pattern, number| {
            let (connection, is_running) = match &mut running {
                Some((own, connection)) if *own == number => (&mut **connection, true),
                _ => match self.connections.get_mut(number) {
                    Some(Some(connection)) => (&mut **connection, false),
                    _ => return 0,
                },
            };
            if connection.is_gone || connection.is_closing {
                return 0;
            }
            // One that does not read gives way at once: many would take much before the turn ends.
            let gives_way = connection.has_unread() && self.memory.server().is_exceeded();
            let before = connection.output.held_bytes();
            if gives_way {
                connection.is_gone = true;
                self.shared.counters[self.place].slow_subscribers.add(1);
            } else if connection.receive(message, pattern, (is_running, unread_bytes_max)) {
                count += 1;
                if connection.output.held_bytes() != before {
                    connection.settle();
                }
            } else {
                self.shared.counters[self.place].slow_subscribers.add(1);
            }
            if !is_running && !connection.is_dirty {
                connection.is_dirty = true;
                self.dirty.push(number);
                return SEND_STEPS;
            }
            0
        });
        self.subscriptions = subscriptions;
        (count, is_done)
    }
}
