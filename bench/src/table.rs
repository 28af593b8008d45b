//! The table at the end of a command, and the lines below it.
//!
//! A pure function of the reports: it measures nothing and prints nothing. A cell without a figure
//! is `-`.

use std::fmt::Write;

use comfy_table::{CellAlignment, Table, presets};
use farcore_command::words::size;

use crate::contrast::{Common, Contrast, contrasts};
use crate::events;
use crate::failures::{self, ErrorCounts};
use crate::plan::EngineName;
use crate::report::{RunReport, mops};

/// The table: rows are phases and totals, columns are engines and the ratios of farcore to the best
/// of the baselines that are like it. `digests` are the result hashes of all runs.
#[must_use]
pub fn render(runs: &[RunReport], digests: &[u64]) -> String {
    let contrasts = contrasts(runs);
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    phase_rows(&mut table, runs, &contrasts);
    total_rows(&mut table, runs);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = table.to_string();
    if let Some(events) = events::table(runs) {
        let _ = write!(text, "\n{events}");
    }
    // The time of a run that did less than the others says nothing.
    if !runs
        .iter()
        .any(|run| run.partial || failures::total(&run.errors) > 0)
    {
        for contrast in &contrasts {
            let _ = write!(text, "\n{}", total_time(runs, contrast));
        }
        if !contrasts.is_empty() {
            text.push_str(" (ratios are to the best baseline of each row)");
        }
    }
    if !digests.is_empty() {
        let _ = write!(text, "\nresult hash: {}", result_hash(digests));
    }
    let has = |engine: EngineName| runs.iter().any(|run| run.engine == engine.name());
    if has(EngineName::Dashmap) || has(EngineName::Sharded) {
        text.push_str("\ndashmap and sharded hold everything in local memory: they have no far tier and no cap");
        let capped = has(EngineName::Farcore) && contrasts.is_empty();
        if capped && !has(EngineName::FarcoreAllLocal) {
            text.push_str("; add farcore-all-local to --engines to compare like with like");
        }
    }
    text
}

/// The total times of a contrast in words.
fn total_time(runs: &[RunReport], contrast: &Contrast) -> String {
    let seconds = |&at: &usize| runs[at].total_seconds;
    let by_seconds = |one: &usize, other: &usize| seconds(one).total_cmp(&seconds(other));
    let best = contrast.others.iter().copied().min_by(by_seconds);
    let best = best.unwrap_or(contrast.ours);
    let (ours, theirs) = (&runs[contrast.ours], &runs[best]);
    let common = match contrast.common {
        Common::Cap(bytes) => format!("each with {} of local memory", size(bytes)),
        Common::AllLocal => "all data in local memory".to_owned(),
    };
    format!(
        "total time: {} takes {:.2} of {}'s, the best baseline's; {common}",
        ours.engine,
        ours.total_seconds / theirs.total_seconds,
        theirs.engine
    )
}

/// One hash if all runs agree, else those of all runs.
fn result_hash(digests: &[u64]) -> String {
    let hashes: Vec<String> = digests
        .iter()
        .map(|digest| format!("{digest:016x}"))
        .collect();
    if digests.windows(2).all(|pair| pair[0] == pair[1]) {
        hashes.first().cloned().unwrap_or_default()
    } else {
        hashes.join(" ")
    }
}

/// The header, and the throughput of each phase.
fn phase_rows(table: &mut Table, runs: &[RunReport], contrasts: &[Contrast]) {
    let mut header = vec!["Mops/s".to_owned()];
    header.extend(runs.iter().map(|run| {
        let partial = if run.partial { " (partial)" } else { "" };
        format!("{}{partial}", run.engine)
    }));
    header.extend(contrasts.iter().map(|contrast| match contrasts.len() {
        1 => "ratio".to_owned(),
        _ => format!("ratio of {}", runs[contrast.ours].engine),
    }));
    table.set_header(header);

    // A run that a signal ended has fewer phases.
    let longest = runs.iter().max_by_key(|run| run.phases.len());
    let phases = longest.map_or(&[][..], |run| &run.phases);
    for (at, phase) in phases.iter().enumerate() {
        let measured = |run: &RunReport| run.phases.get(at).map(|phase| phase.mops);
        let mops = |run: &RunReport| measured(run).unwrap_or(0.0);
        let mut row = vec![phase.name.clone()];
        row.extend(
            runs.iter().map(|run| {
                measured(run).map_or_else(|| "-".to_owned(), |mops| format!("{mops:.2}"))
            }),
        );
        for contrast in contrasts {
            let others = contrast.others.iter().map(|&at| mops(&runs[at]));
            row.push(ratio(
                mops(&runs[contrast.ours]),
                others.fold(0.0, f64::max),
            ));
        }
        table.add_row(row);
    }
}

/// Adds a row: its name, and the cell of each run.
type RowOf<'a> = dyn FnMut(&str, &dyn Fn(&RunReport) -> String) + 'a;

/// The rows below the phases.
fn total_rows(table: &mut Table, runs: &[RunReport]) {
    let mut line = |name: &str, show: &dyn Fn(&RunReport) -> String| {
        let mut row = vec![name.to_owned()];
        row.extend(runs.iter().map(show));
        table.add_row(row);
    };
    line("line there and back", &|run| {
        run.line_trip_ns.map_or_else(|| "-".to_owned(), nanoseconds)
    });
    line("start-up s", &|run| format!("{:.2}", run.startup_seconds));
    line("total s", &|run| format!("{:.2}", run.total_seconds));
    line("last phase p50", &|run| latency(run, |phase| phase.p50_ns));
    line("last phase p99", &|run| latency(run, |phase| phase.p99_ns));
    line("last phase far p50", &|run| {
        last_far(run, |phase| phase.far_p50_ns)
    });
    line("last phase far p99", &|run| {
        last_far(run, |phase| phase.far_p99_ns)
    });
    if let Some(trace) = runs.first().and_then(|run| run.trace.as_ref()) {
        let gets = (trace.hits + trace.misses).max(1) as f64;
        line("gets that hit", &|run| {
            let hits = trace.hits.saturating_sub(expired_hits(run));
            format!("{:.1} %", hits as f64 / gets * 100.0)
        });
        line("values read", &|_| size(trace.read_bytes));
        line("values written", &|_| size(trace.written_bytes));
    }
    line("far reads", &|run| {
        dash(run.far_reads, |count| count.to_string())
    });
    line("far read", &|run| dash(run.far_read_bytes, size));
    line("far written", &|run| dash(run.far_write_bytes, size));
    line("process peak", &|run| size(run.local_bytes_peak));
    line("engine's cap", &|run| dash(run.local_bytes_cap, size));
    line("index B/key", &|run| {
        if run.index_bytes_per_key > 0.0 {
            format!("{:.1}", run.index_bytes_per_key)
        } else {
            "-".to_owned()
        }
    });
    scan_and_expiry_rows(runs, &mut line);
    line("wrong values", &|run| run.wrong_values.to_string());
    if runs.iter().any(|run| run.unverified_values > 0) {
        line("unverified values", &|run| {
            run.unverified_values.to_string()
        });
    }
    let mut all = ErrorCounts::new();
    for run in runs {
        failures::add(&mut all, &run.errors);
    }
    line("errors", &|run| failures::total(&run.errors).to_string());
    for kind in all.keys() {
        line(&format!("- {kind}"), &|run| {
            dash(run.errors.get(kind).copied().unwrap_or(0), |count| {
                count.to_string()
            })
        });
    }
}

/// The rows of scans and of keys that expire, where there are any.
fn scan_and_expiry_rows(runs: &[RunReport], line: &mut RowOf<'_>) {
    let scanned = |run: &RunReport| run.phases.last().map_or(0, |phase| phase.records_scanned);
    if runs.iter().any(|run| scanned(run) > 0) {
        line("records scanned, in index order", &|run| {
            scanned(run).to_string()
        });
        line("records scanned, M/s", &|run| {
            let seconds = run.phases.last().map_or(0.0, |phase| phase.seconds);
            format!("{:.2}", mops(scanned(run), seconds))
        });
    }
    if runs
        .iter()
        .any(|run| expired_hits(run) + run.keys_expired > 0)
    {
        line("gets of expired keys", &|run| expired_hits(run).to_string());
        line("expired keys removed", &|run| run.keys_expired.to_string());
    }
}

/// Gets that found their key expired, in all phases.
fn expired_hits(run: &RunReport) -> u64 {
    run.phases.iter().map(|phase| phase.expired_hits).sum()
}

fn ratio(ours: f64, best: f64) -> String {
    if best > 0.0 {
        format!("{:.2}x", ours / best)
    } else {
        "-".to_owned()
    }
}

fn dash(count: u64, show: impl Fn(u64) -> String) -> String {
    if count == 0 {
        "-".to_owned()
    } else {
        show(count)
    }
}

fn latency(run: &RunReport, of: impl Fn(&crate::report::PhaseReport) -> u64) -> String {
    run.phases
        .last()
        .map_or_else(String::new, |phase| nanoseconds(of(phase)))
}

fn last_far(run: &RunReport, of: impl Fn(&crate::report::PhaseReport) -> u64) -> String {
    dash(run.phases.last().map_or(0, of), nanoseconds)
}

/// A time in nanoseconds, microseconds or milliseconds, whichever suits.
#[must_use]
pub fn nanoseconds(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::PhaseReport;

    #[test]
    fn the_table_compares_with_the_best_baseline() {
        let run = |engine: &str, mops: f64| RunReport {
            engine: engine.into(),
            phases: vec![PhaseReport {
                name: "hot".into(),
                mops,
                p99_ns: 1500,
                ..Default::default()
            }],
            total_seconds: 6.0 / mops,
            ..Default::default()
        };
        let text = render(
            &[run("farcore", 6.0), run("dashmap", 2.0), run("x", 3.0)],
            &[1, 1, 1],
        );
        assert!(
            text.contains("2.00x") && text.contains("takes 0.50") && text.contains("1.5 us"),
            "{text}"
        );
        assert!(text.contains("result hash: 0000000000000001") && text.contains("no far tier"));
        let failed = RunReport {
            errors: ErrorCounts::from([("FarFull".into(), 1)]),
            ..run("farcore", 6.0)
        };
        let text = render(&[failed, run("dashmap", 2.0)], &[1, 1]);
        assert!(!text.contains("total time: "), "{text}");
    }
}
