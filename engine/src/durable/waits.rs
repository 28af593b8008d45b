//! How a keeper waits: on a thread of its own it blocks, in a simulated world it is a task.
//!
//! So what a keeper does is written once, as functions that may be polled. On its thread none of
//! these waits is ever pending, but those for jobs of cores.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use farcore_tuning::Clock;

/// A moment of the engine's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Instant {
    ns: u64,
}

impl Instant {
    pub(super) fn now() -> Self {
        let ns = Clock::new().now_ns();
        Self { ns }
    }

    pub(super) fn elapsed(&self) -> Duration {
        Duration::from_nanos(Self::now().ns.saturating_sub(self.ns))
    }
}

/// Waits for a time.
pub(super) async fn sleep(time: Duration) {
    #[cfg(feature = "simulation")]
    if farcore_rdma::simulation::is_inside() {
        return farcore_rdma::simulation::Sleep::new(time).await;
    }
    thread::sleep(time);
}

/// The next message, or why there is none within a time.
pub(super) async fn receive<T>(
    messages: &Receiver<T>,
    within: Duration,
) -> Result<T, RecvTimeoutError> {
    #[cfg(feature = "simulation")]
    if farcore_rdma::simulation::is_inside() {
        use std::sync::mpsc::TryRecvError;
        let next = messages.try_recv();
        if next.is_err() {
            sleep(within).await;
        }
        return next
            .or_else(|_| messages.try_recv())
            .map_err(|error| match error {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            });
    }
    messages.recv_timeout(within)
}

/// Work that a thread does beside the keeper. In a simulated world it was done at once.
#[derive(Debug)]
pub(super) enum Beside<T> {
    Thread(JoinHandle<T>),
    #[cfg(feature = "simulation")]
    Done(T),
}

impl<T: Send + 'static> Beside<T> {
    pub(super) fn start(work: impl FnOnce() -> T + Send + 'static) -> Self {
        #[cfg(feature = "simulation")]
        if farcore_rdma::simulation::is_inside() {
            return Self::Done(work());
        }
        Self::Thread(thread::spawn(work))
    }

    /// What has come of it; `None` if it has panicked.
    pub(super) fn join(self) -> Option<T> {
        match self {
            Self::Thread(thread) => thread.join().ok(),
            #[cfg(feature = "simulation")]
            Self::Done(done) => Some(done),
        }
    }
}
