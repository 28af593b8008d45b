//! The `tcp` backend: one-sided requests over sockets, for hosts without RDMA.
//!
//! Both ends of a connection are the same state machine ([`connection`]), which knows no socket: a
//! shard's endpoint moves its bytes by polling, a memory node by awaiting. [`wire`] defines the
//! frames. [`connect`] and [`listener`] establish connections on an executor and hand them to an
//! endpoint through a [`ConnectionSlot`].

mod completions;
mod connect;
mod connection;
mod endpoint;
mod exposed;
mod input;
mod listener;
mod message;
mod output;
mod socket;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

pub use self::connect::{ConnectError, Connected, connect_control, connect_queue, resolve};
#[cfg(feature = "verbs")]
pub(crate) use self::connect::{Exchange, connect_exchange};
pub(crate) use self::connect::{is_dropped, pauses};
pub use self::connection::Served;
pub use self::endpoint::{ConnectionSlot, TcpEndpoint};
pub use self::exposed::Exposed;
pub(crate) use self::exposed::{Access, Attempt, Change, Permissions, RemoteRange};
pub use self::listener::{
    Accepted, Arrival, Incoming, ServedMetrics, ServedQueue, TcpAcceptor, TcpAddress,
};
pub use self::message::{MESSAGE_BYTES_MAX, MessageChannel};
pub use self::socket::Closer;
pub use self::wire::{
    Carrier, ConnectRequest, PROTOCOL_VERSION, Purpose, Refusal, TRANSFER_BYTES_MAX, WireError,
};
