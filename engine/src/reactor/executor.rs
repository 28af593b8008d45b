//! The runtime: one pinned glommio executor a core, which serves its shard and runs jobs beside it.

use std::any::Any;
use std::cell::RefCell;
use std::future::{Future, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use crossbeam_queue::SegQueue;
use farcore_rdma::WakeTimer;
use futures_lite::future::or;
use glommio::sync::Semaphore;
use glommio::timer::Timer;
use glommio::{Task, TaskQueueHandle, spawn_local_into};

use crate::client::core::turn_alone;
use crate::error::Result;
use crate::far_memory::Keeper;
use crate::reactor::Reactor;
use crate::reactor::command::CommandPort;
use crate::reactor::limits::{no_thread, what_was_said};
use crate::reactor::replies::NO_CLIENT;
use crate::reactor::threads::{self, Ended, Queues};
use crate::reactor::watchdog::Watchdog;

/// Behind every sleep stands this timer.
const SLEEP_MAX: Duration = Duration::from_millis(250);
/// How long the service leaves the shard to a client that polls before it looks again; longer while
/// that is never idle.
const NAP: Duration = Duration::from_micros(20);
/// Turns without work after which the core is offered to other threads.
const IDLE_TURNS: u32 = 16;
/// A job: makes, on its core, the future to be run there.
pub(crate) type Job =
    Box<dyn FnOnce(Rc<RefCell<Reactor>>) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Whether the engine is closing, and how many jobs there still are on any core.
///
/// ORDERING: all SeqCst: whoever adds a job either sees that it is too late, or every core sees the
/// job.
#[derive(Debug, Default)]
pub(crate) struct Lifecycle {
    closing: AtomicBool,
    jobs: AtomicUsize,
}

impl Lifecycle {
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Counts a new job; `None` when the engine is closing.
    pub(crate) fn begin_job(self: &Arc<Self>) -> Option<JobTicket> {
        self.jobs.fetch_add(1, Ordering::SeqCst);
        let ticket = JobTicket(Arc::clone(self));
        (!self.is_closing()).then_some(ticket)
    }

    /// True once nothing more can be asked of any shard by a job.
    fn is_over(&self) -> bool {
        self.is_closing() && self.jobs.load(Ordering::SeqCst) == 0
    }
}

/// One job that is waiting or running.
#[derive(Debug)]
pub(crate) struct JobTicket(Arc<Lifecycle>);

impl Drop for JobTicket {
    fn drop(&mut self) {
        self.0.jobs.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The engine and the house that the calling thread serves.
struct CurrentCore {
    lifecycle: Arc<Lifecycle>,
    reactor: Rc<RefCell<Reactor>>,
}

thread_local! {
    static CURRENT_CORE: RefCell<Option<CurrentCore>> = const { RefCell::new(None) };
}

/// Says which engine the calling thread serves, until it is dropped.
struct CurrentCoreGuard;

impl CurrentCoreGuard {
    fn new(lifecycle: &Arc<Lifecycle>, reactor: &Rc<RefCell<Reactor>>) -> Self {
        let here = CurrentCore {
            lifecycle: Arc::clone(lifecycle),
            reactor: Rc::clone(reactor),
        };
        CURRENT_CORE.set(Some(here));
        Self
    }
}

impl Drop for CurrentCoreGuard {
    fn drop(&mut self) {
        CURRENT_CORE.set(None);
    }
}

/// True if the calling thread is a core of some engine.
pub(crate) fn is_core() -> bool {
    CURRENT_CORE.with_borrow(Option::is_some)
}

/// True if the calling thread is a core of this engine.
pub(crate) fn is_core_of(lifecycle: &Arc<Lifecycle>) -> bool {
    CURRENT_CORE.with_borrow(|here| {
        here.as_ref()
            .is_some_and(|here| Arc::ptr_eq(&here.lifecycle, lifecycle))
    })
}

/// Serves the calling thread's shard for one round, where it is a core: who waits there for an
/// answer may wait for that shard. False if it is none, or in the middle of a round.
pub(crate) fn serve_current_core() -> bool {
    let reactor =
        CURRENT_CORE.with_borrow(|here| here.as_ref().map(|here| Rc::clone(&here.reactor)));
    let Some(reactor) = reactor else { return false };
    let Ok(mut reactor) = reactor.try_borrow_mut() else {
        return false;
    };
    turn_alone(&mut reactor);
    true
}

/// Does something whose panic must not end the core, the panic of what a panic leaves included. The
/// text of the first.
pub(crate) fn catch_panic(what: impl FnOnce()) -> std::result::Result<(), String> {
    let Err(panic) = catch_unwind(AssertUnwindSafe(what)) else {
        return Ok(());
    };
    Err(text_of(panic))
}

/// The text of a panic, which is dropped.
pub(crate) fn text_of(panic: Box<dyn Any + Send>) -> String {
    let text = what_was_said(&*panic).to_owned();
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // That one may do the same again: it stays.
        let _ = Box::leak(panic);
    }
    text
}

/// What other threads share with one core's runtime.
#[derive(Debug)]
pub(crate) struct CoreShared {
    pub(crate) command_port: Arc<CommandPort>,
    /// Jobs that are to be started. Without a limit: who starts one may be the thread that takes
    /// them.
    pub(crate) jobs: SegQueue<JobCell>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    /// The shard has stopped, and will touch no lane again.
    pub(crate) closed: AtomicBool,
}

/// A job on its way, opaque to `Debug`.
pub(crate) struct JobCell(pub(crate) Job);

impl std::fmt::Debug for JobCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Job")
    }
}

impl CoreShared {
    pub(crate) fn new(lifecycle: Arc<Lifecycle>) -> Self {
        Self {
            command_port: Arc::default(),
            jobs: SegQueue::new(),
            lifecycle,
            closed: AtomicBool::new(false),
        }
    }

    /// Says that the shard has stopped. The lanes' ends, dropped after that, wake who waits.
    fn stop(&self) {
        self.closed.store(true, Ordering::Release);
        // Jobs that never ran: whoever waits for them hears of it.
        while let Some(job) = self.jobs.pop() {
            let _ = catch_panic(|| drop(job));
        }
    }
}

/// Lets others on the core run.
pub(crate) async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Serves a shard on a core's executor. `build` makes the house on the core itself; `heard` hears
/// how that went. What is returned ends when the core is done with it.
pub(crate) fn start<B>(
    core: usize,
    core_shared: Arc<CoreShared>,
    mut watchdog: Watchdog,
    spin_ns: u64,
    build: impl FnOnce() -> B + Send + 'static,
    heard: impl FnOnce(Result<()>) + Send + 'static,
) -> Result<Arc<Ended>>
where
    B: Future<Output = Result<(Reactor, Vec<Keeper>)>>,
{
    let wake_timer = WakeTimer::watched(move |unanswered| watchdog.look(unanswered));
    let wake_timer = wake_timer.map_err(|error| no_thread(&error.to_string()))?;
    let work = move |queues: Result<Queues>| -> Pin<Box<dyn Future<Output = ()>>> {
        let queues = match queues {
            Ok(queues) => queues,
            Err(error) => {
                core_shared.stop();
                heard(Err(error));
                return Box::pin(ready(()));
            }
        };
        Box::pin(async move {
            match or(build(), wake_timer.beat()).await {
                Ok((reactor, keepers)) => {
                    heard(Ok(()));
                    let reactor = Rc::new(RefCell::new(reactor));
                    let on_core = CurrentCoreGuard::new(&core_shared.lifecycle, &reactor);
                    let service = live(
                        Rc::clone(&reactor),
                        &core_shared,
                        spin_ns,
                        keepers,
                        &wake_timer,
                        queues,
                    )
                    .await;
                    // Nobody waits for what is left to do.
                    core_shared.stop();
                    drop((on_core, reactor));
                    or(service.close(), wake_timer.beat()).await;
                }
                Err(error) => {
                    heard(Err(error));
                    core_shared.stop();
                }
            }
        })
    };
    threads::start(core, Box::new(work))
}

/// Those who keep the connections to memory nodes.
struct Keepers {
    stop: Rc<Semaphore>,
    tasks: Vec<Task<()>>,
}

impl Keepers {
    /// In the service's own queue: a task that polls all the time leaves no turn to other queues.
    fn start(
        keepers: Vec<Keeper>,
        reactor: &Rc<RefCell<Reactor>>,
        command_port: &Arc<CommandPort>,
        service: TaskQueueHandle,
    ) -> Self {
        let stop = Rc::new(Semaphore::new(0));
        let keep = |keeper: Keeper| {
            let work = keeper.keep(
                Rc::clone(reactor),
                Arc::clone(command_port),
                Rc::clone(&stop),
            );
            spawn_local_into(work, service).ok()
        };
        let tasks = keepers.into_iter().filter_map(keep).collect();
        Self { stop, tasks }
    }

    /// Has them give back what their sessions held, and waits for that.
    async fn close(self) {
        self.stop.close();
        for task in self.tasks {
            task.await;
        }
    }
}

/// Serves until the engine closes and everything is answered.
async fn live(
    reactor: Rc<RefCell<Reactor>>,
    core_shared: &Arc<CoreShared>,
    spin_ns: u64,
    keepers: Vec<Keeper>,
    wake_timer: &WakeTimer,
    Queues { service, jobs }: Queues,
) -> Keepers {
    let keepers = Keepers::start(keepers, &reactor, &core_shared.command_port, service);
    let serving = {
        let core_shared = Arc::clone(core_shared);
        let reactor = Rc::clone(&reactor);
        async move { serve(reactor, core_shared, spin_ns, jobs).await }
    };
    let beating = spawn_local_into(wake_timer.beat::<()>(), service);
    if let Ok(task) = spawn_local_into(serving, service) {
        task.await;
    }
    if let Ok(task) = beating {
        task.cancel().await;
    }
    keepers
}

async fn serve(
    reactor: Rc<RefCell<Reactor>>,
    core_shared: Arc<CoreShared>,
    spin_ns: u64,
    jobs: TaskQueueHandle,
) {
    let (mut idle_since, mut idle_turns, mut turns_seen) = (None, 0u32, 0);
    loop {
        // Read before the turn: what was sent before closing is in that turn, or in one after it.
        let over = core_shared.lifecycle.is_over();
        if core_shared.lifecycle.is_closing() {
            reactor.borrow_mut().replies().close();
        }
        let mut busy = false;
        while let Some(job) = core_shared.jobs.pop() {
            busy = true;
            if let Ok(task) = spawn_local_into((job.0)(Rc::clone(&reactor)), jobs) {
                task.detach();
            }
        }
        let turns = reactor.borrow().turns();
        if turns != turns_seen && !busy && !core_shared.lifecycle.is_closing() {
            // A job that polls serves the shard, and gets its answers where they lie. The queues
            // share the core fairly: were the service ready all the time, the job would wait as
            // long as it works.
            turns_seen = turns;
            idle_since = None;
            // What was busy ends here.
            reactor.borrow_mut().publish();
            nap(&core_shared).await;
            continue;
        }
        busy |= turns != turns_seen || reactor.borrow_mut().turn(NO_CLIENT, &mut |_, _| {});
        turns_seen = reactor.borrow().turns();
        if busy {
            idle_since = None;
            idle_turns = 0;
            yield_now().await;
            continue;
        }
        idle_turns += 1;
        if idle_turns % IDLE_TURNS == 0 {
            // Whoever this shard waits for may need this very core.
            std::thread::yield_now();
        }
        let (now_ns, quiet) = {
            let reactor = reactor.borrow();
            (reactor.read_ns(), reactor.is_quiet())
        };
        let idle_ns = now_ns - *idle_since.get_or_insert(now_ns);
        if !quiet || idle_ns < spin_ns {
            yield_now().await;
            continue;
        }
        if over {
            reactor.borrow_mut().publish();
            return;
        }
        if core_shared.lifecycle.is_closing() {
            // Jobs of some core are still to end; nobody rings when they do.
            yield_now().await;
            continue;
        }
        reactor.borrow_mut().park();
        sleep(&core_shared, &reactor).await;
        reactor.borrow_mut().wake();
        // One turn after waking; only work resets the idle time. Jobs come first, for it may be
        // that there was no sleep.
        yield_now().await;
    }
}

/// Waits a little, or until there is a job to start.
async fn nap(core_shared: &CoreShared) {
    let mut timer = pin!(Timer::new(NAP));
    poll_fn(|context| {
        core_shared
            .command_port
            .wakeup
            .waker
            .register(context.waker());
        if !core_shared.jobs.is_empty() || timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}

/// Sleeps until somebody has news, or the timer behind every sleep ends.
async fn sleep(core_shared: &CoreShared, reactor: &RefCell<Reactor>) {
    let wakeup = &core_shared.command_port.wakeup;
    let mut timer = pin!(Timer::new(SLEEP_MAX));
    poll_fn(|context| {
        wakeup.waker.register(context.waker());
        let news = || {
            reactor.borrow_mut().has_news()
                || !core_shared.jobs.is_empty()
                || core_shared.lifecycle.is_closing()
        };
        // The fence interrupts all cores that run: not if it is known to be in vain.
        let sleeps = reactor.borrow().is_parked() && !news() && wakeup.fall_asleep(news);
        if !sleeps || timer.as_mut().poll(context).is_ready() {
            wakeup.wake_up();
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}
