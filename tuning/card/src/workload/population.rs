//! How many objects a host has, and their numbers.

use serde::{Deserialize, Serialize};

use crate::handle::{Handle, Kind, OBJECTS_MAX};
use crate::settings::{Setting, SettingError};
use crate::token::{
    Access, CompletionQueueToken, DomainToken, Fields, QueuePairState, QueuePairToken, RegionToken,
    Token, Transport,
};

/// The objects of a host. Keys number them: domains, completion queues, regions, queue pairs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Population {
    /// Queue pairs; 0 for messages that use none.
    pub queue_pairs: u32,
    /// Regions; 0 for messages that use none.
    pub regions: u32,
    /// Completion queues, which the queue pairs share; 0 for messages that use none.
    pub completion_queues: u32,
    /// Protection domains, at least 1.
    pub domains: u32,
}

impl Default for Population {
    fn default() -> Self {
        Self {
            queue_pairs: 1_024,
            regions: 1_024,
            completion_queues: 64,
            domains: 4,
        }
    }
}

impl Population {
    /// Checks every number.
    ///
    /// # Errors
    /// The first that is wrong, with its value and limits.
    pub fn validate(&self) -> Result<(), SettingError> {
        let max = OBJECTS_MAX as f64;
        let count = |name, number: u32, min| Setting::new(name, f64::from(number)).within(min, max);
        count("queue-pairs", self.queue_pairs, 0.0)?;
        count("regions", self.regions, 0.0)?;
        count("completion-queues", self.completion_queues, 0.0)?;
        count("domains", self.domains, 1.0)?;
        let used = self.queue_pairs + self.regions + self.completion_queues;
        Setting::new("queue-pairs + regions + completion-queues", f64::from(used))
            .within(1.0, 3.0 * max)
    }

    /// The number of objects of a kind.
    #[must_use]
    pub const fn count(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Domain => self.domains,
            Kind::CompletionQueue => self.completion_queues,
            Kind::Region => self.regions,
            Kind::QueuePair => self.queue_pairs,
        }
    }

    /// The number of all objects, and of keys.
    #[must_use]
    pub const fn keys(&self) -> u32 {
        self.domains + self.completion_queues + self.regions + self.queue_pairs
    }

    /// The key of an object.
    #[must_use]
    pub const fn key(&self, kind: Kind, index: u32) -> u32 {
        let before = match kind {
            Kind::Domain => 0,
            Kind::CompletionQueue => self.domains,
            Kind::Region => self.domains + self.completion_queues,
            Kind::QueuePair => self.domains + self.completion_queues + self.regions,
        };
        before + index
    }

    /// The domain of an object, by its index: all domains have equal shares.
    #[must_use]
    pub fn domain(&self, index: u16) -> u16 {
        let domain = u32::from(index) % self.domains.max(1);
        u16::try_from(domain).unwrap_or(0)
    }

    /// The tokens of all objects, by key.
    #[must_use]
    pub fn tokens(&self) -> Vec<Token> {
        let order = [
            Kind::Domain,
            Kind::CompletionQueue,
            Kind::Region,
            Kind::QueuePair,
        ];
        let all = order.into_iter().flat_map(|kind| {
            let count = u16::try_from(self.count(kind).saturating_sub(1));
            let indexes = (self.count(kind) > 0).then_some(0..=count.unwrap_or(u16::MAX));
            let indexes = indexes.into_iter().flatten();
            indexes.map(move |index| self.token(Handle::new(kind, 0, index)))
        });
        all.collect()
    }

    /// The token of an object, with fields like those of a running host: numbers count up, and
    /// lkeys have the index in the upper bits and a byte that the owner chooses.
    #[must_use]
    pub fn token(&self, handle: Handle) -> Token {
        let index = handle.index();
        let fields = match handle.kind() {
            Some(Kind::CompletionQueue) => Fields::CompletionQueue(CompletionQueueToken {
                handle,
                number: 0x400 + u32::from(index),
                entries: 4_096,
                vector: index % 64,
                flags: 0,
            }),
            Some(Kind::Region) => Fields::Region(RegionToken {
                handle,
                lkey: u32::from(index) << 8 | u32::from(handle.version()),
                access: Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE,
                page_bits: 21,
                pages: 512,
            }),
            Some(Kind::QueuePair) => {
                let queue = u32::from(index) % self.completion_queues.max(1);
                let queue = u16::try_from(queue).unwrap_or(0);
                Fields::QueuePair(QueuePairToken {
                    handle,
                    number: 0x100 + u32::from(index),
                    transport: Transport::ReliableConnection,
                    state: QueuePairState::ReadyToSend,
                    domain: self.domain(index),
                    send_queue: queue,
                    receive_queue: queue,
                    access: Access::REMOTE_READ | Access::REMOTE_WRITE,
                })
            }
            Some(Kind::Domain) | None => Fields::Domain(DomainToken {
                handle,
                number: 0x10 + u32::from(index),
            }),
        };
        // Every field is within its bits, and a handle of no kind packs to nothing.
        fields.pack().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_tokens_have_one_order() {
        let population = Population {
            queue_pairs: 3,
            regions: 2,
            completion_queues: 0,
            domains: 1,
        };
        let tokens = population.tokens();
        assert_eq!(tokens.len(), population.keys() as usize);
        let key = population.key(Kind::QueuePair, 2) as usize;
        assert_eq!(tokens[key].handle(), Handle::new(Kind::QueuePair, 0, 2));
        assert!(tokens.iter().all(|token| token.unpack().is_ok()));
        let most = Population {
            queue_pairs: 1 << 16,
            ..population
        };
        assert_eq!(most.tokens().len(), (1 << 16) + 3);
        assert!(most.validate().is_ok());
    }

    #[test]
    fn limits_are_named() {
        let population = Population {
            regions: 70_000,
            ..Population::default()
        };
        let error = population.validate().unwrap_err().to_string();
        assert_eq!(error, "regions is 70000: write 0 to 65536");
    }
}
