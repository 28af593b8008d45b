//! An operation on remote memory: a thread waits for it, or a task awaits it.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::lane::Lane;

/// An operation that has not begun: [`Op::wait`] blocks the thread until it has ended, and `.await`
/// works on any runtime. Several that are polled together are in flight together.
#[must_use = "an operation begins when it is waited for"]
pub struct Op<'a, F> {
    lane: &'a Lane,
    future: F,
}

impl<'a, F: Future> Op<'a, F> {
    pub(crate) fn new(lane: &'a Lane, future: F) -> Self {
        Self { lane, future }
    }

    /// The bare future: its owner drives the lane.
    #[cfg(test)]
    pub(crate) fn bare(self) -> F {
        self.future
    }

    /// Performs the operation and blocks until it has ended.
    pub fn wait(self) -> F::Output {
        self.lane.block_on(self.future)
    }
}

impl<'a, F: Future> IntoFuture for Op<'a, F> {
    type Output = F::Output;
    type IntoFuture = Awaited<'a, F>;

    fn into_future(self) -> Awaited<'a, F> {
        let Self { lane, future } = self;
        Awaited { lane, future }
    }
}

impl<F> fmt::Debug for Op<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Op").finish_non_exhaustive()
    }
}

pin_project! {
    /// An operation that a task awaits.
    #[must_use = "futures do nothing unless polled"]
    pub struct Awaited<'a, F> {
        lane: &'a Lane,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Awaited<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let current = this.lane.enter();
        let done = this.future.poll(context);
        drop(current);
        if done.is_pending() {
            this.lane.ensure_driven();
        }
        done
    }
}

impl<F> fmt::Debug for Awaited<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Awaited").finish_non_exhaustive()
    }
}
