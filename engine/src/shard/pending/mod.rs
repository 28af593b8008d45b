//! Requests that wait for far memory.

pub(in crate::shard) mod collisions;
pub(in crate::shard) mod flight;
pub(in crate::shard) mod park;
