//! A client's side of a memory node: its session, the chunks that it borrows, and the connections
//! of one core.

mod chunks;
mod client;
mod connections;

pub use self::chunks::SessionChunks;
pub use self::client::{MemoryPass, NodeSession, SessionFacts};
pub use self::connections::{Change, ConnectOptions, ManagerError, NodeConnections};
pub(crate) use self::connections::{nanoseconds, socket_address, within};
