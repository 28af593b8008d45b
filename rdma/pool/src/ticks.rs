//! Waits without a runtime's timers: the pool's thread wakes all that wait, a few dozen times a
//! second.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The tasks that wait for the next tick.
#[derive(Debug, Default)]
pub(crate) struct Ticks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    number: u64,
    waiting: Vec<Waker>,
}

impl Ticks {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all that wait.
    pub(crate) fn tick(&self) {
        let waiting = {
            let mut state = self.state();
            state.number += 1;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits for the next tick.
    pub(crate) fn next(&self) -> Next<'_> {
        Next {
            ticks: self,
            number: self.state().number,
        }
    }
}

/// The next tick.
pub(crate) struct Next<'a> {
    ticks: &'a Ticks,
    number: u64,
}

impl Future for Next<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.ticks.state();
        if state.number != self.number {
            return Poll::Ready(());
        }
        state.waiting.push(context.waker().clone());
        Poll::Pending
    }
}
