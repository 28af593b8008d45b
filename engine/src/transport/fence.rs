//! A fence between a store and a load that follows it, which costs one of its two sides nothing.
//!
//! Whoever shows news and then looks whether its reader sleeps, and the reader that says that it
//! sleeps and then looks for news, need a fence in between, or each may miss what the other said.
//! News is shown millions of times a second, sleep is rare: so the sleeper has the kernel put the
//! fence into every thread of the process (`membarrier`, Linux 4.14), for some microseconds and an
//! interrupt of each that runs, and the others only keep the compiler from swapping the two. Where
//! the kernel does not, both fence.

use crate::transport::atomics::{Ordering, fence};

#[cfg(farcore_loom)]
mod kernel {
    //! The model checker knows no kernel: both sides fence.

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

    /// Tells the kernel that this process will ask for such fences; false if it has none.
    pub(super) fn register() -> bool {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    }

    pub(super) fn fence_all() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

/// Such a fence.
#[derive(Debug)]
pub(crate) struct Fence {
    /// The kernel fences where one is asked for.
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
    /// The side that shows news and then looks for a sleeper.
    #[inline]
    pub(crate) fn light(&self) {
        if self.by_kernel {
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The side that says that it sleeps and then looks for news; false if the fence could not be
    /// had: then it must not sleep.
    #[must_use]
    pub(crate) fn heavy(&self) -> bool {
        fence(Ordering::SeqCst);
        !self.by_kernel || kernel::fence_all()
    }
}
