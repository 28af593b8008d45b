//! An endpoint for tests whose queue pairs can be cut. It passes everything on to an embedded
//! endpoint, except that it does not renew a queue pair that is cut. While its shard is lent, any
//! use of it is a fault.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use farcore_rdma::{
    Completion, EmbeddedEndpoint, Endpoint, LocalKey, PostError, QueuePairState, Region,
    RegisterError, WorkRequest,
};

/// An endpoint whose queue pairs can be cut: a cut queue pair cannot be renewed, as one to another
/// host cannot.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) inner: EmbeddedEndpoint,
    /// A bit for each queue pair.
    pub(super) cut: Rc<Cell<u128>>,
    /// The shard is lent to another thread, which must not touch its endpoint.
    pub(super) lent: Rc<Cell<bool>>,
}

impl Wire {
    fn inner(&self) -> &EmbeddedEndpoint {
        assert!(!self.lent.get(), "a borrower touches the endpoint");
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut EmbeddedEndpoint {
        assert!(!self.lent.get(), "a borrower touches the endpoint");
        &mut self.inner
    }
}

impl Endpoint for Wire {
    fn register(&mut self, region: Arc<Region>) -> Result<LocalKey, RegisterError> {
        self.inner_mut().register(region)
    }
    fn queues(&self) -> usize {
        self.inner().queues()
    }
    fn post(&mut self, queue: usize, request: WorkRequest) -> Result<(), PostError> {
        self.inner_mut().post(queue, request)
    }
    fn ring_doorbell(&mut self, queue: usize, now_ns: u64) {
        self.inner_mut().ring_doorbell(queue, now_ns);
    }
    fn room(&self, queue: usize) -> usize {
        self.inner().room(queue)
    }
    fn state(&self, queue: usize) -> QueuePairState {
        self.inner().state(queue)
    }
    fn poll(&mut self, now_ns: u64, completions: &mut [Completion]) -> usize {
        self.inner_mut().poll(now_ns, completions)
    }
    fn next_due_ns(&self) -> Option<u64> {
        self.inner().next_due_ns()
    }
    fn outstanding(&self) -> usize {
        self.inner().outstanding()
    }
    fn outstanding_on(&self, queue: usize) -> usize {
        self.inner().outstanding_on(queue)
    }
    fn renew(&mut self, queue: usize) {
        if self.cut.get() & 1 << queue == 0 {
            self.inner_mut().renew(queue);
        }
    }
}
