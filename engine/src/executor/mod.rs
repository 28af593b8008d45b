//! The executor of a core: the one file of the engine that names glommio.
//!
//! It offers tasks, timers and pinning to the layers above, under names of its own. [`threads`]
//! owns the threads.

mod threads;

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use core_affinity::CoreId;
use glommio::sync::Semaphore;
use glommio::timer::Timer;
use glommio::{
    Latency, LocalExecutor, LocalExecutorBuilder, Placement, Shares, Task, TaskQueueHandle,
    executor, spawn_local_into,
};

use crate::error::Result;
use crate::limits::{self, no_thread, what_was_said};

pub(crate) use self::threads::{Termination, missing, start};

/// Memory for file I/O, of which there is none, in bytes. The least that glommio accepts.
const IO_MEMORY_BYTES: usize = 64 << 10;
/// Entries of each of an executor's rings.
const RING_DEPTH: usize = 64;
/// How long a queue's tasks run before the other queues get a turn.
const TURN: Duration = Duration::from_millis(10);

/// An executor of the calling thread, which it pins to a core.
struct CoreExecutor(LocalExecutor);

impl CoreExecutor {
    /// Pins the calling thread and makes an executor on it.
    fn new(core: usize) -> Result<Self> {
        // Pinned here, because glommio would read the machine's whole topology from files for it,
        // and panics where it cannot. The thread that glommio starts for blocking calls inherits
        // the core.
        if !core_affinity::set_for_current(CoreId { id: core }) {
            return Err(limits::not_pinned(core, &io::Error::last_os_error()));
        }
        // glommio panics if it cannot start that thread. This detects most cases without a panic's
        // message.
        thread::Builder::new()
            .spawn(|| {})
            .map_err(|error| no_thread(&error.to_string()))?
            .join()
            .map_err(|panic| no_thread(what_was_said(&*panic)))?;
        let builder = LocalExecutorBuilder::new(Placement::Unbound)
            .name(&format!("farcore-{core}"))
            .io_memory(IO_MEMORY_BYTES)
            .ring_depth(RING_DEPTH)
            .preempt_timer(TURN);
        let make = || builder.make().map_err(io::Error::from);
        limits::make_executor(|| catch_unwind(AssertUnwindSafe(make))).map(Self)
    }

    /// Runs one engine's work in task queues of its own; false if those have tasks left.
    fn run(&self, work: impl AsyncFnOnce(Queues)) -> bool {
        let queues = self.0.run(async move {
            let queues = Queues::new();
            work(queues).await;
            queues
        });
        match queues {
            Queues::Core { service, jobs } => {
                let removed = [service, jobs].map(|queue| self.0.remove_task_queue(queue));
                removed.iter().all(std::result::Result::is_ok)
            }
            #[cfg(feature = "simulation")]
            Queues::World => true,
        }
    }
}

/// The task queues of one engine on an executor. They share the core evenly.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Queues {
    Core {
        service: TaskQueueHandle,
        jobs: TaskQueueHandle,
    },
    /// Tasks of a simulated world.
    #[cfg(feature = "simulation")]
    World,
}

/// A started task, to be awaited.
pub(crate) enum TaskHandle<T> {
    Core(Task<T>),
    /// One of a simulated world.
    #[cfg(feature = "simulation")]
    World(farcore_rdma::simulation::SimulatedTask<T>),
}

impl<T> TaskHandle<T> {
    /// Cancels the task at its current await point.
    pub(crate) async fn cancel(self) {
        match self {
            Self::Core(task) => drop(task.cancel().await),
            #[cfg(feature = "simulation")]
            Self::World(task) => drop(task.cancel().await),
        }
    }
}

impl<T> Future for TaskHandle<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut *self {
            Self::Core(task) => Pin::new(task).poll(context),
            #[cfg(feature = "simulation")]
            Self::World(task) => Pin::new(task).poll(context),
        }
    }
}

impl Queues {
    fn new() -> Self {
        let create =
            |name| executor().create_task_queue(Shares::Static(1000), Latency::NotImportant, name);
        Self::Core {
            service: create("service"),
            jobs: create("jobs"),
        }
    }

    /// Starts a task beside the service; `None` if the executor accepts no more.
    pub(crate) fn start<T: 'static>(
        &self,
        task: impl Future<Output = T> + 'static,
    ) -> Option<TaskHandle<T>> {
        match *self {
            Self::Core { service, .. } => {
                let started = spawn_local_into(task, service);
                started.ok().map(TaskHandle::Core)
            }
            #[cfg(feature = "simulation")]
            Self::World => Some(TaskHandle::World(farcore_rdma::simulation::spawn(task))),
        }
    }

    /// Starts a detached job.
    pub(crate) fn start_job(&self, job: impl Future<Output = ()> + 'static) {
        match *self {
            Self::Core { jobs, .. } => {
                if let Ok(task) = spawn_local_into(job, jobs) {
                    task.detach();
                }
            }
            #[cfg(feature = "simulation")]
            Self::World => farcore_rdma::simulation::spawn(job).detach(),
        }
    }
}

/// Waits for a duration.
pub(crate) async fn sleep(time: Duration) {
    #[cfg(feature = "simulation")]
    if farcore_rdma::simulation::is_inside() {
        return farcore_rdma::simulation::Sleep::new(time).await;
    }
    Timer::new(time).await;
}

/// A signal to tasks of one core to stop.
#[derive(Clone, Debug)]
pub(crate) struct Stop(Rc<StopSignal>);

#[derive(Debug)]
enum StopSignal {
    Core(Semaphore),
    /// One of a simulated world.
    #[cfg(feature = "simulation")]
    World(farcore_rdma::simulation::Semaphore),
}

impl Stop {
    pub(crate) fn new() -> Self {
        #[cfg(feature = "simulation")]
        if farcore_rdma::simulation::is_inside() {
            let signal = farcore_rdma::simulation::Semaphore::new(0);
            return Self(Rc::new(StopSignal::World(signal)));
        }
        Self(Rc::new(StopSignal::Core(Semaphore::new(0))))
    }

    /// Sends the signal.
    pub(crate) fn signal(&self) {
        match &*self.0 {
            StopSignal::Core(signal) => signal.close(),
            #[cfg(feature = "simulation")]
            StopSignal::World(signal) => signal.close(),
        }
    }

    /// Waits for the signal.
    pub(crate) async fn signalled(&self) {
        // No permit is ever added: the wait ends when the semaphore is closed.
        match &*self.0 {
            StopSignal::Core(signal) => drop(signal.acquire(1).await),
            #[cfg(feature = "simulation")]
            StopSignal::World(signal) => drop(signal.acquire(1).await),
        }
    }
}
