//! Model checks: the sources of queues, rings, wakeups and of a card's tables, compiled once more
//! with the atomics of loom.
//!
//! A model stands beside the code that it checks, as `#[cfg(all(test, farcore_loom))]`. The build
//! script sets that for this package alone. So the other packages, and all that they depend on, are
//! the same in tests and in model checks, and are built once.
//!
//! A source of `engine/src` or `tuning/card/src` finds the lower modules that it names at the root
//! of this crate.

#![cfg(test)]
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    reason = "the rest of their crates uses it"
)]

#[path = "../../../tuning/card/src/atomics.rs"]
mod atomics;
#[path = "../../../engine/src/bytes.rs"]
mod bytes;
#[path = "../../../tuning/card/src/card_table.rs"]
mod card_table;
#[path = "../../../engine/src/collection.rs"]
mod collection;
#[path = "../../../engine/src/constants.rs"]
mod constants;
#[path = "../../../tuning/card/src/directory.rs"]
mod directory;
#[path = "../../../engine/src/error/mod.rs"]
mod error;
#[path = "../../../tuning/card/src/handle.rs"]
mod handle;
#[path = "../../../engine/src/message/mod.rs"]
mod message;
#[path = "../../../tuning/card/src/miss_queue.rs"]
mod miss_queue;
#[path = "../../../tuning/card/src/place.rs"]
mod place;
#[path = "../../../tuning/card/src/token/mod.rs"]
mod token;
#[path = "../../../engine/src/transport/mod.rs"]
mod transport;
#[path = "../../../engine/src/tree/mod.rs"]
mod tree;

// Without it the models would be compiled out.
const _: () = assert!(cfg!(farcore_loom));
