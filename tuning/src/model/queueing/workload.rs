//! The demands of one request, derived from the report of a real run.
//!
//! Reads a [`Report`] and splits the measured core time into parts by [`UnitCosts`]. Measures
//! nothing itself.

use serde::Serialize;
use thiserror::Error;

use crate::publish::Report;

/// Bytes of a cache line.
const LINE_BYTES: f64 = 64.0;
/// Cache lines that a request touches besides its record, if misses are not counted: index, header,
/// ring.
const LINES_TOUCHED: f64 = 3.0;
/// Assumed length of a record if the report has none.
const RECORD_BYTES: f64 = 256.0;
/// Fewest requests for meaningful averages.
const REQUESTS_MIN: u64 = 1_000;
/// The largest share of a core's time attributed to anything but the requests themselves.
const SHARE_MAX: f64 = 0.9;

/// Core time of parts of the work that one run cannot separate.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct UnitCosts {
    /// Extra seconds of a request to another core, both ends together.
    pub crossing_s: f64,
    /// Seconds to post a READ, poll its completion, and park and wake its request.
    pub read_s: f64,
    /// Seconds to move one byte in compaction.
    pub moved_byte_s: f64,
}

impl Default for UnitCosts {
    /// Costs on current processors: a crossing moves five cache lines to another core and back,
    /// 80 ns at each end.
    fn default() -> Self {
        Self {
            crossing_s: 160e-9,
            read_s: 150e-9,
            moved_byte_s: 0.25e-9,
        }
    }
}

/// Averages per request of any kind.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Workload {
    /// Core seconds of a request to the core's own shard, without the parts below.
    pub own_s: f64,
    /// Extra core seconds of a crossing, both ends together.
    pub crossing_s: f64,
    /// The share of requests whose client is on a core of the engine.
    pub on_cores: f64,
    /// READs per request.
    pub reads: f64,
    /// Core seconds per READ.
    pub read_s: f64,
    /// Bytes transferred by READs.
    pub read_bytes: f64,
    /// WRITEs per request.
    pub writes: f64,
    /// Bytes transferred by WRITEs.
    pub write_bytes: f64,
    /// Core seconds of compaction.
    pub compaction_s: f64,
    /// Bytes moved between the processor and local memory.
    pub memory_bytes: f64,
}

/// A report that does not suffice for a model.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum WorkloadError {
    /// Too few requests.
    #[error(
        "the report covers {requests} requests and at least {REQUESTS_MIN} are needed: take it after a longer run"
    )]
    Requests {
        /// Requests.
        requests: u64,
    },
    /// No busy time: the engine was idle, or its version does not measure it.
    #[error("the report has no busy time: take it from a loaded engine of this version")]
    Idle,
}

impl Workload {
    /// Computes the averages from a report. `costs` split a core's time into parts.
    ///
    /// # Errors
    /// The report covers too few requests or no busy time.
    pub fn of(report: &Report, costs: &UnitCosts) -> Result<Self, WorkloadError> {
        let total = report.total();
        let requests = total.answered();
        if requests < REQUESTS_MIN {
            return Err(WorkloadError::Requests { requests });
        }
        let served_ns = total.busy_ns.saturating_add(total.lent_ns);
        if served_ns == 0 {
            return Err(WorkloadError::Idle);
        }
        let each = |count: u64| count as f64 / requests as f64;
        // Other processes may have used the processors: only time on a processor counts.
        let busy_s = each(served_ns) * 1e-9 * share_on_processors(report);
        let crossings = each(total.requests_received).min(1.0);
        let on_cores = each(total.requests_own.saturating_add(total.requests_sent)).min(1.0);
        let reads = each(total.far_reads);
        let compaction_s = each(total.compaction_bytes_moved) * costs.moved_byte_s;
        // Clients on other threads pay for their own end.
        let ends = crossing_ends(crossings, on_cores);
        let besides = ends * costs.crossing_s + reads * costs.read_s + compaction_s;
        // Costs measured on another machine may exceed this one's: keep a rest for the request.
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

    /// Core seconds per request on an engine of `cores` cores with evenly loaded shards.
    #[must_use]
    pub fn core_s(&self, cores: u32) -> f64 {
        self.own_s + self.crossing_core_s(cores) + self.reads * self.read_s + self.compaction_s
    }

    /// The part of these that crossings take.
    #[must_use]
    pub fn crossing_core_s(&self, cores: u32) -> f64 {
        let cores = f64::from(cores.max(1));
        let away = (cores - 1.0) / cores;
        let crossings = self.on_cores * away + (1.0 - self.on_cores);
        crossing_ends(crossings, self.on_cores) * self.crossing_s
    }

    /// The cost of a crossing, from two workloads of the same kind on few and on more cores, each
    /// as (cores, core seconds per request).
    #[must_use]
    pub fn crossing_between(few: (u32, f64), more: (u32, f64)) -> Option<f64> {
        let away = |cores: u32| 1.0 - 1.0 / f64::from(cores.max(1));
        let cost = (more.1 - few.1) / (away(more.0) - away(few.0));
        (cost.is_finite() && cost > 0.0).then_some(cost)
    }
}

/// The share of awake time that cores were scheduled on a processor; 1 if that is not counted.
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

/// Crossings, where one from a client on no core of the engine counts half.
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
    fn the_parts_add_up_to_the_whole() {
        let costs = UnitCosts::default();
        let work = Workload::of(&report(busy()), &costs).unwrap();
        // A microsecond per request, including half of 160 ns for crossings and a tenth of 150 ns
        // for READs.
        assert!((work.own_s - 905e-9).abs() < 1e-15, "{work:?}");
        assert!((work.core_s(2) - 1e-6).abs() < 1e-15, "{work:?}");
        assert!((work.core_s(1) - 920e-9).abs() < 1e-15);
        assert!((work.read_bytes - 51.2).abs() < 1e-9 && work.reads == 0.1);
        assert!((work.memory_bytes - (192.0 + 300.0 + 51.2)).abs() < 1e-9);
    }

    #[test]
    fn clients_on_other_threads_pay_for_their_end() {
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
    fn counted_misses_give_the_memory_traffic() {
        let mut report = report(busy());
        report.cores[0].hardware = HardwareSnapshot {
            cache_misses: Some(20_000),
            ..HardwareSnapshot::default()
        };
        let work = Workload::of(&report, &UnitCosts::default()).unwrap();
        assert_eq!(work.memory_bytes, 128.0);
    }

    #[test]
    fn time_off_the_processor_is_not_work() {
        let mut report = report(busy());
        report.cores[0].counters.spinning_ns = 10_000_000;
        let whole = Workload::of(&report, &UnitCosts::default()).unwrap();
        report.cores[0].hardware.on_processor_ns = Some(10_000_000);
        let half = Workload::of(&report, &UnitCosts::default()).unwrap();
        assert!(
            (half.core_s(2) * 2.0 - whole.core_s(2)).abs() < 1e-15,
            "{half:?}"
        );
        // More than the time awake: the counter was opened earlier.
        report.cores[0].hardware.on_processor_ns = Some(u64::MAX);
        let all = Workload::of(&report, &UnitCosts::default()).unwrap();
        assert_eq!(all, whole);
    }

    #[test]
    fn costs_that_exceed_the_time_leave_a_rest() {
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
    fn too_short_a_report_is_refused() {
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
