//! Renders the Markdown page: facts, how to read it, one table a section, the section about
//! embedding, where farcore loses. A pure function of its arguments: it reads no file and no clock.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, bail};

use super::facts::Facts;
use super::figures::{Machine, Rounds, Run};
use super::plan::{Plan, Section};
use super::table::{self, Loss};

/// Miss ratios, which no measurement of the plan gives.
const AS_A_CACHE: &str = include_str!("as_a_cache.md");

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
pub(super) fn wrapped(paragraph: &str) -> String {
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

/// Renders the page; `embedded` is its section about embedding.
///
/// # Errors
/// An engine returned a wrong value, or a measurement of the plan has no report.
pub(super) fn render(
    facts: &Facts,
    plan: &Plan,
    measured: &BTreeMap<&'static str, Rounds>,
    embedded: &str,
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
    page += embedded;
    page += AS_A_CACHE;
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
mod tests;
