//! One table: rows, the best of each in bold, and the ratio that tells where farcore loses.
//!
//! Invariants: I1. A ratio above 1 is to farcore's credit, whether more of the figure is better or
//! less. I2. Ratios are rounded down, so a loss never reads as 1.00. I3. A ratio is the median of
//! those within each round: what the machine did between two rounds is in none of them.

use std::fmt::Write;

use super::figures::{Phase, Run, median};
use super::plan::{Column, Contrast, Section};

/// What is better.
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
    /// Of each round that has it.
    cells: Vec<Vec<f64>>,
    show: fn(f64) -> String,
    better: Better,
}

/// A row where farcore is not the best.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Loss {
    /// The row.
    pub(super) row: String,
    /// As the table shows it.
    pub(super) ratio: String,
    /// Who is the best.
    pub(super) peer: String,
}

/// A table and what it says against farcore.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Table {
    /// Markdown.
    pub(super) text: String,
    /// Rows with a ratio below 1, of tables that compare with peers.
    pub(super) losses: Vec<Loss>,
}

impl Row {
    /// The median of each column that has figures.
    fn medians(&self) -> Vec<Option<f64>> {
        let of = |rounds: &Vec<f64>| median(rounds.iter().copied());
        self.cells.iter().map(of).collect()
    }

    /// The best of some columns, with its place.
    fn best(&self, among: impl Fn(usize) -> bool) -> Option<(usize, f64)> {
        let cells = self.medians().into_iter().enumerate();
        let known = cells.filter_map(|(place, cell)| Some((place, cell?)));
        let known = known.filter(|&(place, _)| among(place));
        let order = |one: &(usize, f64), other: &(usize, f64)| one.1.total_cmp(&other.1);
        match self.better {
            // The first of equals.
            Better::More => known.min_by(|one, other| order(other, one)),
            Better::Less => known.min_by(order),
            Better::Neither => None,
        }
    }

    /// How much better the one column is than the other: the median of the rounds.
    fn ratio(&self, ours: usize, theirs: usize) -> Option<f64> {
        let [ours, theirs] = [self.cells.get(ours)?, self.cells.get(theirs)?];
        let ratio = |(ours, theirs): (&f64, &f64)| match self.better {
            Better::More => ours / theirs,
            Better::Less => theirs / ours,
            Better::Neither => f64::NAN,
        };
        median(ours.iter().zip(theirs).map(ratio)).filter(|ratio| ratio.is_finite())
    }

    /// What stands in each column: the best is bold where there is something to choose from.
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

fn latency(ns: f64) -> String {
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

fn rounded_down(ratio: f64) -> String {
    if ratio < 0.1 {
        format!("{:.4}", (ratio * 1e4).floor() / 1e4)
    } else {
        format!("{:.2}", (ratio * 1e2).floor() / 1e2)
    }
}

/// Picks a latency.
type Quantile = fn(&Phase) -> f64;

/// The rounds of a figure in every column.
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

/// The heading of the last column; none where there is nothing to compare.
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

/// What the last column says of a row, and what that is against farcore.
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

/// The table of a section; `runs` has the rounds of each of its columns, none where there are no
/// figures.
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
mod tests {
    use super::*;

    fn run(engine: &str, mops: f64, startup_seconds: f64) -> Run {
        let phase = Phase {
            name: "hot".to_owned(),
            mops,
            p50_ns: 500.0 / mops,
            p99_ns: 5e4 / mops,
            p999_ns: 5e7 / mops,
            far_reads_per_op: 0.0,
        };
        Run {
            engine: engine.to_owned(),
            phases: vec![phase],
            total_seconds: 6.0 / mops,
            startup_seconds,
            line_trip_ns: Some(98.6),
            index_bytes_per_key: if engine == "farcore" { 9.84 } else { 0.0 },
            wrong_values: 0,
        }
    }

    fn section(engines: &[&str], contrast: Contrast) -> Section {
        let column = |&engine: &&str| Column {
            label: engine.to_owned(),
            measurement: "x",
            engine: engine.to_owned(),
        };
        Section {
            title: "X",
            about: "",
            columns: engines.iter().map(column).collect(),
            contrast,
        }
    }

    fn lines(table: &Table) -> Vec<&str> {
        table.text.lines().collect()
    }

    #[test]
    fn a_row_where_farcore_loses_is_marked_and_listed() {
        let (ours, moka, scc) = (
            run("farcore", 6.0, 2.0),
            run("moka", 2.0, 0.5),
            run("scc", 4.0, 1.0),
        );
        let section = section(&["farcore", "moka", "scc"], Contrast::Peers);
        let table = render(&section, &[vec![&ours], vec![&moka], vec![&scc]]);
        assert_eq!(
            lines(&table),
            [
                "| Mops/s | farcore | moka | scc | farcore / best peer |",
                "| --- | --: | --: | --: | --: |",
                "| hot | **6.00** | 2.00 | 4.00 | 1.50 |",
                "| total, s | **1.00** | 3.00 | 1.50 | 1.50 |",
                "| p50 of hot | **83 ns** | 250 ns | 125 ns | 1.50 |",
                "| p99 of hot | **8.3 us** | 25.0 us | 12.5 us | 1.50 |",
                "| p999 of hot | **8.3 ms** | 25.0 ms | 12.5 ms | 1.50 |",
                "| start-up, s | 2.00 | **0.500** | 1.00 | 0.25 (we lose) |",
                "| index, bytes a key | 9.8 |  |  |  |",
                "| wrong values | 0 | 0 | 0 |  |",
                "| line there and back | 99 ns | 99 ns | 99 ns |  |",
            ]
        );
        let loss = Loss {
            row: "start-up, s".to_owned(),
            ratio: "0.25".to_owned(),
            peer: "moka".to_owned(),
        };
        assert_eq!(table.losses, [loss]);
    }

    #[test]
    fn a_close_loss_does_not_read_as_a_draw() {
        let (ours, scc) = (run("farcore", 3.999, 1.0), run("scc", 4.0, 1.0));
        let section = section(&["farcore", "scc"], Contrast::Peers);
        let table = render(&section, &[vec![&ours], vec![&scc]]);
        assert!(
            lines(&table)[2].ends_with("| 0.99 (we lose) |"),
            "{}",
            table.text
        );
        assert_eq!(rounded_down(0.005_19), "0.0051");
        // A draw is no loss, and both are the best.
        assert!(
            table
                .text
                .contains("| start-up, s | **1.00** | **1.00** | 1.00 |")
        );
    }

    /// The medians are 3 and 4, but in two rounds of three farcore is the better one.
    #[test]
    fn a_ratio_is_of_rounds_not_of_medians() {
        let ours = [2.0, 3.0, 9.0].map(|mops| run("farcore", mops, 1.0));
        let theirs = [1.0, 4.0, 6.0].map(|mops| run("scc", mops, 1.0));
        let section = section(&["farcore", "scc"], Contrast::Peers);
        let runs = [ours.iter().collect(), theirs.iter().collect()];
        let table = render(&section, &runs);
        assert_eq!(lines(&table)[2], "| hot | 3.00 | **4.00** | 1.50 |");
        let hot = |table: &Table| table.losses.iter().any(|loss| loss.row == "hot");
        assert!(!hot(&table));
        let swapped = render(&section, &[runs[1].clone(), runs[0].clone()]);
        assert_eq!(
            lines(&swapped)[2],
            "| hot | **4.00** | 3.00 | 0.66 (we lose) |"
        );
        assert!(hot(&swapped));
    }

    #[test]
    fn a_missing_engine_leaves_its_cells_empty() {
        let (ours, scc) = (run("farcore", 6.0, 1.0), run("scc", 4.0, 1.0));
        let section = section(&["farcore", "moka", "scc"], Contrast::Peers);
        let table = render(&section, &[vec![&ours], vec![], vec![&scc]]);
        assert_eq!(lines(&table)[2], "| hot | **6.00** |  | 4.00 | 1.50 |");
        let table = render(&section, &[vec![], vec![], vec![&scc]]);
        assert_eq!(lines(&table)[2], "| hot |  |  | 4.00 |  |");
        assert!(table.losses.is_empty());
    }

    #[test]
    fn without_peers_there_is_no_ratio() {
        let ours = run("farcore", 6.0, 1.0);
        let section = section(&["farcore"], Contrast::Peers);
        let table = render(&section, &[vec![&ours]]);
        assert_eq!(lines(&table)[0], "| Mops/s | farcore |");
        assert_eq!(lines(&table)[2], "| hot | 6.00 |");
    }

    #[test]
    fn a_pair_is_compared_with_its_first() {
        let (one, two) = (run("farcore", 4.0, 1.0), run("farcore", 6.0, 2.0));
        let runs = [vec![&one], vec![&two]];
        let table = render(
            &section(&["farcore", "farcore"], Contrast::Pair("b / a")),
            &runs,
        );
        assert!(
            table
                .text
                .contains("| start-up, s | **1.00** | 2.00 | 0.50 |")
        );
        assert!(table.losses.is_empty());
        let table = render(
            &section(&["farcore", "farcore"], Contrast::Rates("b / a")),
            &runs,
        );
        assert_eq!(lines(&table).len(), 4);
        assert_eq!(lines(&table)[2], "| hot | 4.00 | **6.00** | 1.50 |");
        assert_eq!(
            lines(&table)[3],
            "| line there and back | 99 ns | 99 ns |  |"
        );
        let table = render(
            &section(&["farcore", "farcore"], Contrast::Last("b / a")),
            &runs,
        );
        assert_eq!(lines(&table).len(), 7);
        assert!(!table.text.contains("total") && table.text.contains("p50 of hot"));
    }
}
