//! The clock. The only module that names `quanta`.
//!
//! Reads the processor's time stamp counter. All clocks of a process share one origin, so that
//! their readings compare.

use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// The origin of time, in raw units. One per process, so that the readings of two clocks compare.
static ORIGIN: OnceLock<u64> = OnceLock::new();

/// Monotonic time. Reading it costs about 10 ns.
#[derive(Clone, Debug)]
pub struct Clock {
    inner: quanta::Clock,
    origin: u64,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// Creates a clock. The first one in a process sets the origin and calibrates for some
    /// milliseconds.
    #[must_use]
    pub fn new() -> Self {
        let inner = quanta::Clock::new();
        let origin = *ORIGIN.get_or_init(|| inner.raw());
        Self { inner, origin }
    }

    /// Nanoseconds since the process's first clock was created, the same for every clock.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        #[cfg(feature = "simulation")]
        if let Some(now_ns) = crate::simulated::now_ns() {
            return now_ns;
        }
        self.delta_ns(self.origin, self.inner.raw())
    }

    /// A reading in raw units, cheaper than [`Clock::now_ns`]; see [`Clock::delta_ns`].
    #[inline]
    #[must_use]
    pub fn raw(&self) -> u64 {
        #[cfg(feature = "simulation")]
        if let Some(now_ns) = crate::simulated::now_ns() {
            return now_ns;
        }
        self.inner.raw()
    }

    /// Nanoseconds between two readings of [`Clock::raw`].
    #[inline]
    #[must_use]
    pub fn delta_ns(&self, start: u64, end: u64) -> u64 {
        #[cfg(feature = "simulation")]
        if crate::simulated::now_ns().is_some() {
            return end.saturating_sub(start);
        }
        self.inner.delta_as_nanos(start, end)
    }
}

/// The system's clock, in milliseconds since 1970; 0 if it is set before.
#[must_use]
pub fn system_ms() -> u64 {
    system_ns() / 1_000_000
}

/// The system's clock, in nanoseconds since 1970; 0 if it is set before.
#[must_use]
pub fn system_ns() -> u64 {
    #[cfg(feature = "simulation")]
    if let Some(system_ns) = crate::simulated::system_ns() {
        return system_ns;
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_does_not_run_backwards() {
        let clock = Clock::new();
        let (start, raw) = (clock.now_ns(), clock.raw());
        assert!(clock.now_ns() >= start);
        let _ = clock.delta_ns(raw, clock.raw());
    }

    #[test]
    fn all_clocks_have_one_origin() {
        let first = Clock::new();
        let before_ns = first.now_ns();
        let second = Clock::new();
        assert!(second.now_ns() >= before_ns);
        assert!(first.clone().now_ns() >= before_ns);
    }
}
