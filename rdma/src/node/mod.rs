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
//! - [`shares`]: extents that several sessions use, and who inherits them.
//! - [`procedures`]: what the host's program does for clients; [`bytes`]: memory as the host's
//!   program accesses it.
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

mod bytes;
#[cfg(feature = "verbs")]
mod cm;
#[cfg(feature = "verbs")]
mod device;
mod heap;
mod isolation;
mod lobby;
mod memory;
mod metrics;
mod procedures;
mod refusal_log;
mod serve;
mod service;
mod session;
mod sessions;
mod shares;
#[cfg(feature = "simulation")]
mod simulated;
mod start;
#[cfg(test)]
mod tests;
mod unauthenticated;
mod written;

pub use self::memory::{MemoryError, MemoryOptions, NodeMemory, REGIONS_MAX, Registered};
pub use self::procedures::{ProcedureCall, Procedures};
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub(crate) use self::simulated::abandon as abandon_simulated;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use self::simulated::{SimulatedNode, SimulatedNodeGuard};
pub use self::start::{
    LeaveProgress, MemoryNode, NodeHandle, NodeMetrics, NodeOptions, NotPermitted, StartError,
};
