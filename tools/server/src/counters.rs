//! Figures of a core's connections, written by the core and read by any.

use std::sync::atomic::{AtomicU64, Ordering};

/// A figure that one thread writes.
#[derive(Debug, Default)]
pub(crate) struct Figure(AtomicU64);

impl Figure {
    /// Adds to it. Only its core calls this.
    #[inline]
    pub(crate) fn add(&self, count: u64) {
        // A load and a store instead of an atomic addition: there is one writer.
        let value = self.0.load(Ordering::Relaxed);
        self.0.store(value.wrapping_add(count), Ordering::Relaxed);
    }

    /// Sets it. Only its core calls this.
    #[inline]
    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Figures of one core.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct CoreCounters {
    pub(crate) commands: Figure,
    pub(crate) failed_commands: Figure,
    pub(crate) received_bytes: Figure,
    pub(crate) sent_bytes: Figure,
    pub(crate) receives: Figure,
    pub(crate) sends: Figure,
    pub(crate) sleeps: Figure,
    /// Bytes of connections and their buffers.
    pub(crate) held_bytes: Figure,
    /// Clients that were disconnected because all took too much memory.
    pub(crate) evicted_clients: Figure,
    /// Subscribers that were disconnected because they did not read.
    pub(crate) slow_subscribers: Figure,
}
