//! The loads: the requests of a worker in a phase, and how it judges the answers.
//!
//! A load makes requests into scratch buffers and judges answers from the request's tag alone. It
//! keeps no record of what it wrote. Requests may follow from answers (YCSB F).
//!
//! - This file: the contest
//! - `ycsb.rs`: the YCSB workloads; `operations.rs`: single kinds of requests

mod operations;
mod ycsb;

use std::sync::Arc;

use farcore::{Answer, Operation};

pub use self::operations::{SETS, SingleRequests};
pub use self::ycsb::{Records, ScanRequest, Transactions};
use crate::phase::{Action, CONTEST, Phase};
use crate::plan::Plan;
use crate::record::{Generator, Scratch, mix};
use crate::stats::{RequestTag, Verdict};

const GET: u8 = 0;
const PUT: u8 = 1;
const DELETE: u8 = 2;
/// A read whose answer is followed by a write of the same key.
const MODIFY: u8 = 3;

/// A series of requests and the judge of their answers.
pub trait Load {
    /// The number of requests, without follow-ups.
    fn steps(&self) -> u64;

    /// Makes a request in the scratch buffers.
    fn request<'a>(&mut self, step: u64, scratch: &'a mut Scratch) -> (RequestTag, Operation<'a>);

    /// Judges an answer.
    fn judge(&mut self, tag: RequestTag, answer: &Answer<'_>) -> Verdict;

    /// Whether an answer that was judged wrong is possible after a write of its key that failed: it
    /// may have taken effect or not. So the key is absent, or holds a value that was written to it.
    fn is_possible(&mut self, tag: RequestTag, answer: &Answer<'_>) -> bool;

    /// A number of the request's key that is the same in all phases and threads.
    fn key(&self, tag: RequestTag) -> u64 {
        tag.subject
    }

    /// Whether the request changes its key.
    fn writes(&self, tag: RequestTag) -> bool {
        matches!(tag.kind, PUT | DELETE)
    }

    /// A description of a request for error messages.
    fn name(&self, tag: RequestTag) -> String {
        format!("key {}", tag.subject)
    }

    /// A request that follows from an earlier answer, if there is one.
    fn follow_up<'a>(&mut self, _room: &'a mut Scratch) -> Option<(RequestTag, Operation<'a>)> {
        None
    }
}

/// One phase over a thread's own keys, in insertion order.
#[derive(Debug)]
pub struct OwnKeys {
    generator: Generator,
    phase: Phase,
    action: Action,
    first: u64,
    steps: u64,
}

impl OwnKeys {
    /// A thread's part of a phase.
    #[must_use]
    pub fn new(plan: &Plan, phase: Phase, thread: u64) -> Self {
        Self {
            generator: plan.generator(),
            phase,
            action: phase.action(),
            first: thread * plan.keys_per_core,
            steps: plan.steps(phase, thread),
        }
    }
}

impl Load for OwnKeys {
    fn steps(&self) -> u64 {
        self.steps
    }

    #[inline(always)]
    fn request<'a>(&mut self, step: u64, scratch: &'a mut Scratch) -> (RequestTag, Operation<'a>) {
        let own = self.phase.key_at(step);
        let subject = self.first + own;
        let word = self.generator.key(subject, &mut scratch.key);
        let key = &scratch.key[..];
        let (kind, operation) = match self.action {
            Action::Get => (GET, Operation::Get { key }),
            Action::Delete => (DELETE, Operation::Delete { key }),
            Action::Put => {
                let value = match self.phase.stored(&self.generator, word, own) {
                    Some(shape) => self.generator.fill(word, shape, &mut scratch.value),
                    None => &[],
                };
                (PUT, Operation::Put { key, value })
            }
        };
        (RequestTag { subject, kind }, operation)
    }

    #[inline(always)]
    fn judge(&mut self, tag: RequestTag, answer: &Answer<'_>) -> Verdict {
        match (self.action, answer) {
            (Action::Get, Answer::Value { value, .. }) => {
                let word = self.generator.key_word(tag.subject);
                let shape = self
                    .phase
                    .stored(&self.generator, word, tag.subject - self.first);
                match shape {
                    Some(shape) if self.generator.is(word, shape, value) => {
                        Verdict::Right(mix(word ^ shape.nonce) ^ shape.bytes as u64)
                    }
                    _ => Verdict::Wrong,
                }
            }
            (Action::Get, Answer::Absent) => {
                let word = self.generator.key_word(tag.subject);
                let own = tag.subject - self.first;
                Verdict::when(
                    self.phase.stored(&self.generator, word, own).is_none(),
                    mix(word),
                )
            }
            (Action::Put, Answer::Stored { .. }) | (Action::Delete, Answer::Deleted) => {
                Verdict::Right(1)
            }
            _ => Verdict::Wrong,
        }
    }

    fn is_possible(&mut self, tag: RequestTag, answer: &Answer<'_>) -> bool {
        match (self.action, answer) {
            (Action::Get, Answer::Value { value, .. }) => {
                let word = self.generator.key_word(tag.subject);
                let own = tag.subject - self.first;
                was_written(&self.generator, self.phase, word, own, value)
            }
            (Action::Get | Action::Delete, Answer::Absent) => true,
            _ => false,
        }
    }
}

/// Whether a value was written to a thread's key, `own`, by a phase of the contest up to this one;
/// the hot mix aside.
#[cold]
fn was_written(generator: &Generator, last: Phase, word: u64, own: u64, value: &[u8]) -> bool {
    let until = CONTEST.iter().position(|&phase| phase == last);
    let phases = &CONTEST[..=until.unwrap_or(0)];
    let mut stored = phases
        .iter()
        .filter_map(|phase| phase.stored(generator, word, own));
    stored.any(|shape| generator.is(word, shape, value))
}

/// A thread's small generator of random draws (xorshift64*).
#[derive(Debug)]
struct Draws(u64);

impl Draws {
    fn new(seed: u64, thread: u64) -> Self {
        Self(mix(seed ^ (thread + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)) | 1)
    }

    #[inline]
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// True with a probability of `percent` in 100.
    #[inline]
    fn chance(&mut self, percent: u64) -> bool {
        crate::record::below(self.next(), 100) < percent
    }
}

/// The hot mix: three reads to one write over the keys of all threads.
#[derive(Debug)]
pub struct Hot {
    generator: Generator,
    keys_per_core: u64,
    /// The number of keys that writes are drawn from evenly; without it they are drawn as reads.
    even_writes: Option<u64>,
    steps: u64,
    stream: Arc<[u32]>,
    at: usize,
    draws: Draws,
}

impl Hot {
    /// A thread's part of the hot mix, with its stream of key indexes.
    #[must_use]
    pub fn new(plan: &Plan, thread: u64, stream: Arc<[u32]>) -> Self {
        Self {
            generator: plan.generator(),
            keys_per_core: plan.keys_per_core,
            even_writes: plan.by_rules.then(|| plan.keys()),
            steps: plan.steps(Phase::Hot, thread),
            stream,
            at: 0,
            draws: Draws::new(plan.seed, thread),
        }
    }
}

#[inline]
fn next_of(stream: &[u32], at: &mut usize) -> u64 {
    let index = stream[*at];
    *at = if *at + 1 == stream.len() { 0 } else { *at + 1 };
    u64::from(index)
}

impl Load for Hot {
    fn steps(&self) -> u64 {
        self.steps
    }

    #[inline(always)]
    fn request<'a>(&mut self, _step: u64, scratch: &'a mut Scratch) -> (RequestTag, Operation<'a>) {
        let popular = next_of(&self.stream, &mut self.at);
        let writes = self.draws.chance(25);
        let subject = match self.even_writes {
            Some(keys) if writes => crate::record::below(self.draws.next(), keys),
            _ => popular,
        };
        let word = self.generator.key(subject, &mut scratch.key);
        let key = &scratch.key[..];
        if writes {
            let shape = self.generator.hot_shape(self.draws.next());
            let value = self.generator.fill(word, shape, &mut scratch.value);
            (
                RequestTag { subject, kind: PUT },
                Operation::Put { key, value },
            )
        } else {
            (RequestTag { subject, kind: GET }, Operation::Get { key })
        }
    }

    #[inline(always)]
    fn judge(&mut self, tag: RequestTag, answer: &Answer<'_>) -> Verdict {
        let right = match answer {
            Answer::Value { value, .. } => {
                let word = self.generator.key_word(tag.subject);
                tag.kind == GET
                    && (self.generator.is_hot(word, value) || {
                        let own = tag.subject % self.keys_per_core;
                        Phase::Hot
                            .stored(&self.generator, word, own)
                            .is_some_and(|shape| self.generator.is(word, shape, value))
                    })
            }
            Answer::Stored { .. } => tag.kind == PUT,
            _ => false,
        };
        Verdict::when(right, 1)
    }

    fn is_possible(&mut self, tag: RequestTag, answer: &Answer<'_>) -> bool {
        match answer {
            Answer::Value { value, .. } => {
                let word = self.generator.key_word(tag.subject);
                let own = tag.subject % self.keys_per_core;
                tag.kind == GET && was_written(&self.generator, Phase::Hot, word, own, value)
            }
            Answer::Absent => tag.kind == GET,
            _ => false,
        }
    }
}
