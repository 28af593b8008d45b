//! What tests of several rooms share.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Polls a future until it is done: whatever waits here wakes itself.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
        std::hint::spin_loop();
    }
}
