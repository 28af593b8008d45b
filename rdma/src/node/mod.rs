//! The memory node: a process that lends registered memory. This is the server; clients hold a
//! [`session`](crate::session).
//!
//! Clients reach the memory with one-sided requests alone. The node's own code registers it,
//! decides who may connect, lends chunks, and takes back what dead sessions held.
//!
//! - [`memory`]: the regions and the table.
//! - [`session`], [`sessions`]: leases and memory connections as a state machine without clock or
//!   socket.
//! - [`service`]: what the threads share and how requests are answered; [`metrics`]: what is
//!   counted.
//! - [`serve`]: connections, on executors; [`unauthenticated`]: those that have proved nothing yet;
//!   [`start`]: starting and stopping.
//! - `device`: the regions and queue pairs of an RDMA device; `cm`: clients that connect by
//!   RDMA-CM.

#[cfg(feature = "verbs")]
mod cm;
#[cfg(feature = "verbs")]
mod device;
mod memory;
mod metrics;
mod serve;
mod service;
mod session;
mod sessions;
mod start;
#[cfg(test)]
mod tests;
mod unauthenticated;

pub use self::memory::{MemoryError, MemoryOptions, NodeMemory, REGIONS_MAX, Registered};
pub use self::start::{MemoryNode, NodeHandle, NodeMetrics, NodeOptions, StartError};
