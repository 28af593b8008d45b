//! Moves requests and answers between threads: queues, rings, lanes and wakeups.
//!
//! A request goes into a client's queue (`queue`), an answer into the shard's ring (`ring`). A
//! `lane` is one of each, between one client and one shard. A `wakeup` says which lanes have
//! requests and whether the shard sleeps; `fence` orders its last check. A `loan` lets a caller
//! serve its own request while the shard's thread has no use for the shard. `exclusive` gives one
//! thread at a time the use of something.
//!
//! Every queue has one producer and one consumer. No operation here takes a lock or allocates,
//! except for values that are too long for a lane. The module names no clock, no executor and no
//! fabric.

pub(crate) mod atomics;
pub(crate) mod exclusive;
pub(crate) mod fence;
pub(crate) mod lane;
pub(crate) mod loan;
pub(crate) mod queue;
pub(crate) mod ring;
pub(crate) mod wakeup;
