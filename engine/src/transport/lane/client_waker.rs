//! Wakes a client thread outside the cores when answers arrive.
//!
//! The client sets a flag before its last check for answers; the shard publishes answers before it
//! checks the flag. A fence on both sides makes at least one of them see the other.

use std::sync::atomic::{AtomicBool, Ordering, fence};

use atomic_waker::AtomicWaker;

/// The flag and the waker of one waiting client.
#[derive(Debug, Default)]
pub(crate) struct ClientWaker {
    waiting: AtomicBool,
    pub(crate) waker: AtomicWaker,
}

impl ClientWaker {
    /// Sets the flag. The client checks for answers once more after this, then sleeps.
    pub(crate) fn wait(&self) {
        // ORDERING: the fence pairs with the one in `notify`: either the shard sees the flag or the
        // client sees the answer.
        self.waiting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Clears the flag. A shard that has seen it may wake the client meanwhile.
    #[inline]
    pub(crate) fn go_on(&self) {
        // ORDERING: relaxed; a wake too many is allowed.
        self.waiting.store(false, Ordering::Relaxed);
    }

    /// Wakes the client if it waits, after answers were published for it.
    #[inline]
    pub(crate) fn notify(&self) {
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) && self.waiting.swap(false, Ordering::SeqCst) {
            self.waker.wake();
        }
    }
}
