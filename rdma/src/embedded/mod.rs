//! The `embedded` backend: far memory in this process, behind a model of a link.
//!
//! Owns the queue pairs of one thread. The far memory is an [`EmbeddedNode`], shared by all
//! endpoints.
//!
//! - I1: a request is performed and completed exactly once, in order within its queue pair.
//! - I2: nothing is allocated after construction, except for two-sided messages: a queue pair is a
//!   ring of `depth` requests.
//! - I3: once a queue pair is in error, a poll flushes all its requests, whether or not the
//!   doorbell was rung for them.
//! - I4: no queue pair starves another: one that filled the caller's array is polled last next
//!   time.

mod node;
mod queue_pair;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;

pub use self::node::EmbeddedNode;
use self::queue_pair::{EmbeddedQueuePair, Peer};
use crate::fabric::{Endpoint, PostError, QueuePairState, RegisterError};
use crate::region::Region;
use crate::work::{Completion, LocalKey, WorkRequest};

/// One thread's endpoint to embedded nodes.
#[derive(Debug)]
pub struct EmbeddedEndpoint {
    queues: Vec<EmbeddedQueuePair>,
    depth: usize,
    /// The queue pair that the next poll begins with.
    first: usize,
}

impl EmbeddedEndpoint {
    /// An endpoint with `queues_per_node` queue pairs to each node, each `depth` requests deep.
    /// Those of node `n` begin at `n * queues_per_node`.
    #[must_use]
    pub fn new(
        nodes: &[Arc<EmbeddedNode>],
        queues_per_node: usize,
        depth: usize,
        seed: u64,
    ) -> Self {
        let pairs = nodes
            .iter()
            .flat_map(|node| std::iter::repeat_n(node, queues_per_node));
        let queue = |(place, node): (u64, &Arc<EmbeddedNode>)| {
            let seed = (seed ^ node.link.faults.seed).wrapping_add(place);
            EmbeddedQueuePair::new(Arc::clone(node), depth, seed)
        };
        Self {
            queues: (0u64..).zip(pairs).map(queue).collect(),
            depth,
            first: 0,
        }
    }

    /// Connects two queue pairs, so that they can SEND to each other. The other endpoint may move
    /// to another thread.
    pub fn connect(&mut self, queue: usize, other: &mut Self, other_queue: usize) {
        let here = Arc::new(ArrayQueue::new(self.depth.max(1)));
        let there = Arc::new(ArrayQueue::new(other.depth.max(1)));
        other.queues[other_queue].peer = Some(Peer {
            inbox: Arc::clone(&there),
            outbox: Arc::clone(&here),
        });
        self.queues[queue].peer = Some(Peer {
            inbox: here,
            outbox: there,
        });
    }
}

impl Endpoint for EmbeddedEndpoint {
    fn register(&mut self, region: Arc<Region>) -> Result<LocalKey, RegisterError> {
        let key = self.queues.first().map_or(0, |queue| queue.regions.len());
        for queue in &mut self.queues {
            queue.regions.push(Arc::clone(&region));
        }
        Ok(LocalKey(u32::try_from(key).unwrap_or(u32::MAX)))
    }

    fn queues(&self) -> usize {
        self.queues.len()
    }

    #[inline]
    fn post(&mut self, queue: usize, request: WorkRequest) -> Result<(), PostError> {
        self.queues[queue].post(request)
    }

    #[inline]
    fn ring_doorbell(&mut self, queue: usize, now_ns: u64) {
        self.queues[queue].ring_doorbell(now_ns);
    }

    #[inline]
    fn room(&self, queue: usize) -> usize {
        self.queues[queue].room()
    }

    fn state(&self, queue: usize) -> QueuePairState {
        self.queues[queue].state()
    }

    fn poll(&mut self, now_ns: u64, completions: &mut [Completion]) -> usize {
        let (early, late) = self.queues.split_at_mut(self.first);
        let mut count = 0;
        for (step, queue) in late.iter_mut().chain(early).enumerate() {
            while count < completions.len()
                && let Some(completion) = queue.poll(now_ns)
            {
                completions[count] = completion;
                count += 1;
            }
            if count == completions.len() {
                self.first = (self.first + step + 1) % self.queues.len();
                break;
            }
        }
        count
    }

    fn is_movable(&self) -> bool {
        const fn movable<T: Send>() {}
        movable::<Self>();
        true
    }

    fn next_due_ns(&self) -> Option<u64> {
        self.queues
            .iter()
            .filter_map(EmbeddedQueuePair::next_due_ns)
            .min()
    }

    #[inline]
    fn outstanding(&self) -> usize {
        self.queues.iter().map(EmbeddedQueuePair::outstanding).sum()
    }

    #[inline]
    fn outstanding_on(&self, queue: usize) -> usize {
        self.queues[queue].outstanding()
    }

    fn renew(&mut self, queue: usize) {
        self.queues[queue].renew();
    }
}
