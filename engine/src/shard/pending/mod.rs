//! Requests that wait for far memory.
//!
//! `flight` has the flights and who may start one; `park` drives them; `judge` says
//! what their READs show; `collisions` remembers
//! hashes that more than one key has; `facts` keeps what a waiting transaction has learnt. Every
//! parked request is in exactly one flight and is answered when that flight ends.

pub(in crate::shard) mod collisions;
pub(in crate::shard) mod facts;
pub(in crate::shard) mod flight;
mod judge;
pub(in crate::shard) mod park;
