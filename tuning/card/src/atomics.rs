//! The atomics of directory, card table and queue. Under loom they are the model checker's own.

#[cfg(farcore_loom)]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(farcore_loom))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};
