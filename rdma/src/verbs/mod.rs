//! The `verbs` fabric: RDMA devices through libibverbs and librdmacm.
//!
//! ```text
//! options -> Context (device, port) -> Domain, CompletionQueue -> QueuePair
//!                                                                  ^   connected by an exchange over TCP (`exchange`)
//!                                                                  |   or by RDMA-CM (`rdma_cm`)
//! VerbsEndpoint (one thread): regions, queues -> chains -> doorbell; completion queue -> completions
//! ```
//!
//! A thread posts with objects of its own; the device, domain and regions may be shared. `ffi` is
//! the only module of this crate that names `rdma_sys`.

#[cfg(feature = "card-trace")]
mod card_trace;
mod chain;
mod context;
mod endpoint;
mod error;
mod exchange;
mod ffi;
mod handle;
mod mark;
mod queue;
mod queue_pair;
mod rdma_cm;
mod slot;
mod status;

pub use context::{
    Access, CompletionQueue, Context, DeviceEvent, DeviceLimits, Domain, MemoryRegion, Port,
};
pub use endpoint::VerbsEndpoint;
pub use error::VerbsError;
pub(crate) use exchange::answer;
pub use exchange::{accept_peer, connect as connect_by_exchange};
pub use handle::{
    CompletionQueueToken, DomainToken, Handle, Kind, Named, OBJECTS_MAX, QueuePairToken,
    RegionToken, Table,
};
pub use queue_pair::{QueuePair, QueuePairFacts};
pub use rdma_cm::{
    CmArrival, CmConnection, CmEvent, CmListener, CmName, CmPeerArrival, CmPeers,
    connect as connect_by_cm, device_for,
};
pub use slot::{Adapter, Connected, ConnectionSlot};
