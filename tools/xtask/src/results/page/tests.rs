use super::super::figures::{Phase, Report};
use super::super::plan::{Request, plan};
use super::*;

fn run(engine: &str, mops: f64, wrong_values: u64) -> Run {
    Run {
        engine: engine.to_owned(),
        phases: vec![Phase {
            name: "hot".to_owned(),
            mops,
            p50_ns: 10.0,
            p99_ns: 10.0,
            p999_ns: 10.0,
            far_reads_per_op: 0.0,
        }],
        total_seconds: 1.0,
        startup_seconds: 1.0,
        line_trip_ns: Some(100.0),
        index_bytes_per_key: 0.0,
        wrong_values,
    }
}

fn facts() -> Facts {
    Facts {
        system: "Debian 12".to_owned(),
        date: "2026-01-02 03:04".to_owned(),
        commit: "abc1234-dirty".to_owned(),
        versions: vec![("moka".to_owned(), "moka 0.12.16".to_owned())],
        build: "cargo build".to_owned(),
        runs: 5,
    }
}

/// The page of the whole plan, with equal figures for all measurements.
fn page(ours: f64, wrong_values: u64) -> Result<String> {
    let plan = plan(&Request {
        cores: vec![0, 1],
        keys_per_core: 1000,
        runs: 5,
        engines: ["farcore", "moka"].map(str::to_owned).to_vec(),
        far_baseline: false,
        file_stores: false,
        largest: false,
    })?;
    let report = Report {
        machine: Machine {
            cpu_model: "AMD EPYC".to_owned(),
            memory_bytes: 3 << 29,
            ..Machine::default()
        },
        runs: vec![run("farcore", ours, 0), run("moka", 4.0, wrong_values)],
    };
    let rounds = Rounds::new(vec![report])?;
    let measured = plan
        .measurements
        .iter()
        .map(|run| (run.name, rounds.clone()));
    let embedded = "\n## Embedded in a program\n";
    render(&facts(), &plan, &measured.collect(), embedded, None)
}

#[test]
fn the_page_states_machine_date_and_commands() {
    let page = page(6.0, 0).unwrap();
    for fact in [
        "the median of 5 rounds",
        "AMD EPYC",
        "1.5 GiB",
        "Debian 12",
        "2026-01-02 03:04",
        "`abc1234-dirty`",
        "| moka | moka 0.12.16 |",
        "```sh\ncargo build\n```",
        " --json target/results/two-cores.json\n```",
        "## From one core to two\n\nNo separate runs",
        "\n## Embedded in a program\n",
    ] {
        assert!(page.contains(fact), "{fact} in:\n{page}");
    }
    assert_eq!(page.matches("results/two-cores.json").count(), 1);
}

#[test]
fn repeated_runs_are_reported() {
    let head = |refused| {
        let head = head(&facts(), &Machine::default(), refused);
        head.replace('\n', " ")
    };
    let of = |runs| {
        head(Some(Refused {
            limit_ns: 200,
            runs,
        }))
    };
    assert!(!head(None).contains("a run counts only if"));
    assert!(of(0).contains("at most 200 ns just before and right after it. No run was"));
    assert!(of(1).contains(" 1 run was repeated for that."));
    assert!(of(3).contains(" 3 runs were repeated for that."));
}

/// The published page has the paragraphs that this version writes.
#[test]
fn the_published_page_has_the_words_of_this_version() {
    let published = include_str!("../../../../../docs/results.md");
    let facts = Facts { runs: 3, ..facts() };
    let refused = Refused {
        limit_ns: 200,
        runs: 8,
    };
    let head = head(&facts, &Machine::default(), Some(refused));
    let plan = plan(&Request {
        cores: vec![0, 1],
        keys_per_core: 1000,
        runs: 3,
        engines: ["farcore", "moka"].map(str::to_owned).to_vec(),
        far_baseline: true,
        file_stores: false,
        largest: true,
    })
    .unwrap();
    let notes = plan.sections.iter().map(|section| wrapped(section.about));
    let heads = head.split("\n\n").map(str::to_owned);
    let is_prose = |text: &String| text.len() > 1 && !text.starts_with(['#', '|', '`']);
    for paragraph in heads.chain(notes).filter(is_prose) {
        assert!(published.contains(paragraph.trim_end()), "{paragraph}");
    }
}

#[test]
fn paragraphs_are_broken_at_a_hundred_columns() {
    let text = wrapped(&"word ".repeat(50));
    assert!(text.lines().all(|line| line.len() <= COLUMNS), "{text}");
    assert_eq!(text.split_whitespace().count(), 50);
    assert_eq!(wrapped("one"), "one\n");
}

#[test]
fn losses_are_listed_by_configuration() {
    let lost = page(2.0, 0).unwrap();
    let list = lost.split("## Where we lose").nth(1).unwrap();
    let titles = [
        "One core, all local",
        "Two cores, all local",
        "Two cores, all local, window of 1",
    ];
    for title in titles {
        assert!(
            list.contains(&format!("- {title}: hot (0.50, moka).\n")),
            "{list}"
        );
    }
    assert_eq!(list.matches("\n- ").count(), 4, "{list}");
    let won = page(6.0, 0).unwrap();
    assert!(won.ends_with("## Where we lose\n\nIn no row of these tables.\n"));
}

#[test]
fn wrong_values_are_not_published() {
    let error = page(6.0, 3).unwrap_err().to_string();
    assert!(
        error.contains("moka returned 3 wrong values in "),
        "{error}"
    );
}

#[test]
fn a_missing_measurement_is_named() {
    let plan = plan(&Request {
        cores: vec![0],
        keys_per_core: 1000,
        runs: 1,
        engines: vec!["farcore".to_owned()],
        far_baseline: false,
        file_stores: false,
        largest: false,
    })
    .unwrap();
    let rounds = Rounds::new(vec![Report::default()]).unwrap();
    let measured = BTreeMap::from([("one-core", rounds)]);
    let error = render(&facts(), &plan, &measured, "", None)
        .unwrap_err()
        .to_string();
    assert_eq!(error, "far was not measured");
}
