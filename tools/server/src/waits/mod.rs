//! Clients that wait for keys.

pub(crate) mod key_queues;
pub(crate) mod parked;
