//! A worker's notes on one phase: sampled latencies, wrong answers, and a hash of what was read.
//!
//! Token: | sample slot + 1, or 0: 16 bits | kind: 8 bits | subject (a key index): 40 bits |

use farcore::Answer;
use farcore_tuning::{Clock, Histogram};

/// One request in so many is timed: reading the clock twice costs as much as half a request. A
/// prime, so that no batch size beats with it.
const SAMPLE_PERIOD: u32 = 61;
const SAMPLES_IN_FLIGHT_MAX: u16 = 512;

const KIND_SHIFT: u32 = 40;
const SAMPLE_SHIFT: u32 = 48;
const SUBJECT_MASK: u64 = (1 << KIND_SHIFT) - 1;
const _: () = assert!(crate::plan::KEYS_MAX <= SUBJECT_MASK + 1);

/// What a load asks with one request, and needs again to judge the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The key's index.
    pub subject: u64,
    /// What was asked; the load's own meaning.
    pub kind: u8,
}

/// What a load says about an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it must be; the number tells what was read.
    Right(u64),
    /// Wrong, missing or unexpected.
    Wrong,
}

impl Verdict {
    /// Right if `right`.
    #[inline]
    #[must_use]
    pub fn when(right: bool, read: u64) -> Self {
        if right {
            Self::Right(read)
        } else {
            Self::Wrong
        }
    }
}

/// The notes.
#[derive(Debug)]
pub struct Desk {
    clock: Clock,
    latency: Histogram,
    starts: Box<[u64]>,
    free: Vec<u16>,
    countdown: u32,
    wrong: u64,
    digest: u64,
    complaint: Option<String>,
}

impl Desk {
    /// An empty desk; all its memory is taken here.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            latency: Histogram::default(),
            starts: vec![0; usize::from(SAMPLES_IN_FLIGHT_MAX)].into(),
            free: (0..SAMPLES_IN_FLIGHT_MAX).collect(),
            countdown: 1,
            wrong: 0,
            digest: 0,
            complaint: None,
        }
    }

    /// A token for a request that is about to be handed in.
    #[inline]
    pub fn issue(&mut self, question: Question) -> u64 {
        debug_assert!(question.subject <= SUBJECT_MASK, "a key index has 40 bits");
        let plain = question.subject | u64::from(question.kind) << KIND_SHIFT;
        self.countdown -= 1;
        if self.countdown > 0 {
            return plain;
        }
        self.countdown = SAMPLE_PERIOD;
        let Some(slot) = self.free.pop() else {
            return plain;
        };
        self.starts[usize::from(slot)] = self.clock.raw();
        plain | (u64::from(slot) + 1) << SAMPLE_SHIFT
    }

    /// Notes the arrival of an answer; returns what had been asked.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the token's fields have 8 and 16 bits"
    )]
    pub fn arrive(&mut self, token: u64) -> Question {
        if let Some(slot) = (token >> SAMPLE_SHIFT).checked_sub(1) {
            let start = self.starts[slot as usize];
            self.latency
                .record(self.clock.delta_ns(start, self.clock.raw()));
            self.free.push(slot as u16);
        }
        Question {
            subject: token & SUBJECT_MASK,
            kind: (token >> KIND_SHIFT) as u8,
        }
    }

    /// Notes a verdict; `name` tells what the question was about, should there be a complaint.
    #[inline(always)]
    pub fn enter(&mut self, verdict: Verdict, answer: &Answer<'_>, name: impl FnOnce() -> String) {
        match verdict {
            Verdict::Right(read) => self.digest = self.digest.wrapping_add(read),
            Verdict::Wrong => self.complain(answer, name),
        }
    }

    #[cold]
    fn complain(&mut self, answer: &Answer<'_>, name: impl FnOnce() -> String) {
        self.wrong += 1;
        if self.complaint.is_none() {
            let said = match answer {
                Answer::Value { value, .. } => format!("a value of {} bytes", value.len()),
                Answer::Failed(error) => format!("the error \"{error}\""),
                other => format!("{other:?}"),
            };
            self.complaint = Some(format!("{} was answered with {said}", name()));
        }
    }

    /// Wrong answers so far.
    #[must_use]
    pub fn wrong(&self) -> u64 {
        self.wrong
    }

    /// An order-independent hash of all right answers.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// What the first wrong answer was.
    pub fn take_complaint(&mut self) -> Option<String> {
        self.complaint.take()
    }

    /// The sampled latencies.
    #[must_use]
    pub fn latency(&self) -> &Histogram {
        &self.latency
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_carries_its_question() {
        let mut desk = Desk::new(Clock::new());
        let asked = |subject| Question { subject, kind: 3 };
        let tokens: Vec<u64> = (0..=2 * u64::from(SAMPLE_PERIOD))
            .map(|subject| desk.issue(asked(subject << 26)))
            .collect();
        for (token, subject) in tokens.into_iter().zip(0..) {
            assert_eq!(desk.arrive(token), asked(subject << 26));
        }
        assert_eq!(desk.latency().snapshot().count(), 3);
    }

    #[test]
    fn more_samples_than_slots_are_left_out() {
        let mut desk = Desk::new(Clock::new());
        let question = Question {
            subject: 1,
            kind: 0,
        };
        for _ in 0..u32::from(SAMPLES_IN_FLIGHT_MAX) * SAMPLE_PERIOD + 100 {
            desk.issue(question);
        }
        assert!(desk.free.is_empty());
        desk.enter(Verdict::Wrong, &Answer::Absent, || "key 1".into());
        assert_eq!((desk.wrong(), desk.take_complaint().is_some()), (1, true));
    }
}
