//! The queue of searches, and the thread that runs them, one at a time: each uses as many threads
//! as runs do.
//!
//! - I1: a search is in [`Shared::current`] before its state `running` can be read, and until its
//!   end can.
//! - I2: a fault of a search fails it and nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use farcore_card::simulator::{Fit, FitCurve};
use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;

use super::search::{Search, SearchProgress, set_state, store};
use crate::error::{ApiError, ApiResult};
use crate::events::{Event, Level};
use crate::runs::run::RunState;
use crate::store::Database;

/// The priority of threads that simulate: requests come first.
const NICE: i32 = 10;
/// Pause after a failure of the database.
const PAUSE: Duration = Duration::from_secs(1);

/// What is known of a search that is under way.
#[derive(Clone, Debug)]
pub(super) struct Known {
    id: i64,
    progress: SearchProgress,
    curves: Vec<FitCurve>,
}

impl Known {
    /// Puts this into the search that it is of. It was read before the search, which has more to
    /// say if it has ended since.
    ///
    /// # Errors
    /// None in practice.
    pub(super) fn freshen(&self, search: &mut Search) -> ApiResult<()> {
        if search.id == self.id && search.state == RunState::Running {
            search.progress = self.progress;
            search.curves = Some(serde_json::to_value(&self.curves)?);
        }
        Ok(())
    }
}

/// A search that is under way.
#[derive(Debug)]
struct Current {
    known: Known,
    is_cancelled: bool,
}

/// What the thread and requests share.
#[derive(Debug)]
struct Shared {
    console: Database,
    threads: usize,
    current: Mutex<Option<Current>>,
    /// Counts what may have given the thread something to do.
    queue: Mutex<u64>,
    wake: Condvar,
    is_stopping: AtomicBool,
}

/// The queue and its thread.
#[derive(Debug)]
pub(crate) struct Searcher {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Marks a search that was under way when its process died.
fn recover(console: &Connection) -> ApiResult<()> {
    let mut statement = console.prepare("SELECT id FROM fits WHERE state = 'running'")?;
    let ids = statement.query_map([], |row| row.get(0))?;
    let ids: Vec<i64> = ids.collect::<Result<_, _>>()?;
    ids.into_iter()
        .try_for_each(|id| set_state(console, id, RunState::Interrupted))
}

impl Searcher {
    /// Marks a search that a died process left, and starts the thread.
    ///
    /// # Errors
    /// The database fails, or the system refuses a thread.
    pub(crate) fn start(console: &Database, threads: usize) -> ApiResult<Self> {
        console.write_blocking(recover)?;
        let shared = Arc::new(Shared {
            console: console.clone(),
            threads,
            current: Mutex::default(),
            queue: Mutex::new(0),
            wake: Condvar::new(),
            is_stopping: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("fits".to_owned());
        let thread = thread
            .spawn(move || own.work())
            .map_err(ApiError::internal)?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Tells the thread that the queue has changed.
    pub(super) fn notify(&self) {
        *self.shared.queue.lock() += 1;
        self.shared.wake.notify_all();
    }

    /// Ends a search that is under way.
    pub(super) fn cancel(&self, id: i64) {
        let mut current = self.shared.current.lock();
        if let Some(current) = current.as_mut().filter(|one| one.known.id == id) {
            current.is_cancelled = true;
        }
    }

    /// What is known at this moment of the search that is under way.
    pub(super) fn known(&self) -> Option<Known> {
        let current = self.shared.current.lock();
        current.as_ref().map(|current| current.known.clone())
    }

    /// Interrupts a search and ends the thread.
    pub(crate) fn stop(&self) {
        self.shared.is_stopping.store(true, Ordering::SeqCst);
        self.notify();
        if let Some(thread) = self.thread.lock().take() {
            // The panic hook has reported its panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Searcher {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::SeqCst)
    }

    fn is_cancelled(&self) -> bool {
        let current = self.current.lock();
        current.as_ref().is_some_and(|current| current.is_cancelled)
    }

    /// Runs what is queued until the console stops.
    fn work(&self) {
        // Threads of a search inherit it.
        if let Err(error) = rustix::process::setpriority_process(None, NICE) {
            tracing::debug!(%error, "searches keep the usual priority");
        }
        loop {
            let seen = *self.queue.lock();
            if self.is_stopping() {
                return;
            }
            match self.claim() {
                Ok(Some(search)) => self.run(search),
                Ok(None) => {
                    let mut queue = self.queue.lock();
                    while *queue == seen && !self.is_stopping() {
                        self.wake.wait(&mut queue);
                    }
                }
                Err(error) => {
                    tracing::error!(error = error.message(), "no search could be taken");
                    thread::sleep(PAUSE);
                }
            }
        }
    }

    /// Takes the oldest queued search.
    fn claim(&self) -> ApiResult<Option<Search>> {
        let claimed = self.console.write_blocking(|console| {
            let Some(search) = Search::oldest_queued(console)? else {
                return Ok(None);
            };
            set_state(console, search.id, RunState::Running)?;
            *self.current.lock() = Some(Current {
                known: Known {
                    id: search.id,
                    progress: SearchProgress::default(),
                    curves: Vec::new(),
                },
                is_cancelled: false,
            });
            Ok(Some(search))
        });
        if claimed.is_err() {
            *self.current.lock() = None;
        }
        claimed
    }

    fn run(&self, search: Search) {
        let id = search.id;
        let searched = catch_unwind(AssertUnwindSafe(|| self.searched(search)));
        let ended = self.console.write_blocking(|console| {
            let (state, level) = match &searched {
                Ok(Ok(fit)) if fit.is_complete() => (RunState::Done, Level::Info),
                Ok(Ok(_)) if self.is_cancelled() => (RunState::Cancelled, Level::Info),
                Ok(Ok(_)) => (RunState::Interrupted, Level::Warning),
                Ok(Err(_)) | Err(_) => (RunState::Failed, Level::Error),
            };
            match &searched {
                Ok(Ok(fit)) => store(console, id, state, fit)?,
                _ => set_state(console, id, state)?,
            }
            let mut message = format!("search {id} for what fits is {}", state.name());
            if let Ok(Err(why)) = &searched {
                message = format!("{message}: {why}");
            }
            Event::of_server(level, message).write(console)
        });
        if let Err(error) = ended {
            // The next start finds it running and marks it.
            tracing::error!(
                search = id,
                error = error.message(),
                "an end was not stored"
            );
        }
        *self.current.lock() = None;
    }

    /// What is known when the search ends or is ended.
    fn searched(&self, search: Search) -> Result<Fit, String> {
        let fit = Fit::new(search.settings).map_err(|error| error.to_string())?;
        let stop = || self.is_stopping() || self.is_cancelled();
        let observe = |fit: &Fit| {
            let (done, total) = fit.progress();
            let curves = fit.curves();
            if let Some(current) = self.current.lock().as_mut() {
                current.known.progress = SearchProgress { done, total };
                current.known.curves = curves;
            }
        };
        fit.search(self.threads, stop, observe)
            .map_err(|error| error.to_string())
    }
}
