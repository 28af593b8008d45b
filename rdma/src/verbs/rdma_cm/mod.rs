//! Connecting by RDMA-CM: names are IP addresses and ports, and the connect request travels as
//! private data.
//!
//! ```text
//! client                                        server (a listening identifier, one event channel)
//!   resolve address, resolve route
//!   make a queue pair, initialise it
//!   connect (private data: what for)      ->    connect request
//!                                               queue pair ready to send
//!   connect response (taken, or why not)  <-    accept, or reject
//!   queue pair ready to send
//!   establish                             ->    established
//! ```
//!
//! Queue pairs are made and moved by `queue_pair`, with the attributes that RDMA-CM hands out, so
//! that both ways to connect share protection domain, completion queue and regions.
//!
//! - I1: an event is acknowledged before the identifier it names is destroyed.
//! - I2: an identifier is destroyed before its event channel.
//!
//! Source: the manual pages of `rdma_cm` and those that it leads to. Private data of a request: 56
//! bytes over IP.

mod address;
mod connect;
mod events;
mod identifier;
mod listener;

use std::time::Duration;

pub use self::connect::{connect, device_for};
pub use self::listener::{CmArrival, CmConnection, CmEvent, CmListener, CmName};

pub(super) use self::connect::CmLine;
pub(super) use self::listener::AcceptedLine;

/// How often an event is looked for.
const PACE: Duration = Duration::from_millis(1);
/// What a connect request has room for.
const PRIVATE_BYTES: usize = 56;
