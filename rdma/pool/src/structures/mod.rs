//! Structures in remote memory, which any number of processes use at once.
//!
//! A structure is created by one process and opened by others, by the pointer that it exports. None
//! of them runs code at the node: they READ, WRITE and swap words. A process that dies at any
//! moment leaves each structure whole: it may keep a node of a stack or a queue, or a lock until
//! its lease ends, but it blocks no other process and loses nothing that another has stored.
//!
//! | structure | round trips of an operation without contention |
//! |---|---|
//! | [`RemoteCounter`] | 1 |
//! | [`RemoteLock`] | lock 3, renew 1, unlock 1 |
//! | [`RemoteStack`] | push 7, pop 7 |
//! | [`RemoteQueue`] | push 10, pop 9 |
//! | [`RemoteOnceTable`] | set 4, get 2 |
//! | [`RemoteMap`] | get 1, insert 7, remove 4 |
//!
//! The memory of a structure belongs to the process that created it, and passes on to those that
//! have opened it when that process ends. It is lost with its node.
//!
//! - I1: the first word of a structure is the mark of its kind and its value's type.
//! - I2: a word that is swapped carries a version, or never has the same value twice: a swap that
//!   succeeds found the word unchanged since it was read.

mod block;
#[cfg(test)]
mod checked;
mod counter;
mod lock;
mod map;
mod nodes;
mod once_table;
mod queue;
mod stack;

pub use self::counter::RemoteCounter;
pub use self::lock::{LockGuard, RemoteLock};
pub use self::map::{Change, MapFigures, RemoteMap};
pub use self::once_table::RemoteOnceTable;
pub use self::queue::RemoteQueue;
pub use self::stack::RemoteStack;
