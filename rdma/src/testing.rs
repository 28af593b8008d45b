//! Helpers shared by unit tests of several modules: a memory node with a table, and an endpoint
//! that can die or return wrong results.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::embedded::{EmbeddedEndpoint, EmbeddedNode};
use crate::fabric::{Endpoint, PostError, QueuePairState, RegisterError};
use crate::initiator::{Initiator, InitiatorOptions};
use crate::link::LinkModel;
use crate::memory;
use crate::pool::{NodeMap, OwnerId, RegionDescriptor, Table};
use crate::region::{Lock, Region, RegionOptions};
use crate::work::{Completion, LocalKey, LocalSlice, RemoteKey, Work, WorkRequest};

pub(crate) const EXTENT_BYTES: u64 = 64 << 10;

/// Polls a future to completion; everything that waits here wakes itself.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
        std::hint::spin_loop();
    }
}

pub(crate) fn owner(id: u64) -> OwnerId {
    OwnerId::new(id).expect("not 0")
}

/// An embedded node that lends regions of some extents each. All of them lie in one region, behind
/// the table. A [`TestEndpoint`] distinguishes them by key: 1 is the table, then the data regions.
#[derive(Debug, Clone)]
pub(crate) struct TestNode {
    pub(crate) table: Arc<Table>,
    pub(crate) map: NodeMap,
    pub(crate) node: Arc<EmbeddedNode>,
}

impl TestNode {
    pub(crate) fn new(extents: &[u32], latency_ns: u64) -> Self {
        let count = extents.iter().sum();
        let table_bytes = Table::bytes_for(count).next_multiple_of(4096);
        let region = |key: u32, bytes: u64| RegionDescriptor {
            key: RemoteKey(key),
            address: 0,
            bytes,
        };
        let map = NodeMap {
            extent_bytes: EXTENT_BYTES,
            table: region(1, table_bytes),
            regions: (2..)
                .zip(extents)
                .map(|(key, &count)| region(key, u64::from(count) * EXTENT_BYTES))
                .collect(),
        };
        let bytes = table_bytes + u64::from(count) * EXTENT_BYTES;
        let region = Region::map(&RegionOptions {
            bytes: usize::try_from(bytes).expect("some megabytes"),
            huge_pages: false,
            lock: Lock::Off,
            prefault: false,
        });
        let region = Arc::new(region.expect("some megabytes"));
        let link = LinkModel {
            latency_ns,
            ..LinkModel::default()
        };
        Self {
            table: Arc::new(Table::new(Arc::clone(&region), count).expect("long enough")),
            map,
            node: Arc::new(EmbeddedNode::new(region, link)),
        }
    }
}

/// An embedded endpoint with one queue pair to each node.
#[derive(Debug)]
pub(crate) struct TestEndpoint {
    inner: EmbeddedEndpoint,
    nodes: Vec<TestNode>,
    scratch: Vec<Arc<Region>>,
    /// Requests until it accepts no more, as if its process had died.
    pub(crate) life: Option<u32>,
    /// Whether every swap of an owner word reports that it found the expected value.
    pub(crate) lies: bool,
    lied: Vec<(LocalSlice, u64)>,
    rung: u32,
}

impl TestEndpoint {
    pub(crate) fn new(nodes: &[TestNode], depth: usize) -> Self {
        let embedded: Vec<_> = nodes.iter().map(|node| Arc::clone(&node.node)).collect();
        Self {
            inner: EmbeddedEndpoint::new(&embedded, 1, depth, 1),
            nodes: nodes.to_vec(),
            scratch: Vec::new(),
            life: None,
            lies: false,
            lied: Vec::new(),
            rung: 0,
        }
    }

    /// Translates a request to the embedded node's one region.
    fn translated(&self, queue: usize, request: WorkRequest) -> Option<WorkRequest> {
        let TestNode { map, node, .. } = &self.nodes[queue];
        let mut request = request;
        let bytes = u64::from(request.work.local().bytes);
        if let Work::Read { remote, .. }
        | Work::Write { remote, .. }
        | Work::CompareAndSwap { remote, .. }
        | Work::FetchAdd { remote, .. } = &mut request.work
        {
            let mut base = 0;
            let region = [map.table].into_iter().chain(map.regions.clone());
            let region = region
                .inspect(|region| base += region.bytes)
                .find(|region| region.key == remote.key)?;
            base -= region.bytes;
            if remote.offset.checked_add(bytes)? > region.bytes {
                return None;
            }
            remote.key = node.remote_key();
            remote.offset += base;
        }
        Some(request)
    }
}

impl Endpoint for TestEndpoint {
    fn register(&mut self, region: Arc<Region>) -> Result<LocalKey, RegisterError> {
        self.scratch.push(Arc::clone(&region));
        self.inner.register(region)
    }

    fn queues(&self) -> usize {
        self.inner.queues()
    }

    fn post(&mut self, queue: usize, request: WorkRequest) -> Result<(), PostError> {
        if let Some(life) = &mut self.life {
            if *life == 0 {
                return Err(PostError::Down(request));
            }
            *life -= 1;
        }
        let Some(translated) = self.translated(queue, request) else {
            let reason = "outside the region";
            return Err(PostError::Invalid { request, reason });
        };
        if let (
            true,
            Work::CompareAndSwap {
                expected, remote, ..
            },
        ) = (self.lies, request.work)
            && remote.key == self.nodes[queue].map.table.key
            && remote.offset >= self.nodes[queue].map.owner_slice(0).offset
        {
            self.lied.push((request.work.local(), expected));
        }
        self.inner.post(queue, translated)
    }

    fn ring_doorbell(&mut self, queue: usize, now_ns: u64) {
        self.inner.ring_doorbell(queue, now_ns);
        // Let other threads run between any two steps, even on few cores, and now and then long
        // enough for whole sweeps.
        self.rung = self.rung.wrapping_add(1);
        for _ in 0..if self.rung.is_multiple_of(16) { 40 } else { 1 } {
            std::thread::yield_now();
        }
        // Without latency the answers have arrived.
        for (local, expected) in self.lied.drain(..) {
            let region = &self.scratch[local.key.0 as usize];
            let place = memory::pointer(region, local.offset, 8).expect("posted before");
            // SAFETY: inside the scratch region, of a request that is done and whose result has not
            // been read yet.
            #[allow(unsafe_code)]
            unsafe {
                place.cast::<u64>().write(expected);
            }
        }
    }

    fn room(&self, queue: usize) -> usize {
        self.inner.room(queue)
    }

    fn state(&self, queue: usize) -> QueuePairState {
        self.inner.state(queue)
    }

    fn poll(&mut self, now_ns: u64, completions: &mut [Completion]) -> usize {
        self.inner.poll(now_ns, completions)
    }

    fn next_due_ns(&self) -> Option<u64> {
        self.inner.next_due_ns()
    }

    fn outstanding(&self) -> usize {
        self.inner.outstanding()
    }

    fn outstanding_on(&self, queue: usize) -> usize {
        self.inner.outstanding_on(queue)
    }

    fn renew(&mut self, queue: usize) {
        self.inner.renew(queue);
    }
}

/// An initiator with one queue pair to each node.
pub(crate) fn initiator(nodes: &[TestNode]) -> Initiator<TestEndpoint> {
    let options = InitiatorOptions {
        scratch_bytes: 0,
        longest_bytes: 16 << 10,
        lock: Lock::Off,
        is_driven: false,
    };
    Initiator::new(TestEndpoint::new(nodes, 16), options).expect("some scratch memory")
}
