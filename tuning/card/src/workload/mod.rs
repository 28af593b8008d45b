//! Workloads: which tokens the messages of a host use, as a stream that a seed determines.
//!
//! A message uses a queue pair, a region and the queue pair's completion queue. [`Pattern`] says
//! how queue pairs and regions are drawn, [`Population`] how many there are, `zipf` draws by
//! popularity. A recorded workload comes from a [trace](super::trace).
//!
//! - I1: the same settings give the same messages on every machine. Exponents that are whole
//!   numbers need no more than IEEE division; others depend on the system's power function.

mod pattern;
mod population;
mod zipf;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::pattern::Draws;
pub use self::pattern::Pattern;
pub use self::population::Population;
use super::handle::Kind;
use super::random::{Random, share};
use super::settings::{Setting, SettingError};
use super::trace::Recording;

/// Most tokens that one message uses.
pub const MESSAGE_KEYS_MAX: usize = 4;

/// What a message does with its first token. It reads the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// It reads the token.
    Read,
    /// It changes fields that may reach the host later, such as packet numbers.
    Relaxed,
    /// It changes fields that must reach the host at once: keys, permissions, states.
    Strict,
    /// The object is removed and another takes its index: a new connection.
    Replace,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 4] = [Self::Read, Self::Relaxed, Self::Strict, Self::Replace];

    /// The word in traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Relaxed => "relaxed",
            Self::Strict => "strict",
            Self::Replace => "replace",
        }
    }
}

/// One message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    keys: [u32; MESSAGE_KEYS_MAX],
    count: u8,
    /// What it does with the first token.
    pub operation: Operation,
    /// It names a domain that may not use the token.
    pub is_foreign: bool,
    /// When it was recorded; 0 if it was drawn.
    pub time_ns: u64,
}

impl Message {
    /// A message that uses 1 to [`MESSAGE_KEYS_MAX`] tokens; `None` for another number.
    #[must_use]
    pub fn new(keys: &[u32], operation: Operation, time_ns: u64) -> Option<Self> {
        if keys.is_empty() || keys.len() > MESSAGE_KEYS_MAX {
            return None;
        }
        let mut all = [0; MESSAGE_KEYS_MAX];
        all[..keys.len()].copy_from_slice(keys);
        Some(Self {
            keys: all,
            count: u8::try_from(keys.len()).ok()?,
            operation,
            is_foreign: false,
            time_ns,
        })
    }

    /// The numbers of its tokens, in the order of use.
    #[must_use]
    #[inline]
    pub fn keys(&self) -> &[u32] {
        &self.keys[..usize::from(self.count)]
    }
}

/// The settings of a workload.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WorkloadSettings {
    /// How queue pairs and regions are drawn.
    pub pattern: Pattern,
    /// How many there are.
    pub population: Population,
    /// The share of messages that change relaxed fields.
    pub relaxed_share: f64,
    /// The share of messages that change strict fields.
    pub strict_share: f64,
    /// The share of messages of a domain that may not use their region.
    pub foreign_share: f64,
    /// The seed.
    pub seed: u64,
}

impl Default for WorkloadSettings {
    fn default() -> Self {
        Self {
            pattern: Pattern::default(),
            population: Population::default(),
            // Every message of a reliable connection moves its packet numbers; half of them on
            // this side.
            relaxed_share: 0.5,
            strict_share: 0.001,
            foreign_share: 0.0,
            seed: 1,
        }
    }
}

impl WorkloadSettings {
    /// Checks every setting.
    ///
    /// # Errors
    /// The first that is wrong, with its value and limits.
    pub fn validate(&self) -> Result<(), SettingError> {
        self.population.validate()?;
        self.pattern.validate()?;
        Setting::new("relaxed-share", self.relaxed_share).within(0.0, 1.0)?;
        Setting::new("strict-share", self.strict_share).within(0.0, 1.0)?;
        Setting::new("foreign-share", self.foreign_share).within(0.0, 1.0)?;
        Setting::new(
            "relaxed-share + strict-share",
            self.relaxed_share + self.strict_share,
        )
        .within(0.0, 1.0)
    }
}

/// A stream of messages.
#[derive(Clone, Debug)]
pub enum Workload {
    /// Drawn from settings, without end.
    Drawn(Box<Drawn>),
    /// Recorded, with an end.
    Recorded(Arc<Recording>, usize),
}

/// A stream of messages that are drawn.
#[derive(Clone, Debug)]
pub struct Drawn {
    population: Population,
    draws: Draws,
    random: Random,
    relaxed: u32,
    strict: u32,
    foreign: u32,
}

impl Workload {
    /// The stream of settings.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn drawn(settings: &WorkloadSettings) -> Result<Self, SettingError> {
        settings.validate()?;
        let relaxed = share(settings.relaxed_share);
        Ok(Self::Drawn(Box::new(Drawn {
            population: settings.population,
            draws: Draws::new(&settings.pattern, &settings.population, settings.seed),
            random: Random::new(settings.seed, 2),
            relaxed,
            strict: relaxed.saturating_add(share(settings.strict_share)),
            foreign: share(settings.foreign_share),
        })))
    }

    /// The stream of a recording.
    #[must_use]
    pub fn recorded(recording: Arc<Recording>) -> Self {
        Self::Recorded(recording, 0)
    }

    /// The next message; `None` at the end of a recording.
    #[inline]
    pub fn next_message(&mut self) -> Option<Message> {
        match self {
            Self::Drawn(drawn) => Some(drawn.next_message()),
            Self::Recorded(recording, at) => {
                let message = recording.messages().get(*at).copied();
                *at += usize::from(message.is_some());
                message
            }
        }
    }

    /// The next accesses to tokens, in order, for a [replay](super::replay) against one tier; fewer
    /// at the end of a recording.
    #[must_use]
    pub fn accesses(&mut self, count: usize) -> Vec<u32> {
        let mut accesses = Vec::with_capacity(count);
        while accesses.len() < count {
            let Some(message) = self.next_message() else {
                break;
            };
            let left = count - accesses.len();
            accesses.extend(message.keys().iter().take(left));
        }
        accesses
    }
}

impl Drawn {
    fn next_message(&mut self) -> Message {
        let drawn = self.draws.next();
        let population = &self.population;
        let mut message = Message {
            keys: [0; MESSAGE_KEYS_MAX],
            count: 0,
            operation: drawn.operation.unwrap_or(Operation::Read),
            is_foreign: false,
            time_ns: 0,
        };
        let mut add = |key: u32| {
            message.keys[usize::from(message.count)] = key;
            message.count += 1;
        };
        if population.queue_pairs > 0 {
            add(population.key(Kind::QueuePair, drawn.queue_pair));
        }
        if population.regions > 0 {
            add(population.key(Kind::Region, drawn.region));
        }
        if population.completion_queues > 0 {
            let queue = drawn.queue_pair % population.completion_queues;
            add(population.key(Kind::CompletionQueue, queue));
        }
        if drawn.operation.is_none() && (self.strict > 0 || self.foreign > 0) {
            let draw = self.random.bits();
            // The halves are independent.
            let high = u32::try_from(draw >> 32).unwrap_or(u32::MAX);
            if high < self.relaxed {
                message.operation = Operation::Relaxed;
            } else if high < self.strict {
                message.operation = Operation::Strict;
            }
            message.is_foreign = draw & u64::from(u32::MAX) < u64::from(self.foreign);
        }
        message
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pattern: Pattern) -> WorkloadSettings {
        WorkloadSettings {
            pattern,
            population: Population {
                queue_pairs: 100,
                regions: 50,
                completion_queues: 10,
                domains: 1,
            },
            ..WorkloadSettings::default()
        }
    }

    fn messages(settings: &WorkloadSettings, count: usize) -> Vec<Message> {
        let mut workload = Workload::drawn(settings).unwrap();
        let next = |_| workload.next_message().unwrap();
        (0..count).map(next).collect()
    }

    #[test]
    fn a_message_uses_a_queue_pair_a_region_and_their_queue() {
        for pattern in Pattern::EXAMPLES {
            let settings = settings(pattern);
            for message in messages(&settings, 20_000) {
                let &[pair, region, queue] = message.keys() else {
                    panic!("{message:?}");
                };
                // Domains, completion queues, regions and queue pairs follow each other.
                assert!((61..161).contains(&pair), "{message:?}");
                assert!((11..61).contains(&region), "{message:?}");
                assert_eq!(queue, 1 + (pair - 61) % 10, "{message:?}");
            }
        }
    }

    #[test]
    fn a_seed_determines_the_messages() {
        for pattern in Pattern::EXAMPLES {
            let one = settings(pattern);
            let other = WorkloadSettings {
                seed: 2,
                ..one.clone()
            };
            assert_eq!(messages(&one, 1_000), messages(&one, 1_000));
            assert_ne!(messages(&one, 1_000), messages(&other, 1_000));
        }
    }

    #[test]
    fn shares_of_operations_hold() {
        let settings = WorkloadSettings {
            relaxed_share: 0.5,
            strict_share: 0.25,
            foreign_share: 0.1,
            ..settings(Pattern::Uniform)
        };
        let messages = messages(&settings, 100_000);
        let share = |of: &dyn Fn(&Message) -> bool| {
            messages.iter().filter(|one| of(one)).count() as f64 / 1e5
        };
        let near = |share: f64, wanted: f64| (share - wanted).abs() < 0.01;
        assert!(near(share(&|one| one.operation == Operation::Relaxed), 0.5));
        assert!(near(share(&|one| one.operation == Operation::Strict), 0.25));
        assert!(near(share(&|one| one.is_foreign), 0.1));
    }

    #[test]
    fn a_storm_replaces_queue_pairs() {
        let storm = Pattern::Storm {
            exponent: 1.0,
            period: 100,
            burst: 40,
        };
        let messages = messages(&settings(storm), 1_000);
        let count = |operation| {
            let of = messages.iter().filter(|one| one.operation == operation);
            of.count()
        };
        // Ten bursts of ten new connections, each followed by three changes of its state.
        assert_eq!(count(Operation::Replace), 100);
        assert!(count(Operation::Strict) >= 300);
    }

    #[test]
    fn wrong_settings_are_named() {
        let mut wrong = settings(Pattern::Uniform);
        wrong.relaxed_share = 0.9;
        wrong.strict_share = 0.2;
        let error = wrong.validate().unwrap_err().to_string();
        assert!(error.contains("relaxed-share + strict-share"), "{error}");
        let wrong = settings(Pattern::Zipf { exponent: 9.0 });
        let error = wrong.validate().unwrap_err().to_string();
        assert!(error.contains("exponent") && error.contains('9'), "{error}");
    }

    #[test]
    fn accesses_are_the_tokens_of_messages() {
        let mut workload = Workload::drawn(&settings(Pattern::Uniform)).unwrap();
        let accesses = workload.clone().accesses(10);
        let first = workload.next_message().unwrap();
        assert_eq!(accesses[..3], *first.keys());
        assert_eq!(accesses.len(), 10);
    }
}
