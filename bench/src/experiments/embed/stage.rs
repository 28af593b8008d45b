//! When callers start and end: all of them start, warm up, are measured for some time, and end.
//!
//! I1: callers are counted as started before the warm-up begins, so all of them are measured.
//! I2: a caller looks at the phase before each call, so it makes one more call at most.
//! I3: a measurement lasts until a call was timed, however slow the machine is.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use farcore_command::stop;
use farcore_tuning::Clock;
use rustix::time::{ClockId, clock_gettime};

/// How often the leader looks for a signal, and for what it waits for.
const TICK: Duration = Duration::from_millis(20);
const START_TICK: Duration = Duration::from_micros(200);
/// The warm-up, as a share of the measurement.
const WARM_UP: f64 = 0.1;

const WARMING: u8 = 0;
const MEASURED: u8 = 1;
const ENDED: u8 = 2;

/// The phase of one crowd.
#[derive(Debug, Default)]
pub(super) struct Stage {
    phase: AtomicU8,
    started: AtomicUsize,
    has_samples: AtomicBool,
}

/// How long a crowd was measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Led {
    /// By the clock.
    pub(super) seconds: f64,
    /// Processor time of this process.
    pub(super) cpu_seconds: f64,
}

/// Processor time of this process, in seconds.
pub(super) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Sleeps, at most until a signal comes.
pub(super) fn pause(seconds: f64) {
    let clock = Clock::new();
    let start_ns = clock.now_ns();
    while !stop::is_requested() {
        let passed = (clock.now_ns() - start_ns) as f64 / 1e9;
        if passed >= seconds {
            break;
        }
        sleep(TICK.min(Duration::from_secs_f64(seconds - passed)));
    }
}

impl Stage {
    /// A caller has started.
    pub(super) fn enter(&self) {
        // Only the number matters; no data is passed on.
        self.started.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether callers go on.
    #[inline]
    pub(super) fn goes_on(&self) -> bool {
        // A late look is one more call.
        self.phase.load(Ordering::Relaxed) != ENDED
    }

    /// Whether calls count.
    #[inline]
    pub(super) fn is_measured(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == MEASURED
    }

    /// A call of the measurement was timed.
    pub(super) fn saw_sample(&self) {
        // One write: the callers read this cache line before each call.
        if !self.has_samples.load(Ordering::Relaxed) {
            self.has_samples.store(true, Ordering::Relaxed);
        }
    }

    /// Callers end.
    pub(super) fn end(&self) {
        self.phase.store(ENDED, Ordering::Relaxed);
    }

    /// Leads `count` callers through all phases.
    pub(super) fn lead(&self, count: usize, seconds: f64) -> Led {
        let clock = Clock::new();
        debug_assert_eq!(self.phase.load(Ordering::Relaxed), WARMING);
        while self.started.load(Ordering::Relaxed) < count && !stop::is_requested() {
            sleep(START_TICK);
        }
        pause(seconds * WARM_UP);
        self.phase.store(MEASURED, Ordering::Relaxed);
        let (start_ns, start_cpu) = (clock.now_ns(), cpu_seconds());
        pause(seconds);
        while !self.has_samples.load(Ordering::Relaxed) && !stop::is_requested() {
            sleep(START_TICK);
        }
        self.end();
        let (end_ns, end_cpu) = (clock.now_ns(), cpu_seconds());
        Led {
            seconds: (end_ns - start_ns) as f64 / 1e9,
            cpu_seconds: end_cpu - start_cpu,
        }
    }
}
