//! The server of the native protocol: messages and transfers over the fabric.
//!
//! ```text
//! NativeListeners (thread that accepts) -> accepting (a task of the core) -> Native (the core)
//!   Native: ready sockets -> NativeConnection: messages -> requests -> engine -> answers -> messages
//!                                              uploads  -> long_put -> tasks  /
//! ```
//!
//! One connection has one endpoint: its own domain, regions and keys. It owns its message buffers
//! and transfer slots, all of them on its account.
//!
//! A connection that has not proved the token has one of few places (`handshakes`), beside those
//! of clients.
//!
//! - I1: nothing is registered for remote access before the peer has proved the token.
//! - I2: a request is begun only when its answer can be sent: with a send buffer and a credit.
//! - I3: a transfer slot is used again only after DONE, its completion, or the end of the queue
//!   pair. No clock frees one.
//! - I4: bytes are copied out of slots and buffers before they are looked at.

mod accepting;
mod answers;
mod connection;
mod events;
mod handshake;
mod handshakes;
mod lifecycle;
mod listening;
mod long_put;
mod operations;
mod pages;
mod requests;
mod slots;
mod tasks;
mod turn;

pub use self::handshakes::{HANDSHAKES_BYTES_MAX, HANDSHAKES_MAX};

pub(crate) use self::listening::NativeListeners;
pub(crate) use self::turn::Native;
