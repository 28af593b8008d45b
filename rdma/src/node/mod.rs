//! The memory node: a process that lends registered memory, and the client's side of its control protocol.
//!
//! Clients reach the memory with one-sided requests alone; the node's own code registers it, says who may connect, hands
//! out chunks to who asks, and takes back what the dead held.
//!
//! - [`memory`]: the regions and the table.
//! - [`control`]: the messages; [`token`]: what is proved with the shared token; [`handshake`]: how a session begins.
//! - [`session`], [`sessions`]: leases and memory connections as a state machine without clock or socket.
//! - [`service`]: what the threads share and how requests are answered; [`figures`]: what is counted.
//! - [`serve`]: connections, on glommio; [`strangers`]: those that have proved nothing yet; [`start`]: starting and
//!   stopping.
//! - `device`: the regions and queue pairs of an RDMA device; `cm`: clients that connect by RDMA-CM.
//! - [`session_client`]: a session, as its client holds it; [`session_chunks`]: the same as a source of chunks.

#[cfg(feature = "verbs")]
mod cm;
mod control;
#[cfg(feature = "verbs")]
mod device;
mod figures;
mod handshake;
mod memory;
mod serve;
mod service;
mod session;
mod session_chunks;
mod session_client;
mod sessions;
mod start;
mod strangers;
#[cfg(test)]
mod tests;
mod token;

pub use self::control::{
    CHUNK_BYTES_DEFAULT, CONTROL_VERSION, Chunk, KEEP_MAX, LEASE_MAX, LEASE_MIN, NodeStatistics,
    Opening, Refused, Reply, Request, Welcome,
};
pub use self::handshake::SessionError;
pub use self::memory::{MemoryError, MemoryOptions, NodeMemory, REGIONS_MAX, Registered};
pub use self::session_chunks::SessionChunks;
pub use self::session_client::{MemoryPass, NodeSession, SessionFacts};
pub use self::start::{MemoryNode, NodeFigures, NodeHandle, NodeOptions, StartError};
pub use self::token::{MemoryProof, Nonce, Proof, Token, TokenError};
