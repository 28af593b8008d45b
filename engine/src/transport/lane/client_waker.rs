//! Where a client outside the cores waits for answers.

use std::sync::atomic::{AtomicBool, Ordering, fence};

use atomic_waker::AtomicWaker;

/// Where a client waits for answers.
#[derive(Debug, Default)]
pub(crate) struct ClientWaker {
    waiting: AtomicBool,
    pub(crate) waker: AtomicWaker,
}

impl ClientWaker {
    /// The client is about to sleep: it looks once more after this, then sleeps.
    pub(crate) fn wait(&self) {
        // ORDERING: SeqCst, with the fence in `notify`: either the shard sees the flag or the
        // client sees the answer.
        self.waiting.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Something was published for the client.
    #[inline]
    pub(crate) fn notify(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) && self.waiting.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}
