//! The figures of a run, in the form that `--json` writes. Scripts read it: names of fields are
//! stable, and a field that does not apply is left out or 0, as its comment states.

use farcore_command::machine::Machine;
use farcore_command::origin::Origin;
use farcore_tuning::CoreReport;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::events::EventsPerOp;
use crate::failures::{self, ErrorCounts};
use crate::plan::Plan;
use crate::trace::Summary;

/// Everything that one command measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The command, the program and the date.
    #[serde(flatten)]
    pub origin: Origin,
    /// The machine.
    pub machine: Machine,
    /// The plan of each engine: sizes, cores, seed and every other setting.
    #[serde(default)]
    pub plans: Vec<Plan>,
    /// One entry for each engine: its only run, or the medians of several.
    pub runs: Vec<RunReport>,
}

/// One engine's figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// The engine.
    pub engine: String,
    /// Whether a signal ended the run; its last phase may be shorter than planned then.
    #[serde(default)]
    pub partial: bool,
    /// The summary of the replayed trace; left out for other scenarios.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<Summary>,
    /// The phases, in order.
    pub phases: Vec<PhaseReport>,
    /// Round trip of a cache line between the first two cores, in nanoseconds: the longer of the
    /// measurements before and after the run. Left out for one core, or if either measurement
    /// failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line_trip_ns: Option<u64>,
    /// Time to open the engine, pre-faulting included.
    pub startup_seconds: f64,
    /// Time of all phases.
    pub total_seconds: f64,
    /// Wrong, missing and unexpected answers; no errors. Anything but 0 is a failure.
    pub wrong_values: u64,
    /// Unexpected answers about keys of which a write ended with an error.
    #[serde(default)]
    pub unverified_values: u64,
    /// Requests that ended with an error, by kind; empty if every request was answered.
    #[serde(default)]
    pub errors: ErrorCounts,
    /// Reads of far memory.
    pub far_reads: u64,
    /// Bytes read from far memory.
    pub far_read_bytes: u64,
    /// Writes to far memory.
    pub far_writes: u64,
    /// Bytes written to far memory.
    pub far_write_bytes: u64,
    /// Peak of the measured local memory.
    pub local_bytes_peak: u64,
    /// The engine's cap on it; 0 if it has none.
    pub local_bytes_cap: u64,
    /// Records that the engine removed because they had expired; left out if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub keys_expired: u64,
    /// Bytes of the index for each key, at the end; 0 if the engine does not know.
    pub index_bytes_per_key: f64,
    /// The engine's figures of compaction.
    pub compaction: Map<String, Value>,
    /// The keys that each core served most at the end, where the engine samples them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hot_keys: Vec<HotKeyReport>,
}

/// A key that a core serves often.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HotKeyReport {
    /// The core that serves it.
    pub core: usize,
    /// Its first bytes, as text.
    pub key: String,
    /// Its share of that core's requests, 0 to 1; sampled.
    pub share: f64,
}

/// Hot keys reported for each core.
const HOT_KEYS: usize = 3;

/// The hottest keys of each core.
#[must_use]
pub fn hottest(report: &farcore_tuning::Report) -> Vec<HotKeyReport> {
    let of = |core: &CoreReport| {
        let number = core.core;
        let keys = core.hot_keys.clone().into_iter().take(HOT_KEYS);
        keys.map(move |hot| HotKeyReport {
            core: number,
            key: hot.key,
            share: hot.share,
        })
    };
    report.cores.iter().flat_map(of).collect()
}

/// One phase of one engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    /// The name.
    pub name: String,
    /// Requests, all threads together, those that ended with an error included.
    pub ops: u64,
    /// Requests that ended with an error, by kind.
    #[serde(default)]
    pub errors: ErrorCounts,
    /// Time from the first thread's start to the last one's end.
    pub seconds: f64,
    /// Processor time of the client threads; with `farcore` these also serve. It is less than their
    /// share of `seconds` if something else ran on their cores.
    #[serde(default)]
    pub cpu_seconds: f64,
    /// Million answered requests a second; a request that ends with an error is not answered.
    pub mops: f64,
    /// Median latency.
    pub p50_ns: u64,
    /// Exceeded by one request in a hundred.
    pub p99_ns: u64,
    /// Exceeded by one request in a thousand.
    pub p999_ns: u64,
    /// Reads of far memory.
    #[serde(default)]
    pub far_reads: u64,
    /// Bytes read from far memory.
    #[serde(default)]
    pub far_read_bytes: u64,
    /// Bytes of them that belong to requested records; 0 if the engine does not know.
    #[serde(default)]
    pub far_wanted_bytes: u64,
    /// Median wait for far memory: the round trip and the time until its completion was polled; 0
    /// if there was none or the engine does not know.
    #[serde(default)]
    pub far_p50_ns: u64,
    /// Exceeded by one wait in a hundred.
    #[serde(default)]
    pub far_p99_ns: u64,
    /// Gets that found their key absent because its time to live had passed; no wrong values. Left
    /// out if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub expired_hits: u64,
    /// Records that scans returned, in the order of the index; left out if there are none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub records_scanned: u64,
    /// Processor events, where the machine counts them.
    #[serde(flatten)]
    pub events: EventsPerOp,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The runs whose figures count: the complete ones, or all if none is.
pub(crate) fn counted<T>(runs: &[T], is_partial: impl Fn(&T) -> bool) -> Vec<&T> {
    let complete: Vec<&T> = runs.iter().filter(|run| !is_partial(run)).collect();
    if complete.is_empty() {
        runs.iter().collect()
    } else {
        complete
    }
}

/// The medians of several runs of one engine, each figure separately, and the largest peak of local
/// memory. A partial run has no part in them, unless it is the only one. Wrong values and errors
/// are summed over all runs.
#[must_use]
pub fn medians(all: &[RunReport]) -> RunReport {
    let runs = counted(all, |run| run.partial);
    let Some(&first) = runs.first() else {
        return RunReport::default();
    };
    let number = |of: &dyn Fn(&RunReport) -> f64| {
        let mut values: Vec<f64> = runs.iter().map(|run| of(run)).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let median = |mut values: Vec<u64>| {
        values.sort_unstable();
        values.get(values.len() / 2).copied()
    };
    let count = |of: &dyn Fn(&RunReport) -> u64| {
        median(runs.iter().map(|run| of(run)).collect()).unwrap_or(0)
    };
    let sum = |of: &dyn Fn(&RunReport) -> Option<&ErrorCounts>| {
        let mut sum = ErrorCounts::new();
        for counts in all.iter().filter_map(of) {
            failures::add(&mut sum, counts);
        }
        sum
    };
    let peak = runs.iter().map(|run| run.local_bytes_peak).max();
    let phases = first
        .phases
        .iter()
        .enumerate()
        .map(|(at, phase)| PhaseReport {
            name: phase.name.clone(),
            ops: phase.ops,
            seconds: number(&|run| run.phases[at].seconds),
            cpu_seconds: number(&|run| run.phases[at].cpu_seconds),
            errors: sum(&|run| run.phases.get(at).map(|phase| &phase.errors)),
            mops: number(&|run| run.phases[at].mops),
            p50_ns: count(&|run| run.phases[at].p50_ns),
            p99_ns: count(&|run| run.phases[at].p99_ns),
            p999_ns: count(&|run| run.phases[at].p999_ns),
            far_reads: count(&|run| run.phases[at].far_reads),
            far_read_bytes: count(&|run| run.phases[at].far_read_bytes),
            far_wanted_bytes: count(&|run| run.phases[at].far_wanted_bytes),
            expired_hits: count(&|run| run.phases[at].expired_hits),
            records_scanned: count(&|run| run.phases[at].records_scanned),
            far_p50_ns: count(&|run| run.phases[at].far_p50_ns),
            far_p99_ns: count(&|run| run.phases[at].far_p99_ns),
            events: EventsPerOp::median(runs.iter().map(|run| &run.phases[at].events)),
        });
    RunReport {
        engine: first.engine.clone(),
        partial: runs.iter().any(|run| run.partial),
        trace: first.trace.clone(),
        hot_keys: first.hot_keys.clone(),
        phases: phases.collect(),
        line_trip_ns: median(runs.iter().filter_map(|run| run.line_trip_ns).collect()),
        startup_seconds: number(&|run| run.startup_seconds),
        total_seconds: number(&|run| run.total_seconds),
        wrong_values: all.iter().map(|run| run.wrong_values).sum(),
        unverified_values: all.iter().map(|run| run.unverified_values).sum(),
        errors: sum(&|run| Some(&run.errors)),
        far_reads: count(&|run| run.far_reads),
        far_read_bytes: count(&|run| run.far_read_bytes),
        far_writes: count(&|run| run.far_writes),
        far_write_bytes: count(&|run| run.far_write_bytes),
        local_bytes_peak: peak.unwrap_or(0),
        local_bytes_cap: first.local_bytes_cap,
        keys_expired: count(&|run| run.keys_expired),
        index_bytes_per_key: number(&|run| run.index_bytes_per_key),
        compaction: runs[runs.len() / 2].compaction.clone(),
    }
}

/// Million requests a second.
#[must_use]
pub fn mops(ops: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        ops as f64 / seconds / 1e6
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_its_own_median() {
        let run = |seconds: f64, peak| RunReport {
            engine: "x".into(),
            phases: vec![PhaseReport {
                name: "write".into(),
                ops: 10,
                seconds,
                mops: mops(10, seconds),
                ..Default::default()
            }],
            total_seconds: seconds,
            wrong_values: 1,
            local_bytes_peak: peak,
            ..Default::default()
        };
        let median = medians(&[run(3.0, 5), run(1.0, 9), run(2.0, 4)]);
        assert_eq!((median.total_seconds, median.phases[0].seconds), (2.0, 2.0));
        assert_eq!((median.wrong_values, median.local_bytes_peak), (3, 9));
        assert_eq!(median.phases[0].mops, 5e-6);
        assert_eq!(median.line_trip_ns, None);
    }

    #[test]
    fn a_partial_run_counts_with_its_faults_only() {
        let run = |partial, mops, wrong_values| RunReport {
            partial,
            phases: vec![PhaseReport {
                mops,
                ..Default::default()
            }],
            wrong_values,
            unverified_values: 1,
            errors: ErrorCounts::from([("FarFull".into(), 2)]),
            ..Default::default()
        };
        let median = medians(&[run(false, 5.0, 0), run(true, 9.0, 3)]);
        assert!(!median.partial);
        assert_eq!(median.phases[0].mops, 5.0);
        assert_eq!((median.wrong_values, median.unverified_values), (3, 2));
        assert_eq!(median.errors["FarFull"], 4);
        let median = medians(&[run(true, 9.0, 3)]);
        assert!(median.partial && median.phases[0].mops == 9.0);
    }

    #[test]
    fn a_trip_that_was_not_measured_is_ignored() {
        let run = |line_trip_ns| RunReport {
            line_trip_ns,
            ..Default::default()
        };
        let median = medians(&[run(None), run(Some(90)), run(Some(110))]);
        assert_eq!(median.line_trip_ns, Some(110));
    }

    #[test]
    fn the_names_of_json_fields_are_stable() {
        let run = RunReport {
            phases: vec![PhaseReport::default()],
            ..Default::default()
        };
        let report = Report {
            origin: Origin::default(),
            machine: Machine::default(),
            plans: Vec::new(),
            runs: vec![run],
        };
        let value = serde_json::to_value(report).unwrap();
        let keys = |value: &Value| -> Vec<String> {
            let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
            keys.sort();
            keys
        };
        assert_eq!(
            keys(&value),
            [
                "command", "commit", "date", "machine", "partial", "plans", "runs", "version"
            ]
        );
        let run = &value["runs"][0];
        assert_eq!(
            keys(run),
            [
                "compaction",
                "engine",
                "errors",
                "far_read_bytes",
                "far_reads",
                "far_write_bytes",
                "far_writes",
                "index_bytes_per_key",
                "local_bytes_cap",
                "local_bytes_peak",
                "partial",
                "phases",
                "startup_seconds",
                "total_seconds",
                "unverified_values",
                "wrong_values"
            ]
        );
        assert_eq!(
            keys(&run["phases"][0]),
            [
                "cpu_seconds",
                "errors",
                "far_p50_ns",
                "far_p99_ns",
                "far_read_bytes",
                "far_reads",
                "far_wanted_bytes",
                "mops",
                "name",
                "ops",
                "p50_ns",
                "p999_ns",
                "p99_ns",
                "seconds"
            ]
        );
    }
}
