//! An asymmetric fence between a store and the load that follows it: only the rare side pays.
//!
//! A producer publishes, then checks whether the consumer sleeps. A consumer sets its sleep flag,
//! then checks for messages. Each needs a fence between its store and its load, or both miss the
//! other. Messages are published millions of times a second and sleep is rare. So the sleeper has
//! the kernel fence every thread of the process (`membarrier`, Linux 4.14), which costs some
//! microseconds and an interrupt for each running thread; the producer only keeps the compiler from
//! swapping the two. Without kernel support both sides fence.

use crate::transport::atomics::{Ordering, fence};

#[cfg(farcore_loom)]
mod kernel {
    //! The model checker has no kernel: both sides fence.

    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn fence_all() -> bool {
        true
    }
}

#[cfg(not(farcore_loom))]
mod kernel {
    use rustix::thread::{MembarrierCommand, membarrier};

    /// Registers the process for these fences with the kernel; false if it does not support them.
    pub(super) fn register() -> bool {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    }

    pub(super) fn fence_all() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

/// A fence with a cheap side for producers and an expensive one for sleepers.
#[derive(Debug)]
pub(crate) struct Fence {
    /// The kernel executes the fence; else both sides do.
    by_kernel: bool,
}

impl Default for Fence {
    fn default() -> Self {
        Self {
            by_kernel: kernel::register(),
        }
    }
}

impl Fence {
    /// For the side that publishes, then checks for a sleeper.
    #[inline]
    pub(crate) fn light(&self) {
        if self.by_kernel {
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// For the side that sets its sleep flag, then checks for messages. False if the fence could
    /// not be executed: then the caller must not sleep.
    #[must_use]
    pub(crate) fn heavy(&self) -> bool {
        fence(Ordering::SeqCst);
        !self.by_kernel || kernel::fence_all()
    }
}
