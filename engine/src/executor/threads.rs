//! The executor threads of cores: one pinned glommio executor each, kept for the next engine when
//! an engine closes.
//!
//! Every task of glommio 0.9.0 keeps a reference to its executor's notifier forever, so each
//! executor that has run leaks an eventfd and 4 KiB. So a thread that has served an engine keeps
//! its executor and sleeps until the next engine on its core. A process has as many of these
//! threads as it ever had cores of engines open at once.
//!
//! - I1: an idle thread has one entry in [`IDLE`], and accepts work only after that entry was
//!   removed.
//! - I2: a kept executor has no task queue of an earlier engine: tasks left there never run again.
//! - I3: a thread belongs to the process that started it. A forked child has none of its parent's.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use super::{CoreExecutor, Queues};
use crate::error::Result;
use crate::limits::no_thread;

/// Idle threads of this process, and of those that it was forked from.
static IDLE: Mutex<Vec<Idle>> = Mutex::new(Vec::new());

struct Idle {
    core: usize,
    process: u32,
    inbox: mpsc::Sender<Assignment>,
}

/// The work of an engine on one core. Called on the core's thread, with an error if that has no
/// executor; the returned future is not run then.
pub(crate) type Work = Box<dyn FnOnce(Result<Queues>) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

struct Assignment {
    work: Work,
    ended: Ends,
}

/// The end of a core's work, signalled once to any number of waiting threads.
#[derive(Debug, Default)]
pub(crate) struct Termination {
    has_ended: Mutex<bool>,
    changed: Condvar,
}

impl Termination {
    /// True if the work has ended.
    pub(crate) fn has_come(&self) -> bool {
        *locked(&self.has_ended)
    }

    /// Blocks until the work has ended and the thread is free for other work.
    pub(crate) fn wait(&self) {
        let mut has_ended = locked(&self.has_ended);
        while !*has_ended {
            has_ended = self
                .changed
                .wait(has_ended)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Signals the end of the work when dropped.
struct Ends(Arc<Termination>);

impl Drop for Ends {
    fn drop(&mut self) {
        *locked(&self.0.has_ended) = true;
        self.0.changed.notify_all();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs an engine's work on an executor of a core: an idle one, else a new one.
///
/// # Errors
/// [`Error::Threads`] if no thread can be started.
pub(crate) fn start(core: usize, work: Work) -> Result<Arc<Termination>> {
    let ended = Arc::new(Termination::default());
    #[cfg(feature = "simulation")]
    if farcore_rdma::simulation::is_inside() {
        let ends = Ends(Arc::clone(&ended));
        let group = u32::try_from(core + 1).unwrap_or(u32::MAX);
        let before = farcore_rdma::simulation::set_group(group);
        let task = farcore_rdma::simulation::spawn(async move {
            work(Ok(Queues::World)).await;
            drop(ends);
        });
        farcore_rdma::simulation::set_group(before);
        task.detach();
        return Ok(ended);
    }
    let mut assignment = Assignment {
        work,
        ended: Ends(Arc::clone(&ended)),
    };
    while let Some(inbox) = take_idle(core) {
        match inbox.send(assignment) {
            Ok(()) => return Ok(ended),
            Err(mpsc::SendError(back)) => assignment = back,
        }
    }
    thread::Builder::new()
        .name(format!("farcore-{core}"))
        .spawn(move || serve(core, assignment))
        .map_err(|error| no_thread(&error.to_string()))?;
    Ok(ended)
}

/// The number of these cores that have no idle thread.
pub(crate) fn missing(cores: &[usize]) -> usize {
    let process = std::process::id();
    let idle = locked(&IDLE);
    let has_none = |core: &&usize| {
        !idle
            .iter()
            .any(|one| (one.core, one.process) == (**core, process))
    };
    cores.iter().filter(has_none).count()
}

fn take_idle(core: usize) -> Option<mpsc::Sender<Assignment>> {
    let process = std::process::id();
    let mut idle = locked(&IDLE);
    idle.retain(|one| one.process == process);
    let place = idle.iter().position(|one| one.core == core)?;
    Some(idle.swap_remove(place).inbox)
}

/// A core's thread: makes the executor, then runs the work of one engine after another.
fn serve(core: usize, first: Assignment) {
    let executor = match CoreExecutor::new(core) {
        Ok(executor) => executor,
        Err(error) => {
            drop((first.work)(Err(error)));
            return;
        }
    };
    let _lifeline = Lifeline;
    let mut next = Some(first);
    while let Some(Assignment { work, ended }) = next.take() {
        if !executor.run(async move |queues| work(Ok(queues)).await) {
            // Tasks that a job started itself are still ready to run: they end with their executor.
            return;
        }
        let (inbox, assignments) = mpsc::channel();
        locked(&IDLE).push(Idle {
            core,
            process: std::process::id(),
            inbox,
        });
        // Last, so that a thread that waits for the end and opens another engine finds this thread
        // idle.
        drop(ended);
        next = assignments.recv().ok();
    }
}

/// Held by a core's thread while it has its executor. Aborts the process on unwinding: the tasks
/// are not dropped then, and no other thread can answer the shard's requests.
struct Lifeline;

impl Drop for Lifeline {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("a panic on a core outside of its jobs: aborting");
            std::process::abort();
        }
    }
}
