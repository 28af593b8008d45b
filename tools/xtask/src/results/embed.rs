//! The section about embedding: callers of farcore beside the same callers of maps and caches. The
//! benchmark does the rounds itself, in one command; another command has little local memory.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::figures::{count, list, number, text};
use super::page::wrapped;
use super::plan::OURS;
use super::table::{latency, rounded_down};
use super::{BENCHMARK, FOLDER};

/// Engines of the page that the command has, too.
const PEERS: [&str; 5] = ["dashmap", "moka", "foyer", "quick-cache", "papaya"];
/// Farcore on one core, and callers on the others.
const DEDICATED: &str = "farcore-dedicated";
/// Farcore with little local memory.
const FAR: &str = "farcore-far";
/// Keys of the command with little local memory, at least: a fifth of fewer is too little for the
/// engine's own buffers.
const FAR_KEYS_MIN: u64 = 1_000_000;
/// Time of each number of callers in a round.
const SECONDS: &str = "0.5";
const ABOUT: &str = "A program calls the engine from its own threads and tasks. Cells are million operations a second, and in \
     brackets p50 and p99 of a call; of `batch` a call has 32 keys. 95 % are gets, the rest puts, of 128 bytes. \
     `farcore` runs on the cores of its default configuration, and its callers run anywhere; `farcore-dedicated` \
     runs on one core, and its callers on the others. A map has no asynchronous form: its tasks call it directly. \
     For `handle`, `client` and `window` it has one kind of call.";

/// The commands of the section and what they have measured.
#[derive(Clone, Debug)]
pub(super) struct Embedding {
    /// Arguments of each command, and the file of its figures.
    commands: Vec<(Vec<String>, String)>,
}

impl Embedding {
    /// The commands for these engines.
    pub(super) fn new(engines: &[String], cores: usize, keys: u64, rounds: u32) -> Self {
        let peers = engines.iter().map(String::as_str);
        let peers = peers.filter(|engine| PEERS.contains(engine));
        let dedicated = (cores > 1).then_some(DEDICATED);
        let engines: Vec<&str> = [OURS].into_iter().chain(dedicated).chain(peers).collect();
        let rounds = rounds.to_string();
        let of = |name: &str, keys: u64, more: &[&str]| {
            let keys = keys.to_string();
            let mut arguments = vec!["embed", "--keys", &keys, "--repeats", &rounds];
            arguments.extend(["--seconds", SECONDS]);
            arguments.extend(more);
            let json = format!("{FOLDER}/{name}.json");
            arguments.extend(["--json", &json]);
            let arguments = arguments.into_iter().map(str::to_owned).collect();
            (arguments, json)
        };
        let engines = engines.join(",");
        let far = [
            "--local-percent",
            "20",
            "--far-latency",
            "2us",
            "--parts",
            "callers",
            "--callers",
            "client,tasks",
            "--threads",
            "1,4",
            "--tasks",
            "1,64,1000",
        ];
        Self {
            commands: vec![
                of("embed", keys, &["--engines", &engines]),
                of("embed-far", keys.max(FAR_KEYS_MIN), &far),
            ],
        }
    }

    /// The commands as the page shows them.
    pub(super) fn commands(&self) -> impl Iterator<Item = String> {
        let arguments = self.commands.iter().map(|(arguments, _)| arguments);
        arguments.map(|arguments| format!("{BENCHMARK} {}", arguments.join(" ")))
    }

    /// Runs the commands; returns the section.
    ///
    /// # Errors
    /// A command failed, or its figures cannot be read.
    pub(super) fn measure(&self) -> Result<String> {
        let mut reports = Vec::new();
        for (arguments, json) in &self.commands {
            println!("\n== {BENCHMARK} {}", arguments.join(" "));
            if Path::new(json).exists() {
                fs::remove_file(json).with_context(|| format!("cannot remove {json}"))?;
            }
            crate::run(Command::new(BENCHMARK).args(arguments))?;
            let figures = fs::read_to_string(json).with_context(|| format!("no {json}"))?;
            reports.push(serde_json::from_str(&figures).with_context(|| json.clone())?);
        }
        self.render(&reports)
    }

    /// The section of these reports.
    fn render(&self, reports: &[Value]) -> Result<String> {
        let mut section = "\n## Embedded in a program\n\n```sh\n".to_owned();
        for command in self.commands() {
            section += &(command + "\n");
        }
        let _ = write!(section, "```\n\n{}", wrapped(ABOUT));
        for report in reports {
            if count(report, "wrong_values")? > 0 {
                bail!("embed had wrong values: such figures are not published");
            }
            section += &tables(report)?;
        }
        for report in reports {
            section += &notes(report)?;
        }
        Ok(section)
    }
}

/// One row of a report.
#[derive(Debug)]
struct Row {
    engine: String,
    caller: String,
    count: u64,
    mops: f64,
    p50_ns: f64,
    p99_ns: f64,
    /// The rate as a ratio to that with all data local.
    ratio: Option<f64>,
}

fn row(value: &Value) -> Result<Row> {
    let median = |name: &str| number(&value[name], "median").with_context(|| name.to_owned());
    Ok(Row {
        engine: text(value, "engine")?,
        caller: text(value, "caller")?,
        count: count(value, "count")?,
        mops: median("mops")?,
        p50_ns: median("p50_ns")?,
        p99_ns: median("p99_ns")?,
        ratio: value["ratio_to_local"]["median"].as_f64(),
    })
}

/// Each value once, in order of its first place.
fn distinct<'a>(values: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

/// The tables of a report: one for each caller, a row for each number.
fn tables(report: &Value) -> Result<String> {
    let rows: Result<Vec<Row>> = list(report, "rows")?.iter().map(row).collect();
    let rows = rows?;
    let engines = distinct(rows.iter().map(|row| &*row.engine));
    let callers = distinct(rows.iter().map(|row| &*row.caller));
    let has_far = engines.contains(&FAR);
    let has_peers = engines.iter().any(|engine| !engine.starts_with(OURS));
    let mut text = String::new();
    for caller in callers.iter().filter(|&&caller| caller != "direct") {
        let mut counts: Vec<u64> = rows
            .iter()
            .filter(|row| row.caller == *caller)
            .map(|row| row.count)
            .collect();
        counts.sort_unstable();
        counts.dedup();
        let unit = if *caller == "tasks" {
            "tasks"
        } else {
            "threads"
        };
        let last = match (has_far, has_peers) {
            (true, _) => " far / local |",
            (false, true) => " farcore / best peer |",
            (false, false) => "",
        };
        let _ = write!(
            text,
            "\n| `{caller}`, {unit} | {} |{last}\n",
            engines.join(" | ")
        );
        let columns = engines.len() + 1 + usize::from(!last.is_empty());
        text += &("|".to_owned() + &"---|".repeat(columns) + "\n");
        for count in counts {
            let of = |engine: &str| {
                let is_it = |row: &&Row| {
                    let is_caller = row.caller == *caller
                        || row.caller == "direct" && !["batch", "tasks"].contains(caller);
                    row.engine == engine && row.count == count && is_caller
                };
                rows.iter().find(is_it)
            };
            let cell = |engine: &&str| {
                of(engine).map_or_else(String::new, |row| {
                    let (p50, p99) = (latency(row.p50_ns), latency(row.p99_ns));
                    format!("{:.2} ({p50}, {p99})", row.mops)
                })
            };
            let cells: Vec<String> = engines.iter().map(cell).collect();
            let _ = write!(text, "| {count} | {} |", cells.join(" | "));
            let peers = engines.iter().filter(|engine| !engine.starts_with(OURS));
            let best = peers.filter_map(|engine| of(engine)).map(|row| row.mops);
            let best = best.max_by(f64::total_cmp);
            let ratio = match has_far {
                true => of(FAR).and_then(|row| row.ratio),
                false => of(OURS).zip(best).map(|(ours, best)| ours.mops / best),
            };
            if !last.is_empty() {
                let _ = write!(text, " {} |", ratio.map_or_else(String::new, rounded_down));
            }
            text.push('\n');
        }
    }
    Ok(text)
}

/// Figures of engines at rest, and the size of a call.
fn notes(report: &Value) -> Result<String> {
    let mut text = String::new();
    for idle in list(report, "idle")? {
        let share = number(idle, "share_of_a_core")? * 100.0;
        let engine = self::text(idle, "engine")?;
        let _ = writeln!(text, "- An idle `{engine}` takes {share:.2} % of a core.");
    }
    for beside in list(report, "beside")? {
        let engine = self::text(beside, "engine")?;
        let ratio = &beside["ratio"];
        let of = |name: &str| number(ratio, name);
        let _ = writeln!(
            text,
            "- A program that computes on all cores beside an idle `{engine}` runs at {:.4} of its speed\n  ({:.4} to {:.4} with {:.1} % confidence, {} pairs).",
            of("median")?,
            of("low")?,
            of("high")?,
            of("confidence")? * 100.0,
            count(ratio, "pairs")?
        );
    }
    let bytes = count(report, "call_bytes")?;
    if bytes > 0 && !text.is_empty() {
        let _ = writeln!(text, "- A waiting call takes {bytes} bytes in its task.");
    }
    if text.is_empty() {
        return Ok(text);
    }
    Ok(format!("\n{text}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row(engine: &str, caller: &str, count: u64, mops: f64) -> Value {
        let spread = |median: f64| json!({"median": median, "least": median, "most": median});
        json!({
            "engine": engine, "caller": caller, "count": count, "mops": spread(mops),
            "p50_ns": spread(480.0), "p99_ns": spread(2_500.0),
        })
    }

    fn report(rows: &[Value]) -> Value {
        json!({
            "rows": rows, "wrong_values": 0, "call_bytes": 96,
            "idle": [{"engine": "farcore", "share_of_a_core": 0.0031}],
            "beside": [{"engine": "farcore", "ratio":
                {"median": 0.999, "low": 0.99, "high": 1.01, "confidence": 0.951, "pairs": 15}}],
        })
    }

    fn embedding(cores: usize) -> Embedding {
        let engines = ["farcore", "scc", "moka"].map(str::to_owned);
        Embedding::new(&engines, cores, 1000, 5)
    }

    #[test]
    fn commands_have_the_engines_that_embed_knows() {
        let commands: Vec<String> = embedding(2).commands().collect();
        assert_eq!(
            commands[0],
            "target/published/farcore-bench embed --keys 1000 --repeats 5 --seconds 0.5 \
             --engines farcore,farcore-dedicated,moka --json target/results/embed.json"
        );
        assert!(commands[1].contains("--local-percent 20 --far-latency 2us"));
        let one: Vec<String> = embedding(1).commands().collect();
        assert!(one[0].contains("--engines farcore,moka "), "{}", one[0]);
    }

    #[test]
    fn a_direct_call_stands_in_the_tables_of_single_calls() {
        let section = embedding(2)
            .render(&[report(&[
                row("farcore", "handle", 4, 1.5),
                row("farcore", "tasks", 64, 2.0),
                row("moka", "direct", 4, 2.0),
                row("moka", "tasks", 64, 1.0),
            ])])
            .unwrap();
        for line in [
            "| `handle`, threads | farcore | moka | farcore / best peer |",
            "| 4 | 1.50 (480 ns, 2.5 us) | 2.00 (480 ns, 2.5 us) | 0.75 |",
            "| `tasks`, tasks | farcore | moka | farcore / best peer |",
            "| 64 | 2.00 (480 ns, 2.5 us) | 1.00 (480 ns, 2.5 us) | 2.00 |",
            "- An idle `farcore` takes 0.31 % of a core.",
            "0.9990 of its speed",
            "takes 96 bytes in its task",
        ] {
            assert!(section.contains(line), "{line} in:\n{section}");
        }
        assert!(!section.contains("`direct`"), "{section}");
    }

    #[test]
    fn far_data_has_its_ratio_to_local_data() {
        let mut far = row("farcore-far", "tasks", 64, 1.4);
        far["ratio_to_local"] = json!({"median": 0.709});
        let rows = [row("farcore", "tasks", 64, 2.0), far];
        let section = embedding(2).render(&[report(&rows)]).unwrap();
        assert!(section.contains("| far / local |"), "{section}");
        assert!(section.contains("| 0.70 |\n"), "{section}");
    }

    #[test]
    fn wrong_values_are_not_published() {
        let mut wrong = report(&[]);
        wrong["wrong_values"] = json!(1);
        let error = embedding(2).render(&[wrong]).unwrap_err().to_string();
        assert!(error.contains("wrong values"), "{error}");
        let error = embedding(2).render(&[json!({"wrong_values": 0})]);
        assert_eq!(error.unwrap_err().to_string(), "no rows");
    }
}
