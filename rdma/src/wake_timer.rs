//! A pulse: what ends a sleep by mistake.
//!
//! glommio may put a thread to sleep although a task is ready, when it is preempted before the
//! first one. No timer of that executor helps: on a loaded machine all of them may have gone off
//! just before, and the tasks that would arm the next ones are among those that wait. So one thread
//! of the process, which no executor can hold up, wakes a task of each executor from time to time.
//!
//! - I1: the thread lives while there is a pulse.
//! - I2: a task that does not answer is woken again, ever more rarely: wakes that nobody has taken
//!   pile up in the executor, and there must never be thousands.
//! - I3: the thread belongs to the process that started it: a forked child starts its own.

use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

/// The longest such sleep, unless it is followed by another at once.
pub const PACE: Duration = Duration::from_millis(100);

/// The pulses of this process.
static GIVEN: Mutex<Given> = Mutex::new(Given {
    wake_timers: Vec::new(),
    runs_in: None,
});

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Given {
    wake_timers: Vec<Followed>,
    /// The process in which the thread runs that gives them.
    runs_in: Option<u32>,
}

/// A pulse as the thread that gives it sees it.
struct Followed {
    task: Weak<Mutex<Heard>>,
    /// Times that it was polled, as far as was seen.
    polls: u64,
    /// Paces since then.
    paces: u64,
    watch: Option<Watch>,
}

/// Hears at each pace for how many of them the task has not been polled.
type Watch = Box<dyn FnMut(u64) + Send>;

/// What a task says of itself.
#[derive(Debug, Default)]
struct Heard {
    waker: Option<Waker>,
    polls: u64,
}

impl Followed {
    /// Wakes the task if it is time to; false if it is gone.
    fn beat(&mut self) -> bool {
        let Some(task) = self.task.upgrade() else {
            return false;
        };
        let heard = locked(&task);
        if heard.polls != self.polls {
            self.polls = heard.polls;
            self.paces = 0;
        }
        if let Some(watch) = &mut self.watch {
            watch(self.paces);
        }
        self.paces += 1;
        if self.paces.is_power_of_two()
            && let Some(waker) = &heard.waker
        {
            waker.wake_by_ref();
        }
        true
    }
}

impl Given {
    /// A pace has passed; false if nobody has a pulse any more.
    fn beat(&mut self) -> bool {
        self.wake_timers.retain_mut(Followed::beat);
        !self.wake_timers.is_empty()
    }
}

fn give() {
    loop {
        thread::sleep(PACE);
        let mut given = locked(&GIVEN);
        if !given.beat() {
            given.runs_in = None;
            return;
        }
    }
}

/// One executor's pulse. Cost: ten wake-ups a second.
#[derive(Debug)]
pub struct WakeTimer(Arc<Mutex<Heard>>);

impl WakeTimer {
    /// A pulse for an executor that is about to start. Best made by a thread that is not pinned:
    /// the one that gives all pulses may be its child and inherits where it may run.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn new() -> io::Result<Self> {
        Self::start(None)
    }

    /// A pulse whose thread says at each [`PACE`] for how many of them the executor has not polled
    /// its task, although it was woken: zero where all is well. `watch` must be quick, and not make
    /// or drop pulses.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn watched(watch: impl FnMut(u64) + Send + 'static) -> io::Result<Self> {
        Self::start(Some(Box::new(watch)))
    }

    fn start(watch: Option<Watch>) -> io::Result<Self> {
        let heard = Arc::default();
        let mut given = locked(&GIVEN);
        let process = std::process::id();
        if given.runs_in != Some(process) {
            // The executors of the process that this one was forked from are not here either.
            given.wake_timers.clear();
            thread::Builder::new()
                .name("farcore-pulse".to_owned())
                .spawn(give)?;
            given.runs_in = Some(process);
        }
        given.wake_timers.push(Followed {
            task: Arc::downgrade(&heard),
            polls: 0,
            paces: 0,
            watch,
        });
        Ok(Self(heard))
    }

    /// Never ends; to be polled by a task of the executor, in a queue that always gets its turn.
    pub fn beat<T>(&self) -> impl Future<Output = T> + use<T> {
        let task = Beating(Arc::clone(&self.0));
        poll_fn(move |context| {
            let mut heard = locked(&task.0);
            heard.polls += 1;
            match &mut heard.waker {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
            Poll::Pending
        })
    }
}

/// Held by what is polled.
struct Beating(Arc<Mutex<Heard>>);

impl Drop for Beating {
    fn drop(&mut self) {
        // Here, on the executor's own thread, and not wherever the last reference ends.
        locked(&self.0).waker = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::task::{Context, Wake};

    use glommio::LocalExecutor;

    use super::*;

    /// Nothing else wakes this executor: it has no timer, and nothing comes from outside.
    #[test]
    fn an_executor_without_timers_is_woken() {
        let wake_timer = WakeTimer::new().expect("a thread");
        LocalExecutor::default().run(async {
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
    fn who_answers_is_woken_at_each_pace_and_who_does_not_ever_more_rarely() {
        let wake_timer = WakeTimer(Arc::default());
        let mut given = Given {
            wake_timers: vec![Followed {
                task: Arc::downgrade(&wake_timer.0),
                polls: 0,
                paces: 0,
                watch: None,
            }],
            runs_in: Some(std::process::id()),
        };
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut beat = Box::pin(wake_timer.beat::<()>());
        for _ in 0..100 {
            let _ = beat.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(given.beat());
        }
        assert_eq!(woken.0.load(Ordering::Relaxed), 100);
        for _ in 0..1_000_000 {
            given.beat();
        }
        // After 1, 2, 4 ... paces, the first of which was counted above.
        assert_eq!(woken.0.load(Ordering::Relaxed), 119);
        drop((beat, wake_timer));
        assert!(!given.beat() && given.wake_timers.is_empty());
    }

    #[test]
    fn a_watch_hears_for_how_long_a_task_does_not_answer() {
        let (wake_timer, heard) = (WakeTimer(Arc::default()), Arc::new(Mutex::new(Vec::new())));
        let told = Arc::clone(&heard);
        let mut followed = Followed {
            task: Arc::downgrade(&wake_timer.0),
            polls: 0,
            paces: 0,
            watch: Some(Box::new(move |paces| locked(&told).push(paces))),
        };
        let mut beat = Box::pin(wake_timer.beat::<()>());
        for answers in [true, true, false, false, false, true] {
            if answers {
                let _ = beat.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            }
            assert!(followed.beat());
        }
        assert_eq!(*locked(&heard), [0, 0, 1, 2, 3, 0]);
    }
}
