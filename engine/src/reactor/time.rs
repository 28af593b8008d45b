//! The time that a reactor runs in: the processor's clock, or that of a test.

use farcore_tuning::{Clock, system_ns};

/// Reads the time, in nanoseconds since any fixed moment. Tests pass their own.
pub(crate) trait Time {
    /// Monotonic time.
    fn now_ns(&self) -> u64;

    /// The system's clock, in nanoseconds since 1970.
    fn system_ns(&self) -> u64;
}

impl Time for Clock {
    #[inline]
    fn now_ns(&self) -> u64 {
        Clock::now_ns(self)
    }

    fn system_ns(&self) -> u64 {
        system_ns()
    }
}
