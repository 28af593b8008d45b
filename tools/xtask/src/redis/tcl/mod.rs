//! `cargo xtask redis tcl`: units of Redis's own suite, from Debian's source. Each unit is a run of
//! its own, so that one that breaks off costs no other unit its tests.
//!
//! - I1: the run fails if a test fails or hangs that `tcl.skip` does not name, if a group passes
//!   fewer tests than its least, or if a line of `tcl.skip` names no test of all units.

mod report;

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde::Deserialize;

use self::report::UnitReport;
use super::place::Place;
use super::selection::{self, Skip};
use super::server::{Server, Target};
use crate::limited;

/// Tests that cannot pass anywhere but in the suite's own servers, and slow ones.
const TAGS: &str = "-needs:debug -needs:repl -slow";
/// Time without progress after which the suite names the test that hangs.
const STALL_SECONDS: u64 = 30;
/// Tests of a unit that may hang until the rest of it is given up.
const HANGS_MAX: usize = 5;
/// Failures of a unit that are printed; the log has all.
const SHOWN_MAX: usize = 40;

#[derive(Debug, Args)]
pub(crate) struct Tcl {
    #[command(flatten)]
    target: Target,
    /// Run only this group (`hash`) or unit (`unit/type/hash`, `expire`).
    #[arg(long)]
    unit: Option<String>,
    /// Run also the tests that tcl.skip names.
    #[arg(long)]
    no_skips: bool,
    /// Time limit of each unit, in seconds.
    #[arg(long, default_value_t = 300)]
    unit_seconds: u64,
}

impl Tcl {
    /// All units against a server, each within a time limit.
    pub(super) fn all(server: Server, unit_seconds: u64) -> Self {
        Self {
            target: Target { server },
            unit: None,
            no_skips: false,
            unit_seconds,
        }
    }
}

/// The file `tcl.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    group: Vec<Group>,
}

/// Units that are judged together.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    units: Vec<String>,
    /// The fewest tests that must pass; `None` for a part of a group.
    passes_min: Option<usize>,
    /// What is written otherwise in its units, and how: where all tests of a kind are left out
    /// whose names others have too.
    #[serde(default)]
    rewritten: Vec<(String, String)>,
}

impl Group {
    /// What is left of the group if only one group or unit is selected.
    fn selected(&self, only: &str) -> Option<Self> {
        if self.name == only {
            return Some(self.clone());
        }
        let mut part = self.clone();
        part.units
            .retain(|unit| unit == only || unit.rsplit('/').next() == Some(only));
        if part.units.len() < self.units.len() {
            part.passes_min = None;
        }
        (!part.units.is_empty()).then_some(part)
    }
}

pub(super) fn perform(place: &Place, tcl: &Tcl) -> Result<()> {
    let plan: Plan = toml::from_str(&place.read_driver("tcl.toml")?).context("tcl.toml")?;
    let mut skips = selection::read(place, "tcl.skip")?;
    if tcl.no_skips {
        skips.clear();
    }
    let groups: Vec<Group> = match &tcl.unit {
        None => plan.group,
        Some(only) => (plan.group.iter())
            .filter_map(|group| group.selected(only))
            .collect(),
    };
    if groups.is_empty() {
        bail!("tools/xtask/redis/tcl.toml has no such group or unit");
    }
    tcl.target.server.expect_alive()?;
    let columns = ["passed", "failed", "skipped", "of all", "seconds"];
    print!("{:<20}", "unit");
    columns.iter().for_each(|column| print!("{column:>9}"));
    println!();
    let mut faults = Vec::new();
    let mut left_out = Vec::new();
    for group in &groups {
        let mut total = UnitReport::default();
        for unit in &group.units {
            let report = run_unit(place, tcl, (group, unit), &skips)?;
            println!("{}", row(unit, &report));
            print_failures(&report);
            total.add(report);
        }
        println!("{}  {}", row(&group.name, &total), verdict(group, &total));
        if let Some(least) = group.passes_min.filter(|&least| total.passed < least) {
            let passed = total.passed;
            faults.push(format!(
                "{} passed {passed}, at least {least} must",
                group.name
            ));
        }
        if !total.failures.is_empty() {
            faults.push(format!("{} failed {}", group.name, total.failures.len()));
        }
        left_out.extend(total.skipped);
    }
    for skip in &skips {
        if left_out.contains(&skip.test) {
            println!("left out: {} ({})", skip.test, skip.reason);
        } else if tcl.unit.is_none() {
            faults.push(format!("tcl.skip names no test: {}", skip.test));
        }
    }
    if !faults.is_empty() {
        let logs = place.at("logs");
        bail!("{}; outputs are in {}", faults.join("; "), logs.display());
    }
    Ok(())
}

fn row(name: &str, report: &UnitReport) -> String {
    format!(
        "{name:<20}{:>9}{:>9}{:>9}{:>9}{:>9.1}",
        report.passed,
        report.failures.len(),
        report.skipped.len(),
        report.all(),
        report.took.as_secs_f64()
    )
}

fn verdict(group: &Group, total: &UnitReport) -> String {
    match group.passes_min {
        None => "part of a group".to_owned(),
        Some(least) if total.passed < least => format!("BELOW {least}"),
        Some(least) => format!("at least {least}: ok"),
    }
}

fn print_failures(report: &UnitReport) {
    for failure in report.failures.iter().take(SHOWN_MAX) {
        println!("    {}: {}", failure.test, failure.detail);
    }
    if report.failures.len() > SHOWN_MAX {
        println!("    and {} more", report.failures.len() - SHOWN_MAX);
    }
}

/// Runs a unit; if one of its tests hangs, again without that test, so that the others count.
fn run_unit(
    place: &Place,
    tcl: &Tcl,
    (group, unit): (&Group, &str),
    skips: &[Skip],
) -> Result<UnitReport> {
    let mut left_out: Vec<String> = skips.iter().map(|skip| skip.test.clone()).collect();
    let mut hung = UnitReport::default();
    loop {
        let mut report = run_without(place, tcl, (group, unit), &left_out)?;
        let Some(failure) = report.take_hang() else {
            // Tests that hung were skipped in this run, but have failed.
            let is_hung = |test: &String| hung.failures.iter().any(|one| one.test == *test);
            report.skipped.retain(|test| !is_hung(test));
            report.add(hung);
            return Ok(report);
        };
        left_out.push(failure.test.clone());
        hung.took += report.took;
        hung.failures.push(failure);
        if hung.failures.len() == HANGS_MAX {
            hung.passed = report.passed;
            hung.skipped = report.skipped;
            hung.ignored = report.ignored;
            return Ok(hung);
        }
    }
}

/// The name of a unit's file; of a copy if some of it is written otherwise.
fn rewritten(place: &Place, group: &Group, unit: &str) -> Result<String> {
    if group.rewritten.is_empty() {
        return Ok(unit.to_owned());
    }
    let tests = place.redis_source()?.join("tests");
    let path = tests.join(format!("{unit}.tcl"));
    let mut text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    for (from, to) in &group.rewritten {
        if !text.contains(from) {
            bail!("{unit} does not have what tcl.toml rewrites: {from}");
        }
        text = text.replace(from, to);
    }
    let name = format!("{unit}-rewritten");
    let path = tests.join(format!("{name}.tcl"));
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(name)
}

fn run_without(
    place: &Place,
    tcl: &Tcl,
    (group, unit): (&Group, &str),
    left_out: &[String],
) -> Result<UnitReport> {
    let server = &tcl.target.server;
    let unit = &rewritten(place, group, unit)?;
    let mut command = Command::new("./runtest");
    command
        .current_dir(place.redis_source()?)
        .args(["--host", &server.host, "--port", &server.port.to_string()])
        .args(["--ignore-encoding", "--ignore-digest"])
        // An error that is no failed assertion is the failure of its test, not the end of the unit.
        .arg("--durable")
        .args(["--timeout", &STALL_SECONDS.to_string()])
        .args(["--tags", TAGS, "--single", unit]);
    for test in left_out {
        command.args(["--skiptest", test]);
    }
    let log = place.log(&format!("tcl-{unit}"))?;
    Ok(UnitReport::of(&limited::run(
        command,
        Duration::from_secs(tcl.unit_seconds),
        &log,
    )?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_group_has_no_least() {
        let text = include_str!("../../../redis/tcl.toml");
        let plan: Plan = toml::from_str(text).unwrap();
        let selected = |only: &str| -> Vec<Group> {
            (plan.group.iter())
                .filter_map(|group| group.selected(only))
                .collect()
        };
        assert!(selected("string..quit")[0].passes_min.is_some());
        let expire = &selected("expire")[0];
        assert_eq!(
            (&expire.units[..], expire.passes_min),
            (&["unit/expire".to_owned()][..], None)
        );
        assert_eq!(selected("unit/type/hash")[0].passes_min, Some(70));
        assert!(selected("no such").is_empty());
    }
}
