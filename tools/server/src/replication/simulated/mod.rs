//! Replication in a simulated world: servers, their links and time in one thread, from one seed.
//!
//! ```text
//! client -> store -> rows -> publisher -> wire -> pipe (delays, cuts) -> follower -> service -> store
//!                                                                          `-> relay -> publisher
//! ```
//!
//! What is real: the thread that serves replicas, with its merge, its writer, windows and backlog;
//! how a replica loads data, applies the stream, says how far it is and goes on after a break; what
//! both know of the stream's history. What is simulated: the engine and its cores, sockets between
//! servers, time, who promotes a server, and the loop of a link.
//!
//! - I1: a step depends on the seed and the steps before it alone.

mod follower;
mod ledger;
mod node;
mod plan;
mod rows;
mod service;
mod store;
mod world;

pub use self::world::{Outcome, run};
