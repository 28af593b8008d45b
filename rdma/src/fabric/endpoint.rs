//! What every backend offers: an endpoint with its queue pairs and their one completion queue.

use std::sync::Arc;

use crate::region::Region;
use crate::work::{Completion, LocalKey, WorkRequest};

/// Why a work request was not taken. It is handed back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// The queue is full: poll completions first.
    Full(WorkRequest),
    /// The queue pair is not ready to send: renew it first.
    Down(WorkRequest),
    /// The request can never work: a caller's mistake.
    Invalid {
        /// The request.
        request: WorkRequest,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// Memory could not be registered: the text names the limit, the value and the remedy.
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
    /// It has no peer.
    #[default]
    Init,
    /// It is being connected; nothing can be sent yet.
    ReadyToReceive,
    /// It takes and performs requests.
    ReadyToSend,
    /// A request or the connection failed: what is left is flushed, and no more is taken.
    Error,
    /// All that it held when it failed has completed: it can be renewed.
    Drained,
}

/// One thread's end of the fabric: its registered regions, its queue pairs, by index, and their one
/// completion queue.
///
/// Requests of one queue pair are performed in the order they were posted, and each completes
/// exactly once: in silence if it succeeds unsignalled. Receives complete in the order they were
/// posted.
pub trait Endpoint {
    /// Registers local memory; the endpoint keeps it for as long as requests may name it. Cost: on
    /// a card, every page is pinned and mapped.
    ///
    /// # Errors
    /// [`RegisterError`], where a device or a limit of the kernel is asked.
    fn register(&mut self, region: Arc<Region>) -> Result<LocalKey, RegisterError>;
    /// Queue pairs there are.
    fn queues(&self) -> usize;
    /// Queues a request; the fabric sees it at the next doorbell. Cost: no allocation, no system
    /// call.
    ///
    /// # Errors
    /// [`PostError`] hands the request back.
    fn post(&mut self, queue: usize, request: WorkRequest) -> Result<(), PostError>;
    /// Shows the fabric everything that was posted on a queue pair.
    fn ring_doorbell(&mut self, queue: usize, now_ns: u64);
    /// Requests that can be posted to a send queue now.
    fn room(&self, queue: usize) -> usize;
    /// The state of a queue pair.
    fn state(&self, queue: usize) -> QueuePairState;
    /// Takes completions; answers how many were filled in.
    fn poll(&mut self, now_ns: u64, completions: &mut [Completion]) -> usize;
    /// When the next poll has something to do, as far as the endpoint knows; 0 is at once, `None`
    /// is not before another doorbell. Simulated time jumps there. What the poll then does may be
    /// silent: an unsignalled success.
    fn next_due_ns(&self) -> Option<u64>;
    /// Requests posted to send queues and not yet completed, over all queue pairs.
    fn outstanding(&self) -> usize;
    /// The same for one queue pair.
    fn outstanding_on(&self, queue: usize) -> usize;
    /// Brings a drained queue pair back, as soon as its peer can be reached. Without effect while
    /// any of its requests has not completed: poll first.
    fn renew(&mut self, queue: usize);
}
