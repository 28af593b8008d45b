//! The memory that the clients of all cores may take together.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::Want;

/// A core reserves this part of the limit at a time, divided by the cores.
const STEPS: usize = 32;
/// The least and the most bytes of a step.
const STEP_BYTES_MIN: usize = 1 << 10;
const STEP_BYTES_MAX: usize = 64 << 10;
/// How long bytes are kept for a client, in milliseconds: longer than any waits.
const RESERVED_MS: u64 = 6000;

/// The memory that the clients of all cores may take together.
#[derive(Debug)]
pub(crate) struct ClientMemory {
    limit: usize,
    step: usize,
    /// Bytes that cores have reserved.
    taken: AtomicUsize,
    /// Charges that were not granted.
    want: Want,
    /// Bytes that are kept for one client that waits for them, and since when, in milliseconds
    /// since 1970.
    reserved: AtomicUsize,
    reserved_ms: AtomicU64,
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
            reserved: AtomicUsize::new(0),
            reserved_ms: AtomicU64::new(0),
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

    /// The same beside what is reserved for others than a client that has reserved so many.
    pub(super) fn large_limit_beside(&self, own: usize) -> usize {
        let others = self.reserved.load(Ordering::Relaxed).saturating_sub(own);
        self.large_limit().saturating_sub(others)
    }

    /// Keeps bytes that become free for one client, or those that others need again and again, and
    /// sooner, would leave it none. False if another one has some kept.
    pub(super) fn reserve(&self, bytes: usize, now_ms: u64) -> bool {
        let before = self.reserved.load(Ordering::Relaxed);
        let since_ms = self.reserved_ms.load(Ordering::Relaxed);
        if before > 0 && now_ms.saturating_sub(since_ms) < RESERVED_MS {
            return false;
        }
        let exchanged =
            self.reserved
                .compare_exchange(before, bytes, Ordering::Relaxed, Ordering::Relaxed);
        if exchanged.is_ok() {
            self.reserved_ms.store(now_ms, Ordering::Relaxed);
        }
        exchanged.is_ok()
    }

    /// Keeps bytes that were reserved no longer.
    pub(super) fn end_reservation(&self, bytes: usize) {
        // If they were kept for too long, another client may have reserved some since.
        let _ = self
            .reserved
            .compare_exchange(bytes, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Bytes by which a core reserves.
    pub(super) fn step(&self) -> usize {
        self.step
    }

    /// Bytes that are taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Bytes that nothing has taken. While some are kept for a client that waits, a quarter of the
    /// limit is not free for others, so that their buffers shrink as they are sent.
    pub(crate) fn free(&self) -> usize {
        let reserved = self.reserved.load(Ordering::Relaxed);
        let limit = if reserved > 0 {
            self.large_limit().saturating_sub(reserved)
        } else {
            self.limit
        };
        limit.saturating_sub(self.taken())
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

    #[test]
    fn bytes_are_kept_for_one_client_at_a_time_and_not_for_ever() {
        let memory = ClientMemory::new(1000, 1);
        assert!(memory.reserve(300, 10_000));
        assert!(!memory.reserve(200, 10_000 + RESERVED_MS - 1));
        assert_eq!(memory.large_limit_beside(0), 450);
        assert_eq!(memory.large_limit_beside(300), 750);
        assert!(memory.reserve(200, 10_000 + RESERVED_MS));
        memory.end_reservation(300);
        assert_eq!(memory.large_limit_beside(0), 550);
        memory.end_reservation(200);
        assert_eq!(memory.large_limit_beside(0), 750);
    }
}
