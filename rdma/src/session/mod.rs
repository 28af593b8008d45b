//! A client's side of a memory node: its session, the chunks that it allocates, and the connections
//! of one core.
//!
//! Runs on the client's executor; the control connections of cores are kept by
//! [`heartbeats`](crate::heartbeats).

mod chunks;
mod client;
mod connections;

pub use self::chunks::SessionChunks;
pub use self::client::{MemoryPass, NodeSession, SessionFacts};
pub use self::connections::{Change, ConnectOptions, ManagerError, NodeConnections};
pub(crate) use self::connections::{nanoseconds, socket_address, within};
