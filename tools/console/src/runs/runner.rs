//! The queue of runs and the threads that simulate them.
//!
//! The queue is the table of runs: the oldest queued one is next, so that a queue outlives its
//! process. A thread claims a run in a transaction, simulates at low priority, stores points in
//! batches and notes the end in one transaction with the rest of the points.
//!
//! - I1: a run is in [`Shared::running`] before its state `running` can be read, and until its end
//!   can.
//! - I2: a fault of a simulation fails its run and nothing else.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use farcore_card::simulator::{Outcome, Point, Progress, Simulation, SimulationSettings};
use farcore_card::trace::{Recording, TraceLimits};
use parking_lot::{Condvar, Mutex};
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::watch;

use super::run::{self, RunState};
use super::series::figures;
use super::watched::Watched;
use crate::clock::now_ms;
use crate::error::ApiResult;
use crate::events::{Event, Level};
use crate::store::{Database, Folder};

/// Points that are stored together.
const BATCH: usize = 64;
/// Most time until new points and progress are stored.
const STORE_EVERY: Duration = Duration::from_millis(500);
/// The priority of threads that simulate: requests come first.
const NICE: i32 = 10;
/// Pause after a failure of the database.
const PAUSE: Duration = Duration::from_secs(1);

/// What threads and requests share.
#[derive(Debug)]
struct Shared {
    console: Database,
    folder: Arc<Folder>,
    running: Mutex<HashMap<i64, Arc<Watched>>>,
    /// Counts what may have given threads or streams something to do.
    changes: watch::Sender<u64>,
    queue: Mutex<u64>,
    wake: Condvar,
    is_stopping: AtomicBool,
}

/// The queue and its threads.
#[derive(Debug)]
pub(crate) struct Runner {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A claimed run.
struct Claim {
    id: i64,
    settings: SimulationSettings,
    trace: Option<i64>,
    watched: Arc<Watched>,
}

/// Marks runs that were under way when their process died.
fn recover(console: &Connection) -> ApiResult<()> {
    let mut statement = console.prepare("SELECT id FROM runs WHERE state = 'running'")?;
    let ids = statement.query_map([], |row| row.get(0))?;
    let ids: Vec<i64> = ids.collect::<Result<_, _>>()?;
    for id in ids {
        console.execute(
            "UPDATE runs SET state = 'interrupted', ended_ms = ?2 WHERE id = ?1",
            params![id, now_ms()],
        )?;
        let message = format!("run {id} was interrupted: the console ended while it ran");
        Event::of_run(Level::Warning, id, message).write(console)?;
    }
    Ok(())
}

impl Runner {
    /// Marks runs that a died process left, and starts threads for the queue.
    ///
    /// # Errors
    /// The database fails, or the system refuses threads.
    pub(crate) fn start(
        console: &Database,
        folder: &Arc<Folder>,
        parallel: usize,
    ) -> ApiResult<Self> {
        console.write_blocking(recover)?;
        let shared = Arc::new(Shared {
            console: console.clone(),
            folder: Arc::clone(folder),
            running: Mutex::default(),
            changes: watch::Sender::new(0),
            queue: Mutex::new(0),
            wake: Condvar::new(),
            is_stopping: AtomicBool::new(false),
        });
        let runner = Self {
            shared,
            threads: Mutex::default(),
        };
        for number in 0..parallel.max(1) {
            let shared = Arc::clone(&runner.shared);
            let thread = thread::Builder::new().name(format!("run {number}"));
            match thread.spawn(move || shared.work()) {
                Ok(thread) => runner.threads.lock().push(thread),
                Err(error) => {
                    runner.stop();
                    return Err(crate::error::ApiError::internal(error));
                }
            }
        }
        Ok(runner)
    }

    /// Tells the threads and streams that the queue or the state of a run has changed.
    pub(super) fn notify(&self) {
        self.shared.notify();
    }

    /// The run that is under way, if it is.
    pub(super) fn watched(&self, id: i64) -> Option<Arc<Watched>> {
        self.shared.running.lock().get(&id).cloned()
    }

    /// Counts changes of the queue and of states.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changes.subscribe()
    }

    /// Interrupts runs and ends the threads.
    pub(crate) fn stop(&self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        self.shared.notify();
        for thread in self.threads.lock().drain(..) {
            // The panic hook has reported its panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn notify(&self) {
        *self.queue.lock() += 1;
        self.wake.notify_all();
        self.changes.send_modify(|count| *count += 1);
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    /// Runs what is queued until the console stops.
    fn work(&self) {
        if let Err(error) = rustix::process::setpriority_process(None, NICE) {
            tracing::debug!(%error, "simulations keep the usual priority");
        }
        loop {
            let seen = *self.queue.lock();
            if self.is_stopping() {
                return;
            }
            match self.claim() {
                Ok(Some(claim)) => self.run(&claim),
                Ok(None) => {
                    let mut queue = self.queue.lock();
                    while *queue == seen && !self.is_stopping() {
                        self.wake.wait(&mut queue);
                    }
                }
                Err(error) => {
                    tracing::error!(error = error.message(), "no run could be taken");
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Takes the oldest queued run.
    fn claim(&self) -> ApiResult<Option<Claim>> {
        let mut claimed = None;
        let outcome = self.console.write_blocking(|console| {
            let Some((id, settings, trace)) = take(console)? else {
                return Ok(None);
            };
            let total = settings.messages.saturating_add(settings.warmup);
            let watched = Arc::new(Watched::new(total));
            self.running.lock().insert(id, Arc::clone(&watched));
            claimed = Some(id);
            Ok(Some(Claim {
                id,
                settings,
                trace,
                watched,
            }))
        });
        match (&outcome, claimed) {
            (Ok(Some(_)), _) => self.changes.send_modify(|count| *count += 1),
            (Err(_), Some(id)) => {
                self.running.lock().remove(&id);
            }
            _ => {}
        }
        outcome
    }

    /// Simulates a claimed run and stores its end.
    fn run(&self, claim: &Claim) {
        let mut stored = 0;
        let simulated = catch_unwind(AssertUnwindSafe(|| self.simulate(claim, &mut stored)));
        let simulated = simulated.unwrap_or_else(|_| {
            Err("the simulation ended by a fault: the log on stderr says which".to_owned())
        });
        let (state, outcome, error) = match simulated {
            Ok(outcome) if !outcome.is_interrupted => (RunState::Done, Some(outcome), None),
            outcome if claim.watched.is_cancelled() => (RunState::Cancelled, outcome.ok(), None),
            outcome if self.is_stopping() => (RunState::Interrupted, outcome.ok(), None),
            Ok(outcome) => {
                let why = "its points could not be stored".to_owned();
                (RunState::Failed, Some(outcome), Some(why))
            }
            Err(why) => (RunState::Failed, None, Some(why)),
        };
        let outcome = outcome.as_ref();
        let ended = self.console.write_blocking(|console| {
            end(console, claim, stored, state, outcome, error.as_deref())
        });
        let state = match ended {
            Ok(()) => state,
            Err(error) => {
                // The next start finds it running and marks it.
                tracing::error!(
                    run = claim.id,
                    error = error.message(),
                    "an end was not stored"
                );
                RunState::Interrupted
            }
        };
        claim.watched.end(state);
        self.running.lock().remove(&claim.id);
        self.changes.send_modify(|count| *count += 1);
    }

    fn simulation(&self, claim: &Claim) -> Result<Simulation, String> {
        let settings = claim.settings.clone();
        let Some(trace) = claim.trace else {
            return Simulation::new(settings).map_err(|error| error.to_string());
        };
        let file = File::open(self.folder.trace(trace));
        let file = file.map_err(|error| format!("the trace of dataset {trace}: {error}"))?;
        let wanted = settings.messages.saturating_add(settings.warmup);
        let most = TraceLimits::default();
        let limits = TraceLimits {
            messages: usize::try_from(wanted)
                .unwrap_or(usize::MAX)
                .min(most.messages),
            ..most
        };
        let heeding = Heeding {
            file,
            shared: self,
            watched: &claim.watched,
        };
        let recording = Recording::read(BufReader::with_capacity(1 << 16, heeding), limits);
        let recording = recording.map_err(|error| format!("dataset {trace}: {error}"))?;
        Simulation::of_recording(settings, Arc::new(recording)).map_err(|error| error.to_string())
    }

    /// Runs the simulation; `stored` counts the points that are in the database.
    fn simulate(&self, claim: &Claim, stored: &mut usize) -> Result<Outcome, String> {
        let simulation = self.simulation(claim)?;
        let watched = &claim.watched;
        // A trace may have fewer messages than the settings say.
        watched.advance(0, simulation.total(), None);
        let mut last: Option<Point> = None;
        let mut last_store = Instant::now();
        let mut points = 0;
        let outcome = simulation.run(|progress: Progress<'_>| {
            // A report between two points shows the last one again.
            let point = progress.point.filter(|&point| last.as_ref() != Some(point));
            if let Some(point) = point {
                last = Some(point.clone());
                points += 1;
            }
            watched.advance(progress.started, progress.total, point.map(figures));
            if points - *stored >= BATCH || last_store.elapsed() >= STORE_EVERY {
                last_store = Instant::now();
                if let Err(error) = self.store(claim, stored, progress.started, progress.total) {
                    tracing::error!(run = claim.id, error = error.message(), "no points stored");
                    return ControlFlow::Break(());
                }
            }
            match watched.is_cancelled() || self.is_stopping() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        Ok(outcome)
    }

    fn store(&self, claim: &Claim, stored: &mut usize, started: u64, total: u64) -> ApiResult<()> {
        let points = claim.watched.points_from(*stored);
        self.console.write_blocking(|console| {
            run::add_points(console, claim.id, *stored, &points)?;
            let count = |number| i64::try_from(number).unwrap_or(i64::MAX);
            console.execute(
                "UPDATE runs SET started = ?2, total = ?3 WHERE id = ?1",
                params![claim.id, count(started), count(total)],
            )?;
            Ok(())
        })?;
        *stored += points.len();
        Ok(())
    }
}

/// Marks the oldest queued run as running. Those whose settings cannot be read fail.
fn take(console: &Connection) -> ApiResult<Option<(i64, SimulationSettings, Option<i64>)>> {
    loop {
        let text = "SELECT id, trace, by_name FROM runs WHERE state = 'queued'
            ORDER BY id LIMIT 1";
        let found = console.query_row(text, [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?))
        });
        let Some((id, trace, by)) = found.optional()? else {
            return Ok(None);
        };
        let Ok(settings) = run::settings(console, id) else {
            let why = "its settings are those of another version";
            console.execute(
                "UPDATE runs SET state = 'failed', ended_ms = ?2, error = ?3 WHERE id = ?1",
                params![id, now_ms(), why],
            )?;
            Event::of_run(Level::Error, id, format!("run {id} failed: {why}")).write(console)?;
            continue;
        };
        console.execute(
            "UPDATE runs SET state = 'running', started_ms = ?2 WHERE id = ?1",
            params![id, now_ms()],
        )?;
        let event = Event::of_run(Level::Info, id, format!("run {id} has started"));
        event.by(&by).write(console)?;
        return Ok(Some((id, settings, trace)));
    }
}

/// Stores how a run ended, with the points that are not in the database yet.
fn end(
    console: &Connection,
    claim: &Claim,
    stored: usize,
    state: RunState,
    outcome: Option<&Outcome>,
    error: Option<&str>,
) -> ApiResult<()> {
    let Claim { id, watched, .. } = claim;
    run::add_points(console, *id, stored, &watched.points_from(stored))?;
    let position = *watched.position().borrow();
    // The last report of progress comes some messages before the end.
    let started = match state {
        RunState::Done => position.total,
        _ => position.started,
    };
    let shown = outcome.map(run::shown).transpose()?;
    let summary = outcome.map(run::summary);
    let count = |number| i64::try_from(number).unwrap_or(i64::MAX);
    console.execute(
        "UPDATE runs SET state = ?2, ended_ms = ?3, started = ?4, total = ?5, outcome = ?6,
        summary = ?7, error = ?8 WHERE id = ?1",
        params![
            id,
            state,
            now_ms(),
            count(started),
            count(position.total),
            shown.map(|value| value.to_string()),
            summary.map(|value| value.to_string()),
            error
        ],
    )?;
    let (level, message) = match (state, error) {
        (RunState::Done, _) => (Level::Info, format!("run {id} is done")),
        (RunState::Cancelled, _) => (Level::Info, format!("run {id} was cancelled")),
        (RunState::Failed, Some(why)) => (Level::Error, format!("run {id} failed: {why}")),
        _ => (
            Level::Warning,
            format!("run {id} was interrupted: the console stopped"),
        ),
    };
    Event::of_run(level, *id, message).write(console)
}

/// A trace that ends early when its run does.
struct Heeding<'a> {
    file: File,
    shared: &'a Shared,
    watched: &'a Watched,
}

impl Read for Heeding<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.watched.is_cancelled() || self.shared.is_stopping() {
            return Err(io::Error::other("the run ends"));
        }
        self.file.read(into)
    }
}
