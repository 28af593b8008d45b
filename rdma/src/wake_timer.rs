//! Wake timers: end a sleep into which an executor fell by mistake.
//!
//! An executor can put its thread to sleep although a task is ready, if it is preempted before the
//! first task. Its own timers do not help: on a loaded machine all of them may have fired
//! just before, and the tasks that would arm the next ones are among those that wait. So one thread
//! of the process, independent of every executor, wakes a task of each one at a fixed interval.
//!
//! Owns that thread and the registry of wake timers.
//!
//! - I1: the thread lives while there is a wake timer.
//! - I2: a task that is not polled is woken ever more rarely: wakes that were not consumed pile up
//!   in the executor, and there must never be thousands.
//! - I3: the thread belongs to the process that started it: a forked child starts its own.

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

/// The longest sleep by mistake, unless another one follows at once.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// The wake timers of this process.
static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    entries: Vec::new(),
    runs_in: None,
});

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Registry {
    entries: Vec<Entry>,
    /// The process in which the thread runs.
    runs_in: Option<u32>,
}

/// A wake timer, as the thread sees it.
struct Entry {
    task: Weak<Mutex<TaskState>>,
    /// Polls of the task, as last seen.
    polls: u64,
    /// Intervals since that number changed.
    intervals: u64,
    watch: Option<Watch>,
}

/// Called at each interval with the number of intervals for which the task has not been polled.
type Watch = Box<dyn FnMut(u64) + Send>;

/// What a task shares with the thread.
#[derive(Debug, Default)]
struct TaskState {
    waker: Option<Waker>,
    polls: u64,
}

impl Entry {
    /// Wakes the task if it is due; false if the task is gone.
    fn tick(&mut self) -> bool {
        let Some(task) = self.task.upgrade() else {
            return false;
        };
        let state = locked(&task);
        if state.polls != self.polls {
            self.polls = state.polls;
            self.intervals = 0;
        }
        if let Some(watch) = &mut self.watch {
            watch(self.intervals);
        }
        self.intervals += 1;
        if self.intervals.is_power_of_two()
            && let Some(waker) = &state.waker
        {
            waker.wake_by_ref();
        }
        true
    }
}

impl Registry {
    /// An interval has passed; false if no wake timer is left.
    fn tick(&mut self) -> bool {
        self.entries.retain_mut(Entry::tick);
        !self.entries.is_empty()
    }
}

/// The thread.
fn run() {
    loop {
        thread::sleep(INTERVAL);
        let mut registry = locked(&REGISTRY);
        if !registry.tick() {
            registry.runs_in = None;
            return;
        }
    }
}

/// One executor's wake timer. Dropping it removes it. Cost: ten wakes a second.
#[derive(Debug)]
pub struct WakeTimer(Arc<Mutex<TaskState>>);

impl WakeTimer {
    /// A wake timer for an executor that is about to start. Call it from a thread that is not
    /// pinned: the thread of the wake timers may be started here and inherits the affinity.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn new() -> io::Result<Self> {
        Self::start(None)
    }

    /// A wake timer that also calls `watch` at each [`INTERVAL`], with the number of intervals for
    /// which the executor has not polled the task although it was woken: 0 if the executor runs.
    /// `watch` must return quickly, and must not create or drop wake timers.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn watched(watch: impl FnMut(u64) + Send + 'static) -> io::Result<Self> {
        Self::start(Some(Box::new(watch)))
    }

    fn start(watch: Option<Watch>) -> io::Result<Self> {
        let state = Arc::default();
        #[cfg(feature = "simulation")]
        if crate::simulation::is_inside() {
            return Ok(Self(state));
        }
        let mut registry = locked(&REGISTRY);
        let process = std::process::id();
        if registry.runs_in != Some(process) {
            // After a fork, the executors of the parent process do not exist here either.
            registry.entries.clear();
            thread::Builder::new()
                .name("farcore-wake".to_owned())
                .spawn(run)?;
            registry.runs_in = Some(process);
        }
        registry.entries.push(Entry {
            task: Arc::downgrade(&state),
            polls: 0,
            intervals: 0,
            watch,
        });
        Ok(Self(state))
    }

    /// The future that the thread wakes. It never ends. Poll it from a task of the executor, in a
    /// task queue that is never starved.
    pub fn beat<T>(&self) -> impl Future<Output = T> + use<T> {
        let polled = Polled(Arc::clone(&self.0));
        poll_fn(move |context| {
            let mut state = locked(&polled.0);
            state.polls += 1;
            match &mut state.waker {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
            Poll::Pending
        })
    }
}

/// The task's share of the state, held by the future of [`WakeTimer::beat`].
struct Polled(Arc<Mutex<TaskState>>);

impl Drop for Polled {
    fn drop(&mut self) {
        // Drops the waker on the executor's own thread, not where the last reference ends.
        locked(&self.0).waker = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::{Context, Wake};

    use super::*;

    /// Nothing else wakes this executor: it has neither timers nor sockets.
    #[test]
    fn an_executor_without_timers_is_woken() {
        let wake_timer = WakeTimer::new().expect("a thread");
        crate::executor::build("test", None)
            .expect("an executor")
            .run(async {
                let mut beat = Box::pin(wake_timer.beat::<()>());
                let mut polls = 0;
                poll_fn(move |context| {
                    polls += 1;
                    let _ = beat.as_mut().poll(context);
                    if polls == 4 {
                        Poll::Ready(())
                    } else {
                        Poll::Pending
                    }
                })
                .await;
            });
    }

    #[derive(Default)]
    struct Woken(AtomicU64);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_that_is_not_polled_is_woken_ever_more_rarely() {
        let wake_timer = WakeTimer(Arc::default());
        let mut registry = Registry {
            entries: vec![Entry {
                task: Arc::downgrade(&wake_timer.0),
                polls: 0,
                intervals: 0,
                watch: None,
            }],
            runs_in: Some(std::process::id()),
        };
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut beat = Box::pin(wake_timer.beat::<()>());
        for _ in 0..100 {
            let _ = beat.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(registry.tick());
        }
        assert_eq!(woken.0.load(Ordering::Relaxed), 100);
        for _ in 0..1_000_000 {
            registry.tick();
        }
        // After 1, 2, 4 ... intervals, the first of which was counted above.
        assert_eq!(woken.0.load(Ordering::Relaxed), 119);
        drop((beat, wake_timer));
        assert!(!registry.tick() && registry.entries.is_empty());
    }

    #[test]
    fn a_watch_receives_the_intervals_without_a_poll() {
        let (wake_timer, seen) = (WakeTimer(Arc::default()), Arc::new(Mutex::new(Vec::new())));
        let log = Arc::clone(&seen);
        let mut entry = Entry {
            task: Arc::downgrade(&wake_timer.0),
            polls: 0,
            intervals: 0,
            watch: Some(Box::new(move |intervals| locked(&log).push(intervals))),
        };
        let mut beat = Box::pin(wake_timer.beat::<()>());
        for is_polled in [true, true, false, false, false, true] {
            if is_polled {
                let _ = beat.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            }
            assert!(entry.tick());
        }
        assert_eq!(*locked(&seen), [0, 0, 1, 2, 3, 0]);
    }
}
