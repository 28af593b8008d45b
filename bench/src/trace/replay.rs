//! A script as a load.

use std::sync::Arc;

use farcore::{Answer, Operation};

use super::script::{Kind, Script, Step};
use crate::desk::{Question, Verdict};
use crate::load::Load;
use crate::record::{Generator, Scratch, mix};

/// One thread's script.
#[derive(Debug)]
pub struct Replay {
    generator: Generator,
    script: Arc<Script>,
}

impl Replay {
    /// A load of a script; the seed names the values.
    #[must_use]
    pub fn new(seed: u64, script: Arc<Script>) -> Self {
        Self {
            generator: Generator::new(seed),
            script,
        }
    }
}

impl Load for Replay {
    fn steps(&self) -> u64 {
        self.script.len()
    }

    #[inline]
    fn request<'a>(&mut self, step: u64, room: &'a mut Scratch) -> (Question, Operation<'a>) {
        let asked = self.script.step(step);
        let question = Question {
            subject: step,
            kind: asked.kind as u8,
        };
        room.long_key.clear();
        room.long_key.extend_from_slice(asked.key);
        let key = &room.long_key[..];
        let operation = match asked.kind {
            Kind::Hit | Kind::Miss => Operation::Get { key },
            Kind::Delete | Kind::DeleteAbsent => Operation::Delete { key },
            Kind::Put => {
                let bytes = asked.bytes as usize;
                if room.long_value.len() < bytes {
                    room.long_value.resize(bytes, 0);
                }
                let value = &mut room.long_value[..bytes];
                self.generator
                    .fill_long(asked.word, u64::from(asked.version), value);
                Operation::Put { key, value }
            }
        };
        (question, operation)
    }

    #[inline]
    fn judge(&mut self, question: Question, answer: &Answer<'_>) -> Verdict {
        let Step {
            word,
            kind,
            version,
            bytes,
            ..
        } = self.script.step(question.subject);
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

    fn name(&self, question: Question) -> String {
        let step = self.script.step(question.subject);
        format!(
            "request {} ({:?} of version {}, {} bytes) of key \"{}\"",
            question.subject,
            step.kind,
            step.version,
            step.bytes,
            step.key.escape_ascii()
        )
    }
}
