//! The requests of `operations`: each phase sends one kind of request to all of a thread's keys, in
//! the order of their numbers.
//!
//! A thread has four sets of keys, so that no phase finds what another has left: values, numbers,
//! values that get longer, and keys that come and go. Versions are remembered, for the swaps.

use farcore::{Answer, Change, Condition, Expiry, Metadata, Operation};

use super::{Draws, GET, Load, PUT};
use crate::experiments::operations::settings::{RANGE_BYTES, Settings};
use crate::phase::{Phase, Single};
use crate::plan::{Plan, Scenario};
use crate::record::{Generator, Scratch, Shape, VALUE_GRAIN_BYTES};
use crate::stats::{RequestTag, Verdict};

/// What a number is before it is incremented: 8 digits.
const NUMBER: &[u8] = b"10000000";
const INCREMENTED: &[u8] = b"10000001";
/// Sets of keys.
pub const SETS: u64 = 4;

/// A thread's requests, in the phase that was set last.
#[derive(Debug)]
pub struct SingleRequests {
    generator: Generator,
    single: Single,
    value_bytes: usize,
    keys: u64,
    threads: u64,
    thread: u64,
    draws: Draws,
    /// Of the values' keys, by number.
    versions: Box<[u64]>,
}

impl SingleRequests {
    /// A thread's requests; `None` for other scenarios.
    #[must_use]
    pub fn new(plan: &Plan, thread: u64) -> Option<Self> {
        let Scenario::Operations(settings) = &plan.scenario else {
            return None;
        };
        let Settings { value_bytes, .. } = **settings;
        let keys = plan.keys_per_core;
        Some(Self {
            generator: Generator::new(plan.seed),
            single: Single::Put,
            value_bytes,
            keys,
            threads: plan.threads(),
            thread,
            draws: Draws::new(plan.seed, thread),
            versions: vec![0; usize::try_from(keys).unwrap_or(0)].into(),
        })
    }

    /// Sets the kind of requests.
    pub fn set(&mut self, phase: Phase) {
        self.single = match phase {
            Phase::Single(single) => single,
            _ => Single::Put,
        };
    }

    /// The number of a key in a thread's set, from its index.
    #[expect(clippy::cast_possible_truncation, reason = "below the number of keys")]
    fn own(&self, subject: u64) -> usize {
        (subject % self.keys) as usize
    }
}

/// A put that happens only if a condition holds.
fn put_if<'a>(value: &'a [u8], condition: Condition<'a>) -> Change<'a> {
    Change::Put {
        value,
        expiry: Expiry::Never,
        condition,
        previous: false,
    }
}

impl Load for &mut SingleRequests {
    fn steps(&self) -> u64 {
        self.keys
    }

    #[inline(always)]
    fn request<'a>(&mut self, step: u64, scratch: &'a mut Scratch) -> (RequestTag, Operation<'a>) {
        let subject = (self.single.set() * self.threads + self.thread) * self.keys + step;
        let word = self.generator.key(subject, &mut scratch.key);
        let key = &scratch.key[..];
        let value = if self.single.has_value() {
            let bytes = match self.single {
                Single::Append => VALUE_GRAIN_BYTES,
                _ => self.value_bytes,
            };
            let nonce = self.draws.next();
            self.generator
                .fill(word, Shape { nonce, bytes }, &mut scratch.value)
        } else {
            &[]
        };
        let operation = match self.single {
            Single::Put | Single::Insert => Operation::Put { key, value },
            Single::PutIf => Operation::Change {
                key,
                change: put_if(value, Condition::Present),
            },
            Single::CompareAndSwap => Operation::CompareAndSwap {
                key,
                value,
                #[expect(clippy::cast_possible_truncation, reason = "below the number of keys")]
                expected: self.versions[step as usize],
            },
            Single::Get => Operation::Get { key },
            #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
            Single::GetRange => Operation::GetRange {
                key,
                offset: 0,
                bytes: RANGE_BYTES as u32,
            },
            Single::PutNumber => Operation::Put { key, value: NUMBER },
            Single::Increment => Operation::Change {
                key,
                change: Change::Increment { by: 1 },
            },
            Single::Append => Operation::Change {
                key,
                change: Change::Append { tail: value },
            },
            Single::Delete => Operation::Delete { key },
        };
        let kind = if self.single.writes() { PUT } else { GET };
        (RequestTag { subject, kind }, operation)
    }

    #[inline(always)]
    fn judge(&mut self, tag: RequestTag, answer: &Answer<'_>) -> Verdict {
        let right = match (self.single, answer) {
            (Single::Put | Single::PutIf | Single::CompareAndSwap, Answer::Stored { version }) => {
                let own = self.own(tag.subject);
                self.versions[own] = *version;
                true
            }
            (Single::Insert | Single::PutNumber, Answer::Stored { .. })
            | (Single::Delete, Answer::Deleted) => true,
            (Single::Get, Answer::Value { value, .. }) => {
                let word = self.generator.key_word(tag.subject);
                self.generator.is_any(word, self.value_bytes, value)
            }
            (Single::GetRange, Answer::Value { value, .. }) => {
                let word = self.generator.key_word(tag.subject);
                // A value does not depend on its length, so its start is a shorter value.
                self.generator.is_any(word, RANGE_BYTES, value)
            }
            (Single::Increment, Answer::Value { value, .. }) => *value == INCREMENTED,
            (Single::Append, Answer::Value { version, value }) => {
                let metadata = Metadata::decode(*version, value);
                metadata.is_some_and(|known| known.length % VALUE_GRAIN_BYTES as u64 == 0)
            }
            _ => false,
        };
        Verdict::when(right, 1)
    }

    fn is_possible(&mut self, _tag: RequestTag, _answer: &Answer<'_>) -> bool {
        false
    }
}
