//! The atomics of the rings, which the model checker swaps for its own.

#[cfg(farcore_loom)]
pub(crate) use loom::sync::{Arc, atomic::AtomicUsize, atomic::Ordering};
#[cfg(not(farcore_loom))]
pub(crate) use std::sync::{Arc, atomic::AtomicUsize, atomic::Ordering};
