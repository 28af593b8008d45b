//! A worker's statistics of one phase: sampled latencies, wrong answers, errors, and a hash of the
//! answers. A request that ends with an error counts with neither the latencies nor the wrong ones.
//!
//! Owned by one worker; all memory is allocated at the start of the phase. The token of a request
//! carries what is needed to judge its answer:
//!
//! | sample slot + 1, or 0: 16 bits | kind: 8 bits | subject (a key index): 40 bits |

use farcore::{Answer, Error};
use farcore_tuning::{Clock, Histogram};

use crate::failures::Failures;

/// One request in 61 is timed: reading the clock twice costs as much as half a request. A prime, so
/// that the samples do not keep step with any batch size.
const SAMPLE_PERIOD: u32 = 61;
const SAMPLES_IN_FLIGHT_MAX: u16 = 512;

const KIND_SHIFT: u32 = 40;
const SAMPLE_SHIFT: u32 = 48;
const SUBJECT_MASK: u64 = (1 << KIND_SHIFT) - 1;
const _: () = assert!(crate::record::KEYS_MAX <= SUBJECT_MASK + 1);

/// What a load needs of a request to judge its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestTag {
    /// The key's index; in a replay, the request's place in the script.
    pub subject: u64,
    /// The kind of request; each load defines its own.
    pub kind: u8,
}

/// A load's verdict on an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Right; the number is a hash of what was read.
    Right(u64),
    /// Wrong, missing or unexpected.
    Wrong,
    /// Unexpected, but possible for a key in doubt: a write of it has failed.
    Unverified,
    /// A get that finds its key absent because its time to live has passed.
    Expired,
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

/// The statistics.
#[derive(Debug)]
pub struct PhaseStats {
    clock: Clock,
    latency: Histogram,
    starts: Box<[u64]>,
    free: Vec<u16>,
    countdown: u32,
    wrong: u64,
    unverified: u64,
    expired: u64,
    scanned: u64,
    digest: u64,
    complaint: Option<String>,
    failures: Failures,
}

impl PhaseStats {
    /// Empty statistics. Allocates all memory that they need.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            latency: Histogram::default(),
            starts: vec![0; usize::from(SAMPLES_IN_FLIGHT_MAX)].into(),
            free: (0..SAMPLES_IN_FLIGHT_MAX).collect(),
            countdown: 1,
            wrong: 0,
            unverified: 0,
            expired: 0,
            scanned: 0,
            digest: 0,
            complaint: None,
            failures: Failures::default(),
        }
    }

    /// The token for a request that is about to be submitted.
    #[inline]
    pub fn issue(&mut self, tag: RequestTag) -> u64 {
        debug_assert!(tag.subject <= SUBJECT_MASK, "a key index has 40 bits");
        let plain = tag.subject | u64::from(tag.kind) << KIND_SHIFT;
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

    /// Records the latency of an answer, if it is sampled, and returns the request's tag.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the token's fields have 8 and 16 bits"
    )]
    pub fn arrive(&mut self, token: u64) -> RequestTag {
        if let Some(slot) = (token >> SAMPLE_SHIFT).checked_sub(1) {
            let start = self.starts[slot as usize];
            self.latency
                .record(self.clock.delta_ns(start, self.clock.raw()));
            self.free.push(slot as u16);
        }
        Self::tag(token)
    }

    /// Counts a request that ended with an error, and returns its tag; `name` describes it if it is
    /// the first one. A refusal is fast: its latency would flatter the engine and is not recorded.
    #[cold]
    pub fn fail(
        &mut self,
        token: u64,
        error: &Error,
        name: impl FnOnce(RequestTag) -> String,
    ) -> RequestTag {
        if let Some(slot) = (token >> SAMPLE_SHIFT).checked_sub(1) {
            self.free.extend(u16::try_from(slot));
        }
        let tag = Self::tag(token);
        self.failures.count(error, || name(tag));
        tag
    }

    /// Errors so far.
    pub fn failures(&mut self) -> &mut Failures {
        &mut self.failures
    }

    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the token's field has 8 bits"
    )]
    fn tag(token: u64) -> RequestTag {
        RequestTag {
            subject: token & SUBJECT_MASK,
            kind: (token >> KIND_SHIFT) as u8,
        }
    }

    /// Counts a verdict; `name` describes the request if the answer is the first wrong one.
    #[inline(always)]
    pub fn count(&mut self, verdict: Verdict, answer: &Answer<'_>, name: impl FnOnce() -> String) {
        match verdict {
            Verdict::Right(read) => self.digest = self.digest.wrapping_add(read),
            Verdict::Wrong => self.complain(answer, name),
            Verdict::Unverified => self.unverified += 1,
            Verdict::Expired => self.expired += 1,
        }
    }

    #[cold]
    fn complain(&mut self, answer: &Answer<'_>, name: impl FnOnce() -> String) {
        self.wrong += 1;
        if self.complaint.is_none() {
            let said = match answer {
                Answer::Value { value, .. } => format!("a value of {} bytes", value.len()),
                other => format!("{other:?}"),
            };
            self.complaint = Some(format!("{} was answered with {said}", name()));
        }
    }

    /// Counts a scan that returned a wrong record; `name` describes it if it is the first wrong
    /// answer.
    #[cold]
    pub fn wrong_scan(&mut self, name: impl FnOnce() -> String) {
        self.wrong += 1;
        self.complaint
            .get_or_insert_with(|| format!("{} returned a wrong record", name()));
    }

    /// Wrong answers so far.
    #[must_use]
    pub fn wrong(&self) -> u64 {
        self.wrong
    }

    /// Unexpected answers about keys in doubt so far.
    #[must_use]
    pub fn unverified(&self) -> u64 {
        self.unverified
    }

    /// Gets so far that found their key expired.
    #[must_use]
    pub fn expired(&self) -> u64 {
        self.expired
    }

    /// Counts records that a scan returned.
    pub fn note_scanned(&mut self, records: u64) {
        self.scanned += records;
    }

    /// Records that scans returned.
    #[must_use]
    pub fn scanned(&self) -> u64 {
        self.scanned
    }

    /// An order-independent hash of all right answers.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// A description of the first wrong answer.
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
    fn a_token_carries_its_tag() {
        let mut stats = PhaseStats::new(Clock::new());
        let tag_of = |subject| RequestTag { subject, kind: 3 };
        let tokens: Vec<u64> = (0..=2 * u64::from(SAMPLE_PERIOD))
            .map(|subject| stats.issue(tag_of(subject << 26)))
            .collect();
        for (token, subject) in tokens.into_iter().zip(0..) {
            assert_eq!(stats.arrive(token), tag_of(subject << 26));
        }
        assert_eq!(stats.latency().snapshot().count(), 3);
    }

    #[test]
    fn more_samples_than_slots_are_left_out() {
        let mut stats = PhaseStats::new(Clock::new());
        let tag = RequestTag {
            subject: 1,
            kind: 0,
        };
        for _ in 0..u32::from(SAMPLES_IN_FLIGHT_MAX) * SAMPLE_PERIOD + 100 {
            stats.issue(tag);
        }
        assert!(stats.free.is_empty());
        stats.count(Verdict::Wrong, &Answer::Absent, || "key 1".into());
        assert_eq!((stats.wrong(), stats.take_complaint().is_some()), (1, true));
    }
}
