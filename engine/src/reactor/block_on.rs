//! Blocks the calling thread on a future.
//!
//! A core that blocks serves its shard meanwhile, because the future may wait for that shard. Any
//! other thread spins, then parks.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use super::current::serve_current_core;

/// A parked thread checks again after this long, even if it was not woken.
const PARK_MAX: Duration = Duration::from_millis(50);

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future to its end on this thread. A core serves its shard meanwhile.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        if !serve_current_core() {
            thread::park_timeout(PARK_MAX);
        }
    }
}
