//! A pocket: room for one value that is too long for a ring.

#![allow(unsafe_code)] // shared by the two ends of a lane

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, Ordering};

/// Room for one long value. Full: the consumer's; empty: the producer's.
#[derive(Debug, Default)]
pub(super) struct Pocket {
    full: AtomicBool,
    value: UnsafeCell<Vec<u8>>,
}

// SAFETY: `full` says whose the value is, and each side only touches it while it is its own.
unsafe impl Sync for Pocket {}

impl Pocket {
    pub(super) fn is_free(&self) -> bool {
        // ORDERING: pairs with the Release in `take`.
        !self.full.load(Ordering::Acquire)
    }

    /// Called by the producer while the pocket is free.
    pub(super) fn fill(&self, value: Vec<u8>) {
        // SAFETY: the pocket is free, so it is the producer's.
        unsafe { *self.value.get() = value };
        // ORDERING: pairs with the ring's publication, which comes after; Release for `is_free` of a later producer.
        self.full.store(true, Ordering::Release);
    }

    /// Empties the pocket; called by the consumer while it handles the message that came with it.
    pub(super) fn take(&self) -> Vec<u8> {
        // SAFETY: the pocket is full and the message was received, so it is the consumer's.
        let value = std::mem::take(unsafe { &mut *self.value.get() });
        // ORDERING: pairs with the Acquire in `is_free`.
        self.full.store(false, Ordering::Release);
        value
    }
}
