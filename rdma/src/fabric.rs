//! One endpoint over whichever backend was chosen when the program started.
//!
//! Cost: one well-predicted branch a call.

use std::sync::Arc;

use crate::embedded::EmbeddedEndpoint;
use crate::endpoint::{Endpoint, PostError, QueuePairState, RegisterError};
use crate::region::Region;
use crate::tcp::TcpEndpoint;
use crate::work::{Completion, LocalKey, WorkRequest};

/// An endpoint of any backend.
#[derive(Debug)]
pub enum FabricEndpoint {
    /// Far memory in this process.
    Embedded(EmbeddedEndpoint),
    /// Memory nodes over sockets.
    Tcp(TcpEndpoint),
}

macro_rules! either {
    ($self:ident, $endpoint:ident => $call:expr) => {
        match $self {
            Self::Embedded($endpoint) => $call,
            Self::Tcp($endpoint) => $call,
        }
    };
}

impl Endpoint for FabricEndpoint {
    fn register(&mut self, region: Arc<Region>) -> Result<LocalKey, RegisterError> {
        either!(self, endpoint => endpoint.register(region))
    }

    #[inline]
    fn queues(&self) -> usize {
        either!(self, endpoint => endpoint.queues())
    }

    #[inline]
    fn post(&mut self, queue: usize, request: WorkRequest) -> Result<(), PostError> {
        either!(self, endpoint => endpoint.post(queue, request))
    }

    #[inline]
    fn ring_doorbell(&mut self, queue: usize, now_ns: u64) {
        either!(self, endpoint => endpoint.ring_doorbell(queue, now_ns));
    }

    #[inline]
    fn room(&self, queue: usize) -> usize {
        either!(self, endpoint => endpoint.room(queue))
    }

    #[inline]
    fn state(&self, queue: usize) -> QueuePairState {
        either!(self, endpoint => endpoint.state(queue))
    }

    #[inline]
    fn poll(&mut self, now_ns: u64, completions: &mut [Completion]) -> usize {
        either!(self, endpoint => endpoint.poll(now_ns, completions))
    }

    fn next_due_ns(&self) -> Option<u64> {
        either!(self, endpoint => endpoint.next_due_ns())
    }

    #[inline]
    fn outstanding(&self) -> usize {
        either!(self, endpoint => endpoint.outstanding())
    }

    #[inline]
    fn outstanding_on(&self, queue: usize) -> usize {
        either!(self, endpoint => endpoint.outstanding_on(queue))
    }

    fn renew(&mut self, queue: usize) {
        either!(self, endpoint => endpoint.renew(queue));
    }
}
