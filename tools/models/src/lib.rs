//! Model checks: the sources of queues, rings, wakeups and of a card's tables, compiled once more
//! with the atomics of loom.
//!
//! A model stands beside the code that it checks, as `#[cfg(all(test, farcore_loom))]`. The build
//! script sets that for this package alone. So the other packages, and all that they depend on, are
//! the same in tests and in model checks, and are built once.
//!
//! A source of `engine/src` finds the lower modules that it names at the root of this crate, one of
//! `tuning/src/metadata_cache` its own below `metadata_cache`.

#![cfg(test)]
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "the rest of their crates uses it"
)]

#[path = "../../../engine/src/bytes.rs"]
mod bytes;
#[path = "../../../engine/src/constants.rs"]
mod constants;
#[path = "../../../engine/src/error.rs"]
mod error;
#[path = "../../../engine/src/message/mod.rs"]
mod message;
mod metadata_cache;
#[path = "../../../engine/src/transport/mod.rs"]
mod transport;

// Without it the models would be compiled out.
const _: () = assert!(cfg!(farcore_loom));
