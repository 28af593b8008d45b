//! The YCSB workloads: loading the records, and the transactions.
//!
//! Workload E scans from places that the driver found before, in the order of the index, since the
//! engine has no other. Its inserts are the requests of the load; the driver sends the scans.
//!
//! With a time to live, a get that finds its key absent is counted as expired, and as wrong if no
//! write of the run can have expired yet.

use std::sync::Arc;

use farcore::{Answer, Change, Condition, Entry, Expiry, Operation};
use farcore_tuning::Clock;

use super::{Draws, GET, Load, MODIFY, PUT, next_of};
use crate::phase::Phase;
use crate::plan::{Plan, Scenario, Workload};
use crate::record::{Generator, KEY_BYTES, Scratch, Shape, below};
use crate::stats::{RequestTag, Verdict};

/// A core counts expiry in whole milliseconds, and from the start of its turn: a key may expire so
/// much earlier than its time after the put was sent.
const CLOCK_GRAIN_NS: u64 = 2_000_000;

/// Most records of a scan.
const SCAN_ENTRIES_MAX: u64 = 100;

/// A scan to be sent.
#[derive(Clone, Copy, Debug)]
pub struct ScanRequest {
    /// Where it begins: the number of a place.
    pub place: usize,
    /// Records that it reads.
    pub entries: usize,
}

/// When the writes of a run may have expired.
#[derive(Clone, Debug)]
struct Lifetime {
    ttl_ms: u64,
    /// Before that time no write has expired.
    earliest_ns: u64,
    clock: Clock,
}

/// One YCSB workload.
///
/// Inserted keys of thread `t` are `t, t + threads, t + 2 threads...` after the loaded ones. A
/// thread reads the latest of its own keys, so that every read can be verified.
#[derive(Debug)]
pub struct Transactions {
    generator: Generator,
    workload: Workload,
    value_bytes: usize,
    steps: u64,
    loaded: u64,
    thread: u64,
    threads: u64,
    inserted: u64,
    stream: Arc<[u32]>,
    at: usize,
    draws: Draws,
    /// Keys that were read and must be written; at most a window of them.
    modify: Vec<u64>,
    /// If writes have a time to live.
    lifetime: Option<Lifetime>,
}

impl Transactions {
    /// A thread's part; `stream` holds key indexes; for workload D, distances from the latest key.
    /// The run began at `began_ns` of the clock.
    #[must_use]
    pub fn new(
        plan: &Plan,
        thread: u64,
        stream: Arc<[u32]>,
        clock: &Clock,
        began_ns: u64,
    ) -> Option<Self> {
        let Scenario::Ycsb {
            workload,
            value_bytes,
            ttl_ms,
            ..
        } = plan.scenario
        else {
            return None;
        };
        Some(Self {
            generator: Generator::new(plan.seed),
            workload,
            value_bytes,
            steps: plan.steps(Phase::Transactions, thread),
            loaded: plan.keys_per_core,
            thread,
            threads: plan.threads(),
            inserted: 0,
            stream,
            at: 0,
            draws: Draws::new(plan.seed, thread),
            modify: Vec::with_capacity(plan.window + 1),
            lifetime: ttl_ms.map(|ttl_ms| Lifetime {
                ttl_ms,
                earliest_ns: began_ns.saturating_add(
                    (ttl_ms.saturating_mul(1_000_000)).saturating_sub(CLOCK_GRAIN_NS),
                ),
                clock: clock.clone(),
            }),
        })
    }

    #[inline]
    fn put<'a>(&mut self, subject: u64, scratch: &'a mut Scratch) -> (RequestTag, Operation<'a>) {
        let word = self.generator.key(subject, &mut scratch.key);
        let shape = Shape {
            nonce: self.draws.next(),
            bytes: self.value_bytes,
        };
        let value = self.generator.fill(word, shape, &mut scratch.value);
        let key = &scratch.key[..];
        let operation = match &self.lifetime {
            None => Operation::Put { key, value },
            Some(lifetime) => Operation::Change {
                key,
                change: Change::Put {
                    value,
                    expiry: Expiry::In(lifetime.ttl_ms),
                    condition: Condition::Always,
                    previous: false,
                },
            },
        };
        (RequestTag { subject, kind: PUT }, operation)
    }

    /// The next transaction of workload E: a scan among `places` places, or `None` for an insert.
    pub fn next_scan(&mut self, places: usize) -> Option<ScanRequest> {
        if self.draws.chance(5) {
            return None;
        }
        let place = below(self.draws.next(), places as u64);
        let entries = 1 + below(self.draws.next(), SCAN_ENTRIES_MAX);
        Some(ScanRequest {
            place: usize::try_from(place).unwrap_or(0),
            entries: usize::try_from(entries).unwrap_or(1),
        })
    }

    /// Whether an entry of a scan is a record of this run, with all of its value.
    #[must_use]
    pub fn is_record(&self, entry: &Entry<'_>) -> bool {
        let Some(first) = entry.key.first_chunk() else {
            return false;
        };
        let word = u64::from_le_bytes(*first);
        let mut key = [0; KEY_BYTES];
        Generator::fill_key(word, &mut key);
        let value = entry.value.unwrap_or_default();
        entry.key == key && self.generator.is_any(word, self.value_bytes, value)
    }

    /// The verdict on an absent key.
    #[cold]
    fn absent(&self) -> Verdict {
        match &self.lifetime {
            Some(lifetime) if lifetime.clock.now_ns() >= lifetime.earliest_ns => Verdict::Expired,
            _ => Verdict::Wrong,
        }
    }

    fn insert<'a>(&mut self, scratch: &'a mut Scratch) -> (RequestTag, Operation<'a>) {
        let keys = self.loaded + self.inserted;
        self.inserted += 1;
        self.put(self.own(keys), scratch)
    }

    #[inline]
    fn get<'a>(
        &mut self,
        subject: u64,
        kind: u8,
        scratch: &'a mut Scratch,
    ) -> (RequestTag, Operation<'a>) {
        self.generator.key(subject, &mut scratch.key);
        (
            RequestTag { subject, kind },
            Operation::Get { key: &scratch.key },
        )
    }

    /// The index of this thread's own key, loaded or inserted.
    #[inline]
    fn own(&self, place: u64) -> u64 {
        if place < self.loaded {
            self.thread * self.loaded + place
        } else {
            self.threads * self.loaded + (place - self.loaded) * self.threads + self.thread
        }
    }
}

impl Load for Transactions {
    fn steps(&self) -> u64 {
        self.steps
    }

    #[inline(always)]
    fn request<'a>(&mut self, _step: u64, scratch: &'a mut Scratch) -> (RequestTag, Operation<'a>) {
        if self.workload == Workload::E {
            return self.insert(scratch);
        }
        if self.workload == Workload::D {
            if self.draws.chance(5) {
                return self.insert(scratch);
            }
            let keys = self.loaded + self.inserted;
            let distance = next_of(&self.stream, &mut self.at) % keys;
            return self.get(self.own(keys - 1 - distance), GET, scratch);
        }
        let subject = next_of(&self.stream, &mut self.at);
        let (reads, other) = match self.workload {
            Workload::A => (50, PUT),
            Workload::B => (95, PUT),
            Workload::F => (50, MODIFY),
            Workload::C | Workload::D | Workload::E => (100, GET),
        };
        let kind = if self.draws.chance(reads) { GET } else { other };
        if kind == PUT {
            self.put(subject, scratch)
        } else {
            self.get(subject, kind, scratch)
        }
    }

    #[inline(always)]
    fn judge(&mut self, tag: RequestTag, answer: &Answer<'_>) -> Verdict {
        let right = match answer {
            Answer::Value { value, .. } => {
                if tag.kind == MODIFY {
                    self.modify.push(tag.subject);
                }
                let word = self.generator.key_word(tag.subject);
                tag.kind != PUT && self.generator.is_any(word, self.value_bytes, value)
            }
            Answer::Stored { .. } => tag.kind == PUT,
            Answer::Absent if tag.kind != PUT => return self.absent(),
            _ => false,
        };
        Verdict::when(right, 1)
    }

    /// Any value that was ever written has been judged right.
    fn is_possible(&mut self, tag: RequestTag, answer: &Answer<'_>) -> bool {
        tag.kind != PUT && matches!(answer, Answer::Absent)
    }

    #[inline]
    fn follow_up<'a>(&mut self, scratch: &'a mut Scratch) -> Option<(RequestTag, Operation<'a>)> {
        let subject = self.modify.pop()?;
        Some(self.put(subject, scratch))
    }
}

/// The load phase of a YCSB run: a thread's records with values of a fixed length.
#[derive(Debug)]
pub struct Records {
    inner: Transactions,
}

impl Records {
    /// A thread's part.
    #[must_use]
    pub fn new(plan: &Plan, thread: u64, clock: &Clock) -> Option<Self> {
        let inner = Transactions::new(plan, thread, Arc::from([0]), clock, 0);
        inner.map(|inner| Self { inner })
    }
}

impl Load for Records {
    #[expect(
        clippy::misnamed_getters,
        reason = "the steps of this load are the records it loads"
    )]
    fn steps(&self) -> u64 {
        self.inner.loaded
    }

    #[inline(always)]
    fn request<'a>(&mut self, step: u64, scratch: &'a mut Scratch) -> (RequestTag, Operation<'a>) {
        self.inner.put(self.inner.own(step), scratch)
    }

    #[inline(always)]
    fn judge(&mut self, tag: RequestTag, answer: &Answer<'_>) -> Verdict {
        Verdict::when(
            tag.kind == PUT && matches!(answer, Answer::Stored { .. }),
            1,
        )
    }

    /// A load reads nothing.
    fn is_possible(&mut self, _tag: RequestTag, _answer: &Answer<'_>) -> bool {
        false
    }
}
