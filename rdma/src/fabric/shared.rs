//! An endpoint to memory nodes that many threads use, one at a time, for programs whose threads are
//! not shards.
//!
//! - I1: it is of a backend whose endpoints move between threads: none of a simulated world.

#![allow(unsafe_code)] // moves an endpoint between threads

use std::os::fd::RawFd;
use std::sync::Arc;

use super::{
    ConnectionSlot, Endpoint, FabricEndpoint, FabricError, FabricOptions, PostError,
    QueuePairState, RegisterError,
};
use crate::address::FabricAddress;
use crate::embedded::{EmbeddedEndpoint, EmbeddedNode};
use crate::region::Region;
use crate::work::{Completion, LocalKey, WorkRequest};

/// An endpoint that any thread may use, one at a time.
#[derive(Debug)]
pub struct SharedEndpoint(FabricEndpoint);

// SAFETY: by I1 it holds an embedded, a TCP or a verbs endpoint. Each of those is `Send`, which the
// parent module asserts.
unsafe impl Send for SharedEndpoint {}

/// What to wait for, so that a queue pair makes progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readiness {
    /// A descriptor that is readable when the queue pair has something to do.
    pub descriptor: RawFd,
    /// Whether output waits until the descriptor is writable.
    pub writes: bool,
}

impl SharedEndpoint {
    /// An endpoint for these nodes, as [`FabricEndpoint::open`] makes it.
    ///
    /// # Errors
    /// [`FabricError`]; [`FabricError::Simulated`] inside a simulated world.
    pub async fn open(
        nodes: &[FabricAddress],
        options: &FabricOptions,
    ) -> Result<Self, FabricError> {
        let endpoint = FabricEndpoint::open(nodes, options).await?;
        #[cfg(feature = "simulation")]
        if matches!(endpoint, FabricEndpoint::Simulated(_)) {
            return Err(FabricError::Simulated);
        }
        Ok(Self(endpoint))
    }

    /// An endpoint for nodes in this process, with one queue pair to each.
    #[must_use]
    pub fn embedded(nodes: &[Arc<EmbeddedNode>], depth: usize) -> Self {
        Self(FabricEndpoint::Embedded(EmbeddedEndpoint::new(
            nodes, 1, depth, 0,
        )))
    }

    /// As [`FabricEndpoint::connection_slot`].
    #[must_use]
    pub fn connection_slot(&self, queue: usize) -> Option<ConnectionSlot> {
        self.0.connection_slot(queue)
    }

    /// Sends what was rung for and waits to be sent together with more. Cost: on sockets a system
    /// call, if anything waits.
    pub fn flush(&mut self, queue: usize) {
        if let FabricEndpoint::Tcp(endpoint) = &mut self.0 {
            endpoint.flush(queue);
        }
    }

    /// What to wait for; `None` if the queue pair must be polled.
    #[must_use]
    pub fn readiness(&self, queue: usize) -> Option<Readiness> {
        match &self.0 {
            FabricEndpoint::Tcp(endpoint) => Some(Readiness {
                descriptor: endpoint.descriptor(queue)?,
                writes: endpoint.has_output(queue),
            }),
            _ => None,
        }
    }
}

impl Endpoint for SharedEndpoint {
    fn register(&mut self, region: Arc<Region>) -> Result<LocalKey, RegisterError> {
        self.0.register(region)
    }

    fn queues(&self) -> usize {
        self.0.queues()
    }

    fn post(&mut self, queue: usize, request: WorkRequest) -> Result<(), PostError> {
        self.0.post(queue, request)
    }

    /// Sends at once: the threads that share the endpoint do not poll it for each other's sake.
    fn ring_doorbell(&mut self, queue: usize, now_ns: u64) {
        self.0.ring_doorbell(queue, now_ns);
        self.flush(queue);
    }

    fn room(&self, queue: usize) -> usize {
        self.0.room(queue)
    }

    fn state(&self, queue: usize) -> QueuePairState {
        self.0.state(queue)
    }

    fn poll(&mut self, now_ns: u64, completions: &mut [Completion]) -> usize {
        self.0.poll(now_ns, completions)
    }

    fn is_movable(&self) -> bool {
        true
    }

    fn next_due_ns(&self) -> Option<u64> {
        self.0.next_due_ns()
    }

    fn outstanding(&self) -> usize {
        self.0.outstanding()
    }

    fn outstanding_on(&self, queue: usize) -> usize {
        self.0.outstanding_on(queue)
    }

    fn renew(&mut self, queue: usize) {
        self.0.renew(queue);
    }
}
