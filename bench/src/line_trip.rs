//! Measures the round trip of a cache line between two cores.
//!
//! No request to another core's shard is answered faster. On a virtual machine the time changes
//! from one minute to the next, so each run reports it.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use core_affinity::CoreId;
use farcore_tuning::Clock;

/// Round trips timed as one.
const TRIPS: u64 = 1000;
/// Timings; the median of their means is the result.
const TIMES: usize = 9;
/// A longer measurement shows that this process does not have both cores.
const LIMIT_NS: u64 = 100_000_000;
/// Reads of a line between two readings of the clock.
const READS_PER_CLOCK: u32 = 1 << 12;
/// Ends the thread on the other core.
const END: u64 = u64::MAX;

/// A line that one core writes and the other reads.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// The round trip between the first two cores in nanoseconds: the median of nine means of a
/// thousand. `None` with fewer than two cores, or if they are not available. Cost: a few
/// milliseconds of both cores, little more than 0.1 s at most.
#[must_use]
pub fn line_trip_ns(cores: &[usize]) -> Option<u64> {
    let &[near, far, ..] = cores else {
        return None;
    };
    let (there, back) = (Line::default(), Line::default());
    thread::scope(|scope| {
        scope.spawn(|| {
            if pin(far) {
                send_back(&there, &back);
            }
        });
        let timer = scope.spawn(|| {
            let _end = EndOnDrop(&there);
            pin(near)
                .then(|| median_trip_ns(&there, &back, LIMIT_NS))
                .flatten()
        });
        timer.join().ok().flatten()
    })
}

/// The longer of the round trips before and after a run. `None` if either is unknown, because the
/// longer one is unknown then.
#[must_use]
pub fn longer_ns(before_ns: Option<u64>, after_ns: Option<u64>) -> Option<u64> {
    let (before_ns, after_ns) = before_ns.zip(after_ns)?;
    Some(before_ns.max(after_ns))
}

/// Ends the thread on the other core, also if this one panics.
struct EndOnDrop<'a>(&'a Line);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.0.store(END, Ordering::Relaxed);
    }
}

fn pin(core: usize) -> bool {
    core_affinity::set_for_current(CoreId { id: core })
}

// ORDERING: Relaxed throughout: only the numbers themselves are read.

fn send_back(there: &Line, back: &Line) {
    let mut seen = 0;
    loop {
        match there.0.load(Ordering::Relaxed) {
            END => return,
            trip if trip == seen => hint::spin_loop(),
            trip => {
                seen = trip;
                back.0.store(trip, Ordering::Relaxed);
            }
        }
    }
}

fn median_trip_ns(there: &Line, back: &Line, limit_ns: u64) -> Option<u64> {
    let clock = Clock::new();
    let limit_ns = clock.now_ns().saturating_add(limit_ns);
    let mut trip = 0;
    let mut took_ns = Vec::with_capacity(TIMES);
    // The first timing includes the start of the other thread and is dropped.
    for _ in 0..=TIMES {
        let start_ns = clock.now_ns();
        for _ in 0..TRIPS {
            trip += 1;
            there.0.store(trip, Ordering::Relaxed);
            let mut reads = 0;
            while back.0.load(Ordering::Relaxed) != trip {
                hint::spin_loop();
                reads += 1;
                if reads % READS_PER_CLOCK == 0 && clock.now_ns() > limit_ns {
                    return None;
                }
            }
        }
        let now_ns = clock.now_ns();
        if now_ns > limit_ns {
            return None;
        }
        took_ns.push((now_ns - start_ns) / TRIPS);
    }
    took_ns.remove(0);
    took_ns.sort_unstable();
    Some(took_ns[TIMES / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_two_cores() {
        assert_eq!(line_trip_ns(&[]), None);
        assert_eq!(line_trip_ns(&[0]), None);
        assert_eq!(line_trip_ns(&[0, 1000]), None);
    }

    #[test]
    fn a_trip_that_is_known_at_one_end_only_is_not_known() {
        assert_eq!(longer_ns(Some(90), Some(540)), Some(540));
        assert_eq!(longer_ns(Some(540), Some(90)), Some(540));
        assert_eq!(longer_ns(Some(90), None), None);
        assert_eq!(longer_ns(None, Some(90)), None);
    }

    #[test]
    fn a_line_that_comes_back_is_timed() {
        let (there, back) = (Line::default(), Line::default());
        thread::scope(|scope| {
            scope.spawn(|| send_back(&there, &back));
            let _end = EndOnDrop(&there);
            assert!(median_trip_ns(&there, &back, u64::MAX).is_some());
        });
    }

    #[test]
    fn a_line_that_does_not_come_back_is_given_up() {
        let (there, back) = (Line::default(), Line::default());
        assert_eq!(median_trip_ns(&there, &back, 1_000_000), None);
    }
}
