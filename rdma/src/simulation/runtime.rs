//! The tasks and timers of a world.
//!
//! A task is polled when the simulation says so, if it was woken. Tasks have a group, for example
//! the core on which they run.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use farcore_tuning::simulated;

type Work = Pin<Box<dyn Future<Output = ()>>>;

/// Whether a task was woken since it was polled last.
#[derive(Debug)]
struct Woken {
    is_woken: AtomicBool,
    task: u64,
    group: u32,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::Relaxed) {
            // A world that is gone has no list.
            let _ = WOKEN.try_with(|woken| {
                let mut woken = woken.borrow_mut();
                let place = woken.partition_point(|&(task, _)| task < self.task);
                woken.insert(place, (self.task, self.group));
            });
        }
    }
}

struct Task {
    group: u32,
    /// `None` while it is polled.
    work: Option<Work>,
    woken: Arc<Woken>,
}

/// Called with true before a task of a group is polled, and with false after.
type Hook = Rc<dyn Fn(bool)>;

#[derive(Default)]
struct Runtime {
    tasks: BTreeMap<u64, Task>,
    last: u64,
    timers: BTreeMap<(u64, u64), Waker>,
    hooks: BTreeMap<u32, Hook>,
}

thread_local! {
    static RUNTIME: RefCell<Option<Runtime>> = const { RefCell::new(None) };
    static GROUP: Cell<u32> = const { Cell::new(0) };
    /// The tasks that were woken, by their numbers, with their groups. Some may have ended.
    static WOKEN: RefCell<Vec<(u64, u32)>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn begin() {
    RUNTIME.set(Some(Runtime::default()));
    WOKEN.take();
}

pub(super) fn leave() {
    // Dropped outside of the cell: tasks spawn and wake as they end.
    let mut tasks = with(|runtime| std::mem::take(&mut runtime.tasks));
    while let Some((_, task)) = tasks.pop_first() {
        drop(task);
    }
    RUNTIME.set(None);
}

/// Forgets all tasks.
#[allow(
    clippy::mem_forget,
    reason = "tasks of a world that failed may not be droppable"
)]
pub(super) fn abandon() {
    std::mem::forget(RUNTIME.replace(Some(Runtime::default())));
    GROUP.set(0);
}

fn with<T>(work: impl FnOnce(&mut Runtime) -> T) -> T {
    RUNTIME.with_borrow_mut(|runtime| work(runtime.as_mut().expect("inside a world")))
}

/// True if the calling thread is inside a world.
#[inline]
#[must_use]
pub fn is_inside() -> bool {
    simulated::now_ns().is_some()
}

/// The group of the task that is being polled, which tasks that it spawns inherit.
#[must_use]
pub fn current_group() -> u32 {
    GROUP.get()
}

/// Sets the group of tasks that are spawned from now on outside of any task; returns the one
/// before.
pub fn set_group(group: u32) -> u32 {
    GROUP.replace(group)
}

/// Has `hook` called around each poll of a group's tasks.
pub fn on_enter(group: u32, hook: Option<Rc<dyn Fn(bool)>>) {
    with(|runtime| match hook {
        Some(hook) => drop(runtime.hooks.insert(group, hook)),
        None => drop(runtime.hooks.remove(&group)),
    });
}

/// The outcome of a task, and the waker of what waits for it.
struct Outcome<T> {
    value: Option<T>,
    has_ended: bool,
    waker: Option<Waker>,
}

/// A started task. Dropping it cancels the task, unless it is detached.
pub struct SimulatedTask<T> {
    id: u64,
    outcome: Rc<RefCell<Outcome<T>>>,
    detached: bool,
}

impl<T> fmt::Debug for SimulatedTask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimulatedTask").field(&self.id).finish()
    }
}

impl<T> SimulatedTask<T> {
    /// Lets the task run on by itself.
    pub fn detach(mut self) {
        self.detached = true;
    }

    /// True once the task has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.outcome.borrow().has_ended
    }

    /// Cancels the task; its outcome, if it has ended before.
    #[allow(clippy::unused_async, reason = "as the machine's executor does")]
    pub async fn cancel(self) -> Option<T> {
        self.outcome.borrow_mut().value.take()
    }
}

impl<T> Drop for SimulatedTask<T> {
    fn drop(&mut self) {
        if !self.detached {
            let task = RUNTIME.with_borrow_mut(|runtime| {
                let tasks = runtime.as_mut().map(|runtime| &mut runtime.tasks);
                tasks.and_then(|tasks| tasks.remove(&self.id))
            });
            drop(task);
        }
    }
}

impl<T> Future for SimulatedTask<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let mut outcome = self.outcome.borrow_mut();
        if let Some(value) = outcome.value.take() {
            return Poll::Ready(value);
        }
        outcome.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Starts a task in the current group.
pub fn spawn<T: 'static>(work: impl Future<Output = T> + 'static) -> SimulatedTask<T> {
    let outcome = Rc::new(RefCell::new(Outcome {
        value: None,
        has_ended: false,
        waker: None,
    }));
    let ends = Rc::clone(&outcome);
    let work = async move {
        let value = work.await;
        let waker = {
            let mut outcome = ends.borrow_mut();
            (outcome.value, outcome.has_ended) = (Some(value), true);
            outcome.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    };
    let id = with(|runtime| {
        runtime.last += 1;
        let woken = Arc::new(Woken {
            is_woken: AtomicBool::new(false),
            task: runtime.last,
            group: GROUP.get(),
        });
        Arc::clone(&woken).wake();
        let task = Task {
            group: GROUP.get(),
            work: Some(Box::pin(work)),
            woken,
        };
        runtime.tasks.insert(runtime.last, task);
        runtime.last
    });
    SimulatedTask {
        id,
        outcome,
        detached: false,
    }
}

/// The tasks that were woken, by their numbers, with their groups.
pub fn ready(into: &mut Vec<(u64, u32)>) {
    into.clear();
    with(|runtime| {
        WOKEN.with_borrow_mut(|woken| {
            woken.retain(|(task, _)| runtime.tasks.contains_key(task));
            into.extend_from_slice(woken);
        });
    });
}

/// Tasks that have not ended.
#[must_use]
pub fn task_count() -> usize {
    with(|runtime| runtime.tasks.len())
}

/// Polls a task once.
pub fn poll(id: u64) {
    let begun = with(|runtime| {
        let task = runtime.tasks.get_mut(&id)?;
        if task.woken.is_woken.swap(false, Ordering::Relaxed) {
            WOKEN.with_borrow_mut(|woken| woken.retain(|one| one.0 != id));
        }
        let hook = runtime.hooks.get(&task.group).cloned();
        Some((task.work.take()?, task.group, Arc::clone(&task.woken), hook))
    });
    let Some((mut work, group, woken, hook)) = begun else {
        return;
    };
    let before = GROUP.replace(group);
    if let Some(hook) = &hook {
        hook(true);
    }
    let waker = Waker::from(woken);
    let done = work.as_mut().poll(&mut Context::from_waker(&waker));
    let left = with(|runtime| {
        if done.is_ready() {
            runtime.tasks.remove(&id);
            return Some(work);
        }
        match runtime.tasks.get_mut(&id) {
            Some(task) => {
                task.work = Some(work);
                None
            }
            // It was cancelled meanwhile.
            None => Some(work),
        }
    });
    drop(left);
    // The task may have set or removed it.
    let hook = with(|runtime| runtime.hooks.get(&group).cloned()).or(hook);
    if let Some(hook) = hook {
        hook(false);
    }
    GROUP.set(before);
}

/// When the next timer ends; `None` if there is none.
#[must_use]
pub fn next_timer_ns() -> Option<u64> {
    with(|runtime| runtime.timers.keys().next().map(|&(due_ns, _)| due_ns))
}

/// Wakes the tasks whose timers have ended.
pub fn wake_timers() {
    let now_ns = simulated::now_ns().unwrap_or(0);
    loop {
        let due = with(|runtime| {
            let first = runtime.timers.first_entry()?;
            (first.key().0 <= now_ns).then(|| first.remove())
        });
        match due {
            Some(waker) => waker.wake(),
            None => return,
        }
    }
}

/// Waits for a time of the world.
#[derive(Debug)]
pub struct Sleep {
    due_ns: u64,
    timer: Option<(u64, u64)>,
}

impl Sleep {
    /// Waits for a duration.
    #[must_use]
    pub fn new(time: Duration) -> Self {
        let now_ns = simulated::now_ns().unwrap_or(0);
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self {
            due_ns: now_ns.saturating_add(ns),
            timer: None,
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if simulated::now_ns().is_some_and(|now_ns| now_ns >= self.due_ns) {
            return Poll::Ready(());
        }
        let due_ns = self.due_ns;
        let timer = self.timer;
        let key = with(|runtime| {
            let key = timer.unwrap_or_else(|| {
                runtime.last += 1;
                (due_ns, runtime.last)
            });
            runtime.timers.insert(key, context.waker().clone());
            key
        });
        self.timer = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.timer {
            RUNTIME.with_borrow_mut(|runtime| {
                if let Some(runtime) = runtime {
                    runtime.timers.remove(&key);
                }
            });
        }
    }
}

/// Permits that tasks wait for, until it is closed.
#[derive(Debug)]
pub struct Semaphore {
    permits: Cell<u64>,
    closed: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

/// The semaphore is closed.
#[derive(Clone, Copy, Debug)]
pub struct Closed;

impl Semaphore {
    /// A semaphore with this many permits.
    #[must_use]
    pub fn new(permits: u64) -> Self {
        Self {
            permits: Cell::new(permits),
            closed: Cell::new(false),
            waiting: RefCell::default(),
        }
    }

    /// Closes it: all waits end.
    pub fn close(&self) {
        self.closed.set(true);
        self.wake();
    }

    /// Adds permits.
    pub fn signal(&self, permits: u64) {
        self.permits.set(self.permits.get() + permits);
        self.wake();
    }

    fn wake(&self) {
        for waker in self.waiting.take() {
            waker.wake();
        }
    }

    /// Waits for permits and takes them.
    ///
    /// # Errors
    /// It is closed.
    pub async fn acquire(&self, permits: u64) -> Result<(), Closed> {
        std::future::poll_fn(|context| {
            if self.closed.get() {
                return Poll::Ready(Err(Closed));
            }
            if self.permits.get() >= permits {
                self.permits.set(self.permits.get() - permits);
                return Poll::Ready(Ok(()));
            }
            let mut waiting = self.waiting.borrow_mut();
            let waker = context.waker();
            if !waiting.iter().any(|known| known.will_wake(waker)) {
                waiting.push(waker.clone());
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[test]
    fn a_task_that_is_polled_again_and_again_waits_once() {
        let permits = Semaphore::new(0);
        let woken = Arc::new(Woken {
            is_woken: AtomicBool::new(true),
            task: 1,
            group: 0,
        });
        let waker = Waker::from(woken);
        let mut wait = pin!(permits.acquire(1));
        for _ in 0..10 {
            let polled = wait.as_mut().poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
        assert_eq!(permits.waiting.borrow().len(), 1);
        permits.signal(1);
        let polled = wait.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(polled.is_ready());
    }
}
