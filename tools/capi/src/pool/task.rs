//! An operation of a pool under way.
//!
//! - I1: the future is polled only after it was woken: a caller that polls in a loop costs a lock
//!   each time, and leaves nothing behind.
//! - I2: the pool's own threads drive what no caller waits for, so an operation makes progress
//!   between two polls.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::outcome::Outcome;
use crate::requests::Running;

/// Whether a future was woken.
#[derive(Default)]
struct Signal {
    is_woken: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn is_woken(&self) -> MutexGuard<'_, bool> {
        self.is_woken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it was woken since the last call.
    fn take(&self) -> bool {
        std::mem::take(&mut *self.is_woken())
    }

    /// Waits until it is woken, or until a moment.
    fn wait(&self, until: Option<Instant>) {
        let is_woken = self.is_woken();
        let sleeps = |is_woken: &mut bool| !*is_woken;
        match until {
            None => drop(self.changed.wait_while(is_woken, sleeps)),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                drop(self.changed.wait_timeout_while(is_woken, left, sleeps));
            }
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.is_woken() = true;
        self.changed.notify_all();
    }
}

/// An operation of a pool under way.
pub(super) struct Task<F> {
    future: Pin<Box<F>>,
    signal: Arc<Signal>,
    /// Its outcome, if it ended when it began.
    outcome: Option<Outcome>,
}

impl<F: Future<Output = Outcome> + Send> Task<F> {
    /// Begins an operation: what it sends first is sent now.
    pub(super) fn begin(future: F) -> Self {
        let mut task = Self {
            future: Box::pin(future),
            signal: Arc::default(),
            outcome: None,
        };
        task.outcome = task.advance();
        task
    }

    fn advance(&mut self) -> Option<Outcome> {
        let waker = Waker::from(Arc::clone(&self.signal));
        let mut context = Context::from_waker(&waker);
        match self.future.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => None,
        }
    }
}

impl<F: Future<Output = Outcome> + Send> Running for Task<F> {
    fn poll(&mut self) -> Option<Outcome> {
        if let Some(outcome) = self.outcome.take() {
            return Some(outcome);
        }
        if !self.signal.take() {
            return None;
        }
        self.advance()
    }

    fn wait(&mut self, limit: Option<Duration>) -> Option<Outcome> {
        let until = limit.map(|limit| Instant::now() + limit);
        loop {
            if let Some(outcome) = self.poll() {
                return Some(outcome);
            }
            if until.is_some_and(|until| until <= Instant::now()) {
                return None;
            }
            self.signal.wait(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn a_future_is_polled_when_it_is_woken() {
        let polls = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&polls);
        let (send, receive) = std::sync::mpsc::channel::<Waker>();
        let mut task = Task::begin(poll_fn(move |context| {
            let count = seen.fetch_add(1, Ordering::Relaxed);
            if count == 2 {
                return Poll::Ready(Outcome::done());
            }
            send.send(context.waker().clone()).expect("it is received");
            Poll::Pending
        }));
        for _ in 0..3 {
            assert!(task.poll().is_none());
        }
        assert!(task.wait(Some(Duration::ZERO)).is_none());
        assert_eq!(polls.load(Ordering::Relaxed), 1);
        receive.recv().expect("a waker").wake();
        assert!(task.poll().is_none());
        assert!(task.poll().is_none());
        assert_eq!(polls.load(Ordering::Relaxed), 2);
        let waker = receive.recv().expect("a waker");
        thread::scope(|scope| {
            scope.spawn(|| waker.wake());
            assert!(task.wait(None).is_some());
        });
    }

    #[test]
    fn what_ends_at_once_has_its_outcome_at_the_first_poll() {
        let mut task = Task::begin(async { Outcome::done() });
        assert!(task.poll().is_some());
    }
}
