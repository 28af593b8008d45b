//! A script as a load.
//!
//! Each request is taken from the script, its value is generated, and the answer is compared with
//! the outcome in the script, byte by byte. Nothing is looked up, and nothing is allocated once the
//! buffers have grown to the longest key and value, unless a write fails.
//!
//! Where times to live are applied, a get that must find its key and finds it absent is counted as
//! expired if the time of the write has passed, and as wrong otherwise.

use std::sync::Arc;

use farcore::{Answer, Change, Condition, Expiry, ExpiryCondition, Operation};
use farcore_tuning::Clock;

use super::lives::Lives;
use super::puts::Puts;
use super::script::{Kind, Script, Step};
use crate::load::Load;
use crate::record::{Generator, Scratch, mix};
use crate::stats::{RequestTag, Verdict};

/// One thread's script.
#[derive(Debug)]
pub struct Replay {
    generator: Generator,
    script: Arc<Script>,
    /// Found when a value of a key in doubt is first read.
    puts: Option<Puts>,
    /// If times to live are applied.
    lives: Option<Lives>,
    clock: Clock,
}

impl Replay {
    /// The load of a script; the seed determines the values.
    #[must_use]
    pub fn new(seed: u64, script: Arc<Script>, clock: Clock) -> Self {
        Self {
            lives: script.expiring_keys().map(Lives::new),
            clock,
            generator: Generator::new(seed),
            script,
            puts: None,
        }
    }
}

impl Replay {
    fn now_ms(&self) -> u64 {
        self.clock.now_ns() / 1_000_000
    }

    /// Notes that a request which sets an expiry is about to be sent.
    #[inline]
    fn note(&mut self, place: u64) {
        if self.lives.is_some() {
            self.note_now(place);
        }
    }

    fn note_now(&mut self, place: u64) {
        let (key, step) = (self.script.key_number(place), self.script.step(place));
        let now_ms = match step.expiry {
            Expiry::Never => 0,
            _ => self.now_ms(),
        };
        let Some(lives) = &mut self.lives else {
            return;
        };
        match step.kind {
            Kind::Put => lives.put(key, step.version, step.expiry, now_ms),
            Kind::Touch | Kind::GetAndTouch => lives.touch(key, step.expiry, now_ms),
            _ => {}
        }
    }

    /// The verdict on an absent key that exists by the script.
    #[cold]
    fn absent(&self, place: u64) -> Verdict {
        let (key, step) = (self.script.key_number(place), self.script.step(place));
        let now_ms = self.now_ms();
        // A delete states no version.
        let may_be = |lives: &Lives| match step.kind {
            Kind::Delete => true,
            _ => lives.may_be_over(key, step.version, now_ms),
        };
        if !self.lives.as_ref().is_some_and(may_be) {
            return Verdict::Wrong;
        }
        match step.kind {
            Kind::Hit | Kind::GetAndTouch => Verdict::Expired,
            _ => Verdict::Right(1),
        }
    }
}

impl Load for Replay {
    fn steps(&self) -> u64 {
        self.script.len()
    }

    #[inline]
    fn request<'a>(&mut self, step: u64, scratch: &'a mut Scratch) -> (RequestTag, Operation<'a>) {
        self.note(step);
        let request = self.script.step(step);
        let tag = RequestTag {
            subject: step,
            kind: request.kind as u8,
        };
        scratch.long_key.clear();
        scratch.long_key.extend_from_slice(request.key);
        let key = &scratch.long_key[..];
        let operation = match request.kind {
            Kind::Hit | Kind::Miss => Operation::Get { key },
            Kind::Delete | Kind::DeleteAbsent => Operation::Delete { key },
            Kind::Touch | Kind::GetAndTouch => Operation::Change {
                key,
                change: Change::SetExpiry {
                    expiry: request.expiry,
                    condition: ExpiryCondition::Always,
                    value: request.kind == Kind::GetAndTouch,
                },
            },
            Kind::Put => {
                let bytes = request.bytes as usize;
                if scratch.long_value.len() < bytes {
                    scratch.long_value.resize(bytes, 0);
                }
                let value = &mut scratch.long_value[..bytes];
                self.generator
                    .fill_long(request.word, u64::from(request.version), value);
                match request.expiry {
                    Expiry::Never => Operation::Put { key, value },
                    expiry => Operation::Change {
                        key,
                        change: Change::Put {
                            value,
                            expiry,
                            condition: Condition::Always,
                            previous: false,
                        },
                    },
                }
            }
        };
        (tag, operation)
    }

    #[inline]
    fn judge(&mut self, tag: RequestTag, answer: &Answer<'_>) -> Verdict {
        let Step {
            word,
            kind,
            version,
            bytes,
            ..
        } = self.script.step(tag.subject);
        let version = u64::from(version);
        match (kind, answer) {
            (Kind::Hit | Kind::GetAndTouch, Answer::Value { value, .. }) => Verdict::when(
                value.len() == bytes as usize && self.generator.is_long(word, version, value),
                mix(word ^ version) ^ u64::from(bytes),
            ),
            (Kind::Miss | Kind::DeleteAbsent, Answer::Absent) => Verdict::Right(mix(word)),
            (Kind::Put | Kind::Touch, Answer::Stored { .. }) | (Kind::Delete, Answer::Deleted) => {
                Verdict::Right(1)
            }
            (Kind::Hit | Kind::GetAndTouch | Kind::Touch | Kind::Delete, Answer::Absent) => {
                self.absent(tag.subject)
            }
            _ => Verdict::Wrong,
        }
    }

    fn is_possible(&mut self, tag: RequestTag, answer: &Answer<'_>) -> bool {
        let script = &*self.script;
        match (script.step(tag.subject).kind, answer) {
            (Kind::Hit | Kind::Miss | Kind::GetAndTouch, Answer::Value { value, .. }) => {
                let puts = self.puts.get_or_insert_with(|| Puts::of(script));
                let is_of = |step: Step<'_>| {
                    value.len() == step.bytes as usize
                        && self
                            .generator
                            .is_long(step.word, u64::from(step.version), value)
                };
                puts.before(script, tag.subject).any(is_of)
            }
            (Kind::Hit | Kind::Delete | Kind::Touch | Kind::GetAndTouch, Answer::Absent)
            | (Kind::DeleteAbsent, Answer::Deleted) => true,
            _ => false,
        }
    }

    fn key(&self, tag: RequestTag) -> u64 {
        self.script.step(tag.subject).word
    }

    fn writes(&self, tag: RequestTag) -> bool {
        let kind = self.script.step(tag.subject).kind;
        !matches!(kind, Kind::Hit | Kind::Miss)
    }

    fn name(&self, tag: RequestTag) -> String {
        let step = self.script.step(tag.subject);
        format!(
            "request {} ({:?} of version {}, {} bytes) of key \"{}\"",
            tag.subject,
            step.kind,
            step.version,
            step.bytes,
            step.key.escape_ascii()
        )
    }
}
