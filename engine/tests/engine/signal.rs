//! A signal between a job and the test that started it.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use atomic_waker::AtomicWaker;

/// State shared by a job and the test that started it.
pub(crate) struct Signal {
    given: AtomicBool,
    waker: AtomicWaker,
}

impl Signal {
    pub(crate) const fn new() -> Self {
        Self {
            given: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        }
    }

    pub(crate) fn give(&self) {
        self.given.store(true, Ordering::SeqCst);
        self.waker.wake();
    }

    pub(crate) fn is_given(&self) -> bool {
        self.given.load(Ordering::SeqCst)
    }

    pub(crate) async fn wait(&self) {
        poll_fn(|context| {
            self.waker.register(context.waker());
            if self.is_given() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    pub(crate) fn block(&self) {
        while !self.is_given() {
            std::thread::yield_now();
        }
    }
}
