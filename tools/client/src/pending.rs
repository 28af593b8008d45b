//! An operation that is under way.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

enum State<T> {
    Waiting(Option<Waker>),
    Ready(Result<T>),
    Taken,
}

struct Cell<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
}

impl<T> Cell<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take<T>(state: &mut State<T>) -> Option<Result<T>> {
    match std::mem::replace(state, State::Taken) {
        State::Ready(outcome) => Some(outcome),
        State::Waiting(waker) => {
            *state = State::Waiting(waker);
            None
        }
        State::Taken => Some(Err(Error::Closed)),
    }
}

/// An operation that is under way: a future, which any runtime can await, or wait for it with
/// [`Pending::wait`]. Dropping it does not stop the operation.
#[must_use = "an operation's outcome says whether it was done"]
pub struct Pending<T>(Arc<Cell<T>>);

impl<T> Pending<T> {
    /// Blocks until the operation has ended: its time limit bounds that.
    ///
    /// # Errors
    /// [`Error`].
    pub fn wait(self) -> Result<T> {
        let mut state = self.0.state();
        loop {
            if let Some(outcome) = take(&mut state) {
                return outcome;
            }
            state = self
                .0
                .ready
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Blocks until the operation has ended, and no longer than a limit. Returns the outcome, or
    /// the operation, which goes on.
    ///
    /// # Errors
    /// The operation, if it has not ended.
    pub fn wait_for(self, limit: Duration) -> std::result::Result<Result<T>, Self> {
        let end = Instant::now() + limit;
        let mut state = self.0.state();
        loop {
            if let Some(outcome) = take(&mut state) {
                return Ok(outcome);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(state);
                return Err(self);
            }
            let waited = self.0.ready.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// One that has ended.
    pub(crate) fn ready(outcome: Result<T>) -> Self {
        let (pending, completer) = pending();
        completer.complete(outcome);
        pending
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        let mut state = self.0.state();
        match take(&mut state) {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                *state = State::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl<T> fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_ready = !matches!(*self.0.state(), State::Waiting(_));
        f.debug_struct("Pending")
            .field("is_ready", &is_ready)
            .finish()
    }
}

/// Ends an operation.
pub(crate) struct Completer<T>(Arc<Cell<T>>);

impl<T> Completer<T> {
    pub(crate) fn complete(self, outcome: Result<T>) {
        let before = std::mem::replace(&mut *self.0.state(), State::Ready(outcome));
        self.0.ready.notify_all();
        if let State::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Drop for Completer<T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if let State::Waiting(waker) = &mut *state {
            let waker = waker.take();
            *state = State::Ready(Err(Error::Closed));
            drop(state);
            self.0.ready.notify_all();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// An operation, and what ends it.
pub(crate) fn pending<T>() -> (Pending<T>, Completer<T>) {
    let cell = Arc::new(Cell {
        state: Mutex::new(State::Waiting(None)),
        ready: Condvar::new(),
    });
    (Pending(Arc::clone(&cell)), Completer(cell))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_waited_for_and_awaited() {
        let (one, completer) = pending();
        let thread = std::thread::spawn(move || one.wait());
        completer.complete(Ok(7));
        assert_eq!(thread.join().expect("it ended"), Ok(7));
        let (one, completer) = pending();
        let thread = std::thread::spawn(move || futures_lite::future::block_on(one));
        completer.complete(Ok(8));
        assert_eq!(thread.join().expect("it ended"), Ok(8));
    }

    #[test]
    fn one_that_nobody_ends_is_closed() {
        let (one, completer) = pending::<u8>();
        let one = one.wait_for(Duration::ZERO).expect_err("it has not ended");
        drop(completer);
        assert_eq!(one.wait(), Err(Error::Closed));
        assert_eq!(Pending::ready(Ok(3)).wait(), Ok(3));
    }
}
