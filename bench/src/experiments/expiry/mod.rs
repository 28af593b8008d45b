//! Measures what it costs that many keys expire at once, and how fast their memory comes back.
//!
//! - [`settings`]: how many keys, where, and at which load
//! - [`lead`]: one run: load, then gets at an even rate while keys expire
//! - `client`: one core's part of that
//! - [`report`]: the figures; `table`: how they are printed
//!
//! The keys that expire are written evenly among others that do not. Gets of the others are sent at
//! a share of the most that the engine serves, and their latency counts from when each was due.
//! Each place is a run of its own.

mod client;
pub mod lead;
pub mod report;
pub mod settings;
mod table;

use crate::child::{Experiment, run_in_child};
use crate::cli::ExpiryArgs;
use crate::ending::Ending;
use crate::machine::Machine;
use crate::outputs::OutputFile;
use crate::plan::Plan;
use crate::series::{self, Series};

use self::table::render;

/// The experiment of this command.
#[derive(Debug)]
pub struct Expiry;

impl Experiment for Expiry {
    type Run = report::Run;

    fn run(plan: Plan) -> anyhow::Result<Self::Run> {
        lead::run(&plan)
    }
}

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
    let series = Series {
        run: run_in_child::<Expiry>,
        render: |runs| render(runs),
    };
    series.command(machine, plans, file, |_| Vec::new())
}
