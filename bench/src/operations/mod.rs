//! Measures kinds of operations beside each other within one run, so that their ratios do not
//! depend on how fast the machine is at the time.
//!
//! - [`settings`]: what is measured, and its sizes
//! - [`lead`]: one run; `sweeps`: scans and exports; `long`: long values
//! - [`report`]: the figures and their table
//!
//! Each part is a run of its own: requests on one key, each kind beside a put or a get; a scan of
//! all local keys; an export of a log in far memory, beside the link; long values beside plain
//! ones.

pub mod lead;
mod long;
pub mod report;
pub mod settings;
mod sweeps;

use tracing::error;

use self::report::{OperationsReport, Run, render};
use crate::child::operations_in_child;
use crate::cli::OperationsArgs;
use crate::compare::describe;
use crate::ending::Ending;
use crate::failures::{self, ErrorCounts};
use crate::machine::Machine;
use crate::origin::Origin;
use crate::outputs::{OutputFile, print};
use crate::plan::Plan;
use crate::series;

/// Checks what can be checked before anything runs: the engine's settings and the file of `--json`,
/// which it returns.
///
/// # Errors
/// Farcore cannot run a plan, or the file could not be written.
pub fn check(plans: &[Plan], args: &OperationsArgs) -> anyhow::Result<Option<OutputFile>> {
    series::check(plans, args.json.as_deref())
}

/// Runs the plans, writes the file, prints the table. A signal or a run that fails ends it early,
/// with the figures so far.
///
/// # Errors
/// Standard output cannot be written.
pub fn command(
    machine: Machine,
    plans: Vec<Plan>,
    file: Option<OutputFile>,
) -> anyhow::Result<Ending> {
    let mut origin = Origin::here();
    for plan in &plans {
        print(describe(plan, 1))?;
    }
    let (runs, failed) = series::measure(&plans, operations_in_child);
    origin.end(failed.as_ref());
    let mut failures: Vec<anyhow::Error> = failed.into_iter().collect();
    let wrong = runs.iter().map(|run| run.wrong_values).sum();
    let mut errors = ErrorCounts::new();
    for run in &runs {
        if let Some(complaint) = &run.complaint {
            error!(complaint, "wrong value or failed request");
        }
        failures::add(&mut errors, &run.errors);
    }
    let table = (!runs.iter().all(Run::is_empty)).then(|| render(&runs));
    let report = OperationsReport {
        origin,
        machine,
        plans,
        runs,
    };
    series::publish(table, file, &report, &report.origin, &mut failures);
    Ok(Ending::of(wrong, &errors, None, &failures))
}
