//! A script as a load.
//!
//! Each request is taken from the script, its value is generated, and the answer is compared with
//! the outcome in the script, byte by byte. Nothing is looked up, and nothing is allocated once the
//! buffers have grown to the longest key and value, unless a write fails.

use std::sync::Arc;

use farcore::{Answer, Operation};

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
}

impl Replay {
    /// The load of a script; the seed determines the values.
    #[must_use]
    pub fn new(seed: u64, script: Arc<Script>) -> Self {
        Self {
            generator: Generator::new(seed),
            script,
            puts: None,
        }
    }
}

impl Load for Replay {
    fn steps(&self) -> u64 {
        self.script.len()
    }

    #[inline]
    fn request<'a>(&mut self, step: u64, scratch: &'a mut Scratch) -> (RequestTag, Operation<'a>) {
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
            Kind::Put => {
                let bytes = request.bytes as usize;
                if scratch.long_value.len() < bytes {
                    scratch.long_value.resize(bytes, 0);
                }
                let value = &mut scratch.long_value[..bytes];
                self.generator
                    .fill_long(request.word, u64::from(request.version), value);
                Operation::Put { key, value }
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
            (Kind::Hit, Answer::Value { value, .. }) => Verdict::when(
                value.len() == bytes as usize && self.generator.is_long(word, version, value),
                mix(word ^ version) ^ u64::from(bytes),
            ),
            (Kind::Miss | Kind::DeleteAbsent, Answer::Absent) => Verdict::Right(mix(word)),
            (Kind::Put, Answer::Stored { .. }) | (Kind::Delete, Answer::Deleted) => {
                Verdict::Right(1)
            }
            _ => Verdict::Wrong,
        }
    }

    fn is_possible(&mut self, tag: RequestTag, answer: &Answer<'_>) -> bool {
        let script = &*self.script;
        match (script.step(tag.subject).kind, answer) {
            (Kind::Hit | Kind::Miss, Answer::Value { value, .. }) => {
                let puts = self.puts.get_or_insert_with(|| Puts::of(script));
                let is_of = |step: Step<'_>| {
                    value.len() == step.bytes as usize
                        && self
                            .generator
                            .is_long(step.word, u64::from(step.version), value)
                };
                puts.before(script, tag.subject).any(is_of)
            }
            (Kind::Hit | Kind::Delete, Answer::Absent) | (Kind::DeleteAbsent, Answer::Deleted) => {
                true
            }
            _ => false,
        }
    }

    fn key(&self, tag: RequestTag) -> u64 {
        self.script.step(tag.subject).word
    }

    fn writes(&self, tag: RequestTag) -> bool {
        let kind = self.script.step(tag.subject).kind;
        matches!(kind, Kind::Put | Kind::Delete | Kind::DeleteAbsent)
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
