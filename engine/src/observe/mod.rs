//! What can be seen of a running engine: its metrics, its request traces, its statistics socket.

pub(crate) mod metrics;
pub(crate) mod recorder;
pub mod statistics;
