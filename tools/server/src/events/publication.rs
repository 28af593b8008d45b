//! Messages of channels: what is published, and to what clients subscribe.
//!
//! - I1: a long payload is one buffer, which all its readers share (`shared_bytes.rs`).

use std::sync::Arc;

use crate::conn::output::Output;
use crate::conn::shared_bytes::{BESIDE_BYTES, Fanout, FanoutCharge, SharedBytes};
use crate::resp::{Protocol, Writer};

/// Bytes of a channel's name, at most.
pub(crate) const CHANNEL_BYTES_MAX: usize = 8 << 10;
/// Payload bytes from which the subscribers share one buffer.
const SHARED_BYTES_MIN: usize = 512;

/// What a client subscribes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Topic {
    Channel,
    Pattern,
    ShardChannel,
}

/// A message that a client publishes, or an event of a key.
#[derive(Debug)]
pub(crate) struct Publication {
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

impl Publication {
    /// Bytes that are copied for each subscriber.
    pub(crate) fn copied_bytes(&self) -> usize {
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
    pub(crate) fn write(&self, pattern: Option<&[u8]>, output: &mut Output, protocol: Protocol) {
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

/// Some names of a topic.
#[derive(Debug, Default)]
pub(crate) struct NamesPage {
    pub(crate) names: Vec<Arc<[u8]>>,
    /// The last one that was looked at; none at the end.
    pub(crate) last: Option<Arc<[u8]>>,
}
