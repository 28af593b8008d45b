//! Replication: how the server follows another one, its source.
//!
//! ```text
//! source -> socket -> input -> load   (the data, as an RDB file)  -> inlet -> a core
//!                           -> stream (the commands that follow)  -> inlet -> a core
//!        <- REPLCONF ACK, once a second  <- position of what was applied <- replies
//! ```
//!
//! A thread has the link to the source (`link.rs`). It reaches the data as a client does: by a
//! connection, its inlet, whose other end a core serves with the ordinary code of commands. That
//! connection may do what clients of a replica may not.
//!
//! `effects` is of the other direction: what a source's engine has done, as commands for a replica.
//!
//! - I1: what was applied is a prefix of the source's stream, and `Position` says which one.
//! - I2: of a transaction all is applied, or nothing.
//! - I3: while the data of a source are incomplete, commands that read them are refused.
//! - I4: bytes of a source take memory only as they come, up to a limit that has a name.

pub(crate) mod effects;
pub(crate) mod encrypted;
mod error;
mod handshake;
pub(crate) mod history;
pub(crate) mod import;
pub(crate) mod imports;
pub(crate) mod information;
mod inlet;
mod inner;
mod input;
pub(crate) mod link;
mod load;
mod loaded_value;
pub(crate) mod replicas;
mod replies;
mod reported;
mod session;
pub(crate) mod settings;
#[cfg(feature = "simulation")]
pub(crate) mod simulated;
mod slot_filter;
pub(crate) mod slot_purge;
mod source;
pub(crate) mod state;
pub(crate) mod stop;
mod stream;
mod unsent;
pub(crate) mod wire;
