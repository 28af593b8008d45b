//! One run of one engine: opens it, leads the workers through the phases, adds up what they found.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, bail};
use farcore_tuning::{Clock, HistogramSnapshot, resident_bytes};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tracing::{info, info_span, warn};

#[cfg(feature = "peers")]
use crate::engines::peers;
use crate::engines::{Dashmap, DirectStore, Farcore, LockedLru, Sharded};
use crate::events::EventsPerOp;
use crate::line_trip::{line_trip_ns, longer_ns};
use crate::phase::Phase;
use crate::plan::{EngineName, Plan, Scenario};
use crate::progress::PhaseBar;
use crate::record::{Generator, KEY_BYTES};
use crate::report::{PhaseReport, RunReport, hottest, mops};
use crate::resident::Sampler;
use crate::skew;
use crate::store::{Store, Usage};
use crate::trace;
use crate::worker::{Event, Gate, Part, Worker};

const TICK: Duration = Duration::from_millis(100);

/// What a run found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// The figures.
    pub report: RunReport,
    /// Hash of all answers whose contents do not depend on the order of threads: the same for every
    /// engine.
    pub digest: u64,
    /// What the first wrong answer was.
    pub complaint: Option<String>,
    /// What the engine's cores counted in the last phase, the mixed one, where the engine reports.
    #[serde(default)]
    pub mixed: Option<farcore::Report>,
}

/// Runs a plan with the engine that it names, in this process.
///
/// # Errors
/// The engine could not be opened, or a worker was lost.
pub fn run(plan: Plan) -> anyhow::Result<Outcome> {
    match plan.engine {
        EngineName::Farcore | EngineName::FarcoreEmbedded => run_store::<Farcore>(plan),
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
/// The engine could not be opened, or a worker was lost.
pub fn run_store<S: Store>(plan: Plan) -> anyhow::Result<Outcome> {
    let plan = Arc::new(plan);
    let clock = Clock::new();
    // The driver's own memory is taken and touched before the baseline is read.
    let streams: Vec<Arc<[u32]>> = std::thread::scope(|scope| {
        let drawing: Vec<_> = (0..plan.threads())
            .map(|thread| {
                scope.spawn({
                    let plan = &plan;
                    move || skew::stream(plan, thread)
                })
            })
            .collect();
        drawing
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Arc::from([0])))
            .collect()
    });
    let scripts = trace::load(&plan)?;
    let trip_before_ns = line_trip_ns(&plan.cores);
    let base_bytes = resident_bytes();
    let start_ns = clock.now_ns();
    let store = Arc::new(
        S::open(&plan).with_context(|| format!("{} could not be opened", plan.engine.name()))?,
    );
    let startup_seconds = seconds(clock.now_ns() - start_ns);
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
        .context("the sampler could not be started")?;
    let gate = Arc::new(Gate::new(plan.cores.len()));
    let (events, inbox) = mpsc::channel();
    let mut running = Vec::new();
    let own = streams.into_iter().zip(scripts);
    for ((position, &core), (stream, script)) in plan.cores.iter().enumerate().zip(own) {
        let worker = Worker {
            plan: plan.clone(),
            thread: position as u64,
            gate: gate.clone(),
            events: events.clone(),
            clock: clock.clone(),
            stream,
            script,
        };
        match store.start(position, core, worker) {
            Ok(worker) => running.push(worker),
            Err(error) => {
                gate.abort();
                return Err(error);
            }
        }
    }
    drop(events);

    let mut outcome = Outcome {
        report: RunReport {
            engine: plan.engine.name().to_owned(),
            trace: plan.trace().cloned(),
            startup_seconds,
            ..RunReport::default()
        },
        digest: 0,
        complaint: None,
        mixed: None,
    };
    let led = lead(&plan, &*store, &gate, &inbox, &mut outcome);
    if led.is_err() {
        gate.abort();
    }
    for worker in running {
        worker.join()?;
    }
    led?;
    let report = &mut outcome.report;
    report.local_bytes_peak = sampler.stop();
    finish(report, &store.usage());
    match Arc::try_unwrap(store) {
        Ok(store) => {
            store.close()?;
            outcome.report.line_trip_ns = longer_ns(trip_before_ns, line_trip_ns(&plan.cores));
        }
        Err(_) => warn!("the engine is still in use"),
    }
    Ok(outcome)
}

/// The streams with keys of the first shard only.
fn one_shard<S: Store>(plan: &Plan, store: &S, streams: Vec<Arc<[u32]>>) -> Vec<Arc<[u32]>> {
    let generator = Generator::new(plan.seed);
    let mut key = [0; KEY_BYTES];
    generator.key(0, &mut key);
    if store.shard_of(&key).is_none() {
        return streams;
    }
    let belongs = |index| {
        let mut key = [0; KEY_BYTES];
        generator.key(index, &mut key);
        store.shard_of(&key) == Some(0)
    };
    streams
        .iter()
        .map(|stream| skew::within(plan, stream, belongs))
        .collect()
}

fn lead<S: Store>(
    plan: &Plan,
    store: &S,
    gate: &Gate,
    inbox: &Receiver<Event>,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let workers = plan.cores.len();
    let engine = plan.engine.name();
    let mut ready = 0;
    let mut before = store.usage();
    let last = plan.phases().last();
    for phase in plan.phases() {
        let reported = store.report().filter(|_| Some(phase) == last);
        let phase = *phase;
        while ready < workers {
            match inbox.recv() {
                Ok(Event::Ready) => ready += 1,
                _ => bail!("a worker was lost before phase {}", phase.name()),
            }
        }
        ready = 0;
        let steps = (0..plan.threads())
            .map(|thread| plan.steps(phase, thread))
            .sum();
        let span = info_span!(
            "phase",
            farcore.engine = engine,
            farcore.phase = phase.name()
        );
        let _within = span.entered();
        info!(farcore.operations = steps, "phase starts");
        let bar = PhaseBar::new(engine, phase.name(), steps);
        gate.open_next();
        let mut parts = Vec::with_capacity(workers);
        while parts.len() < workers {
            match inbox.recv_timeout(TICK) {
                Ok(Event::Done(part)) => parts.push(*part),
                Err(RecvTimeoutError::Timeout) => bar.set(gate.progress()),
                // A worker that is done stands at the next gate already.
                Ok(Event::Ready) => ready += 1,
                Ok(Event::Left) | Err(RecvTimeoutError::Disconnected) => {
                    bail!("a worker was lost in phase {}", phase.name())
                }
            }
        }
        bar.finish();
        enter(phase, parts, outcome);
        let usage = store.usage();
        if let (Some(before), Some(after)) = (reported, store.report()) {
            outcome.report.hot_keys = hottest(&after);
            outcome.mixed = Some(after.since(&before));
        }
        if matches!(phase, Phase::Delete | Phase::Absent) {
            note_far(&mut outcome.report.compaction, phase, &usage);
        }
        if let Some(report) = outcome.report.phases.last_mut() {
            report.far_reads = usage.far_reads - before.far_reads;
            report.far_read_bytes = usage.far_read_bytes - before.far_read_bytes;
            report.far_wanted_bytes = usage.far_wanted_bytes - before.far_wanted_bytes;
            let waits = usage.far_latency.since(&before.far_latency);
            report.far_p50_ns = waits.quantile(0.5);
            report.far_p99_ns = waits.quantile(0.99);
            if phase == Phase::Delete && usage.far_live_bytes > 0 {
                let p99 = Value::from(report.p99_ns);
                let compaction = &mut outcome.report.compaction;
                compaction.insert("p99_ns_during".to_owned(), p99);
            }
            before = usage;
            info!(
                seconds = report.seconds,
                mops = report.mops,
                p99_ns = report.p99_ns,
                wrong = outcome.report.wrong_values,
                "phase ends"
            );
        }
    }
    gate.open_next();
    Ok(())
}

fn enter(phase: Phase, parts: Vec<Part>, outcome: &mut Outcome) {
    let start_ns = parts.iter().map(|part| part.start_ns).min().unwrap_or(0);
    let end_ns = parts.iter().map(|part| part.end_ns).max().unwrap_or(0);
    let ops = parts.iter().map(|part| part.ops).sum();
    let mut latency = HistogramSnapshot::default();
    let mut digest = 0_u64;
    let cpu_ns = parts.iter().map(|part| part.cpu_ns).sum();
    let hardware = parts.iter().map(|part| part.hardware);
    let hardware = hardware.reduce(|sum, part| sum + part).unwrap_or_default();
    for part in parts {
        latency.merge(&part.latency);
        digest = digest.wrapping_add(part.digest);
        outcome.report.wrong_values += part.wrong;
        if let Some(complaint) = part.complaint {
            outcome
                .complaint
                .get_or_insert(format!("phase {}: {complaint}", phase.name()));
        }
    }
    outcome.digest = outcome.digest.rotate_left(7) ^ digest;
    let cpu_seconds = seconds(cpu_ns);
    let seconds = seconds(end_ns.saturating_sub(start_ns));
    outcome.report.total_seconds += seconds;
    outcome.report.phases.push(PhaseReport {
        name: phase.name().to_owned(),
        ops,
        seconds,
        cpu_seconds,
        mops: mops(ops, seconds),
        p50_ns: latency.quantile(0.5),
        p99_ns: latency.quantile(0.99),
        p999_ns: latency.quantile(0.999),
        events: EventsPerOp::of(&hardware, ops),
        ..PhaseReport::default()
    });
}

fn note_far(compaction: &mut Map<String, Value>, phase: Phase, usage: &Usage) {
    if usage.far_live_bytes > 0 {
        let name = phase.name();
        compaction.insert(
            format!("far_used_bytes_after_{name}"),
            usage.far_used_bytes.into(),
        );
        compaction.insert(
            format!("far_live_bytes_after_{name}"),
            usage.far_live_bytes.into(),
        );
    }
}

fn finish(report: &mut RunReport, usage: &Usage) {
    report.far_reads = usage.far_reads;
    report.far_read_bytes = usage.far_read_bytes;
    report.far_writes = usage.far_writes;
    report.far_write_bytes = usage.far_write_bytes;
    report.local_bytes_cap = usage.local_cap_bytes;
    if usage.keys > 0 {
        report.index_bytes_per_key = usage.index_bytes as f64 / usage.keys as f64;
    }
    report.compaction.extend(usage.compaction.clone());
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
