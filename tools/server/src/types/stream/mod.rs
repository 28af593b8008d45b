//! Streams: entries in the order of their IDs, and groups of consumers that share them.
//!
//! A stream is one map of the engine. Its commands are programs that run at the key's shard, so
//! each is one step. `layout` says which elements the map has, `input` what a command hands its
//! program and what that answers, `state` what all programs look at, `changes` what one has
//! changed; the others have the programs.

pub(crate) mod changes;
pub(crate) mod claims;
pub(crate) mod deliveries;
pub(crate) mod entries;
pub(crate) mod groups;
pub(crate) mod id;
pub(crate) mod input;
pub(crate) mod layout;
pub(crate) mod programs;
pub(crate) mod reply;
pub(crate) mod reports;
mod state;
pub(crate) mod stored;
