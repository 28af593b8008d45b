//! The atomics of queues, rings and wakeups. Under loom they are the model checker's own.
//!
//! All of `transport` takes its atomics and cells from here, never from `std`.

#[cfg(farcore_loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(farcore_loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

/// Reports a read or a write of the memory that a cell stands for to the model checker.
#[cfg(farcore_loom)]
pub(crate) fn touch(cell: &loom::cell::UnsafeCell<()>, write: bool) {
    if write {
        cell.with_mut(|_| ());
    } else {
        cell.with(|_| ());
    }
}
