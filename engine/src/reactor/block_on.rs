//! Blocks the calling thread on a future.
//!
//! A core that blocks serves its shard meanwhile, because the future may wait for that shard. Any
//! other thread spins, then parks.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::current::serve_current_core;

/// A parked thread checks again after this long, even if it was not woken.
const PARK_MAX: Duration = Duration::from_millis(50);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    /// Made once a thread: a call that is answered at once would pay for it in vain.
    static UNPARK: Waker = unpark();
}

fn unpark() -> Waker {
    Waker::from(Arc::new(Unpark(thread::current())))
}

/// The waker of this thread; a new one while the thread ends.
fn thread_waker() -> Waker {
    UNPARK.try_with(Waker::clone).unwrap_or_else(|_| unpark())
}

/// Runs a future to its end on this thread. A core serves its shard meanwhile.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = thread_waker();
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        if !serve_current_core() {
            thread::park_timeout(PARK_MAX);
        }
    }
}

/// Runs a future on this thread, for at most `limit`; then `None`, and the future is dropped. A
/// core serves its shard meanwhile.
pub(crate) fn block_on_for<F: Future>(future: F, limit: Duration) -> Option<F::Output> {
    let mut future = pin!(future);
    let waker = thread_waker();
    let mut context = Context::from_waker(&waker);
    if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
        return Some(output);
    }
    let since = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        let left = limit.checked_sub(since.elapsed())?;
        if !serve_current_core() {
            thread::park_timeout(left.min(PARK_MAX));
        }
    }
}
