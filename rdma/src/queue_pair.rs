//! What every backend offers: queue pairs, and the endpoint that owns them.

use std::sync::Arc;

use crate::region::Region;
use crate::work::{Completion, LocalKey, WorkRequest};

/// Why a work request was not taken. It is handed back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// The send queue is full: poll completions first.
    Full(WorkRequest),
    /// The queue pair is in error: renew it first.
    Down(WorkRequest),
    /// The request can never work: a caller's mistake.
    Invalid {
        /// The request.
        request: WorkRequest,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// The state of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueuePairState {
    /// Takes and performs requests.
    ReadyToSend,
    /// A request failed: the others are flushed and no more are taken until it is renewed.
    Error,
}

/// One queue pair. Requests are performed in the order they were posted.
pub trait QueuePair {
    /// Queues a request; the fabric sees it at the next doorbell. Cost: no allocation, no system call.
    ///
    /// # Errors
    /// [`PostError`] hands the request back.
    fn post(&mut self, request: WorkRequest) -> Result<(), PostError>;
    /// Shows the fabric everything that was posted.
    fn ring_doorbell(&mut self, now_ns: u64);
    /// Requests that can be posted now.
    fn room(&self) -> usize;
    /// Requests posted and not yet completed.
    fn outstanding(&self) -> usize;
    /// Its state.
    fn state(&self) -> QueuePairState;
}

/// One thread's end of the fabric: its regions, its queue pairs and their one completion queue.
pub trait Endpoint {
    /// The backend's queue pair.
    type Queue: QueuePair;
    /// Registers local memory; the endpoint keeps it for as long as requests may name it.
    fn register(&mut self, region: Arc<Region>) -> LocalKey;
    /// A queue pair.
    fn queue(&mut self, index: usize) -> &mut Self::Queue;
    /// How many there are.
    fn queues(&self) -> usize;
    /// Takes completions; answers how many were filled in.
    fn poll(&mut self, now_ns: u64, completions: &mut [Completion]) -> usize;
    /// When the next poll has something to do, as far as the endpoint knows; 0 is at once, `None` is not before another
    /// doorbell. Simulated time jumps there. What the poll then does may be silent: an unsignalled success.
    fn next_due_ns(&self) -> Option<u64>;
    /// Requests posted and not yet completed, over all queue pairs.
    fn outstanding(&self) -> usize;
    /// Brings a queue pair that is in error back. Without effect while any of its requests has not completed: poll first.
    fn renew(&mut self, queue: usize);
}
