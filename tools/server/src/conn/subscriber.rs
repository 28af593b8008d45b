//! A connection as a subscriber: what it may run, and where messages stand among its replies.
//!
//! - I1: a message stands between whole replies: it waits while a reply is made in steps. A
//!   command that waits for keys makes none before it ends.

use crate::conn::connection::Connection;
use crate::events::publication::{Publication, Topic};
use crate::resp::{Protocol, Writer};

impl Connection {
    /// How many channels, patterns and sharded channels it has subscribed to.
    pub(crate) fn subscription_counts(&self) -> [usize; 3] {
        let subscribed = self.subscribed.as_ref();
        subscribed.map_or([0; 3], |subscribed| subscribed.counts())
    }

    /// True if it has subscribed to a channel that patterns do not allow.
    pub(crate) fn has_channel_beyond(&self, allowed: &[Vec<u8>]) -> bool {
        let subscribed = self.subscribed.as_ref();
        subscribed.is_some_and(|subscribed| subscribed.has_beyond(allowed))
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
    pub(crate) fn confirm(&mut self, action: &str, topic: Topic, name: Option<&[u8]>) {
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
    pub(crate) fn is_within_reply(&self) -> bool {
        self.is_executing() || self.is_blocked && self.parked.is_none()
    }

    /// Memory of its subscriptions, and of messages that wait for the end of a reply.
    pub(crate) fn subscription_bytes(&self) -> usize {
        let subscribed = self.subscribed.as_ref();
        subscribed.map_or(0, |subscribed| subscribed.held_bytes())
    }

    /// Adds a message behind the replies. False if too much waits already, and the connection is
    /// gone.
    pub(crate) fn receive(
        &mut self,
        message: &Publication,
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
        if is_between && !self.pushes.is_empty() {
            let pushes = std::mem::take(&mut self.pushes);
            self.output.own().extend_from_slice(&pushes);
        }
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
