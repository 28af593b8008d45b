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
use farcore_rdma::Pulse;
use futures_lite::future::or;
use glommio::sync::Semaphore;
use glommio::timer::Timer;
use glommio::{Task, TaskQueueHandle, spawn_local_into};

use crate::client::core::turn_alone;
use crate::error::Result;
use crate::far_memory::Keeper;
use crate::reactor::House;
use crate::reactor::command::Door;
use crate::reactor::limits::{no_thread, what_was_said};
use crate::reactor::replies::NOBODY;
use crate::reactor::threads::{self, Ended, Queues};
use crate::reactor::watchdog::Watchdog;

/// Behind every sleep stands this timer.
const SLEEP_MAX: Duration = Duration::from_millis(250);
/// How long the service leaves the shard to a client that polls before it looks again; longer while that is never idle.
const NAP: Duration = Duration::from_micros(20);
/// Turns without work after which the core is offered to other threads.
const IDLE_TURNS: u32 = 16;
/// A job: makes, on its core, the future to be run there.
pub(crate) type Job =
    Box<dyn FnOnce(Rc<RefCell<House>>) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Whether the engine is closing, and how many jobs there still are on any core.
///
/// ORDERING: all SeqCst: whoever adds a job either sees that it is too late, or every core sees the job.
#[derive(Debug, Default)]
pub(crate) struct Life {
    closing: AtomicBool,
    jobs: AtomicUsize,
}

impl Life {
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
pub(crate) struct JobTicket(Arc<Life>);

impl Drop for JobTicket {
    fn drop(&mut self) {
        self.0.jobs.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The engine and the house that the calling thread serves.
struct Here {
    life: Arc<Life>,
    house: Rc<RefCell<House>>,
}

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

/// Says which engine the calling thread serves, until it is dropped.
struct OnCore;

impl OnCore {
    fn new(life: &Arc<Life>, house: &Rc<RefCell<House>>) -> Self {
        let here = Here {
            life: Arc::clone(life),
            house: Rc::clone(house),
        };
        HERE.set(Some(here));
        Self
    }
}

impl Drop for OnCore {
    fn drop(&mut self) {
        HERE.set(None);
    }
}

/// True if the calling thread is a core of some engine.
pub(crate) fn is_core() -> bool {
    HERE.with_borrow(Option::is_some)
}

/// True if the calling thread is a core of this engine.
pub(crate) fn is_core_of(life: &Arc<Life>) -> bool {
    HERE.with_borrow(|here| {
        here.as_ref()
            .is_some_and(|here| Arc::ptr_eq(&here.life, life))
    })
}

/// Serves the calling thread's shard for one round, where it is a core: who waits there for an answer may wait for that
/// shard. False if it is none, or in the middle of a round.
pub(crate) fn serve_here() -> bool {
    let house = HERE.with_borrow(|here| here.as_ref().map(|here| Rc::clone(&here.house)));
    let Some(house) = house else { return false };
    let Ok(mut house) = house.try_borrow_mut() else {
        return false;
    };
    turn_alone(&mut house);
    true
}

/// Does something whose panic must not end the core, the panic of what a panic leaves included. The text of the first.
pub(crate) fn quietly(what: impl FnOnce()) -> std::result::Result<(), String> {
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
pub(crate) struct Post {
    pub(crate) door: Arc<Door>,
    /// Jobs that are to be started. Without a limit: who starts one may be the thread that takes them.
    pub(crate) jobs: SegQueue<JobCell>,
    pub(crate) life: Arc<Life>,
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

impl Post {
    pub(crate) fn new(life: Arc<Life>) -> Self {
        Self {
            door: Arc::default(),
            jobs: SegQueue::new(),
            life,
            closed: AtomicBool::new(false),
        }
    }

    /// Says that the shard has stopped. The lanes' ends, dropped after that, wake who waits.
    fn stop(&self) {
        self.closed.store(true, Ordering::Release);
        // Jobs that never ran: whoever waits for them hears of it.
        while let Some(job) = self.jobs.pop() {
            let _ = quietly(|| drop(job));
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

/// Serves a shard on a core's executor. `build` makes the house on the core itself; `heard` hears how that went. What is
/// returned ends when the core is done with it.
pub(crate) fn start<B>(
    core: usize,
    post: Arc<Post>,
    mut watchdog: Watchdog,
    spin_ns: u64,
    build: impl FnOnce() -> B + Send + 'static,
    heard: impl FnOnce(Result<()>) + Send + 'static,
) -> Result<Arc<Ended>>
where
    B: Future<Output = Result<(House, Vec<Keeper>)>>,
{
    let pulse = Pulse::watched(move |unanswered| watchdog.look(unanswered));
    let pulse = pulse.map_err(|error| no_thread(&error.to_string()))?;
    let work = move |queues: Result<Queues>| -> Pin<Box<dyn Future<Output = ()>>> {
        let queues = match queues {
            Ok(queues) => queues,
            Err(error) => {
                post.stop();
                heard(Err(error));
                return Box::pin(ready(()));
            }
        };
        Box::pin(async move {
            match or(build(), pulse.beat()).await {
                Ok((house, keepers)) => {
                    heard(Ok(()));
                    let house = Rc::new(RefCell::new(house));
                    let on_core = OnCore::new(&post.life, &house);
                    let service =
                        live(Rc::clone(&house), &post, spin_ns, keepers, &pulse, queues).await;
                    // Nobody waits for what is left to do.
                    post.stop();
                    drop((on_core, house));
                    or(service.close(), pulse.beat()).await;
                }
                Err(error) => {
                    heard(Err(error));
                    post.stop();
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
        house: &Rc<RefCell<House>>,
        door: &Arc<Door>,
        service: TaskQueueHandle,
    ) -> Self {
        let stop = Rc::new(Semaphore::new(0));
        let keep = |keeper: Keeper| {
            let work = keeper.keep(Rc::clone(house), Arc::clone(door), Rc::clone(&stop));
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
    house: Rc<RefCell<House>>,
    post: &Arc<Post>,
    spin_ns: u64,
    keepers: Vec<Keeper>,
    pulse: &Pulse,
    Queues { service, jobs }: Queues,
) -> Keepers {
    let keepers = Keepers::start(keepers, &house, &post.door, service);
    let serving = {
        let post = Arc::clone(post);
        let house = Rc::clone(&house);
        async move { serve(house, post, spin_ns, jobs).await }
    };
    let beating = spawn_local_into(pulse.beat::<()>(), service);
    if let Ok(task) = spawn_local_into(serving, service) {
        task.await;
    }
    if let Ok(task) = beating {
        task.cancel().await;
    }
    keepers
}

async fn serve(house: Rc<RefCell<House>>, post: Arc<Post>, spin_ns: u64, jobs: TaskQueueHandle) {
    let (mut idle_since, mut idle_turns, mut turns_seen) = (None, 0u32, 0);
    loop {
        // Read before the turn: what was sent before closing is in that turn, or in one after it.
        let over = post.life.is_over();
        if post.life.is_closing() {
            house.borrow_mut().exits().close();
        }
        let mut busy = false;
        while let Some(job) = post.jobs.pop() {
            busy = true;
            if let Ok(task) = spawn_local_into((job.0)(Rc::clone(&house)), jobs) {
                task.detach();
            }
        }
        let turns = house.borrow().turns();
        if turns != turns_seen && !busy && !post.life.is_closing() {
            // A job that polls serves the shard, and gets its answers where they lie. The queues share the core fairly: were the
            // service ready all the time, the job would wait as long as it works.
            turns_seen = turns;
            idle_since = None;
            // What was busy ends here.
            house.borrow_mut().publish();
            nap(&post).await;
            continue;
        }
        busy |= turns != turns_seen || house.borrow_mut().turn(NOBODY, &mut |_, _| {});
        turns_seen = house.borrow().turns();
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
            let house = house.borrow();
            (house.read_ns(), house.is_quiet())
        };
        let idle_ns = now_ns - *idle_since.get_or_insert(now_ns);
        if !quiet || idle_ns < spin_ns {
            yield_now().await;
            continue;
        }
        if over {
            house.borrow_mut().publish();
            return;
        }
        if post.life.is_closing() {
            // Jobs of some core are still to end; nobody rings when they do.
            yield_now().await;
            continue;
        }
        house.borrow_mut().park();
        sleep(&post, &house).await;
        house.borrow_mut().wake();
        // One turn after waking; only work resets the idle time. Jobs come first, for it may be that there was no sleep.
        yield_now().await;
    }
}

/// Waits a little, or until there is a job to start.
async fn nap(post: &Post) {
    let mut timer = pin!(Timer::new(NAP));
    poll_fn(|context| {
        post.door.bell.waker.register(context.waker());
        if !post.jobs.is_empty() || timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}

/// Sleeps until somebody has news, or the timer behind every sleep ends.
async fn sleep(post: &Post, house: &RefCell<House>) {
    let bell = &post.door.bell;
    let mut timer = pin!(Timer::new(SLEEP_MAX));
    poll_fn(|context| {
        bell.waker.register(context.waker());
        let news =
            || house.borrow_mut().has_news() || !post.jobs.is_empty() || post.life.is_closing();
        // The fence interrupts all cores that run: not if it is known to be in vain.
        let sleeps = house.borrow().is_parked() && !news() && bell.fall_asleep(news);
        if !sleeps || timer.as_mut().poll(context).is_ready() {
            bell.wake_up();
            return Poll::Ready(());
        }
        Poll::Pending
    })
    .await;
}
