//! The clock: the one place that names `quanta`.

use quanta::Instant;

/// Monotonic time. Reading it costs about 10 ns.
#[derive(Clone, Debug)]
pub struct Clock {
    inner: quanta::Clock,
    origin: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock {
    /// A clock that starts now; the first one in a process calibrates itself for a few milliseconds.
    #[must_use]
    pub fn new() -> Self {
        let inner = quanta::Clock::new();
        let origin = inner.now();
        Self { inner, origin }
    }

    /// Nanoseconds since the clock was made.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.inner.now().duration_since(self.origin).as_nanos()).unwrap_or(u64::MAX)
    }

    /// A reading in the counter's own units, the cheapest there is; see [`Clock::delta_ns`].
    #[inline]
    #[must_use]
    pub fn raw(&self) -> u64 {
        self.inner.raw()
    }

    /// Nanoseconds between two readings of [`Clock::raw`].
    #[inline]
    #[must_use]
    pub fn delta_ns(&self, start: u64, end: u64) -> u64 {
        self.inner.delta_as_nanos(start, end)
    }
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
}
