//! How the server is followed: by Redis, by Valkey, by another one of its kind, or by a tool that
//! takes all data.
//!
//! ```text
//! shards -> feed -> merge -> writer -> backlog -> replica -> socket
//!                     keys -> reader -> sync -----^
//! ```
//!
//! A thread of its own has all replicas (`publisher.rs`). The core that has accepted a replica's
//! connection keeps it in its list, so `CLIENT LIST` shows it and `CLIENT KILL` ends it, and reads
//! nothing of it any more.

pub(crate) mod backlog;
pub(crate) mod ground;
mod merge;
pub(crate) mod port;
pub(crate) mod publisher;
mod reader;
mod replica;
mod returns;
mod sync;
mod waiters;
mod window;
mod writer;
