//! The service of a core: the task that runs its shard's turns, starts its jobs and parks it.
//!
//! It owns the reactor's lifetime: it builds it on the core, serves until the engine is closed and
//! everything is answered, and stops it. It also runs the steward of the core's memory nodes. When
//! to nap, spin or park is decided in `park`.

use std::future::{Future, poll_fn, ready};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use farcore_rdma::WakeTimer;
use futures_lite::future::or;

use super::CoreReactor;
use super::core_shared::CoreShared;
use super::current::CurrentCoreGuard;
use super::lent_reactor::LentReactor;
use super::park::{After, Before, ParkPolicy, TurnRecord};
use super::replies::NO_CLIENT;
use super::watchdog::Watchdog;
use crate::error::Result;
use crate::executor::{self, Queues, Stop, TaskHandle, Termination};
use crate::far_memory::{Steward, far_events};
use crate::limits::no_thread;

/// The longest sleep of a core; it then checks for work even if it was not woken.
const SLEEP_MAX: Duration = Duration::from_millis(250);
/// How long the service leaves the shard to a client that polls before it checks again; longer
/// while that client is never idle.
const NAP: Duration = Duration::from_micros(20);

/// Lets the other tasks of the core run.
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

/// Serves a shard on a core's executor. `build` makes the reactor on the core; `opened` receives
/// the outcome. The returned value ends when the core is done.
pub(crate) fn start<B>(
    core: usize,
    core_shared: Arc<CoreShared>,
    mut watchdog: Watchdog,
    spin_ns: u64,
    build: impl FnOnce() -> B + Send + 'static,
    opened: impl FnOnce(Result<()>) + Send + 'static,
) -> Result<Arc<Termination>>
where
    B: Future<Output = Result<(CoreReactor, Option<Steward>)>>,
{
    let wake_timer = WakeTimer::watched(move |unanswered| watchdog.look(unanswered));
    let wake_timer = wake_timer.map_err(|error| no_thread(&error.to_string()))?;
    let work = move |queues: Result<Queues>| -> Pin<Box<dyn Future<Output = ()>>> {
        let queues = match queues {
            Ok(queues) => queues,
            Err(error) => {
                core_shared.stop();
                opened(Err(error));
                return Box::pin(ready(()));
            }
        };
        Box::pin(async move {
            match or(build(), wake_timer.beat()).await {
                Ok((reactor, steward)) => {
                    opened(Ok(()));
                    let reactor = Rc::new(LentReactor::new(reactor, &core_shared));
                    let on_core = CurrentCoreGuard::new(&core_shared.lifecycle, &reactor);
                    let service = live(
                        Rc::clone(&reactor),
                        &core_shared,
                        spin_ns,
                        steward,
                        &wake_timer,
                        queues,
                    )
                    .await;
                    // Stop first: no client waits for what follows.
                    core_shared.stop();
                    drop((on_core, reactor));
                    or(service.close(), wake_timer.beat()).await;
                }
                Err(error) => {
                    opened(Err(error));
                    core_shared.stop();
                }
            }
        })
    };
    executor::start(core, Box::new(work))
}

/// The task that keeps the connections to memory nodes, by others that it starts.
struct Nodes {
    stop: Stop,
    task: Option<TaskHandle<()>>,
}

impl Nodes {
    /// Spawned in the service's own queue: a job that polls all the time leaves other queues no
    /// turn.
    fn start(
        steward: Option<Steward>,
        reactor: &LentReactor,
        core_shared: &Arc<CoreShared>,
        queues: Queues,
    ) -> Self {
        let stop = Stop::new();
        let start = |steward: Steward| {
            let command_port = Arc::clone(&core_shared.command_port);
            let (events, received) = far_events(move || command_port.wakeup.ring(0));
            reactor.borrow_mut().receive_far_events(received);
            queues.start(steward.attend(queues, events, stop.clone()))
        };
        let task = steward.and_then(start);
        Self { stop, task }
    }

    /// Returns what the core's sessions hold, and waits for that.
    async fn close(self) {
        self.stop.signal();
        if let Some(task) = self.task {
            task.await;
        }
    }
}

/// Serves until the engine is closed and everything is answered.
async fn live(
    reactor: Rc<LentReactor>,
    core_shared: &Arc<CoreShared>,
    spin_ns: u64,
    steward: Option<Steward>,
    wake_timer: &WakeTimer,
    queues: Queues,
) -> Nodes {
    let nodes = Nodes::start(steward, &reactor, core_shared, queues);
    let serving = serve(reactor, Arc::clone(core_shared), spin_ns, queues);
    let beating = queues.start(wake_timer.beat::<()>());
    if let Some(serving) = queues.start(serving) {
        serving.await;
    }
    if let Some(beating) = beating {
        beating.cancel().await;
    }
    nodes
}

async fn serve(
    reactor: Rc<LentReactor>,
    core_shared: Arc<CoreShared>,
    spin_ns: u64,
    queues: Queues,
) {
    let mut policy = ParkPolicy::new(spin_ns);
    loop {
        // Read before the turn: requests sent before closing are served in this turn or a later
        // one.
        let over = core_shared.lifecycle.is_over();
        let closing = core_shared.lifecycle.is_closing();
        if closing {
            reactor.borrow_mut().close();
        }
        if over {
            reactor.borrow_mut().finish_journal();
        }
        let started = start_jobs(&reactor, &core_shared, &queues);
        let turns = reactor.borrow().turns();
        let mut busy = started;
        match policy.before(turns, started, closing) {
            Before::Nap => {
                // Publish the busy time that ends here.
                reactor.borrow_mut().publish();
                nap(&core_shared).await;
                continue;
            }
            Before::Busy => busy = true,
            Before::Turn => busy |= reactor.borrow_mut().turn(NO_CLIENT, &mut |_, _| {}),
        }
        let seen = {
            let mut reactor = reactor.borrow_mut();
            let closing = core_shared.lifecycle.is_closing();
            TurnRecord {
                turns: reactor.turns(),
                busy,
                quiet: !busy && reactor.is_quiet() && (closing || !reactor.is_copying()),
                now_ns: reactor.read_ns(),
                closing,
                over,
            }
        };
        match policy.after(seen) {
            After::Yield => {}
            // Callers that share the processor serve themselves.
            After::Offer => reactor.offer(),
            After::End => {
                reactor.borrow_mut().publish();
                return;
            }
            After::Park => {
                reactor.borrow_mut().park();
                sleep(&core_shared, &reactor).await;
                reactor.borrow_mut().wake();
            }
        }
        // Yield even after a sleep: jobs come first, and there may have been no sleep.
        yield_now().await;
    }
}

/// Starts the queued jobs; true if there were any.
fn start_jobs(reactor: &Rc<LentReactor>, core_shared: &CoreShared, queues: &Queues) -> bool {
    let mut any = false;
    while let Some(job) = core_shared.jobs.pop() {
        any = true;
        queues.start_job((job.0)(Rc::clone(reactor)));
    }
    any
}

/// Waits for a moment, or until there is a job to start.
async fn nap(core_shared: &CoreShared) {
    let mut timer = pin!(executor::sleep(NAP));
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

/// Sleeps until the core is woken or the timer ends.
async fn sleep(core_shared: &CoreShared, reactor: &LentReactor) {
    let wakeup = &core_shared.command_port.wakeup;
    let mut timer = pin!(executor::sleep(SLEEP_MAX));
    poll_fn(|context| {
        wakeup.waker.register(context.waker());
        let news = || {
            reactor.borrow_mut().has_news()
                || !core_shared.jobs.is_empty()
                || core_shared.lifecycle.is_closing()
        };
        // The fence interrupts all running cores: skip it if work is known to be there.
        let sleeps = reactor.borrow().is_parked() && !news() && wakeup.fall_asleep(news);
        if !sleeps || timer.as_mut().poll(context).is_ready() {
            wakeup.wake_up();
            return Poll::Ready(());
        }
        reactor.lend();
        Poll::Pending
    })
    .await;
}
