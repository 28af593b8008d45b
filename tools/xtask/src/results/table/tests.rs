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
    // Equal figures are no loss, and both are bold.
    assert!(
        table
            .text
            .contains("| start-up, s | **1.00** | **1.00** | 1.00 |")
    );
}

/// The medians are 3 and 4, but farcore is better in two rounds of three.
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
