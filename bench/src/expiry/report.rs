//! The figures of `expiry`, in the form that `--json` writes, and their table.

use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};

use super::settings::Place;
use crate::machine::Machine;
use crate::origin::Origin;
use crate::plan::Plan;
use crate::table::nanoseconds;

/// Most that the p99 while keys expire may be of the p99 before.
const RATIO_MAX: f64 = 2.0;
/// Least share of the expired bytes that are back after [`BACK_AFTER_MS`].
const BACK_MIN: f64 = 0.95;
const BACK_AFTER_MS: u64 = 10_000;

/// Everything that one command measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExpiryReport {
    /// The command, the program and the date.
    #[serde(flatten)]
    pub origin: Origin,
    /// The machine.
    pub machine: Machine,
    /// The plan of each run.
    pub plans: Vec<Plan>,
    /// The runs, one a place.
    pub runs: Vec<Run>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Where the records were.
    pub place: Place,
    /// Time to open the engine, pre-faulting included.
    pub startup_seconds: f64,
    /// Million gets a second of processor time at most, all cores together.
    pub most_mops: f64,
    /// The same while keys expired.
    pub load_mops: f64,
    /// Gets measured before the first key expired.
    pub gets_before: u64,
    /// Gets measured while keys expired.
    pub gets_during: u64,
    /// Median latency of gets by the clock, before the first key expired.
    pub p50_before_ns: u64,
    /// The same while keys expired.
    pub p50_during_ns: u64,
    /// Exceeded by one get in a hundred, before.
    pub p99_before_ns: u64,
    /// The same while keys expired.
    pub p99_during_ns: u64,
    /// The same in each second after the last had expired.
    pub p99_after_ns: Vec<u64>,
    /// Exceeded by one get in a hundred, before: processor time of the core between the moment when
    /// a get was due, and its answer.
    pub processor_p99_before_ns: u64,
    /// The same while keys expired.
    pub processor_p99_during_ns: u64,
    /// What had come back, at each time.
    pub comebacks: Vec<Comeback>,
    /// Wrong, missing and unexpected answers. Anything but 0 is a failure.
    pub wrong_values: u64,
    /// Those that found a key after it had expired.
    pub found_late: u64,
    /// Requests that ended with an error.
    pub errors: u64,
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

/// The table: a column a place.
#[must_use]
pub fn render(runs: &[Run]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    let mut header = vec!["keys that expire".to_owned()];
    header.extend(runs.iter().map(|run| run.place.name().to_owned()));
    table.set_header(header);
    let mut line = |name: &str, show: &dyn Fn(&Run) -> String| {
        let mut row = vec![name.to_owned()];
        row.extend(runs.iter().map(show));
        table.add_row(row);
    };
    line("most, Mops/s", &|run| format!("{:.2}", run.most_mops));
    line("load, Mops/s", &|run| format!("{:.2}", run.load_mops));
    line("p99 before", &|run| {
        nanoseconds(run.processor_p99_before_ns)
    });
    line("p99 while keys expire", &|run| {
        nanoseconds(run.processor_p99_during_ns)
    });
    line("ratio of p99 (wanted: at most 2)", &|run| {
        let ratio = run.processor_ratio();
        verdict(ratio <= RATIO_MAX, format!("{ratio:.2}"))
    });
    line("by the clock: p50 before", &|run| {
        nanoseconds(run.p50_before_ns)
    });
    line("p50 while keys expire", &|run| {
        nanoseconds(run.p50_during_ns)
    });
    line("p99 before", &|run| nanoseconds(run.p99_before_ns));
    line("p99 while keys expire", &|run| {
        nanoseconds(run.p99_during_ns)
    });
    line("ratio of p99", &|run| format!("{:.2}", run.ratio()));
    line("ratio of p99, worst second", &|run| {
        format!("{:.2}", run.worst_ratio())
    });
    let longest = runs
        .iter()
        .map(|run| run.comebacks.len())
        .max()
        .unwrap_or(0);
    for at in 0..longest {
        let after = runs.iter().find_map(|run| run.comebacks.get(at));
        let seconds = after.map_or(0.0, |after| after.after_ms as f64 / 1e3);
        let of = |run: &Run| run.comebacks.get(at).copied();
        line(&format!("bytes back after {seconds} s"), &|run| {
            of(run).map_or_else(
                || "-".to_owned(),
                |back| {
                    let is_enough = back.after_ms < BACK_AFTER_MS || back.bytes >= BACK_MIN;
                    verdict(is_enough, format!("{:.1} %", back.bytes * 100.0))
                },
            )
        });
        line(&format!("records removed after {seconds} s"), &|run| {
            of(run).map_or_else(
                || "-".to_owned(),
                |back| format!("{:.1} %", back.removed * 100.0),
            )
        });
    }
    line("wrong values", &|run| run.wrong_values.to_string());
    line("errors", &|run| run.errors.to_string());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "{table}\nrates and the first p99s are in processor time of the cores; wanted of bytes back: 95 % after 10 s"
    )
}

fn verdict(is_met: bool, figure: String) -> String {
    if is_met {
        figure
    } else {
        format!("{figure} (missed)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missed_is_marked() {
        let run = |place, processor_p99_during_ns, bytes| Run {
            place,
            startup_seconds: 0.1,
            most_mops: 10.0,
            load_mops: 1.0,
            gets_before: 1,
            gets_during: 1,
            p50_before_ns: 500,
            p50_during_ns: 500,
            p99_before_ns: 1_000,
            p99_during_ns: 900,
            p99_after_ns: vec![900, 4_000],
            processor_p99_before_ns: 700,
            processor_p99_during_ns,
            comebacks: vec![Comeback {
                after_ms: 10_000,
                removed: 0.5,
                bytes,
            }],
            wrong_values: 0,
            found_late: 0,
            errors: 0,
        };
        let met = run(Place::Local, 1_400, 0.95);
        assert_eq!((met.processor_ratio(), met.worst_ratio()), (2.0, 4.0));
        assert!(!render(std::slice::from_ref(&met)).contains("missed"));
        let text = render(&[met, run(Place::Far, 1_470, 0.9)]);
        assert!(
            text.contains("2.10 (missed)") && text.contains("90.0 % (missed)"),
            "{text}"
        );
    }
}
