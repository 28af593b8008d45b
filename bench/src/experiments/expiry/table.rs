//! The table of `expiry`. A pure function of the runs; a cell without a figure is `-`.

use comfy_table::{CellAlignment, Table, presets};

use super::report::Run;
use crate::failures;
use crate::series::faults_of;
use crate::table::nanoseconds;

/// Most that the p99 while keys expire may be of the p99 before.
const RATIO_MAX: f64 = 2.0;
/// Least share of the expired bytes that are back after [`BACK_AFTER_MS`].
const BACK_MIN: f64 = 0.95;
const BACK_AFTER_MS: u64 = 10_000;

/// Adds a row: its name, and the cell of each run.
type RowOf<'a> = dyn FnMut(&str, &dyn Fn(&Run) -> String) + 'a;

/// The table: a column a place.
pub(super) fn render(runs: &[Run]) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    let mut header = vec!["keys that expire".to_owned()];
    header.extend(runs.iter().map(|run| {
        let partial = run.faults.mark();
        format!("{}{partial}", run.place.name())
    }));
    table.set_header(header);
    let mut line = |name: &str, show: &dyn Fn(&Run) -> String| {
        let mut row = vec![name.to_owned()];
        row.extend(runs.iter().map(show));
        table.add_row(row);
    };
    speed_rows(&mut line);
    comeback_rows(runs, &mut line);
    fault_rows(runs, &mut line);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "{table}\nrates and the first p99s are in processor time of the cores; wanted of bytes back: 95 % after 10 s"
    )
}

/// Rates and latencies.
fn speed_rows(line: &mut RowOf<'_>) {
    line("most, Mops/s", &|run| format!("{:.2}", run.most_mops));
    line("load, Mops/s", &|run| format!("{:.2}", run.load_mops));
    line("p99 before", &|run| {
        nanoseconds(run.processor_p99_before_ns)
    });
    line("p99 while keys expire", &|run| {
        during(run, nanoseconds(run.processor_p99_during_ns))
    });
    line("ratio of p99 (wanted: at most 2)", &|run| {
        let ratio = run.processor_ratio();
        during(run, verdict(ratio <= RATIO_MAX, format!("{ratio:.2}")))
    });
    line("by the clock: p50 before", &|run| {
        nanoseconds(run.p50_before_ns)
    });
    line("p50 while keys expire", &|run| {
        during(run, nanoseconds(run.p50_during_ns))
    });
    line("p99 before", &|run| nanoseconds(run.p99_before_ns));
    line("p99 while keys expire", &|run| {
        during(run, nanoseconds(run.p99_during_ns))
    });
    line("ratio of p99", &|run| {
        during(run, format!("{:.2}", run.ratio()))
    });
    line("ratio of p99, worst second", &|run| {
        during(run, format!("{:.2}", run.worst_ratio()))
    });
}

/// How much memory had come back, at each time.
fn comeback_rows(runs: &[Run], line: &mut RowOf<'_>) {
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
}

/// Wrong values, and errors by kind.
fn fault_rows(runs: &[Run], line: &mut RowOf<'_>) {
    line("wrong values", &|run| run.faults.wrong_values.to_string());
    if runs.iter().any(|run| run.unverified_values > 0) {
        line("unverified values", &|run| {
            run.unverified_values.to_string()
        });
    }
    line("errors", &|run| {
        failures::total(&run.faults.errors).to_string()
    });
    for kind in faults_of(runs).1.keys() {
        line(&format!("- {kind}"), &|run| {
            let count = run.faults.errors.get(kind).copied().unwrap_or(0);
            count.to_string()
        });
    }
}

/// A figure of the time while keys expired, where a run got that far.
fn during(run: &Run, figure: String) -> String {
    if run.gets_during == 0 {
        "-".to_owned()
    } else {
        figure
    }
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
    use super::super::report::Comeback;
    use super::super::settings::Place;
    use super::*;
    use crate::series::Faults;

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
            faults: Faults::default(),
            unverified_values: 0,
            found_late: 0,
        };
        let met = run(Place::Local, 1_400, 0.95);
        assert_eq!((met.processor_ratio(), met.worst_ratio()), (2.0, 4.0));
        assert!(!render(std::slice::from_ref(&met)).contains("missed"));
        let text = render(&[met, run(Place::Far, 1_470, 0.9)]);
        assert!(
            text.contains("2.10 (missed)") && text.contains("90.0 % (missed)"),
            "{text}"
        );
        let cut = Run {
            gets_during: 0,
            comebacks: Vec::new(),
            faults: Faults {
                partial: true,
                errors: [("FarFull".into(), 7)].into(),
                ..Faults::default()
            },
            ..run(Place::Far, 0, 0.0)
        };
        let text = render(&[cut]);
        for words in ["far (partial)", "- FarFull", " 7 "] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(!text.contains("missed"), "{text}");
    }
}
