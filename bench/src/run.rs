//! One run of one engine: opens it, leads the workers through the phases, collects their reports.
//!
//! - This file: which store an engine name stands for, the outcome, the course of a run
//! - `collect.rs`: figures of a phase and of the whole run; `limit.rs`: the time limit
//!
//! The driver's own memory (streams, scripts) is allocated and touched before the baseline of the
//! resident size is read, so that only the engine's memory is counted. A worker that is lost ends
//! the run.
//!
//! I1: no wrong answer that was counted is hidden by the end of the run: where a worker is lost,
//!     the answers of those that had finished the phase count, though the phase has no figures.

mod collect;
mod limit;

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use farcore_command::stop;
use farcore_command::words;
use farcore_tuning::{Clock, resident_bytes};
use serde::{Deserialize, Serialize};
use tracing::{info, info_span, warn};

use self::limit::Limit;
use crate::child::{Experiment, run_in_silent_child};
use crate::doubts::Doubts;
#[cfg(feature = "peers")]
use crate::engines::peers;
use crate::engines::{Dashmap, DirectStore, Farcore, LockedLru, Sharded};
use crate::failures;
use crate::line_trip::{line_trip_ns, longer_ns};
use crate::phase::Phase;
use crate::plan::{EngineName, Plan, Scenario};
use crate::progress::PhaseBar;
use crate::record::KEY_BYTES;
use crate::report::RunReport;
use crate::resident::Sampler;
use crate::skew;
use crate::store::{Running, Store, Usage};
use crate::trace::{self, Script};
use crate::worker::{Event, Gate, Part, Worker};

/// How often the progress bar moves.
const TICK: Duration = Duration::from_millis(100);

/// The outcome of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The figures.
    pub report: RunReport,
    /// Hash of all answers whose contents do not depend on the order of threads: the same for every
    /// engine.
    pub digest: u64,
    /// A description of the first wrong answer.
    pub complaint: Option<String>,
    /// A description of the first request that ended with an error.
    #[serde(default)]
    pub failure: Option<String>,
    /// Why the run ended before its last phase, unless a signal ended it: the figures are those of
    /// the phases before; wrong answers and errors of the last one count, too.
    #[serde(default)]
    pub lost: Option<String>,
    /// Why the engine could not be closed as it should, for example because a recorded trace could
    /// not be written. The figures are not affected.
    #[serde(default)]
    pub unwritten: Option<String>,
    /// Counters of the engine's cores in the last phase, the mixed one, where the engine reports
    /// them.
    #[serde(default)]
    pub mixed: Option<farcore::Report>,
}

impl Outcome {
    /// Whether a phase was measured.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        !self.report.phases.is_empty()
    }
}

/// One run of `contest`, `ycsb` or `trace`.
#[derive(Debug)]
pub struct Comparison;

impl Experiment for Comparison {
    type Run = Outcome;

    fn run(plan: Plan) -> anyhow::Result<Outcome> {
        run(plan)
    }
}

/// Runs a plan in a child process, which shows nothing, to its end.
///
/// # Errors
/// The child failed, or a signal ended it early.
pub fn run_silently(plan: &Plan) -> anyhow::Result<Outcome> {
    let outcome = run_in_silent_child::<Comparison>(plan)?;
    if let Some(why) = outcome.as_ref().and_then(|outcome| outcome.lost.as_ref()) {
        bail!("the run of {} failed: {why}", plan.engine.name());
    }
    let complete = outcome.filter(|outcome| !outcome.report.partial);
    complete.ok_or_else(|| anyhow!("a signal ended the run"))
}

/// Runs a plan with the engine that it names, in this process.
///
/// # Errors
/// The engine could not be opened, or a worker was lost.
pub fn run(plan: Plan) -> anyhow::Result<Outcome> {
    match plan.engine {
        EngineName::Farcore | EngineName::FarcoreEmbedded | EngineName::FarcoreAllLocal => {
            run_store::<Farcore>(plan)
        }
        EngineName::LockedLru => run_store::<LockedLru>(plan),
        EngineName::Dashmap => run_store::<DirectStore<Dashmap>>(plan),
        EngineName::Sharded => run_store::<DirectStore<Sharded>>(plan),
        #[cfg(feature = "peers")]
        EngineName::Scc => run_store::<DirectStore<peers::Scc>>(plan),
        #[cfg(feature = "peers")]
        EngineName::Papaya => run_store::<DirectStore<peers::Papaya>>(plan),
        #[cfg(feature = "peers")]
        EngineName::QuickCache => run_store::<DirectStore<peers::QuickCache>>(plan),
        #[cfg(feature = "peers")]
        EngineName::Moka => run_store::<DirectStore<peers::Moka>>(plan),
        #[cfg(feature = "peers")]
        EngineName::Foyer => run_store::<DirectStore<peers::Foyer>>(plan),
        #[cfg(feature = "peers")]
        EngineName::Fjall => run_store::<DirectStore<peers::Fjall>>(plan),
        #[cfg(feature = "rocksdb")]
        EngineName::Rocksdb => run_store::<DirectStore<peers::Rocksdb>>(plan),
    }
}

/// Runs a plan with a given engine, in this process.
///
/// # Errors
/// The engine could not be opened, or a worker was lost in the first phase and no answer was wrong.
pub fn run_store<S: Store>(plan: Plan) -> anyhow::Result<Outcome> {
    let plan = Arc::new(plan);
    let clock = Clock::new();
    let streams = draw_streams(&plan);
    let scripts = scripts(&plan)?;
    let trip_before_ns = line_trip_ns(&plan.cores);
    let base_bytes = resident_bytes();
    let start_ns = clock.now_ns();
    let store = Arc::new(S::open(&plan).context("the engine could not be opened")?);
    let startup_seconds = collect::seconds(clock.now_ns() - start_ns);
    info!(
        engine = plan.engine.name(),
        seconds = startup_seconds,
        "opened"
    );

    let streams = match plan.scenario {
        Scenario::Contest { skew, .. } if skew.one_shard => one_shard(&plan, &*store, streams),
        _ => streams,
    };
    let sampled = store.clone();
    let sampler = Sampler::start(base_bytes, move || sampled.far_resident_bytes())
        .context("the thread that samples resident memory could not be started")?;
    let gate = Arc::new(Gate::new(streams.len()));
    let (workers, inbox) = start_workers(&plan, &*store, &gate, &clock, streams, scripts)?;

    let mut outcome = Outcome {
        report: RunReport {
            engine: plan.engine.name().to_owned(),
            trace: plan.trace().cloned(),
            startup_seconds,
            ..RunReport::default()
        },
        digest: 0,
        complaint: None,
        failure: None,
        lost: None,
        unwritten: None,
        mixed: None,
    };
    let limit = Limit::of(&plan, &clock);
    let led = lead(&plan, &*store, &gate, &inbox, limit, &mut outcome);
    if led.is_err() {
        gate.abort();
    }
    // All are waited for; the first that was lost says why.
    let joined: Vec<_> = workers.into_iter().map(Running::join).collect();
    let joined: anyhow::Result<()> = joined.into_iter().collect();
    if let Err(error) = joined.and(led) {
        drain(&plan, &inbox, &mut outcome);
        if outcome.report.phases.is_empty() && outcome.report.wrong_values == 0 {
            return Err(error);
        }
        outcome.report.partial = true;
        outcome.lost = Some(words::describe(&error));
    }
    outcome.report.local_bytes_peak = sampler.stop();
    collect::totals(&mut outcome.report, &store.usage());
    match Arc::try_unwrap(store) {
        Ok(store) => {
            outcome.unwritten = store.close().err().map(|error| words::describe(&error));
            outcome.report.line_trip_ns = longer_ns(trip_before_ns, line_trip_ns(&plan.cores));
        }
        Err(_) => warn!("the engine is still in use and was not closed"),
    }
    Ok(outcome)
}

/// The streams of all threads, drawn in parallel.
fn draw_streams(plan: &Plan) -> Vec<Arc<[u32]>> {
    let Some(draws) = plan.key_draws() else {
        return (0..plan.threads()).map(|_| skew::no_stream()).collect();
    };
    std::thread::scope(|scope| {
        let drawing: Vec<_> = (0..plan.threads())
            .map(|thread| scope.spawn(move || skew::stream(&draws, thread)))
            .collect();
        drawing
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| skew::no_stream()))
            .collect()
    })
}

/// The scripts of all threads; empty ones unless a trace is replayed.
fn scripts(plan: &Plan) -> anyhow::Result<Vec<Arc<Script>>> {
    match &plan.scenario {
        Scenario::Trace(choice) => trace::load(choice, plan.threads(), plan.seed),
        _ => Ok((0..plan.threads()).map(|_| Arc::default()).collect()),
    }
}

/// Replaces the keys of other shards in the streams by keys of the first shard.
fn one_shard<S: Store>(plan: &Plan, store: &S, streams: Vec<Arc<[u32]>>) -> Vec<Arc<[u32]>> {
    let generator = plan.generator();
    let mut key = [0; KEY_BYTES];
    generator.key(0, &mut key);
    let (Some(draws), Some(_)) = (plan.key_draws(), store.shard_of(&key)) else {
        return streams;
    };
    let belongs = |index| {
        let mut key = [0; KEY_BYTES];
        generator.key(index, &mut key);
        store.shard_of(&key) == Some(0)
    };
    streams
        .iter()
        .map(|stream| skew::within(&draws, stream, belongs))
        .collect()
}

/// Starts all workers; ends those that have started if one fails to.
fn start_workers<S: Store>(
    plan: &Arc<Plan>,
    store: &S,
    gate: &Arc<Gate>,
    clock: &Clock,
    streams: Vec<Arc<[u32]>>,
    scripts: Vec<Arc<Script>>,
) -> anyhow::Result<(Vec<Running>, Receiver<Event>)> {
    let (events, inbox) = mpsc::channel();
    let doubts = Arc::new(Doubts::default());
    let mut workers = Vec::new();
    let parts = streams.into_iter().zip(scripts);
    for (thread, (stream, script)) in parts.enumerate() {
        let Some(core) = plan.core_of(thread) else {
            break;
        };
        let worker = Worker {
            plan: plan.clone(),
            thread: thread as u64,
            gate: gate.clone(),
            events: events.clone(),
            doubts: doubts.clone(),
            clock: clock.clone(),
            stream,
            script,
        };
        match store.start(thread, core, worker) {
            Ok(worker) => workers.push(worker),
            Err(error) => {
                gate.abort();
                return Err(error);
            }
        }
    }
    Ok((workers, inbox))
}

/// Leads the workers through all phases and collects the figures of each.
fn lead<S: Store>(
    plan: &Plan,
    store: &S,
    gate: &Gate,
    inbox: &Receiver<Event>,
    mut limit: Limit<'_>,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let engine = plan.engine.name();
    let mut ready = 0;
    let mut before = store.usage();
    let last = plan.phases().last();
    for phase in plan.phases() {
        let reported = store.report().filter(|_| Some(phase) == last);
        let phase = *phase;
        if stop::is_requested() {
            outcome.report.partial = true;
            gate.abort();
            break;
        }
        let steps = (0..plan.threads())
            .map(|thread| plan.steps(phase, thread))
            .sum();
        wait_ready(phase, gate, inbox, ready)?;
        let span = info_span!(
            "phase",
            farcore.engine = engine,
            farcore.phase = phase.name()
        );
        let _within = span.entered();
        info!(farcore.operations = steps, "phase starts");
        let bar = PhaseBar::new(engine, phase.name(), steps);
        limit.begin();
        gate.open_next();
        let mut parts = Vec::new();
        let waited = wait_done(phase, gate, inbox, &bar, &limit, &mut parts);
        bar.finish();
        if waited.is_err() {
            collect::answers(phase, &mut parts, outcome);
        }
        ready = waited?;
        let done: u64 = parts.iter().map(|part| part.ops).sum();
        outcome.report.partial |= done < steps;
        collect::phase(phase, parts, outcome);
        let usage = store.usage();
        if let (Some(before), Some(after)) = (reported, store.report()) {
            collect::mixed(outcome, &before, &after);
        }
        collect::far_memory(&mut outcome.report, phase, &before, &usage);
        before = usage;
        if let Some(report) = outcome.report.phases.last() {
            info!(
                seconds = report.seconds,
                mops = report.mops,
                p99_ns = report.p99_ns,
                wrong = outcome.report.wrong_values,
                errors = failures::total(&outcome.report.errors),
                "phase ends"
            );
        }
        if limit.is_over() && (done < steps || Some(&phase) != last) {
            outcome.report.partial = true;
            outcome.lost = Some(limit.unfinished(plan, phase, done, steps));
            gate.abort();
            break;
        }
    }
    gate.open_next();
    Ok(())
}

/// Waits until all workers are at the gate of a phase; `ready` of them already are.
fn wait_ready(
    phase: Phase,
    gate: &Gate,
    inbox: &Receiver<Event>,
    mut ready: usize,
) -> anyhow::Result<()> {
    while ready < gate.workers() {
        match inbox.recv() {
            Ok(Event::Ready) => ready += 1,
            _ => bail!("a worker was lost before phase {}", phase.name()),
        }
    }
    Ok(())
}

/// Waits for all workers to finish a phase, and adds their reports to `parts`. Returns how many
/// are already at the next gate.
fn wait_done(
    phase: Phase,
    gate: &Gate,
    inbox: &Receiver<Event>,
    bar: &PhaseBar,
    limit: &Limit<'_>,
    parts: &mut Vec<Part>,
) -> anyhow::Result<usize> {
    let mut ready = 0;
    while parts.len() < gate.workers() {
        match inbox.recv_timeout(limit.within(TICK)) {
            Ok(Event::Done(part)) => parts.push(*part),
            Err(RecvTimeoutError::Timeout) if stop::is_requested() || limit.is_over() => {
                gate.end_phase();
            }
            Err(RecvTimeoutError::Timeout) => bar.set(gate.progress()),
            Ok(Event::Ready) => ready += 1,
            Ok(Event::Left) | Err(RecvTimeoutError::Disconnected) => {
                bail!("a worker was lost in phase {}", phase.name())
            }
        }
    }
    Ok(ready)
}

/// Counts the answers of workers that finished the phase in which another one was lost, after that.
/// All workers have ended.
fn drain(plan: &Plan, inbox: &Receiver<Event>, outcome: &mut Outcome) {
    let Some(&phase) = plan.phases().get(outcome.report.phases.len()) else {
        return;
    };
    let done = inbox.try_iter().filter_map(|event| match event {
        Event::Done(part) => Some(*part),
        Event::Ready | Event::Left => None,
    });
    let mut parts: Vec<Part> = done.collect();
    collect::answers(phase, &mut parts, outcome);
}
