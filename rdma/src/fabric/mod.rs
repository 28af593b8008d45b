//! One endpoint over the backend that was chosen when the program started.
//!
//! Owns no connection itself; [`ConnectionSlot`] hands established connections to queue pairs.
//!
//! Cost: one well-predicted branch per call.

mod endpoint;
mod options;
mod peer;
mod peer_memory;
mod shared;
mod slot;

pub use self::endpoint::{Endpoint, PostError, QueuePairState, RegisterError};
pub use self::options::{VerbsOptions, VerbsOptionsError};
pub use self::peer::{PeerArrival, PeerEndpoint, PeerError, PeerListener, PeerOptions};
pub use self::peer_memory::PeerMemory;
pub use self::shared::{Readiness, SharedEndpoint};
pub use self::slot::ConnectionSlot;
pub(crate) use self::slot::SlotError;

use std::sync::Arc;

use crate::address::{FabricAddress, Scheme};
use crate::embedded::EmbeddedEndpoint;
use crate::region::Region;
use crate::tcp::{Exposed, TcpEndpoint};
use crate::work::{Completion, LocalKey, WorkRequest};
#[cfg(feature = "verbs")]
use crate::{tcp, verbs};

/// An endpoint of any backend.
#[derive(Debug)]
pub enum FabricEndpoint {
    /// Far memory in this process.
    Embedded(EmbeddedEndpoint),
    /// Memory nodes over sockets.
    Tcp(TcpEndpoint),
    /// Memory nodes over an RDMA device.
    #[cfg(feature = "verbs")]
    Verbs(verbs::VerbsEndpoint),
    /// Memory nodes of a simulated world.
    #[cfg(feature = "simulation")]
    #[doc(hidden)]
    Simulated(crate::simulation::SimulatedEndpoint),
}

// Those of the real backends move between threads.
const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<EmbeddedEndpoint>();
    is_send::<TcpEndpoint>();
    #[cfg(feature = "verbs")]
    is_send::<verbs::VerbsEndpoint>();
};

/// Settings of an endpoint to memory nodes.
#[derive(Clone, Debug)]
pub struct FabricOptions {
    /// The number of queue pairs.
    pub queues: usize,
    /// Requests per send queue, and as many receives.
    pub depth: usize,
    /// How long a peer may leave all requests unanswered before it counts as lost, in nanoseconds.
    pub limit_ns: u64,
    /// Device and queue pair settings, if the nodes are reached over an RDMA device.
    pub verbs: VerbsOptions,
}

/// Why an endpoint could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricError {
    /// This build does not support the scheme.
    #[error("{0}: this build has no verbs: rebuild with `--features verbs`")]
    NoVerbs(FabricAddress),
    /// The nodes need different backends.
    #[error("{one} and {other} use different fabrics: name nodes of one fabric, sockets or RDMA")]
    Mixed {
        /// A node.
        one: FabricAddress,
        /// Another.
        other: FabricAddress,
    },
    /// A simulated world has no endpoint that threads share.
    #[cfg(feature = "simulation")]
    #[error("a simulated world has no endpoint that threads share")]
    Simulated,
    /// No node was given.
    #[error("no memory node given: name at least one")]
    NoNodes,
    /// The device cannot be used with these settings.
    #[cfg(feature = "verbs")]
    #[error(transparent)]
    Verbs(#[from] verbs::VerbsError),
    /// No route to a node.
    #[cfg(feature = "verbs")]
    #[error(transparent)]
    Connect(#[from] tcp::ConnectError),
}

impl FabricEndpoint {
    /// An endpoint for these nodes, its queue pairs not yet connected. Call it on the thread that
    /// uses it, inside an executor. Over RDMA-CM without a device name, the route to the first node
    /// selects the device.
    ///
    /// # Errors
    /// [`FabricError`].
    #[allow(clippy::unused_async, reason = "only verbs look up a route")]
    pub async fn open(
        nodes: &[FabricAddress],
        options: &FabricOptions,
    ) -> Result<Self, FabricError> {
        let first = nodes.first().ok_or(FabricError::NoNodes)?;
        let sockets = first.scheme() == Scheme::Tcp;
        let peer = |node: &&FabricAddress| (node.scheme() == Scheme::Tcp) != sockets;
        if let Some(other) = nodes.iter().find(peer) {
            return Err(FabricError::Mixed {
                one: first.clone(),
                other: other.clone(),
            });
        }
        #[cfg(feature = "simulation")]
        if crate::simulation::is_inside() {
            let FabricOptions {
                queues,
                depth,
                limit_ns,
                ..
            } = *options;
            let endpoint = crate::simulation::SimulatedEndpoint::new(queues, depth, limit_ns);
            return Ok(Self::Simulated(endpoint));
        }
        if sockets {
            let (queues, depth) = (options.queues, options.depth);
            let endpoint = TcpEndpoint::new(queues, depth, options.limit_ns, Exposed::default());
            return Ok(Self::Tcp(endpoint));
        }
        #[cfg(feature = "verbs")]
        {
            let mut wanted = options.clone();
            if wanted.verbs.device.is_none() && first.scheme() == Scheme::Rdma {
                let place = tcp::resolve(first.host(), first.port()).await?;
                wanted.verbs.device = Some(verbs::device_for(place, LIMIT).await?);
            }
            let endpoint = verbs::VerbsEndpoint::open(&wanted, verbs::Access::Local)?;
            Ok(Self::Verbs(endpoint))
        }
        #[cfg(not(feature = "verbs"))]
        Err(FabricError::NoVerbs(first.clone()))
    }

    /// Memory that an endpoint needs besides its regions and the device library's own, in bytes.
    #[must_use]
    pub fn bytes_for(scheme: Scheme, queues: usize, depth: usize) -> u64 {
        match scheme {
            #[cfg(feature = "verbs")]
            Scheme::Rdma | Scheme::RdmaTcp => verbs::VerbsEndpoint::bytes_for(queues, depth),
            _ => TcpEndpoint::bytes_for(queues, depth),
        }
    }

    /// The slot that hands connections to a queue pair; `None` if the backend needs none.
    #[must_use]
    pub fn connection_slot(&self, queue: usize) -> Option<ConnectionSlot> {
        match self {
            Self::Embedded(_) => None,
            Self::Tcp(endpoint) => Some(ConnectionSlot::Tcp(endpoint.connection_slot(queue))),
            #[cfg(feature = "verbs")]
            Self::Verbs(endpoint) => Some(ConnectionSlot::Verbs(endpoint.connection_slot(queue))),
            #[cfg(feature = "simulation")]
            Self::Simulated(endpoint) => Some(ConnectionSlot::Simulated(endpoint.slot(queue))),
        }
    }
}

/// Time limit on the route lookup.
#[cfg(feature = "verbs")]
const LIMIT: std::time::Duration = std::time::Duration::from_secs(5);

macro_rules! either {
    ($self:ident, $endpoint:ident => $call:expr) => {
        match $self {
            Self::Embedded($endpoint) => $call,
            Self::Tcp($endpoint) => $call,
            #[cfg(feature = "verbs")]
            Self::Verbs($endpoint) => $call,
            #[cfg(feature = "simulation")]
            Self::Simulated($endpoint) => $call,
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

    fn is_movable(&self) -> bool {
        either!(self, endpoint => endpoint.is_movable())
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
