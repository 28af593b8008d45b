//! The header and the tables of `embed`: one table for each kind of caller, a row for each engine
//! and number. Pure functions: nothing is measured or printed here.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use farcore_command::words::size;

use super::counts::SAMPLE_PERIOD;
use super::report::{Beside, EmbedReport, Idle, Row, Spread};
use super::settings::{BATCH, Caller, Part, Settings, TURN, WINDOW};
use super::settings_of;
use crate::failures;
use crate::plan::Plan;
use crate::table::nanoseconds;

/// Most that an idle engine may take of a core, and slow a program beside it.
const IDLE_MAX: f64 = 0.01;

/// What is measured, before it is.
#[must_use]
pub(super) fn header(plans: &[Plan], repeats: u32) -> String {
    let mut text = String::new();
    let measured: Vec<(&Plan, &Settings)> = plans
        .iter()
        .filter_map(|plan| Some((plan, settings_of(plan)?)))
        .collect();
    if let Some((plan, settings)) = measured.first() {
        let _ = writeln!(
            text,
            "{settings}, seed {}; {repeats} rounds of all engines in turn, {} s for each number of callers",
            plan.seed, settings.seconds
        );
    }
    let callers = measured
        .iter()
        .filter(|(_, settings)| settings.part == Part::Callers);
    let mut maps = false;
    for (plan, settings) in callers.clone() {
        maps |= !settings.subject.is_ours();
        let _ = writeln!(text, "- {}", engine_line(plan, settings));
    }
    let has = |caller| {
        let mut all = callers.clone();
        all.any(|(_, settings)| settings.callers.contains(&caller))
    };
    if maps {
        text += "a map has one kind of single call, direct, which stands for handle, client and window\n";
    }
    if maps && has(Caller::Tasks) {
        text += "a map has no asynchronous form: its tasks call it directly, on the runtime's threads\n";
    }
    if maps && !cfg!(feature = "peers") {
        text += "built without the feature `peers`: dashmap is the only map here\n";
    }
    if callers.clone().next().is_some() {
        let _ = writeln!(
            text,
            "latency: one single call in {SAMPLE_PERIOD} is timed, and each batch, until the value has been checked"
        );
    }
    if has(Caller::Tasks) {
        let workers = measured.first().map_or(0, |(_, settings)| settings.workers);
        let _ = writeln!(
            text,
            "tasks run on {workers} threads, and yield after {TURN} calls"
        );
    }
    text.truncate(text.trim_end().len());
    text
}

/// An engine and where it runs.
fn engine_line(plan: &Plan, settings: &Settings) -> String {
    let name = settings.subject.name();
    if !settings.subject.is_ours() {
        return name.to_owned();
    }
    let callers = match settings.caller_cores[..] {
        [] => "callers anywhere".to_owned(),
        _ => format!("callers on {}", list(&settings.caller_cores)),
    };
    let memory = match settings.local_percent {
        None => "all data local".to_owned(),
        Some(percent) => {
            format!(
                "local memory for {percent} % of the data ({} with lanes), far memory {} away",
                size(plan.local_bytes),
                nanoseconds(plan.far_latency_ns)
            )
        }
    };
    format!("{name}: cores {}, {callers}, {memory}", list(&plan.cores))
}

fn list(cores: &[usize]) -> String {
    let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
    cores.join(",")
}

/// The title of a caller's table.
fn title(caller: Caller) -> String {
    match caller {
        Caller::Handle => "handle: threads that block, a handle each".to_owned(),
        Caller::Client => "client: threads that block and share a client".to_owned(),
        Caller::Batch => format!("batch: threads that send {BATCH} keys with each call"),
        Caller::Tasks => "tasks: tasks that await".to_owned(),
        Caller::Window => {
            format!("window: threads that keep {WINDOW} requests in flight (submit and poll)")
        }
        Caller::Direct => "direct: threads that call a map".to_owned(),
    }
}

/// The tables and the notes below them.
#[must_use]
pub fn render(report: &EmbedReport) -> String {
    let mut text = String::new();
    let crowds = report.crowds();
    let mut callers: Vec<Caller> = crowds.iter().map(|crowd| crowd.caller).collect();
    callers.dedup();
    for caller in callers {
        let has_ratio = report.rows.iter().any(|row| row.ratio_to_local.is_some());
        let counts = crowds.iter().filter(|crowd| crowd.caller == caller);
        let mut table = new_table(caller, has_ratio);
        for crowd in counts {
            let engines = report.engines();
            let rows = engines
                .iter()
                .filter_map(|&engine| report.row(engine, caller, crowd.count));
            for row in rows {
                table.add_row(cells(row, has_ratio));
            }
        }
        for (place, column) in table.column_iter_mut().enumerate() {
            if place != 1 {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let _ = writeln!(text, "{}\n{table}", title(caller));
    }
    for idle in &report.idle {
        let _ = writeln!(text, "{}", idle_line(idle));
    }
    for beside in &report.beside {
        let _ = writeln!(text, "{}", beside_line(beside));
    }
    if report.call_bytes > 0 {
        let _ = writeln!(
            text,
            "a waiting call takes {} bytes in its task",
            report.call_bytes
        );
    }
    let _ = write!(text, "wrong values: {}", report.wrong_values);
    if !report.errors.is_empty() {
        let _ = write!(text, ", errors: {}", failures::describe(&report.errors));
    }
    if !report.rows.is_empty() {
        text += "; figures are medians of the rounds, with the least and the most in brackets";
    }
    text
}

fn new_table(caller: Caller, has_ratio: bool) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    let count = match caller {
        Caller::Tasks => "tasks",
        _ => "threads",
    };
    let mut header = vec![
        count,
        "engine",
        "Mops/s",
        "least to most",
        "p50",
        "p99",
        "p99.9",
        "processor time",
    ];
    if has_ratio {
        header.push("of all local");
    }
    table.set_header(header);
    table
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive time"
)]
fn time(spread: Spread) -> String {
    nanoseconds(spread.median as u64)
}

fn cells(row: &Row, has_ratio: bool) -> Vec<String> {
    let mut cells = vec![
        row.count.to_string(),
        row.engine.name().to_owned(),
        format!("{:.3}", row.mops.median),
        format!("({:.3} to {:.3})", row.mops.least, row.mops.most),
        time(row.p50_ns),
        time(row.p99_ns),
        time(row.p999_ns),
        time(row.cpu_ns_per_op),
    ];
    if has_ratio {
        cells.push(row.ratio_to_local.map_or_else(String::new, |ratio| {
            format!(
                "{:.2} ({:.2} to {:.2})",
                ratio.median, ratio.least, ratio.most
            )
        }));
    }
    cells
}

fn idle_line(idle: &Idle) -> String {
    let missed = if idle.share_of_a_core > IDLE_MAX {
        " (missed)"
    } else {
        ""
    };
    format!(
        "idle: {} takes {:.2} % of a core, seen for {:.1} s; wanted: at most {} %{missed}",
        idle.engine.name(),
        idle.share_of_a_core * 100.0,
        idle.seconds,
        IDLE_MAX * 100.0
    )
}

fn beside_line(beside: &Beside) -> String {
    let name = beside.engine.name();
    let Some(ratio) = beside.ratio else {
        return format!("beside: a program beside idle {name} was not measured");
    };
    let missed = if ratio.median < 1.0 - IDLE_MAX {
        " (missed)"
    } else {
        ""
    };
    format!(
        "beside: a program on all cores runs at {:.4} of its speed beside idle {name}, {:.4} to {:.4} with {:.1} % \
         confidence, {} pairs; wanted: at least {}{missed}",
        ratio.median,
        ratio.low,
        ratio.high,
        ratio.confidence * 100.0,
        ratio.pairs,
        1.0 - IDLE_MAX
    )
}

#[cfg(test)]
mod tests {
    use farcore_tuning::RatioEstimate;

    use super::super::report::tests::report;
    use super::super::settings::Subject;
    use super::*;

    #[test]
    fn a_map_stands_in_the_tables_of_single_calls() {
        let report = report(&[
            (Subject::Farcore, Caller::Handle, &[1_000_000]),
            (Subject::Farcore, Caller::Tasks, &[500_000]),
            (Subject::Dashmap, Caller::Direct, &[2_000_000]),
        ]);
        let text = render(&report);
        let (handles, tasks) = text.split_once("tasks: tasks that await").unwrap();
        assert!(
            handles.contains("2.000") && handles.contains("4.000"),
            "{text}"
        );
        assert!(
            tasks.contains("1.000") && !tasks.contains("dashmap"),
            "{text}"
        );
        assert!(text.contains("500 ns") && text.contains("3.0 ms"), "{text}");
        assert!(!text.contains("of all local"), "{text}");
    }

    #[test]
    fn the_ratio_to_local_data_is_shown_where_there_is_one() {
        let text = render(&report(&[
            (Subject::Farcore, Caller::Tasks, &[100]),
            (Subject::FarcoreFar, Caller::Tasks, &[70]),
        ]));
        assert!(text.contains("0.70 (0.70 to 0.70)"), "{text}");
    }

    #[test]
    fn what_is_missed_is_marked() {
        let idle = |share_of_a_core| {
            idle_line(&Idle {
                engine: Subject::Farcore,
                seconds: 3.0,
                share_of_a_core,
            })
        };
        assert!(!idle(0.01).contains("missed") && idle(0.011).contains("missed"));
        let beside = |ratios: &[f64]| {
            beside_line(&Beside {
                engine: Subject::Farcore,
                ratio: RatioEstimate::of(ratios, 0.95),
                ratios: ratios.to_vec(),
            })
        };
        assert!(!beside(&[0.995; 8]).contains("missed") && beside(&[0.98; 8]).contains("missed"));
        assert!(beside(&[]).contains("not measured"));
    }
}
