//! What a connection has subscribed to, and messages that wait for the end of its reply.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::conn::output::Output;
use crate::events::publication::Topic;
use crate::users::user::denies_any;

/// What a subscription takes beside its name: an entry each in the core's table and in the
/// connection's set, whose nodes may be half full, a node of subscribers, and the name's counts.
const ENTRY_BYTES: usize = 272;

/// Bytes that a subscription takes.
pub(crate) fn subscription_bytes(name: &[u8]) -> usize {
    name.len() + ENTRY_BYTES
}

/// What a connection has subscribed to.
#[derive(Debug, Default)]
pub(crate) struct Subscribed {
    channels: Names,
    patterns: Names,
    shard_channels: Names,
    /// What the names take, here and in the core's table.
    pub(crate) names_bytes: usize,
    /// Messages that came while a reply was made in steps.
    pub(crate) deferred: Output,
}

/// Names that the core's table has too.
pub(crate) type Names = BTreeSet<Arc<[u8]>>;

impl Subscribed {
    pub(crate) fn names(&mut self, topic: Topic) -> &mut Names {
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

    /// True if patterns do not allow all of it.
    pub(crate) fn has_beyond(&self, allowed: &[Vec<u8>]) -> bool {
        [
            (&self.channels, false),
            (&self.shard_channels, false),
            (&self.patterns, true),
        ]
        .into_iter()
        .any(|(names, are_patterns)| {
            denies_any(allowed, names.iter().map(|name| &name[..]), are_patterns)
        })
    }

    /// How many channels, patterns and sharded channels there are.
    pub(crate) fn counts(&self) -> [usize; 3] {
        [&self.channels, &self.patterns, &self.shard_channels].map(Names::len)
    }
}
