//! A client's side of a memory node: its session, and the connections of one core.
//!
//! Runs on the client's executor; the control connections of cores are kept by
//! [`heartbeats`](crate::heartbeats).

mod client;
mod connections;

pub use self::client::{MemoryPass, NodeSession, SessionFacts};
pub use self::connections::{Change, ConnectOptions, ManagerError, NodeConnections};
pub(crate) use self::connections::{nanoseconds, socket_address, within};
