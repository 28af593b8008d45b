//! The Markdown page: facts, how to read it, one table a section, where farcore loses. Depends on
//! what it is given only.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, bail};

use super::facts::Facts;
use super::figures::{Machine, Rounds, Run};
use super::plan::{Plan, Section};
use super::table::{self, Loss};

const HOW_TO_READ: &str = "\
Rates are million requests a second of all threads together. The best of each row is bold. The last column says how much better
farcore is than the best of the others: for rates farcore / best peer, for times and bytes best peer / farcore. It is rounded
down, and below 1 we lose. An empty cell is a figure that there is not.

Latency is from submission to answer, so that of farcore includes the wait in its window. The others answer at once, on the
thread that asks, whatever the window. They keep everything in local memory, but for `locked-lru`, which has a cap and a far
tier too, and stores that keep files. The last row of those that ran on two cores tells the machine's state then: how long a cache
line took from one core to the other and back. Start-up of farcore includes touching all of its memory, local and far.
";

/// Runs whose figures were not taken, for a cache line took too long between their cores.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    /// Longer than this.
    pub(super) limit_ns: u64,
    /// How many, of all commands together.
    pub(super) runs: u32,
}

impl Refused {
    fn told(self) -> String {
        let Self { limit_ns, runs } = self;
        let taken = format!(
            "Figures of two cores are taken only of runs just before and right after which that line took at most {limit_ns} ns"
        );
        match runs {
            0 => taken + ", which all did.",
            1 => taken + "; one run was made again for that.",
            _ => format!(
                "{taken}; {runs} runs were made again for that: the machine's worse minutes in this respect have no share in them."
            ),
        }
    }
}

/// Writes the page.
///
/// # Errors
/// An engine gave a wrong value, or a measurement of the plan has no report.
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
        page += &format!("\n{note}\n");
    }
    let mut shown = Vec::new();
    let mut losses = Vec::new();
    for section in &plan.sections {
        let runs = runs(section, measured)?;
        let table = table::render(section, &runs);
        page += &format!("\n## {}\n", section.title);
        page += &commands(plan, section, &mut shown);
        if !section.about.is_empty() {
            page += &format!("\n{}\n", section.about);
        }
        page += &format!("\n{}", table.text);
        losses.push((section.title, table.losses));
    }
    page += &where_we_lose(&losses);
    Ok(page)
}

/// Refuses figures of an engine that gave a wrong value.
fn check(measured: &BTreeMap<&'static str, Rounds>) -> Result<()> {
    for (name, rounds) in measured {
        if let Some(run) = rounds.all().find(|run| run.wrong_values > 0) {
            bail!(
                "{} gave {} wrong values in {name}: such figures are not published",
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
            "Figures are medians of {runs} rounds, each figure by itself, and ratios those of the rounds' ratios; in a round every \
             command below runs once, but for one that says so, so that a machine with better and worse minutes gives each its share."
        ),
    };
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
    let mut page =
        format!("# Results\n\nWritten by `cargo xtask results`. {runs}\n\n| | |\n|---|---|\n");
    for (name, fact) in rows {
        // Writing to a string does not fail.
        let _ = writeln!(page, "| {name} | {fact} |");
    }
    page += "\n| engine | version |\n|---|---|\n";
    for (engine, version) in &facts.versions {
        let _ = writeln!(page, "| {engine} | {version} |");
    }
    page += &format!("\n```sh\n{}\n```\n\n{HOW_TO_READ}", facts.build);
    if let Some(refused) = refused {
        page += &format!("\n{}\n", refused.told());
    }
    page
}

/// The commands of a section that no section before has shown.
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
        "\nNo runs of its own: the figures are those above.\n".to_owned()
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
    use super::super::plan::{Wishes, plan};
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

    /// The whole plan, where every measurement gave the same.
    fn page(ours: f64, wrong_values: u64) -> Result<String> {
        let plan = plan(&Wishes {
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
    fn the_page_tells_where_when_and_how() {
        let page = page(6.0, 0).unwrap();
        for fact in [
            "medians of 5 rounds",
            "AMD EPYC",
            "1.5 GiB",
            "Debian 12",
            "2026-01-02 03:04",
            "`abc1234-dirty`",
            "| moka | moka 0.12.16 |",
            "```sh\ncargo build\n```",
            " --json target/results/two-cores.json\n```",
            "## From one core to two\n\nNo runs of its own",
        ] {
            assert!(page.contains(fact), "{fact} in:\n{page}");
        }
        assert_eq!(page.matches("results/two-cores.json").count(), 1);
    }

    #[test]
    fn what_was_not_taken_is_told() {
        let told = |refused| head(&facts(), &Machine::default(), refused);
        let of = |runs| {
            told(Some(Refused {
                limit_ns: 200,
                runs,
            }))
        };
        assert!(!told(None).contains("are taken only"));
        assert!(of(0).contains("at most 200 ns, which all did."));
        assert!(of(1).contains("; one run was made again"));
        assert!(of(3).contains("; 3 runs were made again"));
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
        assert!(error.contains("moka gave 3 wrong values in "), "{error}");
    }

    #[test]
    fn a_measurement_that_lacks_is_named() {
        let plan = plan(&Wishes {
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
