//! The figures of `expiry`, in the form that `--json` writes.

use serde::{Deserialize, Serialize};

use super::settings::Place;
use crate::series::{Faults, Measured, SeriesReport};

/// Everything that the command measured: a run a place.
pub type ExpiryReport = SeriesReport<Run>;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Where the records were.
    pub place: Place,
    /// Time to open the engine, pre-faulting included.
    pub startup_seconds: f64,
    /// Million gets a second of processor time at most, all cores together.
    pub most_mops: f64,
    /// Million gets a second of processor time while keys expired, all cores together.
    pub load_mops: f64,
    /// Gets measured before the first key expired.
    pub gets_before: u64,
    /// Gets measured while keys expired.
    pub gets_during: u64,
    /// Median latency of gets by the clock, before the first key expired.
    pub p50_before_ns: u64,
    /// Median latency of gets by the clock, while keys expired.
    pub p50_during_ns: u64,
    /// Latency by the clock that one get in a hundred exceeded, before the first key expired.
    pub p99_before_ns: u64,
    /// Latency by the clock that one get in a hundred exceeded, while keys expired.
    pub p99_during_ns: u64,
    /// Latency by the clock that one get in a hundred exceeded, in each second after the last key
    /// had expired.
    pub p99_after_ns: Vec<u64>,
    /// Processor time of the core between the moment when a get was due, and its answer, that one
    /// get in a hundred exceeded before the first key expired.
    pub processor_p99_before_ns: u64,
    /// Processor time of the core between the moment when a get was due, and its answer, that one
    /// get in a hundred exceeded while keys expired.
    pub processor_p99_during_ns: u64,
    /// What had come back, at each time.
    pub comebacks: Vec<Comeback>,
    /// What went wrong; wrong values include those that were found late.
    #[serde(flatten)]
    pub faults: Faults,
    /// Gets that found a key absent of which the write had ended with an error.
    #[serde(default)]
    pub unverified_values: u64,
    /// Wrong answers that found a key after it had expired.
    pub found_late: u64,
}

impl Measured for Run {
    fn faults(&self) -> &Faults {
        &self.faults
    }

    fn is_empty(&self) -> bool {
        self.faults.partial && self.gets_before + self.gets_during == 0
    }
}

/// What had come back at one time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comeback {
    /// Time after the last key expired.
    pub after_ms: u64,
    /// Share of the expired records that the counter `expired` counts: those that were removed one
    /// by one. Compaction drops others uncounted.
    pub removed: f64,
    /// Share of the expired bytes by which the log had become smaller.
    pub bytes: f64,
}

impl Run {
    /// The p99 by the clock while keys expired, as a multiple of that before.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        self.p99_during_ns as f64 / self.p99_before_ns.max(1) as f64
    }

    /// The ratio of the p99s in processor time.
    #[must_use]
    pub fn processor_ratio(&self) -> f64 {
        self.processor_p99_during_ns as f64 / self.processor_p99_before_ns.max(1) as f64
    }

    /// The p99 by the clock of the worst second, from the first expiry on, as a multiple of that
    /// before.
    #[must_use]
    pub fn worst_ratio(&self) -> f64 {
        let after = self.p99_after_ns.iter().copied().max().unwrap_or(0);
        after.max(self.p99_during_ns) as f64 / self.p99_before_ns.max(1) as f64
    }
}
