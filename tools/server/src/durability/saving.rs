//! Snapshots that clients and rules want, and what is known of them.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use farcore::{Durability, DurableStats, EngineReporter};

use super::refusals::Refusals;
use super::save_points::SavePoint;
use crate::cores::answers::{Answers, CoreAnswers};
use crate::options::DataOptions;

/// How long after a failure a rule has a snapshot tried again; as Redis.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(5);

/// What a snapshot is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// `SAVE`, `BGSAVE`, a rule.
    Save,
    /// `BGREWRITEAOF`.
    Rewrite,
}

/// What became of the last snapshot of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastSave {
    pub(crate) has_failed: bool,
    /// How long it took; `None` if there was none.
    pub(crate) took: Option<Duration>,
    /// How many there were.
    pub(crate) count: u64,
    /// How many failed one after the other.
    pub(crate) failed: u64,
}

impl LastSave {
    const NONE: Self = Self {
        has_failed: false,
        took: None,
        count: 0,
        failed: 0,
    };
}

#[derive(Debug)]
struct State {
    points: Vec<SavePoint>,
    stops_writes: bool,
    current: Option<(Kind, Instant)>,
    /// One is to be made when that is done.
    scheduled: Option<Kind>,
    save: LastSave,
    rewrite: LastSave,
    failed_at: Option<Instant>,
    /// Changes when the last complete snapshot was begun.
    changes_at: u64,
    /// The last one that was made by the engine itself.
    generation: u64,
    /// When changes are counted from, if there was no snapshot.
    began: Instant,
}

/// Makes snapshots of an engine with a data directory.
#[derive(Debug)]
pub(crate) struct Saving {
    pub(crate) durability: Durability,
    pub(crate) options: Option<DataOptions>,
    pub(crate) refusals: Refusals,
    /// When the server began to wait for loading, in seconds since 1970.
    pub(crate) began_s: u64,
    reporter: EngineReporter,
    state: Mutex<State>,
}

fn now_s() -> u64 {
    farcore_tuning::system_ms() / 1000
}

impl Saving {
    pub(crate) fn new(
        durability: Durability,
        reporter: EngineReporter,
        options: Option<DataOptions>,
    ) -> Self {
        let points = options.as_ref().map(|data| data.save_points.clone());
        Self {
            durability,
            options,
            refusals: Refusals::default(),
            began_s: now_s(),
            state: Mutex::new(State {
                points: points.unwrap_or_default(),
                stops_writes: true,
                current: None,
                scheduled: None,
                save: LastSave::NONE,
                rewrite: LastSave::NONE,
                failed_at: None,
                changes_at: 0,
                generation: 0,
                began: Instant::now(),
            }),
            reporter,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if there is a data directory.
    pub(crate) fn is_durable(&self) -> bool {
        self.options.is_some()
    }

    /// What the engine says of its data directory; of none, and while it is loaded, nothing.
    pub(crate) fn stats(&self) -> DurableStats {
        self.durability.stats().unwrap_or_default()
    }

    /// Changes that were made since the engine was opened.
    fn changes(&self) -> u64 {
        let all = self.reporter.stats().total;
        let deletes = all.deletes.saturating_sub(all.deletes_absent);
        let changes = all.changes.saturating_sub(all.changes_mismatched);
        all.puts + deletes + all.swaps + changes + all.transactions + all.clears
    }

    /// Notes that what was loaded is no change.
    pub(crate) fn note_loaded(&self) {
        self.state().changes_at = self.changes();
        self.refusals.set_loading(false);
    }

    /// Changes since the last snapshot was begun.
    pub(crate) fn unsaved_changes(&self) -> u64 {
        self.changes().saturating_sub(self.state().changes_at)
    }

    /// When the last snapshot was completed, in seconds since 1970: when the server began, if there
    /// is none; as Redis.
    pub(crate) fn last_save_s(&self) -> u64 {
        match self.stats().last_unix_ms {
            0 => self.began_s,
            at_ms => at_ms / 1000,
        }
    }

    pub(crate) fn save_points(&self) -> Vec<SavePoint> {
        self.state().points.clone()
    }

    pub(crate) fn set_save_points(&self, points: Vec<SavePoint>) {
        let mut state = self.state();
        state.points = points;
        self.judge(&state);
    }

    /// Whether commands that write are refused while snapshots of the rules fail.
    pub(crate) fn stops_writes(&self) -> bool {
        self.state().stops_writes
    }

    pub(crate) fn set_stops_writes(&self, stops: bool) {
        let mut state = self.state();
        state.stops_writes = stops;
        self.judge(&state);
    }

    fn judge(&self, state: &State) {
        let is_unsaved = state.stops_writes && !state.points.is_empty() && state.save.has_failed;
        self.refusals.set_unsaved(is_unsaved);
    }

    /// What is under way for a client or a rule, and for how long.
    pub(crate) fn current(&self) -> Option<(Kind, Duration)> {
        let current = self.state().current;
        current.map(|(kind, since)| (kind, since.elapsed()))
    }

    pub(crate) fn scheduled(&self) -> Option<Kind> {
        self.state().scheduled
    }

    pub(crate) fn last(&self, kind: Kind) -> LastSave {
        let state = self.state();
        match kind {
            Kind::Save => state.save,
            Kind::Rewrite => state.rewrite,
        }
    }

    /// Has a snapshot made after the one that is under way.
    pub(crate) fn schedule(&self, kind: Kind) {
        self.state().scheduled = Some(kind);
    }

    /// Begins a snapshot in a thread. Its outcome comes where this returns.
    ///
    /// # Errors
    /// What is under way already; or no thread can be started, and that is noted as a failure.
    pub(crate) fn begin(
        self: &Arc<Self>,
        kind: Kind,
    ) -> Result<CoreAnswers<farcore::Result<()>>, Kind> {
        let mut state = self.state();
        if let Some((current, _)) = state.current {
            return Err(current);
        }
        let mut answers = CoreAnswers::new();
        let answer = answers.expect();
        state.current = Some((kind, Instant::now()));
        drop(state);
        let began = self.start(kind, answer);
        if let Err(error) = began {
            tracing::error!(%error, "no thread for a snapshot");
            self.note_end((kind, Instant::now(), self.changes()), None);
        }
        Ok(answers)
    }

    fn start(
        self: &Arc<Self>,
        kind: Kind,
        answer: Answers<farcore::Result<()>>,
    ) -> io::Result<thread::JoinHandle<()>> {
        let saving = Arc::clone(self);
        let work = move || {
            let (began, changes) = (Instant::now(), saving.changes());
            let outcome = saving.durability.snapshot();
            let generation = outcome.as_ref().ok().map(|made| made.generation);
            saving.note_end((kind, began, changes), generation);
            answer.put(outcome.map(drop));
        };
        thread::Builder::new()
            .name("farcore-save".to_owned())
            .spawn(work)
    }

    fn note_end(&self, (kind, began, changes): (Kind, Instant, u64), generation: Option<u64>) {
        let mut state = self.state();
        state.current = None;
        let last = match kind {
            Kind::Save => &mut state.save,
            Kind::Rewrite => &mut state.rewrite,
        };
        last.has_failed = generation.is_none();
        last.took = Some(began.elapsed());
        last.count += 1;
        last.failed = if last.has_failed { last.failed + 1 } else { 0 };
        state.failed_at = generation.is_none().then(Instant::now);
        if let Some(generation) = generation {
            state.changes_at = changes;
            state.generation = generation;
            state.began = Instant::now();
            // Whatever it was made for, all is saved.
            state.save.has_failed = false;
        }
        self.judge(&state);
    }

    /// Does what is due, about once a second.
    pub(crate) fn look(self: &Arc<Self>) {
        if !self.is_durable() || self.refusals.is_loading() {
            return;
        }
        let made = self.stats().last.map_or(0, |last| last.generation);
        let changes = self.changes();
        let due = {
            let mut state = self.state();
            if made > state.generation && state.current.is_none() {
                // One that the engine made by itself.
                state.generation = made;
                state.changes_at = changes;
                state.began = Instant::now();
            }
            if state.current.is_some() {
                return;
            }
            let unsaved = changes.saturating_sub(state.changes_at);
            let age = state.began.elapsed();
            let rests = |at: Instant| at.elapsed() < REST_AFTER_FAILURE;
            let is_due = |point: &SavePoint| {
                unsaved >= point.changes && unsaved > 0 && age.as_secs() >= point.seconds
            };
            let by_rule = state.points.iter().any(is_due) && !state.failed_at.is_some_and(rests);
            let scheduled = state.scheduled.take();
            scheduled.or(by_rule.then_some(Kind::Save))
        };
        if let Some(kind) = due {
            // Another one has begun meanwhile: as good.
            let _ = self.begin(kind);
        }
    }

    /// True if something would be lost that the rules are to keep, were the engine closed now.
    pub(crate) fn needs_save(&self, asked: Option<bool>) -> bool {
        let wanted = asked.unwrap_or_else(|| !self.state().points.is_empty());
        let is_ready = self.is_durable() && !self.refusals.is_loading();
        let is_new = self.stats().last_unix_ms == 0;
        is_ready && wanted && (self.unsaved_changes() > 0 || asked == Some(true) && is_new)
    }
}
