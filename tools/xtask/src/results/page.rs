//! Renders the Markdown page: facts, how to read it, one table a section, where farcore loses. A
//! pure function of its arguments: it reads no file and no clock.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, bail};

use super::facts::Facts;
use super::figures::{Machine, Rounds, Run};
use super::plan::{Plan, Section};
use super::table::{self, Loss};

const HOW_TO_READ: [&str; 2] = [
    "Rates are million requests a second of all threads together. The best of each row is bold. The \
     last column says how much better farcore is than the best peer: farcore / best peer for rates, \
     best peer / farcore for times and bytes. It is rounded down. Below 1 we lose. An empty cell \
     means that the engine does not report the figure.",
    "Latency is from submission to answer, so farcore's includes the wait in its window. The peers \
     answer at once, on the calling thread, whatever the window. They keep everything in local \
     memory, except `locked-lru`, which has a cap and a far tier too, and stores that keep files. \
     On two cores, the last row shows the machine's state: how long a cache line took from one core \
     to the other and back. Start-up of farcore includes touching all of its memory, local and far.",
];
/// Width of the page's paragraphs.
const COLUMNS: usize = 100;

/// Breaks a paragraph into lines of at most [`COLUMNS`] characters, each with its line end.
fn wrapped(paragraph: &str) -> String {
    let (mut text, mut width) = (String::new(), 0);
    for word in paragraph.split_whitespace() {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > COLUMNS {
            text.push('\n');
            width = 0;
        }
        if width > 0 {
            text.push(' ');
            width += 1;
        }
        text += word;
        width += length;
    }
    text + "\n"
}

/// Runs on two cores that were repeated, because a cache line took too long between the cores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    /// The limit that they exceeded.
    pub(super) limit_ns: u64,
    /// Their number, of all commands together.
    pub(super) runs: u32,
}

impl Refused {
    fn note(self) -> String {
        let Self { limit_ns, runs } = self;
        let rule = format!(
            "On two cores, a run counts only if that line took at most {limit_ns} ns just before and right after it."
        );
        match runs {
            0 => rule + " No run was repeated for that.",
            1 => rule + " 1 run was repeated for that.",
            _ => format!("{rule} {runs} runs were repeated for that."),
        }
    }
}

/// Renders the page.
///
/// # Errors
/// An engine returned a wrong value, or a measurement of the plan has no report.
pub(super) fn render(
    facts: &Facts,
    plan: &Plan,
    measured: &BTreeMap<&'static str, Rounds>,
    refused: Option<Refused>,
) -> Result<String> {
    check(measured)?;
    let any = measured.values().next().context("nothing was measured")?;
    let mut page = head(facts, any.machine(), refused);
    for note in &plan.notes {
        page += &format!("\n{}", wrapped(note));
    }
    let mut shown = Vec::new();
    let mut losses = Vec::new();
    for section in &plan.sections {
        let runs = runs(section, measured)?;
        let table = table::render(section, &runs);
        page += &format!("\n## {}\n", section.title);
        page += &commands(plan, section, &mut shown);
        if !section.about.is_empty() {
            page += &format!("\n{}", wrapped(section.about));
        }
        page += &format!("\n{}", table.text);
        losses.push((section.title, table.losses));
    }
    page += &where_we_lose(&losses);
    Ok(page)
}

/// Rejects figures of an engine that returned a wrong value.
fn check(measured: &BTreeMap<&'static str, Rounds>) -> Result<()> {
    for (name, rounds) in measured {
        if let Some(run) = rounds.all().find(|run| run.wrong_values > 0) {
            bail!(
                "{} returned {} wrong values in {name}: such figures are not published",
                run.engine,
                run.wrong_values
            );
        }
    }
    Ok(())
}

fn head(facts: &Facts, machine: &Machine, refused: Option<Refused>) -> String {
    let runs = match facts.runs {
        1 => "Figures are of one run.".to_owned(),
        runs => format!(
            "Each figure is the median of {runs} rounds, and each ratio the median of the rounds' ratios. In a round every command \
             below runs once, unless its section says otherwise, so that a slow spell of the machine affects all of them alike."
        ),
    };
    let origin = wrapped(&format!("Written by `cargo xtask results`. {runs}"));
    let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
    let rows = [
        ("processor", machine.cpu_model.clone()),
        (
            "cores that the benchmark may use",
            machine.cores.to_string(),
        ),
        ("memory", format!("{gib:.1} GiB")),
        (
            "operating system",
            format!("{}, Linux {}", facts.system, machine.kernel),
        ),
        ("transparent huge pages", machine.huge_pages.clone()),
        ("compiler", machine.rustc.clone()),
        ("date, UTC", facts.date.clone()),
        ("commit", format!("`{}`", facts.commit)),
    ];
    let mut page = format!("# Results\n\n{origin}\n| | |\n|---|---|\n");
    for (name, fact) in rows {
        // Writing to a string does not fail.
        let _ = writeln!(page, "| {name} | {fact} |");
    }
    page += "\n| engine | version |\n|---|---|\n";
    for (engine, version) in &facts.versions {
        let _ = writeln!(page, "| {engine} | {version} |");
    }
    page += &format!("\n```sh\n{}\n```\n", facts.build);
    for paragraph in HOW_TO_READ {
        page += &format!("\n{}", wrapped(paragraph));
    }
    if let Some(refused) = refused {
        page += &format!("\n{}", wrapped(&refused.note()));
    }
    page
}

/// The commands of a section that no earlier section has shown.
fn commands(plan: &Plan, section: &Section, shown: &mut Vec<&'static str>) -> String {
    let mut lines = String::new();
    for column in &section.columns {
        let name = column.measurement;
        let measurement = plan
            .measurements
            .iter()
            .find(|measurement| measurement.name == name);
        if let Some(measurement) = measurement.filter(|_| !shown.contains(&name)) {
            shown.push(name);
            lines += &(measurement.command() + "\n");
        }
    }
    if lines.is_empty() {
        "\nNo separate runs: the figures are those above.\n".to_owned()
    } else {
        format!("\n```sh\n{lines}```\n")
    }
}

/// The rounds of each column.
fn runs<'a>(
    section: &Section,
    measured: &'a BTreeMap<&'static str, Rounds>,
) -> Result<Vec<Vec<&'a Run>>> {
    let of = |column: &super::plan::Column| {
        let rounds = measured.get(column.measurement);
        let rounds = rounds.with_context(|| format!("{} was not measured", column.measurement))?;
        Ok(rounds.of(&column.engine))
    };
    section.columns.iter().map(of).collect()
}

fn where_we_lose(sections: &[(&str, Vec<Loss>)]) -> String {
    let mut text = "\n## Where we lose\n\n".to_owned();
    let lost = || sections.iter().filter(|(_, losses)| !losses.is_empty());
    if lost().next().is_none() {
        return text + "In no row of these tables.\n";
    }
    text += "Every row with a ratio below 1, with the ratio and the best peer:\n\n";
    for (title, losses) in lost() {
        let rows = losses
            .iter()
            .map(|loss| format!("{} ({}, {})", loss.row, loss.ratio, loss.peer));
        let _ = writeln!(text, "- {title}: {}.", rows.collect::<Vec<_>>().join("; "));
    }
    text
}

#[cfg(test)]
mod tests {
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
        render(&facts(), &plan, &measured.collect(), None)
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
        let published = include_str!("../../../../docs/results.md");
        let facts = Facts { runs: 5, ..facts() };
        let refused = Refused {
            limit_ns: 200,
            runs: 24,
        };
        let head = head(&facts, &Machine::default(), Some(refused));
        let plan = plan(&Request {
            cores: vec![0, 1],
            keys_per_core: 1000,
            runs: 5,
            engines: ["farcore", "moka"].map(str::to_owned).to_vec(),
            far_baseline: false,
            file_stores: true,
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
        let error = render(&facts(), &plan, &measured, None)
            .unwrap_err()
            .to_string();
        assert_eq!(error, "far was not measured");
    }
}
