//! A pool of remote memory: what a program opens, and allocates from.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use async_channel::bounded;
use farcore_rdma::{AddressError, Heartbeats, NodeAddress};

use crate::allocate::allocate;
use crate::allocation::{Allocation, Holding};
use crate::boxed::RemoteBox;
use crate::caller::Caller;
use crate::error::{PoolError, Result};
use crate::export::Exported;
use crate::lane::Lane;
use crate::op::Op;
use crate::options::{Placement, PoolOptions, check_distinct};
use crate::plain::Plain;
use crate::service::{self, Nodes, Setup};
use crate::share;
use crate::shared::Shared;
use crate::slice::RemoteSlice;
use crate::twin::RemoteTwin;

/// A pool of remote memory, for any number of threads and tasks. Clones share it. It is closed when
/// the last clone and the last allocation are dropped: the nodes then free all its memory.
///
/// ```
/// use farcore_pool::RemotePool;
///
/// let pool = RemotePool::embedded(16 << 20)?; // or connect(["tcp://10.0.0.1", "tcp://10.0.0.2"], ..)
/// let numbers = pool.alloc::<u64>(1000).wait()?;
/// numbers.write(7, &42).wait()?;
/// assert_eq!(numbers.read(7).wait()?, 42);
/// assert_eq!(numbers.fetch_add(7, 1).wait()?, 42);
/// # Ok::<(), farcore_pool::PoolError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RemotePool {
    handle: Arc<Handle>,
    pub(crate) placement: Placement,
}

/// Keeps the pool open.
#[derive(Debug)]
pub(crate) struct Handle {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Deref for Handle {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // One of the pool's own threads may drop the last handle: it cannot wait for itself.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}

/// A memory node's figures, as the pool knows them.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NodeFigures {
    /// Its address; `None` for memory in this process.
    pub address: Option<NodeAddress>,
    /// Whether it answers.
    pub is_up: bool,
    /// Why it does not, if it does not.
    pub reason: Option<String>,
    /// Whether it has said that it leaves: nothing is allocated there, and what is stays until it
    /// is freed.
    pub is_leaving: bool,
    /// How often its session was renewed, with the loss of all that was allocated.
    pub renewals: u64,
    /// The length of its extents, in bytes.
    pub extent_bytes: u64,
    /// Bytes that it lends, to all its clients.
    pub lent_bytes: u64,
    /// Bytes that none of its clients held when last seen.
    pub free_bytes: u64,
    /// Bytes that this pool has claimed.
    pub claimed_bytes: u64,
    /// Bytes of them that are allocated, with what rounding adds.
    pub allocated_bytes: u64,
}

impl RemotePool {
    /// Opens sessions at memory nodes, given as `[zone=]scheme://host[:port]`. Blocks until
    /// [`PoolOptions::nodes_min`] of them answer.
    ///
    /// # Errors
    /// [`PoolError::Connect`] if an address is wrong, a node refuses, or too few answer in time;
    /// [`PoolError::Token`] if a node has another token; [`PoolError::Option`] if a setting is out
    /// of range, or a node is named twice; [`PoolError::Start`] if the system has no thread left.
    pub fn connect<A: AsRef<str>>(
        nodes: impl IntoIterator<Item = A>,
        options: PoolOptions,
    ) -> Result<Self> {
        let wrong = |error: AddressError| PoolError::Connect(error.to_string());
        let parse = |node: A| node.as_ref().parse().map_err(wrong);
        let nodes: Vec<NodeAddress> = nodes.into_iter().map(parse).collect::<Result<_>>()?;
        if nodes.is_empty() {
            let what = "no memory node given: name at least one";
            return Err(PoolError::Connect(what.to_owned()));
        }
        check_distinct(&nodes)?;
        options.check(nodes.len())?;
        let heartbeats = Heartbeats::start()
            .map_err(|error| PoolError::Start(format!("the thread of the sessions: {error}")))?;
        Self::open(Nodes::Remote(nodes, heartbeats), options)
    }

    /// A pool of `bytes` in this process, for a first program and for tests: no node is needed.
    ///
    /// # Errors
    /// [`PoolError::Connect`] if the system has not so much memory.
    pub fn embedded(bytes: u64) -> Result<Self> {
        Self::open(Nodes::Embedded(bytes), PoolOptions::default())
    }

    fn open(nodes: Nodes, options: PoolOptions) -> Result<Self> {
        let start = |name: String, work: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name).spawn(work);
            thread.map_err(|error| PoolError::Start(error.to_string()))
        };
        let mut threads = Vec::new();
        let mut keepers = Vec::new();
        let mut lane_senders = Vec::new();
        for lane in 0..options.connections {
            let (send_keeper, keeper) = bounded(1);
            let (send_lane, lane_of) = bounded::<(Arc<Shared>, usize)>(1);
            let keep = move || {
                let _ = send_keeper.send_blocking(Caller::new());
                if let Ok((shared, lane)) = lane_of.recv_blocking() {
                    shared.lanes[lane].keep();
                }
            };
            threads.push(start(format!("farcore-pool-{lane}"), Box::new(keep))?);
            keepers.push(keeper.recv_blocking().map_err(|_| PoolError::Closed)?);
            lane_senders.push(send_lane);
        }
        let (begun, has_begun) = bounded(1);
        let setup = Setup {
            nodes,
            options,
            keepers,
        };
        let serve = move || {
            let failed = begun.clone();
            let ended = farcore_rdma::run_local(service::run(setup, begun));
            if let Err(error) = ended {
                let _ = failed.send_blocking(Err(PoolError::Connect(error.to_string())));
            }
        };
        threads.push(start("farcore-pool".to_owned(), Box::new(serve))?);
        let shared = has_begun.recv_blocking().map_err(|_| PoolError::Closed)??;
        for (lane, sender) in lane_senders.into_iter().enumerate() {
            let _ = sender.send_blocking((Arc::clone(&shared), lane));
        }
        Ok(Self {
            handle: Arc::new(Handle {
                shared,
                threads: Mutex::new(threads),
            }),
            placement: Placement::default(),
        })
    }

    /// This pool with another placement for what is allocated.
    ///
    /// ```
    /// # let pool = farcore_pool::RemotePool::embedded(1 << 20)?;
    /// use farcore_pool::Placement;
    ///
    /// let on_the_first = pool.at(Placement::Node(0)).alloc::<u8>(100).wait()?;
    /// assert_eq!(on_the_first.nodes(), [0]);
    /// # Ok::<(), farcore_pool::PoolError>(())
    /// ```
    #[must_use]
    pub fn at(&self, placement: Placement) -> Self {
        Self {
            handle: Arc::clone(&self.handle),
            placement,
        }
    }

    /// Allocates `count` values; their contents are unspecified. Cost: no round trip if what is
    /// claimed has room.
    ///
    /// # Errors
    /// [`PoolError::Exhausted`]; [`PoolError::NoNode`] and [`PoolError::Alignment`].
    pub fn alloc<T: Plain>(
        &self,
        count: usize,
    ) -> Op<'_, impl Future<Output = Result<RemoteSlice<T>>> + Send> {
        Op::new(self.lane(), self.allocated(count))
    }

    /// Allocates a value and stores it. Cost: as [`RemotePool::alloc`], and a round trip.
    ///
    /// # Errors
    /// As [`RemotePool::alloc`], and as [`RemoteBox::write`].
    pub fn alloc_box<T: Plain>(
        &self,
        value: T,
    ) -> Op<'_, impl Future<Output = Result<RemoteBox<T>>> + Send> {
        Op::new(self.lane(), async move {
            let slice = self.allocated::<T>(1).await?;
            slice.store(0, &[value]).await?;
            Ok(RemoteBox::new(slice))
        })
    }

    /// Allocates values and stores them. Cost: as [`RemotePool::alloc`], and a round trip.
    ///
    /// # Errors
    /// As [`RemotePool::alloc`], and as [`RemoteSlice::write_range`].
    pub fn alloc_from<'a, T: Plain>(
        &'a self,
        values: &'a [T],
    ) -> Op<'a, impl Future<Output = Result<RemoteSlice<T>>> + Send + 'a> {
        Op::new(self.lane(), async move {
            let slice = self.allocated::<T>(values.len()).await?;
            slice.store(0, values).await?;
            Ok(slice)
        })
    }

    /// Allocates values on two nodes, the second in another zone if there is one. Cost: as twice
    /// [`RemotePool::alloc`].
    ///
    /// # Errors
    /// As [`RemotePool::alloc`]; [`PoolError::NoNode`] if there is no second node.
    pub fn alloc_twice<T: Plain>(
        &self,
        count: usize,
    ) -> Op<'_, impl Future<Output = Result<RemoteTwin<T>>> + Send> {
        Op::new(self.lane(), RemoteTwin::create(self, count))
    }

    pub(crate) async fn allocated<T: Plain>(&self, count: usize) -> Result<RemoteSlice<T>> {
        let too_long = || PoolError::TooLong {
            count: count as u64,
            bytes: T::BYTES as u64,
        };
        let bytes = (count as u64).checked_mul(T::BYTES as u64);
        let bytes = bytes.filter(|&bytes| i64::try_from(bytes).is_ok());
        let bytes = bytes.ok_or_else(too_long)?;
        let spans = allocate(&self.handle, bytes, T::ALIGN as u64, &self.placement).await?;
        let allocation = Allocation::new(Arc::clone(&self.handle), spans, bytes, Holding::Owned);
        Ok(RemoteSlice::new(Arc::new(allocation), count))
    }

    /// Imports a pointer that another process exported. Cost: two round trips to each node that
    /// holds it, and two to its reference word.
    ///
    /// # Errors
    /// [`PoolError::OtherNode`] if this pool has no session at such a node; [`PoolError::Gone`] if
    /// it was freed, was taken by another, or its exporter's session has ended.
    pub fn import<'a, T: Plain>(
        &'a self,
        exported: &'a Exported<T>,
    ) -> Op<'a, impl Future<Output = Result<RemoteSlice<T>>> + Send + 'a> {
        Op::new(self.lane(), self.imported(exported))
    }

    pub(crate) async fn imported<T: Plain>(
        &self,
        exported: &Exported<T>,
    ) -> Result<RemoteSlice<T>> {
        let parts = &exported.parts;
        let allocation = share::import(&self.handle, self.lane(), parts, T::BYTES).await?;
        // It was checked against the length of the allocation.
        let count = usize::try_from(parts.count).unwrap_or(usize::MAX);
        Ok(RemoteSlice::new(Arc::new(allocation), count))
    }

    /// The nodes' figures, in the order of their addresses.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeFigures> {
        let figures = |(index, node): (usize, &crate::node::Node)| {
            let (claimed_bytes, allocated_bytes) = self.handle.held_bytes(index);
            let is_up = node.is_up();
            NodeFigures {
                address: node.address.clone(),
                is_up,
                reason: (!is_up).then(|| node.reason()),
                is_leaving: node.is_leaving(),
                renewals: node.renewals(),
                extent_bytes: node.extent_bytes(),
                lent_bytes: node.lent_bytes(),
                free_bytes: node.free_bytes(),
                claimed_bytes,
                allocated_bytes,
            }
        };
        self.handle.nodes.iter().enumerate().map(figures).collect()
    }

    /// Its settings.
    #[must_use]
    pub fn options(&self) -> &PoolOptions {
        &self.handle.options
    }

    pub(crate) fn placement(&self) -> &Placement {
        &self.placement
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    pub(crate) fn lane(&self) -> &Lane {
        self.handle.lane()
    }
}

impl fmt::Display for NodeFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Some(address) => write!(f, "{address}"),
            None => write!(f, "this process"),
        }
    }
}
