//! Until when a server may serve its slots.
//!
//! A server whose map lies in etcd serves them only while its lease holds there: another one may
//! own them once it has ended. So the fence closes a while before the lease ends, by a clock that
//! goes on while the host sleeps, and a process that was stopped finds it closed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The fence of a server.
#[derive(Debug)]
pub(crate) struct Fence {
    /// Milliseconds since the host was started.
    until_ms: AtomicU64,
}

impl Fence {
    /// One that never closes: no slots of this server are taken but with its knowledge.
    pub(super) fn open_for_ever() -> Self {
        Self {
            until_ms: AtomicU64::new(u64::MAX),
        }
    }

    /// One that is closed.
    pub(super) fn closed() -> Self {
        Self {
            until_ms: AtomicU64::new(0),
        }
    }

    /// Milliseconds since the host was started, also those in which it slept.
    pub(super) fn now_ms() -> u64 {
        let time = clock_gettime(ClockId::Boottime);
        // Later than any lease if the clock is not read.
        let time = Duration::try_from(time).unwrap_or(Duration::MAX);
        u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
    }

    /// Opens it until a time.
    pub(super) fn open_until(&self, until_ms: u64) {
        // ORDERING: release; pairs with the acquire in `is_open`: a core that finds it open sees
        // the map that was read before.
        self.until_ms.store(until_ms, Ordering::Release);
    }

    pub(super) fn close(&self) {
        self.open_until(0);
    }

    /// Closes it, unless it never closes.
    pub(super) fn close_if_leased(&self) {
        // ORDERING: relaxed; one that never closes stays so.
        if self.until_ms.load(Ordering::Relaxed) != u64::MAX {
            self.close();
        }
    }

    /// True while slots may be served. Cost where it never closes: a read of a shared word.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        // ORDERING: acquire; see `open_until`.
        let until_ms = self.until_ms.load(Ordering::Acquire);
        until_ms == u64::MAX || Self::now_ms() < until_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_closes_by_the_clock() {
        assert!(Fence::open_for_ever().is_open());
        let fence = Fence::closed();
        assert!(!fence.is_open());
        fence.open_until(Fence::now_ms() + 60_000);
        assert!(fence.is_open());
        fence.open_until(Fence::now_ms());
        assert!(!fence.is_open());
    }
}
