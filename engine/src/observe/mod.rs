//! What can be observed of a running engine: its metrics, its request traces, the keys that it
//! removes by itself, and its statistics socket.
//!
//! A metric has one writer, the core or handle that it belongs to; readers are any threads and
//! delay no core.

pub(crate) mod metrics;
pub(crate) mod node_names;
pub(crate) mod recorder;
pub(crate) mod removals;
pub mod statistics;
