//! The memory that the clients of all cores may take together.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::Want;

/// A core reserves this part of the limit at a time, divided by the cores.
const STEPS: usize = 32;
/// The least and the most bytes of a step.
const STEP_BYTES_MIN: usize = 1 << 10;
const STEP_BYTES_MAX: usize = 64 << 10;

/// The memory that the clients of all cores may take together.
#[derive(Debug)]
pub(crate) struct ClientMemory {
    limit: usize,
    step: usize,
    /// Bytes that cores have reserved.
    taken: AtomicUsize,
    /// Charges that were not granted.
    want: Want,
}

// ORDERING: relaxed, throughout. The figures bound memory; no other data is read by them.
impl ClientMemory {
    /// So many bytes, for so many cores.
    pub(crate) fn new(limit: usize, cores: usize) -> Self {
        let step = limit / STEPS / cores.max(1);
        Self {
            limit,
            step: step.clamp(STEP_BYTES_MIN, STEP_BYTES_MAX),
            taken: AtomicUsize::new(0),
            want: Want::default(),
        }
    }

    /// Bytes that clients may take.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that large charges may take together: the rest is for small buffers.
    pub(crate) fn large_limit(&self) -> usize {
        self.limit - self.limit / 4
    }

    /// Bytes by which a core reserves.
    pub(super) fn step(&self) -> usize {
        self.step
    }

    /// Bytes that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Bytes that nothing has taken.
    pub(crate) fn free(&self) -> usize {
        self.limit.saturating_sub(self.taken())
    }

    /// True if more is taken than clients may take.
    #[inline]
    pub(crate) fn is_exceeded(&self) -> bool {
        self.taken() > self.limit
    }

    /// Takes bytes, whatever is taken.
    pub(crate) fn take(&self, bytes: usize) {
        self.taken.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes bytes if no more than so many are taken then.
    pub(super) fn try_take(&self, bytes: usize, limit: usize) -> bool {
        let taken = self
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
                let after = taken.checked_add(bytes)?;
                (after <= limit).then_some(after)
            });
        taken.is_ok()
    }

    /// Gives bytes back that were taken.
    pub(crate) fn give(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Notes that a charge was not granted.
    pub(crate) fn want(&self, now_ms: u64) {
        self.want.note(now_ms);
    }

    /// True if a charge was not granted a moment ago.
    #[inline]
    pub(crate) fn is_wanted(&self, now_ms: u64) -> bool {
        self.want.is_recent(now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_charges_leave_a_quarter() {
        let memory = ClientMemory::new(1000, 1);
        let limit = memory.large_limit();
        assert!(memory.try_take(750, limit) && !memory.try_take(1, limit));
        memory.take(300);
        assert!(memory.is_exceeded());
        memory.give(750);
        assert_eq!((memory.taken(), memory.free()), (300, 700));
        assert!(!memory.try_take(usize::MAX, 1000));
    }
}
