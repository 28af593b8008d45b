//! Connects queue pairs by RDMA-CM: peers are named by IP address and port, and the connect request
//! travels as private data.
//!
//! ```text
//! client                                        server (a listening identifier, one event channel)
//!   resolve address, resolve route
//!   create a queue pair, initialise it
//!   connect (private data: purpose)       ->    connect request
//!                                               queue pair ready to send
//!   connect response (accepted or why not) <-   accept, or reject
//!   queue pair ready to send
//!   establish                             ->    established
//! ```
//!
//! `queue_pair` creates and moves queue pairs, with the attributes from RDMA-CM, so that both ways
//! to connect share protection domain, completion queue and regions.
//!
//! - I1: an event is acknowledged before the identifier it names is destroyed.
//! - I2: an identifier is destroyed before its event channel.
//!
//! Source: the manual page of `rdma_cm` and those that it refers to. Private data of a request: 56
//! bytes over IP.

mod address;
mod connect;
mod events;
mod identifier;
mod listener;
mod peers;

use std::time::Duration;

pub use self::connect::{connect, device_for};
pub use self::listener::{CmArrival, CmConnection, CmEvent, CmListener, CmName};
pub use self::peers::{CmPeerArrival, CmPeers};

pub(super) use self::connect::CmLine;
pub(super) use self::listener::AcceptedLine;

/// Interval at which events are polled.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Private data in a connect request, in bytes.
const PRIVATE_BYTES: usize = 56;
