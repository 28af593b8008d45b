//! Farcore in a simulated world: engine, memory nodes, network, clients and time in one thread. A
//! seed decides every step, so a seed replays a run.
//!
//! ```text
//! seed -> plan (sizes, settings, weights of faults)
//!      -> world: picks one step after the other
//!           task     a core's service, a keeper, a session, a node: real code, polled once
//!           network  performs, completes, fails or damages one request; delivers one message
//!           client   a handle submits or polls; a job on a core is given a call
//!           time     passes, to the next timer or by a little; timers wake tasks
//!           fault    cuts a node off, ends it, damages its memory, sets the system's clock
//!      -> history -> per key: is it linearizable?  shards: do their invariants hold?
//! ```
//!
//! What is real: everything of an engine from handles to the far store, keepers, sessions, the
//! handshake, claims, and the sessions, table and isolation of memory nodes. What is simulated:
//! executors, timers, clocks, random bytes, sockets and devices (`farcore_rdma::simulation`).
//!
//! An engine with a data directory has several lives, each a world of its own, over one simulated
//! disk ([`disk`]): a life ends by a crash, and the next one must bring back what was promised.
//!
//! - I1: a step depends on the seed and the steps before it alone, so equal seeds have equal trace
//!   hashes.

mod call;
mod client;
mod collections;
pub mod disk;
mod faults;
mod history;
mod keys;
mod lives;
mod memory;
mod moving;
pub mod mutations;
mod plan;
mod random;
mod recovered;
pub mod replication;
mod report;
pub mod run;
mod scored;
mod sections;
pub mod shrink;
mod times;
mod workload;
mod world;

/// What an engine allocates is counted.
#[global_allocator]
static COUNTED: memory::Counted = memory::Counted;
