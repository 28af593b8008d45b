//! Measures what it costs that many keys expire at once, and how fast their memory comes back.
//!
//! - [`settings`]: how many keys, where, and at which load
//! - [`lead`]: one run: load, then gets at an even rate while keys expire
//! - `client`: one core's part of that
//! - [`report`]: the figures and their table
//!
//! The keys that expire are written evenly among others that do not. Gets of the others are sent at
//! a share of the most that the engine serves, and their latency counts from when each was due.
//! Each place is a run of its own.

mod client;
pub mod lead;
pub mod report;
pub mod settings;

use crate::child::expiry_in_child;
use crate::cli::ExpiryArgs;
use crate::compare::describe;
use crate::ending::Ending;
use crate::failures::ErrorCounts;
use crate::machine::Machine;
use crate::origin::Origin;
use crate::outputs::{OutputFile, print};
use crate::plan::Plan;
use crate::series;

use self::report::{ExpiryReport, render};

/// Checks what can be checked before anything runs: the engine's settings and the file of `--json`,
/// which it returns.
///
/// # Errors
/// Farcore cannot run a plan, or the file could not be written.
pub fn check(plans: &[Plan], args: &ExpiryArgs) -> anyhow::Result<Option<OutputFile>> {
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
    let (runs, failed) = series::measure(&plans, expiry_in_child);
    origin.end(failed.as_ref());
    let mut failures: Vec<anyhow::Error> = failed.into_iter().collect();
    let wrong = runs.iter().map(|run| run.wrong_values).sum();
    let failed_requests: u64 = runs.iter().map(|run| run.errors).sum();
    let mut errors = ErrorCounts::new();
    if failed_requests > 0 {
        errors.insert("any kind".to_owned(), failed_requests);
    }
    if !runs.is_empty() {
        let report = ExpiryReport {
            origin,
            machine,
            plans,
            runs,
        };
        failures.extend(file.and_then(|file| file.write_json(&report).err()));
        print(render(&report.runs))?;
        if let Some(note) = report.origin.note() {
            print(note)?;
        }
    }
    Ok(Ending::of(wrong, &errors, None, &failures))
}
