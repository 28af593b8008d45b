//! Farcore's server: the engine for clients that speak the Redis protocol or, over the
//! fabric, its own.
//!
//! A [`Server`] runs on the cores of an engine. An ordinary thread accepts connections and hands
//! each to the core with the fewest. Each core runs one loop over its connections.
//!
//! ```text
//! turn/     a core's loop, one file a step: receive, run, answer, send; tasks; upkeep
//! conn/     a connection: buffers, replies in order, encryption, authentication, begin and end
//! resp/     the Redis protocol: parse and write
//! commands/ the table of commands, and how each is run
//! types/    the kinds of values: their records and replies
//! exec/     transactions, the gate for writes
//! long/     values of several pieces
//! events/   events of keys; channels, subscriptions, monitors
//! waits/    clients that wait for keys
//! native/   the native protocol, over the fabric, into the same loop
//! memory/   what clients hold, charged to them
//! figures/  counters, `INFO`, slow commands
//! ```
//!
//! The map of all this: `docs/internals/server.md`.

#[cfg(test)]
mod by_hand;
mod commands;
mod conn;
mod events;
mod exec;
mod figures;
pub mod glob;
mod long;
mod memory;
mod memory_limit;
mod native;
mod options;
mod random;
pub mod resp;
mod server;
mod shared;
mod system_calls;
mod texts;
mod turn;
mod types;
mod waits;
mod words;

pub use self::native::{
    HANDSHAKES_BYTES_MAX, HANDSHAKES_MAX, NativeFigure, NativeFigures, NativeOptions,
    NativeOptionsError,
};
pub use self::options::{
    AUTHENTICATION_LIMIT, BACKLOG, CLIENT_BYTES, CLIENTS_MAX, Options, TlsOptions,
};
pub use self::server::{Server, StartError};
pub use self::system_calls::try_system_calls;
pub use crate::figures::server_figures::{CallFigures, CoreFigures, ServerFigures, ServerReporter};
pub use crate::turn::steps::TURN_STEPS_MAX;
