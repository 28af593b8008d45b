//! `cargo xtask redis python`: redis-py's own tests, as `tools/xtask/redis/python.toml` selects
//! them, in both versions of the protocol. Some need a server with `--monitor`.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;

use super::place::Place;
use super::selection::{self, Skip};
use super::server::Target;
use crate::limited::{self, Run};

/// Time limit of a test.
const TEST_SECONDS: u64 = 60;
/// Time limit of a group.
const GROUP_LIMIT: Duration = Duration::from_secs(600);
/// Failures of a group that are printed; the log has all.
const SHOWN_MAX: usize = 40;

#[derive(Debug, Args)]
pub(crate) struct Python {
    #[command(flatten)]
    target: Target,
    /// Run only this group of python.toml.
    #[arg(long)]
    group: Option<String>,
    /// Versions of the protocol.
    #[arg(long, value_delimiter = ',', default_value = "2,3")]
    protocols: Vec<u8>,
}

/// The file `python.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    passes_percent_min: f64,
    group: Vec<Group>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    files: Vec<String>,
    /// What pytest's `-k` receives; it may have several lines.
    expression: String,
}

/// What the tests of a group gave.
#[derive(Debug, Default)]
struct GroupReport {
    passed: usize,
    failed: usize,
    /// Skipped by redis-py itself.
    skipped: usize,
    /// Left out by name.
    named: usize,
    failures: Vec<String>,
    took: Duration,
}

impl GroupReport {
    fn of(run: &Run) -> Self {
        let mut report = Self::parse(&run.output);
        report.took = run.took;
        if run.status.is_none() {
            report.failed += 1;
            report
                .failures
                .push("the time limit ended the group".to_owned());
        }
        report
    }

    fn parse(output: &str) -> Self {
        let mut report = Self::default();
        let lines = output.lines();
        let names = lines.filter(|line| line.starts_with("FAILED ") || line.starts_with("ERROR "));
        report.failures.extend(names.map(str::to_owned));
        report.named = (output.lines())
            .find_map(|line| line.strip_prefix("left out by name: ")?.parse().ok())
            .unwrap_or(0);
        match output.lines().rev().find_map(summary) {
            Some([passed, failed, skipped]) => {
                (report.passed, report.failed, report.skipped) = (passed, failed, skipped);
            }
            None => {
                let last = output.lines().last().unwrap_or_default();
                report.failed = report.failures.len().max(1);
                report
                    .failures
                    .push(format!("no summary; the last line is: {last}"));
            }
        }
        report
    }

    fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.named += other.named;
        self.took += other.took;
    }

    /// Of the tests that ran.
    fn percent(&self) -> f64 {
        let ran = self.passed + self.failed;
        self.passed as f64 / ran.max(1) as f64 * 100.0
    }
}

/// Passed, failed and skipped of a line as `1 failed, 3 passed, 2 skipped, 1 error in 0.5s`.
fn summary(line: &str) -> Option<[usize; 3]> {
    let (counts, _) = line.trim_matches(['=', ' ']).rsplit_once(" in ")?;
    let mut summary = [0; 3];
    for part in counts.split(", ") {
        let (count, what) = part.split_once(' ')?;
        let count: usize = count.parse().ok()?;
        match what {
            "passed" => summary[0] += count,
            "failed" | "error" | "errors" => summary[1] += count,
            "skipped" => summary[2] += count,
            // Deselected tests, warnings, and tests that redis-py expects to fail.
            _ => {}
        }
    }
    Some(summary)
}

pub(super) fn perform(place: &Place, python: &Python) -> Result<()> {
    let plan: Plan = toml::from_str(&place.read_driver("python.toml")?).context("python.toml")?;
    let skips = selection::read(place, "python.skip")?;
    let is_selected = |group: &&Group| python.group.as_ref().is_none_or(|only| group.name == *only);
    let groups: Vec<&Group> = plan.group.iter().filter(is_selected).collect();
    if groups.is_empty() {
        bail!("tools/xtask/redis/python.toml has no such group");
    }
    python.target.server.expect_alive()?;
    print!("{:<20}", "group");
    let columns = [
        "protocol", "passed", "failed", "named", "skipped", "seconds",
    ];
    columns.iter().for_each(|column| print!("{column:>9}"));
    println!();
    let mut below = Vec::new();
    for &protocol in &python.protocols {
        let mut total = GroupReport::default();
        for group in &groups {
            let report = run_group(place, python, group, protocol, &skips)?;
            println!("{}", row(&group.name, protocol, &report));
            let shown = report.failures.iter().take(SHOWN_MAX);
            shown.for_each(|failure| println!("    {failure}"));
            total.add(&report);
        }
        let percent = total.percent();
        println!("{}  {percent:.1} %", row("all", protocol, &total));
        if percent < plan.passes_percent_min {
            below.push(format!("{percent:.1} % with RESP{protocol}"));
        }
    }
    for skip in &skips {
        println!("left out: {} ({})", skip.test, skip.reason);
    }
    if !below.is_empty() {
        bail!(
            "fewer than {} % of the tests passed: {}; outputs are in {}",
            plan.passes_percent_min,
            below.join(", "),
            place.at("logs").display()
        );
    }
    Ok(())
}

fn row(name: &str, protocol: u8, report: &GroupReport) -> String {
    format!(
        "{name:<20}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9.1}",
        format!("RESP{protocol}"),
        report.passed,
        report.failed,
        report.named,
        report.skipped,
        report.took.as_secs_f64()
    )
}

fn run_group(
    place: &Place,
    python: &Python,
    group: &Group,
    protocol: u8,
    skips: &[Skip],
) -> Result<GroupReport> {
    let names: Vec<&str> = skips.iter().map(|skip| &skip.test[..]).collect();
    let expression: Vec<&str> = group.expression.split_whitespace().collect();
    let mut command = Command::new(place.python("py-new")?);
    command
        .current_dir(place.redis_py_source()?)
        .env("PYTHONPATH", place.driver("pytest"))
        .env("FARCORE_SKIPS", names.join("\n"))
        .args(["-m", "pytest", "-p", "no:cacheprovider", "-o", "addopts="])
        .args(["-p", "farcore_skips"])
        .args([
            "--quiet",
            "--color=no",
            "--tb=short",
            "-rfE",
            "-W",
            "ignore",
        ])
        .args(["--timeout", &TEST_SECONDS.to_string()])
        .args(["--redis-url", &python.target.server.url()])
        .args(["--protocol", &protocol.to_string()])
        .args(["-m", "not onlycluster", "-k", &expression.join(" ")])
        .args(&group.files);
    let log = place.log(&format!("python-{}-resp{protocol}", group.name))?;
    Ok(GroupReport::of(&limited::run(command, GROUP_LIMIT, &log)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read() {
        let line =
            "11 failed, 597 passed, 225 skipped, 1 xfailed, 844 warnings, 2 errors in 59.67s";
        assert_eq!(summary(line), Some([597, 13, 225]));
        let line = "=== 31 passed, 630 deselected in 64.24s (0:01:04) ===";
        assert_eq!(summary(line), Some([31, 0, 0]));
        assert_eq!(summary("it failed in 3 places"), None);
    }

    #[test]
    fn a_run_without_a_summary_has_failed() {
        let report = GroupReport::parse("....\nINTERNALERROR> boom\n");
        assert_eq!((report.passed, report.failed), (0, 1));
        assert!(report.failures[0].contains("boom"));
        assert!(report.percent() < 1.0);
    }

    #[test]
    fn skipped_tests_do_not_count() {
        let output = "left out by name: 2\nFAILED tests/x.py::y - assert\n1 failed, 3 passed, 96 skipped in 1.00s\n";
        let report = GroupReport::parse(output);
        assert_eq!(report.failures, ["FAILED tests/x.py::y - assert"]);
        assert_eq!((report.named, report.skipped), (2, 96));
        assert!((report.percent() - 75.0).abs() < 1e-9);
    }
}
