//! One thread of a run: waits at the gate, drives each phase, reports it.
//!
//! A worker owns its session, its part of the trace and its statistics. It shares the gate and
//! reports through a channel.
//!
//! I1: a worker keeps polling its session while it waits, because an engine may serve other
//!     threads' requests from there.
//! I2: the end of a worker, panic included, is reported once as [`Event::Left`].

mod scans;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread::{self, ThreadId};
use std::time::Duration;

use farcore::{Answer, Error};
use farcore_tuning::{Clock, HardwareCounters, HardwareSnapshot, HistogramSnapshot};
use rustix::time::{ClockId, clock_gettime};

use crate::doubts::Doubts;
use crate::failures::ErrorCounts;
use crate::load::{Hot, Load, OwnKeys, Records, SingleRequests, Transactions};
use crate::phase::Phase;
use crate::plan::Plan;
use crate::record::Scratch;
use crate::stats::{PhaseStats, Verdict};
use crate::store::Session;
use crate::trace::Script;
use crate::trace::replay::Replay;

/// Requests after which the worker yields to the engine.
const SLICE: u64 = 2048;
/// Requests after which it checks whether the phase goes on: few, because far memory may be slow.
const CHUNK: u64 = 64;
const _: () = assert!(SLICE.is_multiple_of(CHUNK));

/// A counter on its own cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Progress(AtomicU64);

/// Processor time of the calling thread.
pub(crate) fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// Admits all workers into a phase at once.
#[derive(Debug)]
pub struct Gate {
    open: AtomicUsize,
    abort: AtomicBool,
    end_phase: AtomicBool,
    progress: Box<[Progress]>,
}

impl Gate {
    /// A closed gate for a number of workers.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self {
            open: AtomicUsize::new(0),
            abort: AtomicBool::new(false),
            end_phase: AtomicBool::new(false),
            progress: (0..workers).map(|_| Progress::default()).collect(),
        }
    }

    /// Admits the workers into the next phase.
    pub fn open_next(&self) {
        // ORDERING: Release pairs with the Acquire in `is_open`.
        self.open.fetch_add(1, Ordering::Release);
    }

    /// Ends all workers.
    pub fn abort(&self) {
        self.abort.store(true, Ordering::Relaxed);
    }

    /// Has all workers end their phase early, once their requests are answered.
    pub fn end_phase(&self) {
        self.end_phase.store(true, Ordering::Relaxed);
    }

    /// Requests submitted in this phase.
    #[must_use]
    pub fn progress(&self) -> u64 {
        self.progress
            .iter()
            .map(|progress| progress.0.load(Ordering::Relaxed))
            .sum()
    }

    /// The number of workers.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.progress.len()
    }

    fn is_open(&self, number: usize) -> bool {
        // ORDERING: Acquire pairs with the Release in `open_next`.
        self.open.load(Ordering::Acquire) > number
    }

    /// Whether a phase goes on to its last request.
    fn goes_on(&self) -> bool {
        !self.is_aborted() && !self.end_phase.load(Ordering::Relaxed)
    }

    fn is_aborted(&self) -> bool {
        self.abort.load(Ordering::Relaxed)
    }
}

/// A worker's part of a phase.
#[derive(Debug)]
pub struct Part {
    /// Start, by the run's clock.
    pub start_ns: u64,
    /// Arrival of the last answer, by the run's clock.
    pub end_ns: u64,
    /// The thread that it ran on; workers beyond the cores share threads.
    pub ran_on: ThreadId,
    /// Processor time of that thread, that of other workers on it included.
    pub cpu_ns: u64,
    /// Requests.
    pub ops: u64,
    /// Requests that ended with an error.
    pub errors: ErrorCounts,
    /// A description of the first of them.
    pub failure: Option<String>,
    /// Wrong answers.
    pub wrong: u64,
    /// Unexpected answers about keys in doubt.
    pub unverified: u64,
    /// Gets that found their key absent because its time to live had passed.
    pub expired: u64,
    /// Hash of the right answers, in any order.
    pub digest: u64,
    /// A description of the first wrong answer.
    pub complaint: Option<String>,
    /// Records that scans returned.
    pub scanned: u64,
    /// Sampled latencies.
    pub latency: HistogramSnapshot,
    /// Processor events of the thread.
    pub hardware: HardwareSnapshot,
}

/// A worker's report to the run.
#[derive(Debug)]
pub enum Event {
    /// It waits at the gate.
    Ready,
    /// It has finished a phase.
    Done(Box<Part>),
    /// It has ended.
    Left,
}

/// One thread's work. A store moves it to its core.
#[derive(Debug)]
pub struct Worker {
    /// The plan.
    pub plan: Arc<Plan>,
    /// Number of this thread.
    pub thread: u64,
    /// The gate.
    pub gate: Arc<Gate>,
    /// Where events go.
    pub events: Sender<Event>,
    /// Keys whose contents are unknown after an error.
    pub doubts: Arc<Doubts>,
    /// The run's clock.
    pub clock: Clock,
    /// Key indexes of the mixed phase.
    pub stream: Arc<[u32]>,
    /// Its part of a trace.
    pub script: Arc<Script>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The receiver is gone if the run was aborted.
        let _ = self.events.send(Event::Left);
    }
}

impl Worker {
    /// Drives all phases, then polls until all workers are done.
    pub async fn run<S: Session>(self, mut session: S) {
        let phases = self.plan.phases();
        // Two sets of counters on one thread would share the processor's counter registers.
        let events = session
            .hardware()
            .is_none()
            .then(HardwareCounters::open_here);
        let counted = |session: &S| match &events {
            Some(events) => events.snapshot(),
            None => session.hardware().unwrap_or_default(),
        };
        let began_ns = self.clock.now_ns();
        let mut places = Vec::new();
        let mut singles = SingleRequests::new(&self.plan, self.thread);
        for (number, &phase) in phases.iter().enumerate() {
            if self.scans_in(phase) {
                places = scans::places(&mut session).await;
            }
            if self.events.send(Event::Ready).is_err() {
                return;
            }
            self.wait(number, &mut session).await;
            if self.gate.is_aborted() {
                return;
            }
            let before = counted(&session);
            let load = self.transactions(phase, began_ns);
            let mut part = match (load, &mut singles) {
                (Some(load), _) if self.scans_in(phase) => {
                    self.scan(load, &places, &mut session).await
                }
                (Some(load), _) => self.drive(load, &mut session).await,
                (None, Some(requests)) => {
                    requests.set(phase);
                    self.drive(requests, &mut session).await
                }
                (None, None) => self.phase(phase, &mut session).await,
            };
            part.hardware = counted(&session).since(&before);
            if self.events.send(Event::Done(Box::new(part))).is_err() {
                return;
            }
        }
        self.wait(phases.len(), &mut session).await;
    }

    async fn wait<S: Session>(&self, number: usize, session: &mut S) {
        while !self.gate.is_open(number) && !self.gate.is_aborted() {
            session.poll(&mut |_, _| {});
            session.rest().await;
        }
    }

    /// The load of the phase of a YCSB workload.
    fn transactions(&self, phase: Phase, began_ns: u64) -> Option<Transactions> {
        let stream = self.stream.clone();
        (phase == Phase::Transactions)
            .then(|| Transactions::new(&self.plan, self.thread, stream, &self.clock, began_ns))?
    }

    async fn phase<S: Session>(&self, phase: Phase, session: &mut S) -> Part {
        let (plan, thread) = (&*self.plan, self.thread);
        match phase {
            Phase::Hot => {
                self.drive(Hot::new(plan, thread, self.stream.clone()), session)
                    .await
            }
            Phase::Load => match Records::new(plan, thread, &self.clock) {
                Some(load) => self.drive(load, session).await,
                None => self.drive(OwnKeys::new(plan, phase, thread), session).await,
            },
            Phase::Replay => {
                let clock = self.clock.clone();
                let load = Replay::new(plan.seed, self.script.clone(), clock);
                self.drive(load, session).await
            }
            _ => self.drive(OwnKeys::new(plan, phase, thread), session).await,
        }
    }

    async fn drive<S: Session, L: Load>(&self, load: L, session: &mut S) -> Part {
        let mut run = self.begin(load);
        let mut scratch = Scratch::default();
        let steps = run.load.steps();
        // Processor time is read inside the wall-clock interval, so it is never the longer one.
        let start_ns = self.clock.now_ns();
        let start_cpu_ns = thread_cpu_ns();
        let mut step = 0;
        while step < steps && self.gate.goes_on() {
            let end = steps.min(step + CHUNK);
            slice(session, &mut run, &mut scratch, step..end);
            step = end;
            if step.is_multiple_of(SLICE) || step == steps {
                self.report(step);
                session.rest().await;
            }
        }
        self.drain(&mut run, &mut scratch, session).await;
        let cpu_ns = thread_cpu_ns() - start_cpu_ns;
        self.part(&mut run.stats, start_ns, cpu_ns, step)
    }

    /// Shows how many requests of the phase are sent.
    fn report(&self, done: u64) {
        let thread = usize::try_from(self.thread).ok();
        if let Some(progress) = thread.and_then(|thread| self.gate.progress.get(thread)) {
            progress.0.store(done, Ordering::Relaxed);
        }
    }

    fn begin<L: Load>(&self, load: L) -> Run<'_, L> {
        self.report(0);
        Run {
            load,
            stats: PhaseStats::new(self.clock.clone()),
            doubts: &self.doubts,
        }
    }

    /// Sends follow-ups and takes answers until none is left.
    async fn drain<S: Session, L: Load>(
        &self,
        run: &mut Run<'_, L>,
        scratch: &mut Scratch,
        session: &mut S,
    ) {
        loop {
            slice(session, run, scratch, 0..0);
            if session.in_flight() == 0 || self.gate.is_aborted() {
                break;
            }
            session.poll(&mut |token, answer| run.judge(token, &answer));
            session.rest().await;
        }
    }

    /// The figures of a phase that ends now.
    fn part(&self, stats: &mut PhaseStats, start_ns: u64, cpu_ns: u64, ops: u64) -> Part {
        Part {
            start_ns,
            end_ns: self.clock.now_ns(),
            ran_on: thread::current().id(),
            cpu_ns,
            ops,
            scanned: stats.scanned(),
            errors: stats.failures().counts(),
            failure: stats.failures().take_first(),
            wrong: stats.wrong(),
            unverified: stats.unverified(),
            expired: stats.expired(),
            digest: stats.digest(),
            complaint: stats.take_complaint(),
            latency: stats.latency().snapshot(),
            hardware: HardwareSnapshot::default(),
        }
    }
}

/// A load under way: what it sends and what becomes of it.
struct Run<'a, L> {
    load: L,
    stats: PhaseStats,
    doubts: &'a Doubts,
}

impl<L: Load> Run<'_, L> {
    #[inline(always)]
    fn judge(&mut self, token: u64, answer: &Answer<'_>) {
        if let Answer::Failed(error) = answer {
            return self.fail(token, error);
        }
        let tag = self.stats.arrive(token);
        let mut verdict = self.load.judge(tag, answer);
        if verdict == Verdict::Wrong
            && self.doubts.has(self.load.key(tag))
            && self.load.is_possible(tag, answer)
        {
            verdict = Verdict::Unverified;
        }
        self.stats.count(verdict, answer, || self.load.name(tag));
    }

    #[cold]
    fn fail(&mut self, token: u64, error: &Error) {
        let load = &self.load;
        let tag = self.stats.fail(token, error, |tag| load.name(tag));
        if load.writes(tag) {
            self.doubts.add(load.key(tag));
        }
    }
}

/// Submits requests and their follow-ups.
fn slice<S: Session, L: Load>(
    session: &mut S,
    run: &mut Run<'_, L>,
    scratch: &mut Scratch,
    steps: std::ops::Range<u64>,
) {
    for step in steps {
        let (tag, operation) = run.load.request(step, scratch);
        let token = run.stats.issue(tag);
        session.submit(operation, token, &mut |token, answer| {
            run.judge(token, &answer);
        });
        follow_up(session, run, scratch);
    }
    follow_up(session, run, scratch);
}

#[inline]
fn follow_up<S: Session, L: Load>(session: &mut S, run: &mut Run<'_, L>, scratch: &mut Scratch) {
    while let Some((tag, operation)) = run.load.follow_up(scratch) {
        let token = run.stats.issue(tag);
        session.submit(operation, token, &mut |token, answer| {
            run.judge(token, &answer);
        });
    }
}
