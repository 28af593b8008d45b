//! Runs of farcore one after the other, each in a process of its own, and how their figures are
//! published.
//!
//! I1: a run that ended early keeps its figures, wrong values and errors beside the reason.
//! I2: neither a file that cannot be written nor a closed standard output hides what the other one
//!     would show; the file is written first.

use std::path::Path;

use anyhow::anyhow;
use farcore_command::machine::Machine;
use farcore_command::origin::Origin;
use farcore_command::outputs::{OutputFile, print};
use farcore_command::{stop, words};
use serde::{Deserialize, Serialize};
use tracing::error;

use crate::child::{Experiment, run_in_child};
use crate::compare::describe;
use crate::ending::Ending;
use crate::engines::Farcore;
use crate::failures::{self, ErrorCounts};
use crate::plan::Plan;

/// Checks what can be checked before anything runs: the engine's settings and the file of `--json`,
/// which it returns.
///
/// # Errors
/// Farcore cannot run a plan, or the file could not be written.
pub fn check(plans: &[Plan], json: Option<&Path>) -> anyhow::Result<Option<OutputFile>> {
    for plan in plans {
        Farcore::check(plan)?;
    }
    OutputFile::open_if("--json", json)
}

/// Everything that one command measured, in the form that `--json` writes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SeriesReport<R> {
    /// The command, the program and the date.
    #[serde(flatten)]
    pub origin: Origin,
    /// The machine.
    pub machine: Machine,
    /// The plan of each run.
    pub plans: Vec<Plan>,
    /// The runs that began, in the order of the plans.
    pub runs: Vec<R>,
}

/// What went wrong in a run, and whether it came to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// Wrong, missing and unexpected answers. Anything but 0 is a failure.
    pub wrong_values: u64,
    /// A description of the first of them, or of the first error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complaint: Option<String>,
    /// Requests that ended with an error, by kind.
    pub errors: ErrorCounts,
    /// Whether the run ended early; what it had not measured is 0 or left out.
    #[serde(default)]
    pub partial: bool,
    /// Why the run ended before its end, unless a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

impl Faults {
    /// Marks the run if it did not come to its end.
    pub(crate) fn end(&mut self, end: anyhow::Result<()>) {
        if let Err(error) = end {
            self.partial = true;
            self.lost = Some(words::describe(&error));
        }
    }

    /// What stands behind the name of a run in a table.
    pub(crate) fn mark(&self) -> &'static str {
        if self.partial { " (partial)" } else { "" }
    }
}

/// The wrong values and the errors of all runs.
pub(crate) fn faults_of<R: Measured>(runs: &[R]) -> (u64, ErrorCounts) {
    let (mut wrong, mut errors) = (0, ErrorCounts::new());
    for faults in runs.iter().map(R::faults) {
        wrong += faults.wrong_values;
        failures::add(&mut errors, &faults.errors);
    }
    (wrong, errors)
}

/// The figures of a run, which may have ended early.
pub trait Measured {
    /// What went wrong in it.
    fn faults(&self) -> &Faults;

    /// Whether it ended before anything was measured.
    fn is_empty(&self) -> bool;
}

/// An experiment whose plans run one after the other, and whose runs one table shows.
pub trait Series: Experiment<Run: Measured> {
    /// The table of the runs.
    fn render(runs: &[Self::Run]) -> String;
}

/// Describes the plans, runs them, writes the file, prints the table. A signal or a run that fails
/// ends it early, with the figures so far. `before` does what comes before the first run, and
/// returns what failed of it.
///
/// # Errors
/// Standard output cannot be written.
pub fn command<E: Series>(
    machine: Machine,
    plans: Vec<Plan>,
    file: Option<OutputFile>,
    before: impl FnOnce(&[Plan]) -> Vec<anyhow::Error>,
) -> anyhow::Result<Ending> {
    let mut origin = Origin::here();
    for plan in &plans {
        print(describe(plan, 1))?;
    }
    let mut failures = before(&plans);
    let (runs, failed) = measure(&plans, run_in_child::<E>);
    origin.end(failed.as_ref());
    failures.extend(failed);
    for complaint in runs
        .iter()
        .filter_map(|run| run.faults().complaint.as_ref())
    {
        error!(complaint, "wrong value or failed request");
    }
    let (wrong, errors) = faults_of(&runs);
    let table = (!runs.iter().all(Measured::is_empty)).then(|| E::render(&runs));
    let report = SeriesReport {
        origin,
        machine,
        plans,
        runs,
    };
    publish(table, file, &report, &report.origin, &mut failures);
    Ok(Ending::of(wrong, &errors, None, &failures))
}

/// Runs the plans until one fails or a signal comes: the runs so far, that one included as far as
/// it came, and the failure.
fn measure<R: Measured>(
    plans: &[Plan],
    mut run: impl FnMut(&Plan) -> anyhow::Result<Option<R>>,
) -> (Vec<R>, Option<anyhow::Error>) {
    let mut runs = Vec::new();
    for plan in plans {
        if stop::is_requested() {
            break;
        }
        match run(plan) {
            Ok(Some(run)) => {
                let faults = run.faults();
                let why = faults.lost.clone();
                let has_faults = faults.wrong_values > 0 || !faults.errors.is_empty();
                if why.is_none() || has_faults || !run.is_empty() {
                    runs.push(run);
                }
                if let Some(why) = why {
                    let failed = anyhow!("the run of {} failed: {why}", plan.engine.name());
                    return (runs, Some(failed));
                }
            }
            Ok(None) => break,
            Err(error) => return (runs, Some(error)),
        }
    }
    (runs, None)
}

/// Writes the file and prints the table, and adds what could not be done to `failures`. Without a
/// table nothing was measured: an older file stays as it is.
fn publish(
    table: Option<String>,
    file: Option<OutputFile>,
    report: &impl Serialize,
    origin: &Origin,
    failures: &mut Vec<anyhow::Error>,
) {
    let Some(table) = table else {
        if failures.is_empty() {
            let nothing = "partial: a signal ended the command before anything was measured";
            failures.extend(print(nothing).err());
        }
        return;
    };
    failures.extend(file.and_then(|file| file.write_json(report).err()));
    let printed = print(table).and_then(|()| origin.note().map_or(Ok(()), print));
    failures.extend(printed.err());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::operations::report::{Row, Run};
    use crate::experiments::operations::settings::Part;
    use crate::plan::Scenario;
    use crate::skew::Skew;

    #[test]
    fn a_run_that_was_lost_keeps_what_it_found_and_ends_the_series() {
        let scenario = Scenario::Contest {
            hot_ops: 1,
            skew: Skew::default(),
        };
        let plan = crate::plan::tests::plan_of(scenario);
        let plans = [plan.clone(), plan.clone(), plan];
        let mut lost = Run::of(Part::Requests);
        lost.faults.end(Err(anyhow!("a worker panicked")));
        let measured = Run {
            rows: vec![Row::default()],
            ..lost.clone()
        };
        let mut wrong = lost.clone();
        wrong.faults.wrong_values = 2;
        for (second, kept) in [(measured, 2), (wrong, 2), (lost, 1)] {
            let mut runs = [Run::of(Part::Scan), second].into_iter();
            let (runs, failed) = measure(&plans, |_| Ok(Some(runs.next().unwrap())));
            assert_eq!(runs.len(), kept, "{runs:?}");
            let said = failed.unwrap().to_string();
            assert_eq!(said, "the run of farcore failed: a worker panicked");
        }
    }
}
