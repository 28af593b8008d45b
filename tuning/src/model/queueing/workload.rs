//! What one request demands, taken from the report of a real run.

use serde::Serialize;
use thiserror::Error;

use crate::publish::Report;

/// Bytes of a cache line.
const LINE_BYTES: f64 = 64.0;
/// Lines that a request touches besides its record, where misses are not counted: index, header,
/// ring.
const LINES_TOUCHED: f64 = 3.0;
/// A record where the report tells of none.
const RECORD_BYTES: f64 = 256.0;
/// Requests below which means are noise.
const REQUESTS_MIN: u64 = 1_000;
/// Most of a core's time that is put down to anything but requests themselves.
const SHARE_MAX: f64 = 0.9;

/// What parts of the work cost a core, where one run alone cannot tell them apart.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct UnitCosts {
    /// Seconds more for a request of another core, both ends together.
    pub crossing_s: f64,
    /// Seconds to post a READ, to take its completion and to park and wake its request.
    pub read_s: f64,
    /// Seconds to move one byte in compaction.
    pub moved_byte_s: f64,
}

impl Default for UnitCosts {
    /// Of processors of today: five cache lines go to another core and back, 80 ns for each of the
    /// two.
    fn default() -> Self {
        Self {
            crossing_s: 160e-9,
            read_s: 150e-9,
            moved_byte_s: 0.25e-9,
        }
    }
}

/// The means of one request, of any kind.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Workload {
    /// Core seconds of a request to the own shard, without what follows.
    pub own_s: f64,
    /// Core seconds more of one that crosses, both ends together.
    pub crossing_s: f64,
    /// Share of requests whose client is on a core of the engine.
    pub on_cores: f64,
    /// READs.
    pub reads: f64,
    /// Core seconds of each.
    pub read_s: f64,
    /// Bytes that READs move.
    pub read_bytes: f64,
    /// WRITEs.
    pub writes: f64,
    /// Bytes that WRITEs move.
    pub write_bytes: f64,
    /// Core seconds of compaction.
    pub compaction_s: f64,
    /// Bytes between the processor and local memory.
    pub memory_bytes: f64,
}

/// A report from which nothing can be learnt.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum WorkloadError {
    /// Too little was asked of the engine.
    #[error(
        "the report tells of {requests} requests, and {REQUESTS_MIN} are the least to learn from: take it after a longer run"
    )]
    Requests {
        /// Requests.
        requests: u64,
    },
    /// It was idle, or another version that counts no time.
    #[error(
        "the report tells of no time in which a core was busy: take it from an engine of this version"
    )]
    Idle,
}

impl Workload {
    /// Takes the means from a report, and tells parts of a core's time apart by `costs`.
    ///
    /// # Errors
    /// The report tells of too little.
    pub fn of(report: &Report, costs: &UnitCosts) -> Result<Self, WorkloadError> {
        let total = report.total();
        let answered = [total.gets, total.puts, total.deletes, total.swaps];
        let requests = answered
            .iter()
            .fold(0_u64, |sum, &count| sum.saturating_add(count));
        if requests < REQUESTS_MIN {
            return Err(WorkloadError::Requests { requests });
        }
        if total.busy_ns == 0 {
            return Err(WorkloadError::Idle);
        }
        let each = |count: u64| count as f64 / requests as f64;
        // Others may have had the processors: what counts is the time on them.
        let busy_s = each(total.busy_ns) * 1e-9 * share_on_processors(report);
        let crossings = each(total.requests_received).min(1.0);
        let on_cores = each(total.requests_own.saturating_add(total.requests_sent)).min(1.0);
        let reads = each(total.far_reads);
        let compaction_s = each(total.compaction_bytes_moved) * costs.moved_byte_s;
        // Clients elsewhere pay for their own end.
        let ends = crossing_ends(crossings, on_cores);
        let besides = ends * costs.crossing_s + reads * costs.read_s + compaction_s;
        // Costs of another machine may not fit this one's: no request is left for nothing.
        let fitting = (busy_s * SHARE_MAX / besides).min(1.0);
        let wanted = total.far_wanted_bytes as f64 / total.far_reads.max(1) as f64;
        let record_bytes = if wanted > 0.0 { wanted } else { RECORD_BYTES };
        let moved = each(total.far_read_bytes.saturating_add(total.far_write_bytes));
        let mut misses = report.cores.iter().map(|core| core.hardware.cache_misses);
        let misses = misses.try_fold(0_u64, |sum, count| Some(sum.saturating_add(count?)));
        Ok(Self {
            own_s: busy_s - besides * fitting,
            crossing_s: costs.crossing_s * fitting,
            on_cores,
            reads,
            read_s: costs.read_s * fitting,
            read_bytes: each(total.far_read_bytes),
            writes: each(total.far_writes),
            write_bytes: each(total.far_write_bytes),
            compaction_s: compaction_s * fitting,
            memory_bytes: misses
                .map_or(LINES_TOUCHED * LINE_BYTES + record_bytes + moved, |count| {
                    each(count) * LINE_BYTES
                }),
        })
    }

    /// Core seconds of a request on an engine of some cores whose shards are asked evenly.
    #[must_use]
    pub fn core_s(&self, cores: u32) -> f64 {
        self.own_s + self.crossing_core_s(cores) + self.reads * self.read_s + self.compaction_s
    }

    /// Of these, what crossings take.
    #[must_use]
    pub fn crossing_core_s(&self, cores: u32) -> f64 {
        let cores = f64::from(cores.max(1));
        let away = (cores - 1.0) / cores;
        let crossings = self.on_cores * away + (1.0 - self.on_cores);
        crossing_ends(crossings, self.on_cores) * self.crossing_s
    }

    /// What a crossing costs, from two workloads of the same kind on `few` and on more cores.
    #[must_use]
    pub fn crossing_between(few: (u32, f64), more: (u32, f64)) -> Option<f64> {
        let away = |cores: u32| 1.0 - 1.0 / f64::from(cores.max(1));
        let cost = (more.1 - few.1) / (away(more.0) - away(few.0));
        (cost.is_finite() && cost > 0.0).then_some(cost)
    }
}

/// Share of the time of cores that did not sleep in which they really ran; all of it where that is
/// not counted.
fn share_on_processors(report: &Report) -> f64 {
    let (mut awake, mut ran) = (0.0, 0.0);
    for core in &report.cores {
        let Some(counted) = core.hardware.on_processor_ns else {
            return 1.0;
        };
        awake += core.counters.busy_ns as f64 + core.counters.spinning_ns as f64;
        ran += counted as f64;
    }
    if ran > 0.0 && ran < awake {
        ran / awake
    } else {
        1.0
    }
}

/// Crossings, where one from a client that is on no core of the engine counts half.
fn crossing_ends(crossings: f64, on_cores: f64) -> f64 {
    let outside = (1.0 - on_cores).clamp(0.0, crossings);
    crossings - outside / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::HardwareSnapshot;
    use crate::measure::ShardSnapshot;
    use crate::publish::CoreReport;

    fn report(counters: ShardSnapshot) -> Report {
        Report {
            cores: vec![CoreReport {
                counters,
                ..CoreReport::default()
            }],
            ..Report::default()
        }
    }

    fn busy() -> ShardSnapshot {
        ShardSnapshot {
            gets: 9_000,
            puts: 1_000,
            requests_own: 5_000,
            requests_sent: 5_000,
            requests_received: 5_000,
            far_reads: 1_000,
            far_read_bytes: 512_000,
            far_wanted_bytes: 300_000,
            busy_ns: 10_000_000,
            ..ShardSnapshot::default()
        }
    }

    #[test]
    fn the_parts_make_up_the_whole_again() {
        let costs = UnitCosts::default();
        let work = Workload::of(&report(busy()), &costs).unwrap();
        // A microsecond a request: half of 160 ns for crossings and a tenth of 150 ns for READs
        // within.
        assert!((work.own_s - 905e-9).abs() < 1e-15, "{work:?}");
        assert!((work.core_s(2) - 1e-6).abs() < 1e-15, "{work:?}");
        assert!((work.core_s(1) - 920e-9).abs() < 1e-15);
        assert!((work.read_bytes - 51.2).abs() < 1e-9 && work.reads == 0.1);
        assert!((work.memory_bytes - (192.0 + 300.0 + 51.2)).abs() < 1e-9);
    }

    #[test]
    fn clients_elsewhere_pay_for_their_end() {
        let counters = ShardSnapshot {
            requests_own: 0,
            requests_sent: 0,
            requests_received: 10_000,
            far_reads: 0,
            ..busy()
        };
        let work = Workload::of(&report(counters), &UnitCosts::default()).unwrap();
        assert!((work.own_s - 920e-9).abs() < 1e-15, "{work:?}");
        assert_eq!(work.core_s(1), work.core_s(64));
    }

    #[test]
    fn counted_misses_tell_the_memory_traffic() {
        let mut report = report(busy());
        report.cores[0].hardware = HardwareSnapshot {
            cache_misses: Some(20_000),
            ..HardwareSnapshot::default()
        };
        let work = Workload::of(&report, &UnitCosts::default()).unwrap();
        assert_eq!(work.memory_bytes, 128.0);
    }

    #[test]
    fn time_that_others_had_is_no_work() {
        let mut report = report(busy());
        report.cores[0].counters.spinning_ns = 10_000_000;
        let whole = Workload::of(&report, &UnitCosts::default()).unwrap();
        report.cores[0].hardware.on_processor_ns = Some(10_000_000);
        let half = Workload::of(&report, &UnitCosts::default()).unwrap();
        assert!(
            (half.core_s(2) * 2.0 - whole.core_s(2)).abs() < 1e-15,
            "{half:?}"
        );
        // Longer than awake: opened earlier.
        report.cores[0].hardware.on_processor_ns = Some(u64::MAX);
        let all = Workload::of(&report, &UnitCosts::default()).unwrap();
        assert_eq!(all, whole);
    }

    #[test]
    fn costs_that_do_not_fit_leave_something() {
        let costs = UnitCosts {
            crossing_s: 1.0,
            ..UnitCosts::default()
        };
        let work = Workload::of(&report(busy()), &costs).unwrap();
        assert!(
            work.own_s > 0.0 && (work.core_s(2) - 1e-6).abs() < 1e-15,
            "{work:?}"
        );
    }

    #[test]
    fn a_crossing_is_the_difference_of_two_runs() {
        let cost = Workload::crossing_between((1, 300e-9), (2, 350e-9)).unwrap();
        assert!((cost - 100e-9).abs() < 1e-15);
        assert_eq!(Workload::crossing_between((1, 4e-7), (2, 3e-7)), None);
        assert_eq!(Workload::crossing_between((2, 4e-7), (2, 5e-7)), None);
    }

    #[test]
    fn too_little_is_refused() {
        let few = ShardSnapshot {
            gets: 7,
            ..ShardSnapshot::default()
        };
        let error = Workload::of(&report(few), &UnitCosts::default()).unwrap_err();
        assert!(error.to_string().contains("7 requests"), "{error}");
        let idle = ShardSnapshot {
            gets: u64::MAX,
            puts: 5,
            ..ShardSnapshot::default()
        };
        assert_eq!(
            Workload::of(&report(idle), &UnitCosts::default()),
            Err(WorkloadError::Idle)
        );
    }
}
