//! Channels: which connections of a core have subscribed to them, and how messages reach them.
//!
//! Each core owns the subscriptions of its connections. A message is sent once to each core that
//! has any, in the order in which its publisher has sent it, and the core hands it to its
//! subscribers.
//!
//! - I1: a core's count of subscriptions is right when a client reads that it has subscribed.
//! - I2: a message stands between whole replies: it waits while a reply is made in steps. A
//!   command that waits for keys makes none before it ends.
//! - I3: a subscriber that does not read has at most [`UNREAD_BYTES_MAX`] waiting, and one message
//!   more; then it is disconnected.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering;

use crate::connection::Connection;
use crate::glob;
use crate::output::Output;
use crate::resp::{Protocol, Writer};
use crate::serving::Serving;

/// Bytes that wait for a subscriber, at most; as Redis.
const UNREAD_BYTES_MAX: usize = 8 << 20;

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
    pub(crate) payload: Vec<u8>,
}

impl Message {
    /// Writes it for a subscriber of its channel or of a pattern.
    fn write(&self, pattern: Option<&[u8]>, writer: &mut Writer<'_>) {
        let (kind, count) = match pattern {
            Some(_) => ("pmessage", 4),
            None if self.is_sharded => ("smessage", 3),
            None => ("message", 3),
        };
        writer.push(count);
        writer.bulk(kind.as_bytes());
        if let Some(pattern) = pattern {
            writer.bulk(pattern);
        }
        writer.bulk(&self.channel);
        writer.bulk(&self.payload);
    }
}

/// Numbers of connections, by channel.
type Channels = HashMap<Vec<u8>, Vec<usize>>;

/// The subscriptions of a core's connections.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    channels: Channels,
    shard_channels: Channels,
    patterns: Vec<(Vec<u8>, Vec<usize>)>,
}

impl Subscriptions {
    fn channels_of(&mut self, topic: Topic) -> &mut Channels {
        if topic == Topic::ShardChannel {
            &mut self.shard_channels
        } else {
            &mut self.channels
        }
    }

    fn add(&mut self, topic: Topic, name: &[u8], number: usize) {
        if topic != Topic::Pattern {
            let channels = self.channels_of(topic);
            return channels.entry(name.to_vec()).or_default().push(number);
        }
        match self.patterns.iter_mut().find(|(known, _)| known == name) {
            Some((_, numbers)) => numbers.push(number),
            None => self.patterns.push((name.to_vec(), vec![number])),
        }
    }

    fn remove(&mut self, topic: Topic, name: &[u8], number: usize) {
        if topic != Topic::Pattern {
            if let Entry::Occupied(mut entry) = self.channels_of(topic).entry(name.to_vec()) {
                entry.get_mut().retain(|&one| one != number);
                if entry.get().is_empty() {
                    entry.remove();
                }
            }
            return;
        }
        for (known, numbers) in &mut self.patterns {
            if known == name {
                numbers.retain(|&one| one != number);
            }
        }
        self.patterns.retain(|(_, numbers)| !numbers.is_empty());
    }

    /// The subscribers of a message's channel and of each pattern that matches it, by pattern.
    fn receivers<'a>(
        &'a self,
        message: &'a Message,
    ) -> impl Iterator<Item = (Option<&'a [u8]>, usize)> {
        let channels = if message.is_sharded {
            &self.shard_channels
        } else {
            &self.channels
        };
        let direct = channels.get(&message.channel).into_iter().flatten();
        let matching = (self.patterns.iter()).filter(|(pattern, _)| {
            // Patterns are of ordinary channels.
            !message.is_sharded && glob::matches(pattern, &message.channel)
        });
        let by_pattern = matching.flat_map(|(pattern, numbers)| {
            numbers.iter().map(|&number| (Some(&pattern[..]), number))
        });
        direct.map(|&number| (None, number)).chain(by_pattern)
    }

    /// Channels with subscribers, and how many each has.
    pub(crate) fn counts(&self, topic: Topic) -> impl Iterator<Item = (&[u8], usize)> {
        let channels = if topic == Topic::ShardChannel {
            &self.shard_channels
        } else {
            &self.channels
        };
        channels.iter().map(|(name, all)| (&name[..], all.len()))
    }

    /// Patterns with subscribers.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = &[u8]> {
        self.patterns.iter().map(|(pattern, _)| &pattern[..])
    }
}

/// What a connection has subscribed to.
#[derive(Debug, Default)]
pub(crate) struct Subscribed {
    channels: BTreeSet<Vec<u8>>,
    patterns: BTreeSet<Vec<u8>>,
    shard_channels: BTreeSet<Vec<u8>>,
    /// Messages that came while a reply was made in steps.
    deferred: Output,
}

impl Subscribed {
    fn names(&mut self, topic: Topic) -> &mut BTreeSet<Vec<u8>> {
        match topic {
            Topic::Channel => &mut self.channels,
            Topic::Pattern => &mut self.patterns,
            Topic::ShardChannel => &mut self.shard_channels,
        }
    }

    /// How many channels, patterns and sharded channels there are.
    pub(crate) fn counts(&self) -> [usize; 3] {
        [&self.channels, &self.patterns, &self.shard_channels].map(BTreeSet::len)
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

    /// Bytes of messages that wait for the end of a reply.
    pub(crate) fn deferred_bytes(&self) -> usize {
        let subscribed = self.subscribed.as_ref();
        subscribed.map_or(0, |subscribed| subscribed.deferred.held_bytes())
    }

    /// Adds a message behind the replies. False if too much waits already, and the connection is
    /// gone.
    fn receive(&mut self, message: &Message, pattern: Option<&[u8]>, is_deferred: bool) -> bool {
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
        if waiting > UNREAD_BYTES_MAX {
            self.is_gone = true;
            return false;
        }
        let into = if is_deferred {
            &mut subscribed.deferred
        } else {
            &mut self.output
        };
        message.write(pattern, &mut Writer::new(into.own(), self.protocol));
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
        if subscribed.names(topic).insert(name.to_vec()) {
            self.subscriptions.add(topic, name, number);
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
            self.subscriptions.remove(topic, name, number);
            self.subscription_count_changes(|count| count.saturating_sub(1));
        }
        connection.confirm(action, topic, Some(name));
    }

    /// Ends all subscriptions of a kind of a connection, and confirms each.
    pub(crate) fn unsubscribe_all(
        &mut self,
        (number, connection): (usize, &mut Connection),
        topic: Topic,
        action: &str,
    ) {
        let subscribed = connection.subscribed.as_mut();
        let names = subscribed.map(|subscribed| subscribed.names(topic).clone());
        let names = names.unwrap_or_default();
        if names.is_empty() {
            connection.confirm(action, topic, None);
        }
        for name in names {
            self.unsubscribe((number, &mut *connection), topic, &name, action);
        }
    }

    /// Ends all subscriptions of a connection.
    pub(crate) fn forget_subscriptions(&mut self, number: usize, connection: &mut Connection) {
        let Some(mut subscribed) = connection.subscribed.take() else {
            return;
        };
        for topic in [Topic::Channel, Topic::Pattern, Topic::ShardChannel] {
            for name in std::mem::take(subscribed.names(topic)) {
                self.subscriptions.remove(topic, &name, number);
                self.subscription_count_changes(|count| count.saturating_sub(1));
            }
        }
    }

    /// Hands a message to the core's subscribers; returns how many there are. The connection of the
    /// command that runs, if there is one, gets it after its reply.
    pub(crate) fn publish(
        &mut self,
        message: &Message,
        mut running: Option<(usize, &mut Connection)>,
    ) -> usize {
        let subscriptions = std::mem::take(&mut self.subscriptions);
        let mut count = 0;
        for (pattern, number) in subscriptions.receivers(message) {
            let (connection, is_running) = match &mut running {
                Some((own, connection)) if *own == number => (&mut **connection, true),
                _ => match self.connections.get_mut(number) {
                    Some(Some(connection)) => (&mut **connection, false),
                    _ => continue,
                },
            };
            if connection.is_gone || connection.is_closing {
                continue;
            }
            if connection.receive(message, pattern, is_running) {
                count += 1;
            } else {
                self.shared.counters[self.place].slow_subscribers.add(1);
            }
            if !is_running && !connection.is_dirty {
                connection.is_dirty = true;
                self.dirty.push(number);
            }
        }
        self.subscriptions = subscriptions;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(channel: &str, is_sharded: bool) -> Message {
        Message {
            is_sharded,
            channel: channel.into(),
            payload: b"text".to_vec(),
        }
    }

    fn receivers(subscriptions: &Subscriptions, message: &Message) -> Vec<(Option<String>, usize)> {
        let text = |pattern: &[u8]| String::from_utf8_lossy(pattern).into_owned();
        let receivers = subscriptions.receivers(message);
        receivers
            .map(|(pattern, number)| (pattern.map(text), number))
            .collect()
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
                (Some("news.*".into()), 1),
                (Some("n*".into()), 2)
            ]
        );
        let sharded = receivers(&subscriptions, &message("news.it", true));
        assert_eq!(sharded, [(None, 3)]);
        subscriptions.remove(Topic::Channel, b"news.it", 1);
        subscriptions.remove(Topic::Pattern, b"news.*", 1);
        let left = receivers(&subscriptions, &message("news.it", false));
        assert_eq!(left, [(Some("n*".into()), 2)]);
        assert_eq!(subscriptions.counts(Topic::Channel).count(), 0);
        assert_eq!(subscriptions.patterns().count(), 1);
    }
}
