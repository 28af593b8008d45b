//! One table: rows, the best of each in bold, and the ratio that shows where farcore loses.
//!
//! I1: a ratio above 1 is to farcore's credit, whether more or less of the figure is better. I2:
//! ratios are rounded down, so a loss never reads as 1.00. I3: a ratio is the median of the ratios
//! within each round, so changes of the machine between
//!     rounds cancel out.

use std::fmt::Write;

use super::figures::{Phase, Run, median};
use super::plan::{Column, Contrast, Section};

/// The direction in which a figure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Better {
    More,
    Less,
    Neither,
}

/// One figure of every column.
#[derive(Clone, Debug)]
struct Row {
    name: String,
    /// The figures of each column: one for each round that has it.
    cells: Vec<Vec<f64>>,
    show: fn(f64) -> String,
    better: Better,
}

/// A row where farcore is not the best.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Loss {
    /// The row.
    pub(super) row: String,
    /// The ratio as the table shows it.
    pub(super) ratio: String,
    /// The best peer.
    pub(super) peer: String,
}

/// A table and its losses.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    /// Markdown.
    pub(super) text: String,
    /// Rows with a ratio below 1, in tables that compare with peers.
    pub(super) losses: Vec<Loss>,
}

impl Row {
    /// The median of each column that has figures.
    fn medians(&self) -> Vec<Option<f64>> {
        let of = |rounds: &Vec<f64>| median(rounds.iter().copied());
        self.cells.iter().map(of).collect()
    }

    /// The best of the columns that `among` selects, with its place.
    fn best(&self, among: impl Fn(usize) -> bool) -> Option<(usize, f64)> {
        let cells = self.medians().into_iter().enumerate();
        let known = cells.filter_map(|(place, cell)| Some((place, cell?)));
        let known = known.filter(|&(place, _)| among(place));
        let order = |one: &(usize, f64), other: &(usize, f64)| one.1.total_cmp(&other.1);
        match self.better {
            // The first one of equals.
            Better::More => known.min_by(|one, other| order(other, one)),
            Better::Less => known.min_by(order),
            Better::Neither => None,
        }
    }

    /// How much better one column is than another: the median of the rounds' ratios.
    fn ratio(&self, ours: usize, theirs: usize) -> Option<f64> {
        let [ours, theirs] = [self.cells.get(ours)?, self.cells.get(theirs)?];
        let ratio = |(ours, theirs): (&f64, &f64)| match self.better {
            Better::More => ours / theirs,
            Better::Less => theirs / ours,
            Better::Neither => f64::NAN,
        };
        median(ours.iter().zip(theirs).map(ratio)).filter(|ratio| ratio.is_finite())
    }

    /// The text of each column; the best is bold if several columns have figures.
    fn shown(&self) -> Vec<String> {
        let medians = self.medians();
        let several = medians.iter().flatten().count() > 1;
        let best = self.best(|_| several).map(|(_, best)| best);
        let cell = |cell: Option<f64>| match cell {
            None => String::new(),
            Some(figure) if best == Some(figure) => format!("**{}**", (self.show)(figure)),
            Some(figure) => (self.show)(figure),
        };
        medians.into_iter().map(cell).collect()
    }
}

fn rate(mops: f64) -> String {
    format!("{mops:.2}")
}

fn seconds(seconds: f64) -> String {
    if seconds < 1.0 {
        format!("{seconds:.3}")
    } else {
        format!("{seconds:.2}")
    }
}

pub(super) fn latency(ns: f64) -> String {
    match ns {
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{:.1} us", ns / 1e3),
        _ => format!("{:.1} ms", ns / 1e6),
    }
}

fn bytes(bytes: f64) -> String {
    format!("{bytes:.1}")
}

fn whole(count: f64) -> String {
    format!("{count:.0}")
}

pub(super) fn rounded_down(ratio: f64) -> String {
    if ratio < 0.1 {
        format!("{:.4}", (ratio * 1e4).floor() / 1e4)
    } else {
        format!("{:.2}", (ratio * 1e2).floor() / 1e2)
    }
}

/// Selects a latency.
type Quantile = fn(&Phase) -> f64;

/// A figure of every column and round.
fn cells(runs: &[Vec<&Run>], of: &dyn Fn(&Run) -> Option<f64>) -> Vec<Vec<f64>> {
    let rounds = |runs: &Vec<&Run>| runs.iter().filter_map(|run| of(run)).collect();
    runs.iter().map(rounds).collect()
}

fn rows(runs: &[Vec<&Run>], contrast: Contrast) -> Vec<Row> {
    let mut rows = figures(runs, contrast);
    let trips = Row {
        name: "line there and back".to_owned(),
        cells: cells(runs, &|run| run.line_trip_ns),
        show: latency,
        better: Better::Neither,
    };
    if trips.cells.iter().any(|rounds| !rounds.is_empty()) {
        rows.push(trips);
    }
    rows
}

fn figures(runs: &[Vec<&Run>], contrast: Contrast) -> Vec<Row> {
    let row = |name: &str, better, show, of: &dyn Fn(&Run) -> Option<f64>| Row {
        name: name.to_owned(),
        cells: cells(runs, of),
        show,
        better,
    };
    let phases = runs
        .iter()
        .flatten()
        .next()
        .map_or(&[][..], |run| &run.phases);
    let first = match contrast {
        Contrast::Last(_) => phases.len().saturating_sub(1),
        _ => 0,
    };
    let mut rows: Vec<Row> = phases[first..]
        .iter()
        .map(|phase| {
            let mops = |run: &Run| Some(run.phase(&phase.name)?.mops);
            row(&phase.name, Better::More, rate, &mops)
        })
        .collect();
    if matches!(contrast, Contrast::Rates(_)) {
        return rows;
    }
    if !matches!(contrast, Contrast::Last(_)) {
        rows.push(row("total, s", Better::Less, seconds, &|run| {
            Some(run.total_seconds)
        }));
    }
    if let Some(last) = phases.last() {
        let quantiles: [(&str, Quantile); 3] = [
            ("p50", |phase| phase.p50_ns),
            ("p99", |phase| phase.p99_ns),
            ("p999", |phase| phase.p999_ns),
        ];
        for (quantile, of) in quantiles {
            let name = format!("{quantile} of {}", last.name);
            let of = |run: &Run| Some(of(run.phase(&last.name)?));
            rows.push(row(&name, Better::Less, latency, &of));
        }
    }
    if matches!(contrast, Contrast::Last(_)) {
        return rows;
    }
    if let Some(last) = phases.last().filter(|last| last.far_reads_per_op > 0.0) {
        let name = format!("far reads of {}, M/s", last.name);
        let reads = |run: &Run| {
            let phase = run.phase(&last.name)?;
            Some(phase.mops * phase.far_reads_per_op)
        };
        rows.push(row(&name, Better::Neither, rate, &reads));
    }
    rows.push(row("start-up, s", Better::Less, seconds, &|run| {
        Some(run.startup_seconds)
    }));
    rows.push(row("index, bytes a key", Better::Less, bytes, &|run| {
        Some(run.index_bytes_per_key).filter(|&bytes| bytes > 0.0)
    }));
    rows.push(row("wrong values", Better::Neither, whole, &|run| {
        Some(run.wrong_values as f64)
    }));
    rows
}

/// The heading of the last column; `None` if there is nothing to compare.
fn heading(section: &Section) -> Option<&'static str> {
    match section.contrast {
        Contrast::Peers => section
            .columns
            .iter()
            .any(Column::is_peer)
            .then_some("farcore / best peer"),
        Contrast::Pair(heading) | Contrast::Rates(heading) | Contrast::Last(heading) => {
            Some(heading)
        }
    }
}

/// The last cell of a row, and the loss that it shows.
fn verdict(section: &Section, row: &Row) -> (String, Option<Loss>) {
    if section.contrast != Contrast::Peers {
        let ratio = row.ratio(1, 0);
        return (ratio.map_or_else(String::new, rounded_down), None);
    }
    let best = row.best(|place| section.columns[place].is_peer());
    let compared = best.and_then(|(place, _)| Some((place, row.ratio(0, place)?)));
    let Some((place, ratio)) = compared else {
        return (String::new(), None);
    };
    let shown = rounded_down(ratio);
    if ratio >= 1.0 {
        return (shown, None);
    }
    let loss = Loss {
        row: row.name.clone(),
        ratio: shown.clone(),
        peer: section.columns[place].label.clone(),
    };
    (format!("{shown} (we lose)"), Some(loss))
}

/// The table of a section. `runs` has the rounds of each column; a column without figures has none.
pub(super) fn render(section: &Section, runs: &[Vec<&Run>]) -> Table {
    let heading = heading(section);
    let labels = section.columns.iter().map(|column| column.label.as_str());
    let headings: Vec<&str> = ["Mops/s"]
        .into_iter()
        .chain(labels)
        .chain(heading)
        .collect();
    let mut table = Table::default();
    let mut line = |cells: &[&str]| {
        // Writing to a string does not fail.
        let _ = writeln!(table.text, "| {} |", cells.join(" | "));
    };
    line(&headings);
    let mut rule = vec!["--:"; headings.len()];
    rule[0] = "---";
    line(&rule);
    for row in rows(runs, section.contrast) {
        let shown = row.shown();
        let (verdict, loss) = verdict(section, &row);
        let cells = shown.iter().map(String::as_str);
        let last = heading.map(|_| verdict.as_str());
        let cells: Vec<&str> = [row.name.as_str()]
            .into_iter()
            .chain(cells)
            .chain(last)
            .collect();
        line(&cells);
        table.losses.extend(loss);
    }
    table
}

#[cfg(test)]
mod tests;
