//! The measured client: one request at a time, and the time until its answer.
//!
//! It remembers the nonce of each of its own keys, so a near get is verified against the latest
//! put. The time of an answer is taken before the answer is verified. In the polling form a request
//! may span several steps; [`Pending`] holds it between them.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use farcore::{Answer, Handle, Operation, Refused};
use farcore_tuning::Clock;

use super::verify::verify;
use super::{Client, Step, Task, request, rest};
use crate::experiments::fairness::keys::{Draws, Keys};
use crate::experiments::fairness::notes::{Latencies, Notes};
use crate::experiments::fairness::settings::{Form, Request};

/// The state of an order to measure.
#[derive(Debug)]
pub(super) struct Measure {
    pub(super) latencies: Arc<Latencies>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) draws: Draws,
    /// Requests so far.
    pub(super) count: usize,
}

/// The request that the measured client waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    request: Request,
    token: u64,
    /// The place of an own key; `None` for a far one.
    own: Option<usize>,
    /// The nonce that the value must have.
    expected: Option<u64>,
    /// The nonce of the new value of a put.
    put: Option<u64>,
    start_ns: u64,
    /// Answers to the flooders before the request.
    flooders_before: u64,
    /// The answer, in the blocking form or after a refusal.
    received: Option<Received>,
}

/// The figures of the answer.
#[derive(Clone, Copy, Debug)]
struct Received {
    took_ns: u64,
    /// Answers to the flooders since the request.
    passed_by: u64,
    stored: bool,
    failed: bool,
}

impl Client {
    pub(super) fn write_own(&mut self, mut places: Range<usize>) -> (Task, Step) {
        if self.pending.is_none() {
            let Some(place) = places.next() else {
                return (Task::Idle, Step::Done);
            };
            self.send(Request::Put, place, None);
        }
        let received = self.receive();
        (
            Task::WriteOwn(places),
            Step::from_progress(received.is_some()),
        )
    }

    pub(super) fn measure(&mut self, mut measure: Measure) -> (Task, Step) {
        if self.pending.is_none() {
            let kinds = self.options.measured.len();
            // Whole rounds, at least one, so that every kind of request has figures.
            let round_ends = measure.count > 0 && measure.count.is_multiple_of(kinds);
            if round_ends && measure.stop.load(Ordering::Relaxed) {
                return (Task::Idle, Step::Done);
            }
            let request = self.options.measured[measure.count % kinds];
            // Puts and near gets advance together, so that a near get reads the key just put.
            let place = measure.count / kinds % self.own_nonces.len();
            let far = (request == Request::Far).then(|| self.keys.old(measure.draws.next_word()));
            measure.count += 1;
            self.send(request, place, far);
        }
        let received = self.receive();
        // The time to a refusal is no wait for an answer.
        if let Some((request, received)) = received
            && !received.failed
        {
            measure
                .latencies
                .record(request, received.took_ns, received.passed_by);
        }
        (
            Task::Measure(measure),
            Step::from_progress(received.is_some()),
        )
    }

    /// Sends one request: for an own key by its place, or for a far one. In the blocking form it
    /// also waits for the answer.
    fn send(&mut self, kind: Request, place: usize, far: Option<u64>) {
        let own = far.is_none().then_some(place);
        let index = far.unwrap_or(self.keys.own().start + place as u64);
        let put = (kind == Request::Put).then_some(self.latest_nonce + 1);
        let (operation, token) = request(&self.keys, &mut self.scratch, index, put);
        let start_ns = self.clock.now_ns();
        self.notes.begin(start_ns, Some(kind));
        let mut pending = Pending {
            request: kind,
            token,
            own,
            expected: own.map(|place| self.own_nonces[place]),
            put,
            start_ns,
            flooders_before: answers_of(&self.options.flooders),
            received: None,
        };
        let judge = Judge {
            keys: &self.keys,
            notes: &self.notes,
            clock: &self.clock,
            flooders: &self.options.flooders,
        };
        match self.options.form {
            Form::Wait => {
                pending.received = Some(wait_for(&mut self.handle, &pending, operation, &judge));
            }
            Form::Poll => {
                let mut idle_polls = 0;
                while let Err(refused) = self.handle.submit(operation, token) {
                    match refused {
                        Refused::Full => {
                            self.handle.poll(|_, _| {});
                            idle_polls = rest(idle_polls);
                        }
                        Refused::Error(error) => {
                            pending.received =
                                Some(judge.receive(&pending, &Answer::Failed(&error)));
                            break;
                        }
                    }
                }
            }
        }
        self.pending = Some(pending);
    }

    /// Reads and verifies the answer to the pending request, if it has arrived.
    fn receive(&mut self) -> Option<(Request, Received)> {
        let pending = self.pending?;
        let mut received = pending.received;
        if received.is_none() {
            let judge = Judge {
                keys: &self.keys,
                notes: &self.notes,
                clock: &self.clock,
                flooders: &self.options.flooders,
            };
            self.handle
                .poll(|_, answer| received = Some(judge.receive(&pending, &answer)));
        }
        let received = received?;
        if let Some(nonce) = pending.put {
            self.latest_nonce = nonce;
            // A failed put has changed nothing.
            if let Some(place) = pending.own
                && received.stored
            {
                self.own_nonces[place] = nonce;
            }
        }
        self.pending = None;
        self.notes.end();
        Some((pending.request, received))
    }
}

/// What it takes to verify and time an answer to the measured client.
struct Judge<'a> {
    keys: &'a Keys,
    notes: &'a Notes,
    clock: &'a Clock,
    flooders: &'a [Arc<Notes>],
}

impl Judge<'_> {
    /// Takes the time first, then verifies the answer.
    fn receive(&self, pending: &Pending, answer: &Answer<'_>) -> Received {
        let end_ns = self.clock.now_ns();
        let passed_by = answers_of(self.flooders) - pending.flooders_before;
        self.notes.answered(end_ns, 1);
        verify(
            self.keys,
            self.notes,
            pending.token,
            pending.expected,
            answer,
        );
        Received {
            took_ns: end_ns - pending.start_ns,
            passed_by,
            stored: matches!(answer, Answer::Stored { .. }),
            failed: matches!(answer, Answer::Failed(_)),
        }
    }
}

/// Answers that clients have received.
fn answers_of(clients: &[Arc<Notes>]) -> u64 {
    clients.iter().map(|notes| notes.answers()).sum()
}

/// Executes one get or put in the blocking form.
fn wait_for(
    handle: &mut Handle,
    pending: &Pending,
    operation: Operation<'_>,
    judge: &Judge<'_>,
) -> Received {
    let (key, value) = (operation.key(), operation.value());
    if matches!(operation, Operation::Put { .. }) {
        return match handle.put(key, value).wait() {
            Ok(version) => judge.receive(pending, &Answer::Stored { version }),
            Err(error) => judge.receive(pending, &Answer::Failed(&error)),
        };
    }
    match handle.get(key).wait() {
        Ok(Some(value)) => {
            let version = value.version();
            let value = &*value;
            judge.receive(pending, &Answer::Value { version, value })
        }
        Ok(None) => judge.receive(pending, &Answer::Absent),
        Err(error) => judge.receive(pending, &Answer::Failed(&error)),
    }
}
