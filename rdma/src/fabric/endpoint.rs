//! The interface of every backend: an endpoint with queue pairs and one completion queue.
//!
//! Implementations are polled, receive the time from the caller and allocate nothing after
//! construction.

use std::sync::Arc;

use crate::region::Region;
use crate::work::{Completion, LocalKey, WorkRequest};

/// Why a work request was not accepted. The request is returned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// The queue is full: poll completions first.
    Full(WorkRequest),
    /// The queue pair is not ready to send: renew it first.
    Down(WorkRequest),
    /// The request can never succeed: a mistake of the caller.
    Invalid {
        /// The request.
        request: WorkRequest,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// Memory could not be registered. The text names the limit, the value and the remedy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct RegisterError(pub String);

/// The state of a queue pair.
///
/// ```text
/// init -> ready to receive -> ready to send -> error -> drained
///   \____________\__________________________/             |
///                ^--------------- renew ------------------'
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum QueuePairState {
    /// Not connected.
    #[default]
    Init,
    /// Connecting; it cannot send yet.
    ReadyToReceive,
    /// Connected; it accepts and performs requests.
    ReadyToSend,
    /// A request or the connection failed. Remaining requests are flushed, new ones refused.
    Error,
    /// All requests have completed after an error: it can be renewed.
    Drained,
}

/// One thread's access to the fabric: its registered regions, its queue pairs by index, and their
/// completion queue.
///
/// Requests of one queue pair are performed in the order in which they were posted. Each completes
/// exactly once, but an unsignalled success produces no completion. Receives complete in the order
/// in which they were posted.
pub trait Endpoint {
    /// Registers local memory. The endpoint keeps it for as long as requests may name it. Cost: an
    /// RDMA device pins and maps every page.
    ///
    /// # Errors
    /// [`RegisterError`] if a device or a limit of the kernel refuses.
    fn register(&mut self, region: Arc<Region>) -> Result<LocalKey, RegisterError>;
    /// The number of queue pairs.
    fn queues(&self) -> usize;
    /// Queues a request for the next doorbell. Cost: no allocation, no system call.
    ///
    /// # Errors
    /// [`PostError`] returns the request.
    fn post(&mut self, queue: usize, request: WorkRequest) -> Result<(), PostError>;
    /// Passes all posted requests of a queue pair to the fabric.
    fn ring_doorbell(&mut self, queue: usize, now_ns: u64);
    /// The number of requests that the send queue has room for.
    fn room(&self, queue: usize) -> usize;
    /// The state of a queue pair.
    fn state(&self, queue: usize) -> QueuePairState;
    /// Polls completions. Returns how many were written to `completions`.
    fn poll(&mut self, now_ns: u64, completions: &mut [Completion]) -> usize;
    /// When the next poll has work, as far as the endpoint knows: 0 means at once, `None` not
    /// before another doorbell. Simulated time jumps there. The work may produce no completion: an
    /// unsignalled success.
    fn next_due_ns(&self) -> Option<u64>;
    /// Requests in send queues that have not completed, over all queue pairs.
    fn outstanding(&self) -> usize;
    /// Requests in the send queue of one queue pair that have not completed.
    fn outstanding_on(&self, queue: usize) -> usize;
    /// True if the endpoint is bound to nothing of the thread that opened it: any thread may use
    /// it, one at a time.
    fn is_movable(&self) -> bool {
        false
    }
    /// Reconnects a drained queue pair as soon as its peer can be reached. No effect while any of
    /// its requests has not completed: poll first.
    fn renew(&mut self, queue: usize);
}
