//! Runs of farcore one after the other, each in a process of its own, and how their figures are
//! published.
//!
//! I1: a run that ended early keeps its figures, wrong values and errors beside the reason.
//! I2: neither a file that cannot be written nor a closed standard output hides what the other one
//!     would show; the file is written first.

use std::path::Path;

use anyhow::anyhow;
use serde::Serialize;

use crate::engines::Farcore;
use crate::origin::Origin;
use crate::outputs::{OutputFile, print};
use crate::plan::Plan;
use crate::stop;

/// Checks what can be checked before anything runs: the engine's settings and the file of `--json`,
/// which it returns.
///
/// # Errors
/// Farcore cannot run a plan, or the file could not be written.
pub(crate) fn check(plans: &[Plan], json: Option<&Path>) -> anyhow::Result<Option<OutputFile>> {
    for plan in plans {
        Farcore::check(plan)?;
    }
    OutputFile::open_if("--json", json)
}

/// A run that may have ended early.
pub(crate) trait Ended {
    /// Why it did, unless a signal ended it.
    fn lost(&self) -> Option<&str>;

    /// Whether it has neither figures nor faults to show.
    fn is_empty(&self) -> bool;
}

/// Runs the plans until one fails or a signal comes: the runs so far, that one included as far as
/// it came, and the failure.
pub(crate) fn measure<R: Ended>(
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
                let why = run.lost().map(str::to_owned);
                if why.is_none() || !run.is_empty() {
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
pub(crate) fn publish(
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
    use crate::operations::report::{Row, Run};
    use crate::operations::settings::Part;
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
        let lost = Run {
            partial: true,
            lost: Some("a worker panicked".into()),
            ..Run::of(Part::Requests)
        };
        let measured = Run {
            rows: vec![Row::default()],
            ..lost.clone()
        };
        let wrong = Run {
            wrong_values: 2,
            ..lost.clone()
        };
        for (second, kept) in [(measured, 2), (wrong, 2), (lost, 1)] {
            let mut runs = [Run::of(Part::Scan), second].into_iter();
            let (runs, failed) = measure(&plans, |_| Ok(Some(runs.next().unwrap())));
            assert_eq!(runs.len(), kept, "{runs:?}");
            let said = failed.unwrap().to_string();
            assert_eq!(said, "the run of farcore failed: a worker panicked");
        }
    }
}
