//! Channels: which connections of a core have subscribed to them, and how messages reach them.
//!
//! Each core owns the subscriptions of its connections. A message is sent once to each core that
//! has any, in the order in which its publisher has sent it, and the core hands it to its
//! subscribers.
//!
//! - I1: a core's count of subscriptions is right when a client reads that it has subscribed.
//! - I2: a message stands between whole replies: it waits while a reply is made in steps. A
//!   command that waits for keys makes none before it ends.
//! - I3: a subscriber that does not read has at most [`UNREAD_BYTES_MAX`], or an eighth of the
//!   memory for clients, waiting, and one message more; then it is disconnected.
//! - I4: a name is stored once a core. To add or remove a subscription costs the logarithm of their
//!   count. A connection that is gone leaves [`FORGOTTEN_A_TURN`] of its subscriptions a turn.
//! - I5: a long payload is one buffer, which all its readers share (`shared_bytes.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::conn::connection::Connection;
use crate::conn::output::Output;
use crate::conn::shared_bytes::{BESIDE_BYTES, Fanout, FanoutCharge, SharedBytes};
use crate::events::deliveries::{DELIVERY_STEPS, Progress, SEND_STEPS, Steps};
use crate::glob::{self, PATTERN_BYTES_MAX};
use crate::resp::{Protocol, Writer};
use crate::turn::core_port::Message as PortMessage;
use crate::turn::serving::Serving;
use crate::turn::steps;

/// Bytes that wait for a subscriber, at most; as Redis.
const UNREAD_BYTES_MAX: usize = 8 << 20;

/// Bytes of a channel's name, at most.
pub(crate) const CHANNEL_BYTES_MAX: usize = 8 << 10;
/// Subscriptions that begin or end in a turn for one connection, at most.
pub(crate) const SUBSCRIPTIONS_A_TURN: usize = 1024;
/// Subscriptions of a connection that is gone which end in a turn.
const FORGOTTEN_A_TURN: usize = 1024;
/// Names that a core looks at in a turn to list them.
const NAMES_A_TURN: usize = 1024;
/// Payload bytes from which the subscribers share one buffer.
const SHARED_BYTES_MIN: usize = 512;
/// What a subscription takes beside its name: an entry each in the core's table and in the
/// connection's set, whose nodes may be half full, a node of subscribers, and the name's counts.
const ENTRY_BYTES: usize = 272;
/// Subscriptions of one connection take at most this part of the memory for clients.
const SHARE_OF_MEMORY: usize = 4;
/// What waits for one subscriber takes at most this part of it.
const UNREAD_SHARE_OF_MEMORY: usize = 8;

/// Bytes of subscriptions that a connection has while others have much of the memory.
const FEW_BYTES: usize = 4 << 10;

/// Bytes that a subscription takes.
fn subscription_bytes(name: &[u8]) -> usize {
    name.len() + ENTRY_BYTES
}

/// What a client subscribes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Topic {
    Channel,
    Pattern,
    ShardChannel,
}

/// What a client publishes.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) is_sharded: bool,
    pub(crate) channel: Vec<u8>,
    pub(crate) payload: Payload,
    /// What it takes while it waits for a turn, beside shared bytes.
    pub(crate) charge: Option<FanoutCharge>,
}

/// The payload of a message.
#[derive(Debug)]
pub(crate) enum Payload {
    /// It is copied for each subscriber.
    Short(Vec<u8>),
    /// All of them read it where it is.
    Shared(SharedBytes),
}

impl Payload {
    /// `None` if shared bytes would be above their limit.
    pub(crate) fn new(fanout: &Fanout, bytes: &[u8]) -> Option<Self> {
        if bytes.len() < SHARED_BYTES_MIN {
            return Some(Self::Short(bytes.to_vec()));
        }
        fanout.share(bytes).map(Self::Shared)
    }
}

impl Message {
    /// Bytes that are copied for each subscriber.
    fn copied_bytes(&self) -> usize {
        let payload = match &self.payload {
            Payload::Short(bytes) => bytes.len(),
            Payload::Shared(_) => 0,
        };
        self.channel.len() + payload
    }

    /// Bytes that it takes while it waits, beside shared ones.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>() + BESIDE_BYTES + self.copied_bytes()
    }

    /// Writes it for a subscriber of its channel or of a pattern.
    fn write(&self, pattern: Option<&[u8]>, output: &mut Output, protocol: Protocol) {
        let (kind, count) = match pattern {
            Some(_) => ("pmessage", 4),
            None if self.is_sharded => ("smessage", 3),
            None => ("message", 3),
        };
        let mut writer = Writer::new(output.own(), protocol);
        writer.push(count);
        writer.bulk(kind.as_bytes());
        if let Some(pattern) = pattern {
            writer.bulk(pattern);
        }
        writer.bulk(&self.channel);
        match &self.payload {
            Payload::Short(bytes) => writer.bulk(bytes),
            Payload::Shared(bytes) => {
                writer.raw(format!("${}\r\n", bytes.len()).as_bytes());
                output.share(bytes.clone());
                output.own().extend_from_slice(b"\r\n");
            }
        }
    }
}

/// Bytes that are compared to match a channel, at most.
fn match_steps(pattern: &[u8], channel: &[u8]) -> usize {
    if pattern.contains(&b'*') {
        1 + glob::comparisons_max(pattern.len(), channel.len())
    } else {
        1 + pattern.len()
    }
}

/// Gives the subscribers behind one, while there are steps left. Each costs so many, and what
/// `give` returns. True if none is left.
fn each_after(
    numbers: &BTreeSet<usize>,
    after: &mut Option<usize>,
    (steps, cost): (&mut Steps, usize),
    mut give: impl FnMut(usize) -> usize,
) -> bool {
    let from = after.map_or(Bound::Unbounded, Bound::Excluded);
    for &number in numbers.range((from, Bound::Unbounded)) {
        if steps.is_spent() {
            return false;
        }
        steps.spend(cost + give(number));
        *after = Some(number);
    }
    *after = None;
    true
}

/// Numbers of connections, by name.
type Subscribers = BTreeMap<Arc<[u8]>, BTreeSet<usize>>;

/// The subscriptions of a core's connections.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    channels: Subscribers,
    shard_channels: Subscribers,
    patterns: Subscribers,
    /// Subscriptions to patterns, and bytes of the patterns.
    pattern_subscriptions: usize,
    pattern_bytes: usize,
}

impl Subscriptions {
    fn of(&mut self, topic: Topic) -> &mut Subscribers {
        match topic {
            Topic::Channel => &mut self.channels,
            Topic::Pattern => &mut self.patterns,
            Topic::ShardChannel => &mut self.shard_channels,
        }
    }

    /// Adds a connection; returns the name as it is stored.
    fn add(&mut self, topic: Topic, name: &[u8], number: usize) -> Arc<[u8]> {
        let all = self.of(topic);
        let known = all.get_key_value(name).map(|(known, _)| Arc::clone(known));
        let is_new = known.is_none();
        let name = known.unwrap_or_else(|| name.into());
        let is_added = all.entry(Arc::clone(&name)).or_default().insert(number);
        if topic == Topic::Pattern {
            self.pattern_subscriptions += usize::from(is_added);
            self.pattern_bytes += if is_new { name.len() } else { 0 };
        }
        name
    }

    fn remove(&mut self, topic: Topic, name: &[u8], number: usize) {
        let all = self.of(topic);
        if let Some(numbers) = all.get_mut(name) {
            let is_removed = numbers.remove(&number);
            let is_last = numbers.is_empty();
            if is_last {
                all.remove(name);
            }
            if topic == Topic::Pattern {
                self.pattern_subscriptions -= usize::from(is_removed);
                self.pattern_bytes -= if is_last { name.len() } else { 0 };
            }
        }
    }

    fn channels_of(&self, message: &Message) -> &Subscribers {
        if message.is_sharded {
            &self.shard_channels
        } else {
            &self.channels
        }
    }

    /// What it costs at most to hand out a message.
    pub(crate) fn steps_max(&self, message: &Message) -> usize {
        let direct = self.channels_of(message).get(&message.channel[..]);
        let mut receivers = direct.map_or(0, BTreeSet::len);
        let mut matches = 0;
        if !message.is_sharded {
            receivers += self.pattern_subscriptions;
            matches = self.pattern_bytes * (message.channel.len() + 1) + self.patterns.len();
        }
        receivers * (SEND_STEPS + DELIVERY_STEPS + message.copied_bytes() + PATTERN_BYTES_MAX)
            + matches
    }

    /// Goes on with the subscribers of a message's channel and of each pattern that matches it,
    /// while there are steps left; `give` returns how many it has needed. True if none is left.
    fn hand_out(
        &self,
        message: &Message,
        progress: &mut Progress,
        steps: &mut Steps,
        mut give: impl FnMut(Option<&[u8]>, usize) -> usize,
    ) -> bool {
        let cost = DELIVERY_STEPS + message.copied_bytes();
        if !progress.has_passed_channel {
            let direct = self.channels_of(message).get(&message.channel[..]);
            let none = BTreeSet::new();
            let numbers = direct.unwrap_or(&none);
            let give = |number| give(None, number);
            if !each_after(numbers, &mut progress.after, (steps, cost), give) {
                return false;
            }
            progress.has_passed_channel = true;
        }
        if message.is_sharded {
            // Patterns are of ordinary channels.
            return true;
        }
        let passed = progress.pattern.take();
        let mut after = progress.after.take();
        let from = match &passed {
            None => Bound::Unbounded,
            Some(pattern) if after.is_some() => Bound::Included(&pattern[..]),
            Some(pattern) => Bound::Excluded(&pattern[..]),
        };
        let mut last = passed.as_ref();
        for (pattern, numbers) in self.patterns.range::<[u8], _>((from, Bound::Unbounded)) {
            if after.is_some() && last != Some(pattern) {
                // The one that it had come to has no subscribers any more.
                after = None;
            }
            let mut is_matching = after.is_some();
            if !is_matching && !steps.is_spent() {
                steps.spend(match_steps(pattern, &message.channel));
                is_matching = glob::matches(pattern, &message.channel);
                if !is_matching {
                    last = Some(pattern);
                    continue;
                }
                // One that matches has one subscriber in this turn at least.
                let Some(&first) = numbers.first() else {
                    continue;
                };
                steps.spend(cost + pattern.len() + give(Some(pattern), first));
                after = Some(first);
            }
            let cost = cost + pattern.len();
            if !is_matching
                || !each_after(numbers, &mut after, (steps, cost), |number| {
                    give(Some(pattern), number)
                })
            {
                progress.pattern = if after.is_some() {
                    Some(Arc::clone(pattern))
                } else {
                    last.cloned()
                };
                progress.after = after;
                return false;
            }
            last = Some(pattern);
        }
        true
    }

    fn topic(&self, topic: Topic) -> &Subscribers {
        match topic {
            Topic::Channel => &self.channels,
            Topic::Pattern => &self.patterns,
            Topic::ShardChannel => &self.shard_channels,
        }
    }

    /// Looks at some names with subscribers, from the first one on or behind another, and returns
    /// those that match a pattern.
    pub(crate) fn page(&self, topic: Topic, before: Option<&[u8]>, pattern: Option<&[u8]>) -> Page {
        let start = before.map_or(Bound::Unbounded, Bound::Excluded);
        let all = self.topic(topic);
        let names = all.range::<[u8], _>((start, Bound::Unbounded));
        let mut page = Page::default();
        for (place, (name, _)) in names.enumerate() {
            if place >= NAMES_A_TURN || place > 0 && steps::is_slice_over() {
                return page;
            }
            steps::count(1);
            if pattern.is_none_or(|pattern| glob::matches(pattern, name)) {
                page.names.push(Arc::clone(name));
            }
            page.last = Some(Arc::clone(name));
        }
        page.last = None;
        page
    }

    /// How many subscribers each of some names has.
    pub(crate) fn counts<'n>(
        &self,
        topic: Topic,
        names: impl Iterator<Item = &'n [u8]>,
    ) -> Vec<usize> {
        let all = self.topic(topic);
        let counts = names.map(|name| all.get(name).map_or(0, BTreeSet::len));
        let counts: Vec<_> = counts.collect();
        steps::count(counts.len());
        counts
    }
}

/// Some names of a topic.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) names: Vec<Arc<[u8]>>,
    /// The last one that was looked at; none at the end.
    pub(crate) last: Option<Arc<[u8]>>,
}

/// What a connection has subscribed to.
#[derive(Debug, Default)]
pub(crate) struct Subscribed {
    channels: Names,
    patterns: Names,
    shard_channels: Names,
    /// What the names take, here and in the core's table.
    names_bytes: usize,
    /// Messages that came while a reply was made in steps.
    deferred: Output,
}

/// Names that the core's table has too.
type Names = BTreeSet<Arc<[u8]>>;

impl Subscribed {
    fn names(&mut self, topic: Topic) -> &mut Names {
        match topic {
            Topic::Channel => &mut self.channels,
            Topic::Pattern => &mut self.patterns,
            Topic::ShardChannel => &mut self.shard_channels,
        }
    }

    /// Memory of the subscriptions and of the messages that wait here.
    pub(crate) fn held_bytes(&self) -> usize {
        size_of::<Self>() + self.names_bytes + self.deferred.held_bytes()
    }

    /// How many channels, patterns and sharded channels there are.
    pub(crate) fn counts(&self) -> [usize; 3] {
        [&self.channels, &self.patterns, &self.shard_channels].map(Names::len)
    }
}

impl Connection {
    /// How many channels, patterns and sharded channels it has subscribed to.
    pub(crate) fn subscription_counts(&self) -> [usize; 3] {
        let subscribed = self.subscribed.as_ref();
        subscribed.map_or([0; 3], |subscribed| subscribed.counts())
    }

    /// True if it may only run commands of channels: replies and messages look alike in RESP2.
    pub(crate) fn is_restricted(&self) -> bool {
        self.protocol == Protocol::Resp2 && self.subscription_counts() != [0; 3]
    }

    /// The count that a client reads when it has subscribed to something.
    fn confirmed_count(&self, topic: Topic) -> usize {
        let [channels, patterns, shard_channels] = self.subscription_counts();
        match topic {
            Topic::Channel | Topic::Pattern => channels + patterns,
            Topic::ShardChannel => shard_channels,
        }
    }

    /// Writes that a client has subscribed to something, or has not any more. Nothing is pending.
    fn confirm(&mut self, action: &str, topic: Topic, name: Option<&[u8]>) {
        let count = self.confirmed_count(topic);
        let mut writer = Writer::new(self.output.own(), self.protocol);
        writer.push(3);
        writer.bulk(action.as_bytes());
        match name {
            Some(name) => writer.bulk(name),
            None => writer.null(),
        }
        writer.integer(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// True while a reply is made in steps. That of a command that waits is made in one.
    fn is_within_reply(&self) -> bool {
        self.is_executing() || self.is_blocked && self.parked.is_none()
    }

    /// Memory of its subscriptions, and of messages that wait for the end of a reply.
    pub(crate) fn subscription_bytes(&self) -> usize {
        let subscribed = self.subscribed.as_ref();
        subscribed.map_or(0, |subscribed| subscribed.held_bytes())
    }

    /// Adds a message behind the replies. False if too much waits already, and the connection is
    /// gone.
    fn receive(
        &mut self,
        message: &Message,
        pattern: Option<&[u8]>,
        (is_deferred, unread_bytes_max): (bool, usize),
    ) -> bool {
        let is_deferred = is_deferred || self.is_within_reply();
        let Some(subscribed) = &mut self.subscribed else {
            return true;
        };
        if !is_deferred {
            // Those that came before stay before it.
            self.output.append(&mut subscribed.deferred);
        }
        self.output.compact();
        let waiting = subscribed.deferred.waiting_bytes() + self.output.waiting_bytes();
        if waiting > unread_bytes_max {
            self.is_gone = true;
            return false;
        }
        let into = if is_deferred {
            &mut subscribed.deferred
        } else {
            &mut self.output
        };
        message.write(pattern, into, self.protocol);
        true
    }

    /// Adds messages that waited for the end of a reply to the output.
    pub(crate) fn send_deferred(&mut self) {
        let is_between = !self.is_within_reply();
        if let Some(subscribed) = &mut self.subscribed
            && is_between
        {
            self.output
                .append(&mut std::mem::take(&mut subscribed.deferred));
            if subscribed.counts() == [0; 3] {
                self.subscribed = None;
            }
        }
    }
}

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
                core.send(PortMessage::Run(Box::new(|serving| {
                    serving.end_slowest_subscriber();
                })));
            }
        }
        None
    }

    /// Disconnects the subscriber that has most shared bytes unread; false if none has any.
    fn end_slowest_subscriber(&mut self) -> bool {
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
        message: &Message,
        running: Option<(usize, &mut Connection)>,
    ) -> usize {
        let (mut progress, mut steps) = (Progress::default(), Steps::of_turn());
        let left = steps.left();
        let (count, is_done) = self.publish_some(message, running, (&mut progress, &mut steps));
        debug_assert!(is_done, "it costs no more than was said");
        self.deliveries.spend(left - steps.left());
        count
    }

    /// Hands a message to subscribers of the core, while there are steps left; returns how many
    /// have got it, and whether none is left. The connection of the command that runs, if there is
    /// one, gets it after its reply.
    pub(crate) fn publish_some(
        &mut self,
        message: &Message,
        mut running: Option<(usize, &mut Connection)>,
        (progress, steps): (&mut Progress, &mut Steps),
    ) -> (usize, bool) {
        let subscriptions = std::mem::take(&mut self.subscriptions);
        let unread_bytes_max =
            UNREAD_BYTES_MAX.min(self.memory.server().limit() / UNREAD_SHARE_OF_MEMORY);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::deliveries::STEPS_A_TURN;

    fn message(channel: &str, is_sharded: bool) -> Message {
        Message {
            is_sharded,
            channel: channel.into(),
            payload: Payload::Short(b"text".to_vec()),
            charge: None,
        }
    }

    fn receivers(subscriptions: &Subscriptions, message: &Message) -> Vec<(Option<String>, usize)> {
        let text = |pattern: &[u8]| String::from_utf8_lossy(pattern).into_owned();
        let (mut all, mut progress) = (Vec::new(), Progress::default());
        let give = |pattern: Option<&[u8]>, number| {
            all.push((pattern.map(text), number));
            0
        };
        assert!(subscriptions.hand_out(message, &mut progress, &mut Steps::of_turn(), give));
        all
    }

    #[test]
    fn a_message_reaches_its_channel_and_each_pattern_that_matches() {
        let mut subscriptions = Subscriptions::default();
        subscriptions.add(Topic::Channel, b"news.it", 1);
        subscriptions.add(Topic::Pattern, b"news.*", 1);
        subscriptions.add(Topic::Pattern, b"n*", 2);
        subscriptions.add(Topic::ShardChannel, b"news.it", 3);
        let all = receivers(&subscriptions, &message("news.it", false));
        assert_eq!(
            all,
            [
                (None, 1),
                (Some("n*".into()), 2),
                (Some("news.*".into()), 1)
            ]
        );
        let sharded = receivers(&subscriptions, &message("news.it", true));
        assert_eq!(sharded, [(None, 3)]);
        subscriptions.remove(Topic::Channel, b"news.it", 1);
        subscriptions.remove(Topic::Pattern, b"news.*", 1);
        let left = receivers(&subscriptions, &message("news.it", false));
        assert_eq!(left, [(Some("n*".into()), 2)]);
        let channels = subscriptions.page(Topic::Channel, None, None);
        let patterns = subscriptions.page(Topic::Pattern, None, None);
        assert_eq!((channels.names.len(), patterns.names.len()), (0, 1));
    }

    #[test]
    fn names_are_listed_in_pages() {
        let mut subscriptions = Subscriptions::default();
        let names: Vec<_> = (0..2 * NAMES_A_TURN + 5)
            .map(|name| format!("{name:06}"))
            .collect();
        for name in names.iter().map(String::as_str).chain([""]) {
            subscriptions.add(Topic::Channel, name.as_bytes(), 1);
        }
        let (mut listed, mut pages, mut before) = (Vec::new(), 0, None);
        loop {
            steps::take();
            let page = subscriptions.page(Topic::Channel, before.as_deref(), Some(b"*"));
            listed.extend(page.names);
            pages += 1;
            before = page.last;
            if before.is_none() {
                break;
            }
        }
        assert_eq!((listed.len(), pages), (names.len() + 1, 3));
        assert!(listed.is_sorted());
        // Each page looks at one at least.
        steps::count(usize::try_from(steps::SLICE).expect("few"));
        let page = subscriptions.page(Topic::Channel, None, Some(b"0*1"));
        assert_eq!(
            (page.names.len(), page.last.as_deref()),
            (0, Some(&b""[..]))
        );
        steps::take();
    }

    #[test]
    fn a_message_goes_to_some_subscribers_a_turn_and_to_each_once() {
        const EACH: usize = 2000;
        let mut subscriptions = Subscriptions::default();
        let (mut expected, mut got) = (Vec::new(), Vec::new());
        for number in 0..EACH {
            subscriptions.add(Topic::Channel, b"news", number);
            let pattern = format!("n*{}", "*".repeat(number % 7));
            subscriptions.add(Topic::Pattern, pattern.as_bytes(), number);
            let other = format!("m{number}*");
            subscriptions.add(Topic::Pattern, other.as_bytes(), number);
            expected.push((None, number));
            expected.push((Some(pattern), number));
        }
        let (message, mut progress) = (message("news", false), Progress::default());
        assert!(subscriptions.steps_max(&message) > STEPS_A_TURN);
        let mut turns = 0;
        loop {
            let before = got.len();
            let give = |pattern: Option<&[u8]>, number| {
                let text = |pattern: &[u8]| String::from_utf8_lossy(pattern).into_owned();
                got.push((pattern.map(text), number));
                SEND_STEPS
            };
            let mut steps = Steps::of_turn();
            let is_done = subscriptions.hand_out(&message, &mut progress, &mut steps, give);
            turns += 1;
            assert!(got.len() - before <= STEPS_A_TURN / SEND_STEPS);
            if is_done {
                break;
            }
            assert!(got.len() > before, "each turn comes further");
            // One that it has come to goes, and so does its pattern.
            if turns == 12 {
                let (pattern, number) = got.last().cloned().expect("one");
                let pattern = pattern.expect("a pattern");
                subscriptions.remove(Topic::Pattern, pattern.as_bytes(), number);
            }
        }
        assert!(turns >= 2 * EACH * SEND_STEPS / STEPS_A_TURN, "{turns}");
        got.sort();
        expected.sort();
        assert_eq!(got, expected);
        for number in 0..EACH {
            for pattern in [
                format!("n*{}", "*".repeat(number % 7)),
                format!("m{number}*"),
            ] {
                subscriptions.remove(Topic::Pattern, pattern.as_bytes(), number);
            }
        }
        assert_eq!(
            (
                subscriptions.pattern_subscriptions,
                subscriptions.pattern_bytes
            ),
            (0, 0)
        );
    }
}
