//! One run: opens the engine, loads all keys, and measures one crowd of callers after the other.

use std::mem::size_of_val;
use std::sync::Arc;

use anyhow::{Context, bail};
use farcore::{Answer, Client, Engine};
use farcore_command::stop;
use farcore_tuning::Clock;
use tracing::info;

use super::calls::{BatchCalls, Bench, Map, SingleCalls, WindowCalls, on_threads};
use super::counts::Counts;
use super::quiet;
use super::report::{CrowdFigures, Run};
use super::sequence::for_each_key;
use super::settings::{Caller, Crowd, Part, Settings, Subject};
use super::tasks::on_tasks;
#[cfg(feature = "peers")]
use crate::engines::peers::{Foyer, Moka, Papaya, QuickCache};
use crate::engines::{Dashmap, Direct, Farcore};
use crate::failures;
use crate::plan::{Plan, Scenario};
use crate::progress::PhaseBar;
use crate::record::KEY_BYTES;

/// Puts of one call while keys are loaded.
const LOAD_BATCH: usize = 256;

/// Runs a plan in this process.
///
/// # Errors
/// The engine could not be opened or loaded, or a caller was lost.
pub fn run(plan: &Plan) -> anyhow::Result<Run> {
    let Scenario::Embed(settings) = &plan.scenario else {
        bail!("the plan is of another command");
    };
    match settings.part {
        Part::Callers => callers(plan, settings),
        Part::Idle => quiet::idle(plan, settings),
        Part::Beside => quiet::beside(plan, settings),
    }
}

fn callers(plan: &Plan, settings: &Settings) -> anyhow::Result<Run> {
    match settings.subject {
        Subject::Farcore | Subject::FarcoreDedicated | Subject::FarcoreFar => {
            measure::<Ours>(plan, settings)
        }
        Subject::Dashmap => measure::<Theirs<Dashmap>>(plan, settings),
        #[cfg(feature = "peers")]
        Subject::Moka => measure::<Theirs<Moka>>(plan, settings),
        #[cfg(feature = "peers")]
        Subject::Foyer => measure::<Theirs<Foyer>>(plan, settings),
        #[cfg(feature = "peers")]
        Subject::QuickCache => measure::<Theirs<QuickCache>>(plan, settings),
        #[cfg(feature = "peers")]
        Subject::Papaya => measure::<Theirs<Papaya>>(plan, settings),
    }
}

/// An engine that callers use.
trait Target: Sized {
    fn open(plan: &Plan) -> anyhow::Result<Self>;

    fn load(&self, plan: &Plan, settings: &Settings) -> anyhow::Result<()>;

    fn crowd(&self, bench: &Bench<'_>, crowd: Crowd)
    -> anyhow::Result<(CrowdFigures, Vec<Counts>)>;

    /// Bytes of a waiting call in its task.
    fn call_bytes(&self) -> anyhow::Result<usize> {
        Ok(0)
    }

    fn close(self) {}
}

fn measure<T: Target>(plan: &Plan, settings: &Settings) -> anyhow::Result<Run> {
    let clock = Clock::new();
    let since = |start_ns: u64| (clock.now_ns() - start_ns) as f64 / 1e9;
    let mut run = Run::of(settings.subject, settings.part);
    let start_ns = clock.now_ns();
    let target = T::open(plan)?;
    run.startup_seconds = since(start_ns);
    let start_ns = clock.now_ns();
    target.load(plan, settings)?;
    run.load_seconds = since(start_ns);
    info!(
        engine = settings.subject.name(),
        startup_seconds = run.startup_seconds,
        load_seconds = run.load_seconds,
        "loaded"
    );
    let bench = Bench {
        settings,
        seed: plan.seed,
        clock: clock.clone(),
    };
    let crowds = settings.crowds();
    if crowds.iter().any(|crowd| crowd.caller == Caller::Tasks) {
        run.call_bytes = target.call_bytes()? as u64;
    }
    let total = settings.seconds * crowds.len() as f64;
    let bar = PhaseBar::timed(settings.subject.name(), "callers", total);
    for (place, crowd) in (0..).zip(crowds) {
        if stop::is_requested() {
            break;
        }
        bar.set(milliseconds(settings.seconds * f64::from(place)));
        let (figures, all) = target.crowd(&bench, crowd)?;
        collect(&mut run, all);
        // What a signal has cut short is no figure.
        if stop::is_requested() {
            break;
        }
        run.crowds.push(figures);
    }
    run.partial = stop::is_requested();
    bar.finish();
    target.close();
    Ok(run)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a length of time"
)]
fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1e3) as u64
}

/// Adds the faults of callers to a run.
fn collect(run: &mut Run, all: Vec<Counts>) {
    for mut counts in all {
        run.wrong_values += counts.wrong;
        failures::add(&mut run.errors, &counts.failures.counts());
        if run.complaint.is_none() {
            run.complaint = counts.complaint.or_else(|| counts.failures.take_first());
        }
    }
}

/// Farcore.
struct Ours {
    engine: Engine,
    /// Opened by the first caller that needs it, and kept: its lanes stay in use.
    client: std::cell::OnceCell<Client>,
}

/// Opens farcore for a plan.
pub(super) fn open(plan: &Plan) -> anyhow::Result<Engine> {
    Engine::open(Farcore::config(plan)?).context("the engine could not be opened")
}

/// Writes all keys with one handle.
pub(super) fn load(engine: &Engine, plan: &Plan, settings: &Settings) -> anyhow::Result<()> {
    let mut handle = engine.handle()?;
    let mut keys: Vec<u8> = Vec::new();
    let mut values: Vec<u8> = Vec::new();
    let mut send = |keys: &mut Vec<u8>, values: &mut Vec<u8>| -> farcore::Result<()> {
        let pairs: Vec<(&[u8], &[u8])> = keys
            .chunks(KEY_BYTES)
            .zip(values.chunks(settings.value_bytes))
            .collect();
        let mut failed = None;
        handle.put_many(&pairs, |_, answer| {
            if let Answer::Failed(error) = answer {
                failed = Some(error.clone());
            }
        })?;
        keys.clear();
        values.clear();
        failed.map_or(Ok(()), Err)
    };
    let loaded = for_each_key(plan, settings, |key, value| {
        keys.extend_from_slice(key);
        values.extend_from_slice(value);
        if keys.len() < LOAD_BATCH * KEY_BYTES {
            return Ok(());
        }
        send(&mut keys, &mut values)
    });
    loaded
        .and_then(|()| send(&mut keys, &mut values))
        .context("the keys could not be loaded")
}

impl Ours {
    fn client(&self) -> anyhow::Result<Client> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let client = self.engine.client()?;
        Ok(self.client.get_or_init(|| client).clone())
    }
}

impl Target for Ours {
    fn open(plan: &Plan) -> anyhow::Result<Self> {
        Ok(Self {
            engine: open(plan)?,
            client: std::cell::OnceCell::new(),
        })
    }

    fn load(&self, plan: &Plan, settings: &Settings) -> anyhow::Result<()> {
        load(&self.engine, plan, settings)
    }

    fn crowd(
        &self,
        bench: &Bench<'_>,
        crowd: Crowd,
    ) -> anyhow::Result<(CrowdFigures, Vec<Counts>)> {
        let handle = || self.engine.handle().context("a caller got no handle");
        match crowd.caller {
            Caller::Handle | Caller::Direct => {
                on_threads(bench, crowd, || Ok(SingleCalls(handle()?)))
            }
            Caller::Client => on_threads(bench, crowd, || Ok(SingleCalls(self.client()?))),
            Caller::Batch => on_threads(bench, crowd, || Ok(BatchCalls::new(handle()?))),
            Caller::Window => on_threads(bench, crowd, || Ok(WindowCalls::new(handle()?))),
            Caller::Tasks => on_tasks(bench, crowd, &self.client()?),
        }
    }

    fn call_bytes(&self) -> anyhow::Result<usize> {
        Ok(size_of_val(&self.client()?.get(&[])))
    }

    fn close(self) {
        self.engine.close();
    }
}

/// A map.
struct Theirs<D>(Arc<D>);

impl<D: Direct> Target for Theirs<D> {
    fn open(plan: &Plan) -> anyhow::Result<Self> {
        Ok(Self(Arc::new(D::open(plan)?)))
    }

    fn load(&self, plan: &Plan, settings: &Settings) -> anyhow::Result<()> {
        for_each_key(plan, settings, |key, value| self.0.put(key, value))
    }

    fn crowd(
        &self,
        bench: &Bench<'_>,
        crowd: Crowd,
    ) -> anyhow::Result<(CrowdFigures, Vec<Counts>)> {
        let map = || Map(Arc::clone(&self.0));
        match crowd.caller {
            Caller::Tasks => on_tasks(bench, crowd, &map()),
            Caller::Batch => on_threads(bench, crowd, || Ok(BatchCalls::new(map()))),
            Caller::Handle | Caller::Client | Caller::Window | Caller::Direct => {
                on_threads(bench, crowd, || Ok(SingleCalls(map())))
            }
        }
    }
}
