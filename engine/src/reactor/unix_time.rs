//! The time since 1970 that a core counts in, for keys that expire.
//!
//! It runs with the monotonic clock. At intervals it is compared with the system's clock and
//! follows it forwards. It never goes back: a system clock that is set back leaves it as it is.
//! Where the two clocks drift apart by less than a second it waits for the system's.
//!
//! - I1: later readings are not smaller.

/// Nanoseconds between two comparisons with the system's clock.
const COMPARE_NS: u64 = 100_000_000;
const NS_PER_MS: u64 = 1_000_000;
/// How far the time may be ahead by drift. If it is more, the system's clock was set back.
const DRIFT_NS: u64 = 1_000_000_000;

/// The time of one core.
#[derive(Debug, Default)]
pub(crate) struct UnixTime {
    /// Nanoseconds since 1970 at the origin of the monotonic clock. In milliseconds, each
    /// comparison would round anew, and the time would come to run ahead.
    origin_ns: u64,
    compare_ns: u64,
    latest_ms: u64,
}

impl UnixTime {
    /// Milliseconds since 1970, at a reading of the monotonic clock. `read` reads the system's
    /// clock, then the monotonic one: a thread that waits between the two is late, never ahead.
    #[inline]
    pub(crate) fn at(&mut self, now_ns: u64, read: impl FnOnce() -> (u64, u64)) -> u64 {
        if now_ns >= self.compare_ns {
            self.compare_ns = now_ns + COMPARE_NS;
            let (system_ns, read_ns) = read();
            let origin_ns = system_ns.saturating_sub(read_ns);
            let follows = origin_ns + DRIFT_NS > self.origin_ns;
            if follows || farcore_tuning::mutated!("time-runs-back") {
                self.origin_ns = origin_ns;
            }
        }
        let unix_ms = (self.origin_ns + now_ns) / NS_PER_MS;
        self.latest_ms = match farcore_tuning::mutated!("time-runs-back") {
            true => unix_ms,
            false => self.latest_ms.max(unix_ms),
        };
        self.latest_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_follows_the_system_forwards_and_never_back() {
        let mut time = UnixTime::default();
        let mut at = |now_ms: u64, system_ms| {
            let now_ns = now_ms * NS_PER_MS;
            time.at(now_ns, || (system_ms * NS_PER_MS, now_ns))
        };
        assert_eq!(at(7, 1_000_007), 1_000_007);
        // Between comparisons it runs by itself.
        assert_eq!(at(50, 0), 1_000_050);
        // The system's clock was set forwards, then back.
        assert_eq!(at(200, 1_005_000), 1_005_000);
        assert_eq!(at(310, 900_000), 1_005_110);
        assert_eq!(at(420, 1_005_221), 1_005_221);
    }

    #[test]
    fn it_waits_for_a_slower_system_without_going_back() {
        let mut time = UnixTime::default();
        let mut latest_ms = 0;
        for step in 0..1_000 {
            let now_ns = step * 101_000_000;
            // A thousandth slower.
            let system_ns = 1_000_000_000_000_000 + now_ns / 1_000 * 999;
            let unix_ms = time.at(now_ns, || (system_ns, now_ns));
            assert!(unix_ms >= latest_ms);
            assert!(unix_ms <= system_ns / NS_PER_MS + 1);
            latest_ms = unix_ms;
        }
    }

    #[test]
    fn a_comparison_that_comes_late_puts_it_ahead_of_nothing() {
        // The thread waited 5 ms after it had read the monotonic clock for its turn.
        let late = || (1_000_015 * NS_PER_MS, 15 * NS_PER_MS);
        assert_eq!(UnixTime::default().at(10 * NS_PER_MS, late), 1_000_010);
        // It waited between the two readings of the comparison.
        let between = || (1_000_010 * NS_PER_MS, 15 * NS_PER_MS);
        assert_eq!(UnixTime::default().at(10 * NS_PER_MS, between), 1_000_005);
    }

    #[test]
    fn it_does_not_run_ahead_of_the_system() {
        // The two clocks begin their milliseconds at different times.
        let mut time = UnixTime::default();
        for now_ns in (0..2_000).map(|step| step * 100_300_007) {
            let system_ns = 1_000_000_000_700_000 + now_ns;
            assert_eq!(
                time.at(now_ns, || (system_ns, now_ns)),
                system_ns / NS_PER_MS
            );
        }
    }
}
