//! The fabric of Farcore: registered memory, queue pairs, completions and far memory.
//!
//! Endpoints are polled and belong to one thread: a shard posts work requests, rings the doorbell
//! once per batch and polls completions by work id. Endpoints read no clock: the caller passes the
//! time. The `embedded` backend keeps far memory in this process, behind a model of latency,
//! bandwidth and faults.
//!
//! This crate knows no keys, values or shards.

mod address;
pub mod control;
mod devices;
mod embedded;
mod executor;
mod fabric;
mod heartbeats;
mod initiator;
mod landing;
mod link;
mod log_limit;
mod memory;
pub mod node;
mod places;
mod pool;
mod prefetch;
mod region;
pub mod session;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub mod simulation;
mod system_calls;
pub mod tcp;
#[cfg(test)]
mod testing;
mod toucher;
#[cfg(feature = "verbs")]
pub mod verbs;
mod wake_timer;
mod work;

pub use address::{AddressError, FabricAddress, NodeAddress, Scheme};
pub use control::Token;
pub use devices::{DeviceFacts, GidEntry, GidKind, PortFacts, rdma_devices, rdma_devices_under};
pub use embedded::{EmbeddedEndpoint, EmbeddedNode};
pub use executor::{pause, run_local, spawn_task};
pub use fabric::{
    ConnectionSlot, Endpoint, FabricEndpoint, FabricError, FabricOptions, PeerArrival,
    PeerEndpoint, PeerError, PeerListener, PeerMemory, PeerOptions, PostError, QueuePairState,
    Readiness, RegisterError, SharedEndpoint, VerbsOptions, VerbsOptionsError,
};
pub use heartbeats::{Heartbeats, Siblings};
pub use initiator::{
    CompareAndSwap, Counts, Driven, Initiator, InitiatorError, InitiatorOptions, QueueOf, ReadInto,
    ScratchError, WriteFrom,
};
pub use landing::{Landing, LandingOptions, LandingPool};
pub use link::{FaultPlan, LinkModel};
pub use log_limit::LogLimit;
pub use places::{Network, Places};
pub use pool::{
    Audit, Claim, Claims, ClaimsError, ExtentRun, NodeMap, NodeMapError, NotOwned, OwnerId,
    PoolNode, RegionDescriptor, Table, TableError,
};
pub use prefetch::{prefetch, prefetch_burst, prefetch_to_write};
pub use region::{Lock, PageKind, Region, RegionError, RegionOptions};
pub use session::{Change, ConnectOptions, ManagerError, NodeConnections};
pub use system_calls::{RefusedCall, try_io_uring, try_resource_limits};
pub use toucher::{TouchProgress, Toucher, can_touch_in_use};
pub use wake_timer::{INTERVAL as WAKE_TIMER_PACE, WakeTimer};
pub use work::{
    Completion, LocalKey, LocalSlice, RemoteKey, RemoteSlice, Status, Work, WorkId, WorkRequest,
};
