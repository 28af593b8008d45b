//! One run: opens the engine, starts a client on each core, and measures how much memory comes
//! back.
//!
//! The log's memory is what its pages take, each counted once: extents of far memory in use, and
//! frames of pages that are not in far memory. What has come back is how much less that is than
//! just before the first key expired.
//!
//! I1: a run that ends early keeps the figures and the wrong values of its clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use farcore::{Core, Engine, HistogramSnapshot, Stats, Task};
use farcore_command::stop;
use farcore_tuning::{Clock, system_ms};
use tracing::info;

use super::client::{Client, Figures, Shared, Times};
use super::report::{Comeback, Run};
use super::settings::Settings;
use crate::doubts::Doubts;
use crate::engines::Farcore;
use crate::failures::{self, Failures};
use crate::plan::{Plan, Scenario};
use crate::progress::PhaseBar;
use crate::record::{Generator, KEY_BYTES};
use crate::series::Faults;

/// How often memory is measured.
const TICK: Duration = Duration::from_millis(20);
const NS_A_MS: u64 = 1_000_000;

/// Memory and removals at one moment.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ns: u64,
    log_bytes: u64,
    removed: u64,
}

impl Sample {
    fn of(stats: &Stats, at_ns: u64) -> Self {
        let local = stats.total.frames_open + stats.total.frames_sealed;
        Self {
            at_ns,
            log_bytes: stats.far_used_bytes + local * u64::from(stats.page_bytes),
            removed: stats.total.expired,
        }
    }
}

/// Runs a plan in this process.
///
/// # Errors
/// The engine could not be opened, or a client not started. A run that ended later has the reason.
pub fn run(plan: &Plan) -> anyhow::Result<Run> {
    let Scenario::Expiry(settings) = &plan.scenario else {
        bail!("the plan is of another command");
    };
    Farcore::check(plan)?;
    let clock = Clock::new();
    let start_ns = clock.now_ns();
    let engine = Engine::open(Farcore::config(plan)?).context("the engine could not be opened")?;
    let startup_seconds = (clock.now_ns() - start_ns) as f64 / 1e9;
    info!(seconds = startup_seconds, "opened");
    let own = own_keys(plan, &engine);
    if own.iter().any(Vec::is_empty) {
        bail!("a core's shard has none of the keys that do not expire: raise --keys");
    }
    let shared = Arc::new(shared(plan, settings, clock, own));
    let clients = start(plan, &engine, &shared)?;
    let mut failures = Failures::default();
    let led = lead(&engine, &shared, &mut failures);
    let partial = stop::is_requested();
    if led.is_err() || partial {
        shared.is_aborted.store(true, Ordering::Relaxed);
    }
    let joined = clients
        .into_iter()
        .map(|client| client.join().context("a client was lost"));
    let (figures, lost) = split(joined);
    engine.close();
    let is_late = !partial && figures.iter().any(|client| client.is_late);
    let late = is_late.then(|| too_late(settings));
    let (samples, led) = match led {
        Ok(samples) => (samples, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let why = lost.or(led).or(late);
    let mut run = collect(&shared, figures, failures, &samples);
    run.startup_seconds = startup_seconds;
    run.faults.partial = partial;
    run.faults.end(why.map_or(Ok(()), Err));
    Ok(run)
}

/// What came, and the first error; all are waited for.
fn split<T>(all: impl IntoIterator<Item = anyhow::Result<T>>) -> (Vec<T>, Option<anyhow::Error>) {
    let (mut came, mut first) = (Vec::new(), None);
    for one in all {
        match one {
            Ok(one) => came.push(one),
            Err(error) => first = first.or(Some(error)),
        }
    }
    (came, first)
}

fn too_late(settings: &Settings) -> anyhow::Error {
    anyhow!(
        "loading took longer than --lead, {} ms: raise it, or lower --expiring or --keys",
        settings.lead_ms
    )
}

/// The numbers of the keys that do not expire, by shard.
fn own_keys(plan: &Plan, engine: &Engine) -> Vec<Vec<u32>> {
    let generator = Generator::new(plan.seed);
    let mut own = vec![Vec::new(); plan.cores.len()];
    let mut key = [0; KEY_BYTES];
    for number in 0..u32::try_from(plan.keys()).unwrap_or(u32::MAX) {
        generator.key(u64::from(number), &mut key);
        if let Some(own) = own.get_mut(engine.shard_of(&key)) {
            own.push(number);
        }
    }
    own
}

fn shared(plan: &Plan, settings: &Settings, clock: Clock, own: Vec<Vec<u32>>) -> Shared {
    let first_ns = clock.now_ns() + settings.lead_ms * NS_A_MS;
    let last_ns = first_ns + settings.within_ms * NS_A_MS;
    let times = Times {
        first_ns,
        first_ms: system_ms() + settings.lead_ms,
        last_ns,
        end_ns: last_ns + settings.after_ms_max() * NS_A_MS,
    };
    Shared {
        settings: settings.clone(),
        clock,
        times,
        threads: plan.threads(),
        seed: plan.seed,
        window: plan.window,
        others: plan.keys(),
        own,
        doubts: Doubts::default(),
        loaded: AtomicUsize::new(0),
        goes_on: AtomicBool::new(false),
        is_aborted: AtomicBool::new(false),
        ended: AtomicUsize::new(0),
    }
}

fn start(plan: &Plan, engine: &Engine, shared: &Arc<Shared>) -> anyhow::Result<Vec<Task<Figures>>> {
    let mut clients = Vec::new();
    for (position, thread) in (0..plan.cores.len()).zip(0..) {
        let shared = Arc::clone(shared);
        let job = move |core: Core| async move { Client::new(core, shared, thread).run().await };
        clients.push(engine.run_on_core(position, job)?);
    }
    Ok(clients)
}

/// Waits for the clients to load, and measures memory until the end, or a signal.
fn lead(engine: &Engine, shared: &Shared, failures: &mut Failures) -> anyhow::Result<Vec<Sample>> {
    let Times {
        first_ns,
        last_ns,
        end_ns,
        ..
    } = shared.times;
    let clients = usize::try_from(shared.threads)?;
    while shared.loaded.load(Ordering::Relaxed) < clients {
        if shared.clock.now_ns() >= first_ns {
            return Err(too_late(&shared.settings));
        }
        if stop::is_requested() {
            return Ok(Vec::new());
        }
        sleep(TICK);
    }
    info!("loaded");
    if engine.stats().total.far_writes > 0 {
        // What is not flushed stays in local memory.
        if let Err(error) = engine.flush() {
            failures.count(&error, || "a flush".to_owned());
        }
    }
    shared.goes_on.store(true, Ordering::Relaxed);
    let start_ns = shared.clock.now_ns();
    let bar = PhaseBar::timed(
        "farcore",
        "expiry",
        end_ns.saturating_sub(start_ns) as f64 / 1e9,
    );
    let mut samples = Vec::new();
    let mut marks = [
        (first_ns, "the first key expires"),
        (last_ns, "the last key has expired"),
    ]
    .into_iter()
    .peekable();
    loop {
        let now_ns = shared.clock.now_ns();
        samples.push(Sample::of(&engine.stats(), now_ns));
        bar.set(now_ns.saturating_sub(start_ns) / NS_A_MS);
        while let Some((_, text)) = marks.next_if(|(at_ns, _)| *at_ns <= now_ns) {
            info!("{text}");
        }
        if now_ns >= end_ns || stop::is_requested() {
            break;
        }
        sleep(TICK.min(Duration::from_nanos(end_ns - now_ns)));
    }
    bar.finish();
    Ok(samples)
}

fn collect(
    shared: &Shared,
    mut figures: Vec<Figures>,
    mut failures: Failures,
    samples: &[Sample],
) -> Run {
    let mut errors = failures.counts();
    let mut complaint = None;
    for client in &mut figures {
        failures::add(&mut errors, &client.failures.counts());
        let first = client.complaint.take();
        complaint = complaint.or(first).or_else(|| client.failures.take_first());
    }
    let complaint = complaint.or_else(|| failures.take_first());
    let settings = &shared.settings;
    let merged = |of: &dyn Fn(&Figures) -> Option<HistogramSnapshot>| {
        let mut all = HistogramSnapshot::default();
        for latencies in figures.iter().filter_map(of) {
            all.merge(&latencies);
        }
        all
    };
    let window = |number: usize| merged(&|client| client.latencies.get(number).cloned());
    let processor = |number: usize| {
        let all = merged(&|client| client.processor.get(number).cloned());
        all.quantile(0.99)
    };
    let windows = figures.iter().map(|client| client.latencies.len()).max();
    let after = (2..windows.unwrap_or(2)).map(|number| window(number).quantile(0.99));
    let sum = |of: &dyn Fn(&Figures) -> u64| figures.iter().map(of).sum::<u64>();
    let (before, during) = (window(0), window(1));
    Run {
        place: settings.place,
        startup_seconds: 0.0,
        most_mops: figures.iter().map(|client| client.most).sum::<f64>() / 1e6,
        load_mops: figures.iter().map(|client| client.rate).sum::<f64>() / 1e6,
        gets_before: before.count(),
        gets_during: during.count(),
        p50_before_ns: before.quantile(0.5),
        p50_during_ns: during.quantile(0.5),
        p99_before_ns: before.quantile(0.99),
        p99_during_ns: during.quantile(0.99),
        p99_after_ns: after.collect(),
        processor_p99_before_ns: processor(0),
        processor_p99_during_ns: processor(1),
        comebacks: comebacks(shared, samples),
        faults: Faults {
            wrong_values: sum(&|client| client.wrong) + sum(&|client| client.found_late),
            complaint,
            errors,
            ..Faults::default()
        },
        unverified_values: sum(&|client| client.unverified),
        found_late: sum(&|client| client.found_late),
    }
}

/// What has come back at each of the times to be measured.
fn comebacks(shared: &Shared, samples: &[Sample]) -> Vec<Comeback> {
    let Times {
        first_ns, last_ns, ..
    } = shared.times;
    let settings = &shared.settings;
    let Some(before) = samples.iter().rfind(|sample| sample.at_ns < first_ns) else {
        return Vec::new();
    };
    let expiring_bytes = before.log_bytes as f64 * settings.expiring_share(shared.others);
    let at = |&after_ms: &u64| {
        let sample = samples
            .iter()
            .find(|sample| sample.at_ns >= last_ns + after_ms * NS_A_MS)?;
        let bytes = before.log_bytes.saturating_sub(sample.log_bytes);
        Some(Comeback {
            after_ms,
            removed: (sample.removed - before.removed) as f64 / settings.expiring as f64,
            bytes: bytes as f64 / expiring_bytes.max(1.0),
        })
    };
    settings.after_ms.iter().filter_map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::expiry::settings::Place;
    use crate::plan::tests::plan_of;
    use crate::series::Measured;

    #[test]
    fn a_lost_client_does_not_hide_the_others() {
        let all = [Ok(1), Err(anyhow!("one")), Ok(2), Err(anyhow!("two"))];
        let (came, lost) = split(all);
        assert_eq!(came, [1, 2]);
        assert_eq!(lost.unwrap().to_string(), "one");
    }

    #[test]
    fn loading_that_takes_too_long_hides_no_figures() {
        let settings = Settings {
            place: Place::Local,
            expiring: 1000,
            value_bytes: 64,
            load_percent: 1,
            lead_ms: 0,
            within_ms: 1,
            after_ms: vec![1],
        };
        let mut plan = plan_of(Scenario::Expiry(Box::new(settings)));
        plan.cores.truncate(1);
        plan.prefault = false;
        let run = run(&plan).unwrap();
        assert!(run.faults.partial && run.is_empty(), "{run:?}");
        let why = run.faults.lost.unwrap();
        assert!(why.starts_with("loading took longer than --lead"), "{why}");
    }
}
