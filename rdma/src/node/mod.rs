//! The memory node: a process that lends registered memory. This is the server; a client holds a
//! [`session`](crate::session).
//!
//! Clients access the memory by one-sided requests alone. The node's own code registers it, decides
//! which clients may connect, grants chunks, and reclaims the extents of ended sessions.
//!
//! - [`memory`]: the regions and the table.
//! - [`session`], [`sessions`]: leases and memory connections as a state machine without clock or
//!   socket.
//! - [`heap`]: returns the memory of ended connections.
//! - [`isolation`]: what each session may access, if the node checks that; [`written`]: what must
//!   be cleared then.
//! - [`service`]: the state that the threads share, and the answers to requests; [`metrics`]: its
//!   counters; [`refusal_log`]: lines about refusals.
//! - [`lobby`]: accepts connections, and keeps those that have proved nothing yet;
//!   [`unauthenticated`]: the handshake of one; [`Places`](crate::Places): which of them are
//!   evicted; [`serve`]:
//!   the authenticated ones, on executors; [`start`]: starting and stopping.
//! - `device`: the regions and queue pairs of an RDMA device; `cm`: clients that connect by
//!   RDMA-CM. `simulated`: a node of a simulated world, without sockets and threads.

#[cfg(feature = "verbs")]
mod cm;
#[cfg(feature = "verbs")]
mod device;
mod heap;
mod isolation;
mod lobby;
mod memory;
mod metrics;
mod refusal_log;
mod serve;
mod service;
mod session;
mod sessions;
#[cfg(feature = "simulation")]
mod simulated;
mod start;
#[cfg(test)]
mod tests;
mod unauthenticated;
mod written;

pub use self::memory::{MemoryError, MemoryOptions, NodeMemory, REGIONS_MAX, Registered};
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub(crate) use self::simulated::abandon as abandon_simulated;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use self::simulated::{SimulatedNode, SimulatedNodeGuard};
pub use self::start::{MemoryNode, NodeHandle, NodeMetrics, NodeOptions, StartError};
