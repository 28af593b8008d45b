//! The atomics of queues, rings and bells, which the model checker swaps for its own.

#[cfg(farcore_loom)]
pub(crate) use loom::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
};
#[cfg(not(farcore_loom))]
pub(crate) use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
};

/// Tells the model checker that what a cell stands for is looked at or changed.
#[cfg(farcore_loom)]
pub(crate) fn touch(cell: &loom::cell::UnsafeCell<()>, write: bool) {
    if write {
        cell.with_mut(|_| ());
    } else {
        cell.with(|_| ());
    }
}
