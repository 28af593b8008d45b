//! Jobs: futures that callers run on a core, and the tasks that wait for their results.
//!
//! A job's future is made and run on the core. Its result goes to the [`Task`], which any thread
//! may await or join.
//!
//! - I1: a panic of the job, of its future or of their drops becomes its result; it never ends the
//!   core.
//! - I2: the task is woken when the job ends in any way, also when it never ran.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use crossbeam_queue::ArrayQueue;

use super::lent_reactor::LentReactor;
use crate::error::{Error, Result};
use crate::lifecycle::JobTicket;
use crate::limits::what_was_said;

/// A job on its way to its core: a closure that makes the future there.
pub(crate) struct Job(pub(super) Box<dyn FnOnce(Rc<LentReactor>) -> JobFuture + Send>);

type JobFuture = Pin<Box<dyn Future<Output = ()>>>;

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Job")
    }
}

impl Job {
    /// A job, and the task that waits for its result. `client` makes the job's argument on the
    /// core.
    pub(crate) fn new<T, F, C>(
        ticket: JobTicket,
        client: impl FnOnce(Rc<LentReactor>, Arc<JobTicket>) -> C + Send + 'static,
        job: impl FnOnce(C) -> F + Send + 'static,
    ) -> (Self, Task<T>)
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let cell = Arc::new(TaskCell {
            result: ArrayQueue::new(1),
            waker: AtomicWaker::new(),
            done: AtomicBool::new(false),
        });
        let finish = Finish(Arc::clone(&cell));
        let run = move |reactor| -> JobFuture {
            Box::pin(async move {
                let ticket = Arc::new(ticket);
                let client = client(reactor, Arc::clone(&ticket));
                let result = run_caught(move || job(client)).await;
                let result = result.map_err(|panic| Error::JobPanicked {
                    reason: text_of(panic),
                });
                let _ = finish.0.result.push(result);
                // Without a waiting task, the result is dropped here.
                if let Err(reason) = catch_panic(|| drop(finish)) {
                    tracing::error!(reason, "the result of a job panicked when it was dropped");
                }
                drop(ticket);
            })
        };
        (Self(Box::new(run)), Task { cell })
    }
}

/// Runs a closure whose panic must not end the core, including a panic while the payload is
/// dropped. Returns the text of the first panic.
pub(crate) fn catch_panic(what: impl FnOnce()) -> std::result::Result<(), String> {
    let Err(panic) = catch_unwind(AssertUnwindSafe(what)) else {
        return Ok(());
    };
    Err(text_of(panic))
}

/// The text of a panic's payload, which is dropped.
pub(crate) fn text_of(panic: Box<dyn Any + Send>) -> String {
    let text = what_was_said(&*panic).to_owned();
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        // Dropping the second payload may panic again: leak it.
        let _ = Box::leak(panic);
    }
    text
}

/// Runs a job to its end. A panic of the job, of its future, or of their drops is its result.
async fn run_caught<T, F: Future<Output = T>>(job: impl FnOnce() -> F) -> std::thread::Result<T> {
    let mut future = catch_unwind(AssertUnwindSafe(|| Box::pin(job())))?;
    let result =
        poll_fn(
            |context| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
                Ok(Poll::Pending) => Poll::Pending,
                Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
                Err(panic) => Poll::Ready(Err(panic)),
            },
        )
        .await;
    let dropped = catch_unwind(AssertUnwindSafe(|| drop(future)));
    match (result, dropped) {
        (result, Ok(())) => result,
        (Ok(output), Err(panic)) => {
            let _ = catch_panic(|| drop(output));
            Err(panic)
        }
        (Err(first), Err(second)) => {
            drop(text_of(second));
            Err(first)
        }
    }
}

struct TaskCell<T> {
    result: ArrayQueue<Result<T>>,
    waker: AtomicWaker,
    done: AtomicBool,
}

/// Completes the task when the job ends in any way.
struct Finish<T>(Arc<TaskCell<T>>);

impl<T> Drop for Finish<T> {
    fn drop(&mut self) {
        // ORDERING: pairs with the Acquire in `Task::poll`: the result is written before the flag.
        self.0.done.store(true, Ordering::Release);
        // A waker is the caller's code and may panic.
        let _ = catch_panic(|| self.0.waker.wake());
    }
}

/// A job that runs on a core. Await it or call [`Task::join`]. Dropping it does not stop the job.
#[must_use]
pub struct Task<T> {
    cell: Arc<TaskCell<T>>,
}

impl<T> std::fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Task")
            .field("done", &self.cell.done)
            .finish_non_exhaustive()
    }
}

impl<T> Task<T> {
    /// Blocks until the job ends. A job on the same core must be awaited instead: while this call
    /// blocks, the other job cannot run.
    ///
    /// # Errors
    /// [`Error::JobPanicked`], or [`Error::Closed`] if it never ran.
    pub fn join(self) -> Result<T> {
        super::block_on(self)
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.cell.waker.register(context.waker());
        if self.cell.done.load(Ordering::Acquire) {
            return Poll::Ready(self.cell.result.pop().unwrap_or(Err(Error::Closed)));
        }
        Poll::Pending
    }
}
