//! The time since 1970 that a core counts in, for keys that expire.
//!
//! It runs with the monotonic clock. At intervals it is compared with the system's clock and
//! follows it forwards. It never goes back: a system clock that is set back leaves it as it is.
//!
//! - I1: later readings are not smaller.

/// Nanoseconds between two comparisons with the system's clock.
const COMPARE_NS: u64 = 100_000_000;
const NS_PER_MS: u64 = 1_000_000;

/// The time of one core.
#[derive(Debug, Default)]
pub(crate) struct UnixTime {
    /// Milliseconds since 1970 at the origin of the monotonic clock.
    origin_ms: u64,
    compare_ns: u64,
}

impl UnixTime {
    /// Milliseconds since 1970, at a reading of the monotonic clock. `system_ms` reads the system's
    /// clock.
    #[inline]
    pub(crate) fn at(&mut self, now_ns: u64, system_ms: impl FnOnce() -> u64) -> u64 {
        let passed_ms = now_ns / NS_PER_MS;
        if now_ns >= self.compare_ns {
            self.compare_ns = now_ns + COMPARE_NS;
            let origin_ms = system_ms().saturating_sub(passed_ms);
            self.origin_ms = self.origin_ms.max(origin_ms);
        }
        self.origin_ms + passed_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_system_forwards_and_never_back() {
        let mut time = UnixTime::default();
        let mut at = |now_ms: u64, system_ms| time.at(now_ms * NS_PER_MS, || system_ms);
        assert_eq!(at(7, 1_000_007), 1_000_007);
        // Between comparisons it runs by itself.
        assert_eq!(at(50, 0), 1_000_050);
        // The system's clock was set forwards, then back.
        assert_eq!(at(200, 1_005_000), 1_005_000);
        assert_eq!(at(310, 900_000), 1_005_110);
        assert_eq!(at(420, 1_005_221), 1_005_221);
    }
}
