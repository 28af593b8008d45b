//! The executor of a thread that waits for sockets and timers.
//!
//! The only module of this crate that names glommio, an `io_uring` executor. It offers the other
//! modules an executor, tasks, timers, a semaphore and sockets under plain names. It owns nothing
//! that outlives a run.
//!
//! - I1: every future that uses these types runs on an executor of its thread. They panic
//!   elsewhere.

use std::io;
use std::time::Duration;

use futures_lite::future::{or, poll_once, yield_now};
use glommio::{LocalExecutor, LocalExecutorBuilder, Placement};

pub(crate) use glommio::net::{AcceptedTcpStream, TcpListener, TcpStream};
/// Starts a task on the calling thread's executor. Dropping the handle cancels the task, unless it
/// is detached.
pub(crate) use glommio::spawn_local as spawn;
pub(crate) use glommio::sync::Semaphore;
#[cfg(not(feature = "simulation"))]
pub(crate) use glommio::timer::Timer;

#[cfg(feature = "simulation")]
pub(crate) use self::either::Timer;
use crate::wake_timer::WakeTimer;
use farcore_tuning::Clock;

/// Registered I/O memory of an executor.
const IO_MEMORY_BYTES: usize = 64 << 10;
/// How long a busy task may keep an executor from its sockets, in nanoseconds.
const BUSY_NS_MAX: u64 = 1_000_000;
/// The shortest wait that is one, where reading the clock takes less.
const MOMENT: Duration = Duration::from_micros(1);

/// Creates an executor for the calling thread, which is not pinned. `ring_depth` is the number of
/// entries of each of its rings; `None` for the default. A dropped executor that has run leaks an
/// eventfd and 4 KiB (glommio 0.9.0).
///
/// # Errors
/// No `io_uring`, or too little lockable memory.
///
/// # Panics
/// A helper thread of the executor cannot be started.
pub(crate) fn build(name: &str, ring_depth: Option<usize>) -> io::Result<LocalExecutor> {
    let mut builder = LocalExecutorBuilder::new(Placement::Unbound)
        .name(name)
        .io_memory(IO_MEMORY_BYTES);
    if let Some(depth) = ring_depth {
        builder = builder.ring_depth(depth);
    }
    // Executors panic where it is refused.
    crate::system_calls::try_io_uring().map_err(io::Error::other)?;
    let made = builder.make();
    made.map_err(|error| io::Error::other(error.to_string()))
}

/// Starts a task on the calling thread's executor that runs on by itself.
pub(crate) fn spawn_detached(work: impl Future<Output = ()> + 'static) {
    #[cfg(feature = "simulation")]
    if crate::simulation::is_inside() {
        crate::simulation::spawn(work).detach();
        return;
    }
    spawn(work).detach();
}

/// The turns of a task that always has something to do.
///
/// An executor looks at its sockets only when no task is ready, or after 100 ms. So a task that
/// merely yields shares with those that are ready already, and keeps all others waiting for that
/// long. This one waits for a moment now and then, so that the executor runs out of ready tasks.
#[derive(Debug)]
pub(crate) struct BusyTask {
    clock: Clock,
    /// When it last waited.
    waited_ns: u64,
}

impl BusyTask {
    pub(crate) fn new() -> Self {
        let clock = Clock::new();
        Self {
            waited_ns: clock.now_ns(),
            clock,
        }
    }

    /// Lets the others of this executor have their turn. Cost: a few hundred nanoseconds; each
    /// millisecond, a look at all sockets.
    pub(crate) async fn yield_now(&mut self) {
        if self.clock.now_ns() - self.waited_ns < BUSY_NS_MAX {
            return yield_now().await;
        }
        let mut moment = MOMENT;
        loop {
            let mut timer = Timer::new(moment);
            if poll_once(&mut timer).await.is_none() {
                timer.await;
                return self.has_waited();
            }
            // It was over before this task was put aside: no other had its turn.
            moment *= 2;
        }
    }

    /// Notes that the task has waited for something else, so that others had their turn.
    pub(crate) fn has_waited(&mut self) {
        self.waited_ns = self.clock.now_ns();
    }
}

/// Runs blocking work on a helper thread of the executor.
pub(crate) async fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    glommio::executor().spawn_blocking(work).await
}

/// Runs a future, and the tasks that it spawns, on an executor of the calling thread until the
/// future is done. [`NodeSession`](crate::node::NodeSession) and everything else that sends over
/// sockets must run inside one. The thread is not pinned. Costs what a [`WakeTimer`] costs while
/// all tasks wait.
///
/// # Errors
/// The executor cannot start: no `io_uring`, or too little lockable memory (512 KiB per executor);
/// or the thread of the wake timers cannot start.
///
/// # Panics
/// Inside another executor, and if the future panics.
pub fn run_local<T>(work: impl Future<Output = T>) -> io::Result<T> {
    let wake_timer = WakeTimer::new()?;
    let executor = build("farcore-local", None)?;
    Ok(executor.run(or(work, wake_timer.beat())))
}

/// Starts a task on the calling thread's executor. Returns what waits for its end.
///
/// # Panics
/// Outside an executor.
pub fn spawn_task(work: impl Future<Output = ()> + 'static) -> impl Future<Output = ()> {
    let task = spawn(work).detach();
    async move {
        let _ = task.await;
    }
}

/// Waits, on the calling executor.
///
/// # Panics
/// Outside an executor.
pub async fn pause(duration: std::time::Duration) {
    Timer::new(duration).await;
}

/// Timers of an executor, or of a simulated world.
#[cfg(feature = "simulation")]
mod either {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use crate::simulation::{Sleep, is_inside};

    /// Waits for a duration.
    #[derive(Debug)]
    pub(crate) enum Timer {
        Machine(glommio::timer::Timer),
        World(Sleep),
    }

    impl Timer {
        pub(crate) fn new(time: Duration) -> Self {
            if is_inside() {
                Self::World(Sleep::new(time))
            } else {
                Self::Machine(glommio::timer::Timer::new(time))
            }
        }
    }

    impl Future for Timer {
        type Output = ();

        fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
            match &mut *self {
                Self::Machine(timer) => Pin::new(timer).poll(context).map(drop),
                Self::World(sleep) => Pin::new(sleep).poll(context),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_future_runs_with_the_tasks_that_it_spawns() {
        let done = run_local(async {
            let other = spawn(async { 20 });
            Timer::new(Duration::from_millis(1)).await;
            other.await + 1
        });
        assert_eq!(done.expect("an executor"), 21);
    }
}
