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

use self::report::render;
use crate::child::{Experiment, run_in_child};
use crate::cli::OperationsArgs;
use crate::ending::Ending;
use crate::machine::Machine;
use crate::outputs::OutputFile;
use crate::plan::Plan;
use crate::series::{self, Series};

/// The experiment of this command.
#[derive(Debug)]
pub struct Operations;

impl Experiment for Operations {
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
    let series = Series {
        run: run_in_child::<Operations>,
        render: |runs| render(runs),
    };
    series.command(machine, plans, file, |_| Vec::new())
}
