//! The counters of a client, which the leader reads while the client runs: since when it waits,
//! how many answers it received, what was wrong.
//!
//! One client writes, the leader reads. Times are those of the run's clock.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use farcore::{Error, HistogramSnapshot};
use farcore_tuning::Histogram;

use super::settings::Request;
use crate::doubts::Doubts;
use crate::failures::{ErrorCounts, Failures};

// ORDERING: Relaxed throughout: every number is read alone, and orders and events between client
// and leader pass through channels.

/// One client's counters, on their own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Notes {
    /// 0 while the client does not wait.
    waiting_since_ns: AtomicU64,
    longest_wait_ns: AtomicU64,
    answers: AtomicU64,
    wrong: AtomicU64,
    failed: AtomicU64,
    failures: Mutex<Failures>,
    unverified: AtomicU64,
    /// Keys of which a write failed, shared by all clients.
    doubts: Arc<Doubts>,
    /// The place of the latest request in [`Request::ALL`], plus one; 0 for others.
    latest_request: AtomicU8,
    complaint: Mutex<Option<String>>,
}

impl Notes {
    /// The counters of a client that shares the keys in doubt with others.
    #[must_use]
    pub fn sharing(doubts: Arc<Doubts>) -> Self {
        Self {
            doubts,
            ..Self::default()
        }
    }

    /// The client starts to wait. The measured client states the kind of its request.
    pub fn begin(&self, now_ns: u64, request: Option<Request>) {
        let place = request.and_then(|request| Request::ALL.iter().position(|one| *one == request));
        let request = place.and_then(|place| u8::try_from(place + 1).ok());
        self.latest_request
            .store(request.unwrap_or(0), Ordering::Relaxed);
        self.waiting_since_ns
            .store(now_ns.max(1), Ordering::Relaxed);
    }

    /// Answers have arrived, failures among them; the client waits for more.
    pub fn answered(&self, now_ns: u64, count: u64) {
        self.note_wait(now_ns);
        self.waiting_since_ns
            .store(now_ns.max(1), Ordering::Relaxed);
        self.answers.fetch_add(count, Ordering::Relaxed);
    }

    /// The client stops waiting.
    pub fn end(&self) {
        self.waiting_since_ns.store(0, Ordering::Relaxed);
    }

    fn note_wait(&self, now_ns: u64) {
        let since_ns = self.waiting_since_ns.load(Ordering::Relaxed);
        if since_ns > 0 {
            let wait_ns = now_ns.saturating_sub(since_ns);
            self.longest_wait_ns.fetch_max(wait_ns, Ordering::Relaxed);
        }
    }

    /// Start of the current wait.
    #[must_use]
    pub fn waiting_since_ns(&self) -> Option<u64> {
        Some(self.waiting_since_ns.load(Ordering::Relaxed)).filter(|since_ns| *since_ns > 0)
    }

    /// Kind of the measured client's latest request.
    #[must_use]
    pub fn latest_request(&self) -> Option<Request> {
        let place = usize::from(self.latest_request.load(Ordering::Relaxed)).checked_sub(1)?;
        Request::ALL.get(place).copied()
    }

    /// The longest time without an answer since [`Notes::forget_waits`], the current wait included.
    #[must_use]
    pub fn longest_wait_ns(&self, now_ns: u64) -> u64 {
        let wait_ns = |since_ns| now_ns.saturating_sub(since_ns);
        let current_ns = self.waiting_since_ns().map_or(0, wait_ns);
        self.longest_wait_ns.load(Ordering::Relaxed).max(current_ns)
    }

    /// Forgets past waits; the current one still counts in full.
    pub fn forget_waits(&self) {
        self.longest_wait_ns.store(0, Ordering::Relaxed);
    }

    /// Answers so far; a request that failed is not answered.
    #[must_use]
    pub fn answers(&self) -> u64 {
        let arrived = self.answers.load(Ordering::Relaxed);
        arrived.saturating_sub(self.failed.load(Ordering::Relaxed))
    }

    /// A write of a key failed, so no client knows what it holds.
    #[cold]
    pub fn doubt(&self, key: u64) {
        self.doubts.add(key);
    }

    /// Unexpected answers about keys of which a write failed.
    #[must_use]
    pub fn unverified(&self) -> u64 {
        self.unverified.load(Ordering::Relaxed)
    }

    /// Counts an unexpected answer about a key: a wrong one, unless a write of the key has failed
    /// and the answer is possible after that.
    pub fn wrong(&self, key: u64, is_possible: bool, complaint: impl FnOnce() -> String) {
        if is_possible && self.doubts.has(key) {
            self.unverified.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.wrong.fetch_add(1, Ordering::Relaxed);
        self.complain(complaint);
    }

    /// Counts a request that the engine refused or failed.
    #[cold]
    pub fn failed(&self, error: &Error, complaint: impl FnOnce() -> String) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.failures().count(error, String::new);
        self.complain(complaint);
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        let failures = self.failures.lock();
        failures.unwrap_or_else(PoisonError::into_inner)
    }

    /// The failed requests by the kind of their error.
    #[must_use]
    pub fn errors(&self) -> ErrorCounts {
        self.failures().counts()
    }

    #[cold]
    fn complain(&self, complaint: impl FnOnce() -> String) {
        let mut first = self
            .complaint
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(complaint);
    }

    /// Wrong answers and failed requests so far.
    #[must_use]
    pub fn faults(&self) -> (u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.wrong), of(&self.failed))
    }

    /// A description of the first wrong answer or failed request.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let first = self
            .complaint
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        first.clone()
    }
}

/// The waits of one kind of request.
#[derive(Debug, Default)]
struct Waits {
    nanoseconds: Histogram,
    passed_by: Histogram,
}

/// The measured client's waits in one phase, by kind of request. That client is the only writer.
#[derive(Debug, Default)]
pub struct Latencies([Waits; Request::ALL.len()]);

impl Latencies {
    fn of(&self, request: Request) -> &Waits {
        match request {
            Request::Near => &self.0[0],
            Request::Far => &self.0[1],
            Request::Put => &self.0[2],
        }
    }

    /// Records the wait for one answer, and how many answers the flooders received meanwhile.
    pub fn record(&self, request: Request, took_ns: u64, passed_by: u64) {
        let waits = self.of(request);
        waits.nanoseconds.record(took_ns);
        waits.passed_by.record(passed_by);
    }

    /// How many answers the flooders received during each wait.
    #[must_use]
    pub fn passed_by(&self, request: Request) -> HistogramSnapshot {
        self.of(request).passed_by.snapshot()
    }

    /// The recorded waits, and the wait of a request without an answer if there is one.
    #[must_use]
    pub fn snapshot(&self, request: Request, unanswered_ns: Option<u64>) -> HistogramSnapshot {
        let mut snapshot = self.of(request).nanoseconds.snapshot();
        if let Some(wait_ns) = unanswered_ns {
            let one = Histogram::default();
            one.record(wait_ns);
            snapshot.merge(&one.snapshot());
        }
        snapshot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_current_wait_counts() {
        let notes = Notes::default();
        assert_eq!(
            (notes.waiting_since_ns(), notes.longest_wait_ns(50)),
            (None, 0)
        );
        notes.begin(100, Some(Request::Far));
        assert_eq!(
            (notes.latest_request(), notes.answers()),
            (Some(Request::Far), 0)
        );
        notes.answered(130, 2);
        assert_eq!((notes.longest_wait_ns(140), notes.answers()), (30, 2));
        assert_eq!(notes.longest_wait_ns(200), 70);
        notes.end();
        assert_eq!(notes.longest_wait_ns(900), 30);
        notes.forget_waits();
        assert_eq!(notes.longest_wait_ns(900), 0);
        notes.begin(900, None);
        assert_eq!(notes.latest_request(), None);
    }

    #[test]
    fn the_first_complaint_stays() {
        let notes = Notes::default();
        notes.wrong(3, true, || "one".into());
        notes.failed(&Error::Closed, || "two".into());
        assert_eq!(
            (notes.faults(), notes.complaint()),
            ((1, 1), Some("one".into()))
        );
        assert_eq!(notes.errors(), ErrorCounts::from([("Closed".into(), 1)]));
        notes.answered(5, 3);
        assert_eq!(notes.answers(), 2);
        notes.doubt(3);
        notes.wrong(3, true, || "three".into());
        assert_eq!((notes.faults(), notes.unverified()), ((1, 1), 1));
        notes.wrong(3, false, || "four".into());
        assert_eq!((notes.faults(), notes.unverified()), ((2, 1), 1));
    }

    #[test]
    fn a_request_without_an_answer_counts_with_its_wait() {
        let latencies = Latencies::default();
        latencies.record(Request::Put, 10, 3);
        let answered = latencies.snapshot(Request::Put, None);
        let all = latencies.snapshot(Request::Put, Some(5_000_000));
        assert_eq!((answered.count(), answered.max()), (1, 10));
        assert_eq!((all.count(), all.max()), (2, 5_000_000));
        assert_eq!(latencies.snapshot(Request::Far, None).count(), 0);
        assert_eq!(latencies.passed_by(Request::Put).max(), 3);
    }
}
