//! Measures how long one client waits beside clients that flood the engine and clients that leave
//! their answers unread.
//!
//! - [`settings`]: the clients and what they do; [`keys`]: the keys and their values
//! - [`client`]: one client with its `Handle`; [`notes`]: its counters, which the leader reads
//! - [`lead`]: one run: load, then the phases, each ended by force if an answer does not arrive
//! - [`report`]: figures and medians of several runs; [`table`]: how they are printed
//!
//! Clients:
//!
//! | client | requests in a phase |
//! |---|---|
//! | measured | one at a time: a put, a get of the key just written (near), a get of a random old key (far) |
//! | flooder | keeps a full window of gets of random old keys in flight; with `--puts`, puts of young keys among them |
//! | sleeper | submits a window of gets of keys that were written first, and reads no answer until the phase ends |
//!
//! The phases: the measured client alone, beside the flooders, beside the sleepers, beside both. An
//! old key is in the older half of the data, which is at least twice the local memory, so it is in
//! far memory unless the read cache holds it. The measured client's handle is opened last and has
//! the highest lane number.
//!
//! I1: every answer is verified: a value against its key, length and nonce, byte by byte; a near
//!     get against the latest put.
//! I2: the leader makes no call that can wait for a shard, so a run ends even if the engine hangs.
//! I3: a request without an answer counts with the time that it has waited.

pub mod client;
pub mod keys;
pub mod lead;
pub mod notes;
pub mod report;
pub mod settings;
pub mod table;

use std::path::PathBuf;

use anyhow::bail;
use farcore_command::machine::Machine;
use farcore_command::origin::Origin;
use farcore_command::outputs::print;
use farcore_command::stop;
use tracing::error;

use self::report::{FairnessReport, Run};
use crate::child::{Experiment, run_in_child};
use crate::cli::FairnessArgs;
use crate::compare::describe;
use crate::ending::Ending;
use crate::engines::Farcore;
use crate::figures::FigureFiles;
use crate::plan::{Plan, Scenario};

/// The experiment of this command.
#[derive(Debug)]
pub struct Fairness;

impl Experiment for Fairness {
    type Run = report::Run;

    fn run(plan: Plan) -> anyhow::Result<Self::Run> {
        lead::run(&plan)
    }

    fn is_stuck(run: &Self::Run) -> bool {
        run.is_stuck()
    }
}

/// Checks what can be checked before anything runs: the engine's settings and the files, which it
/// returns.
///
/// # Errors
/// Farcore cannot run the plan, or a file could not be written.
pub fn check<'a>(plan: &Plan, args: &'a FairnessArgs) -> anyhow::Result<FigureFiles<'a>> {
    Farcore::check(plan)?;
    plan.watch.check()?;
    FigureFiles::open(args.json.as_deref(), args.plot.as_deref())
}

/// Runs a plan several times, writes the files, prints the tables. A signal or a run that fails
/// ends it early, with the figures so far.
///
/// # Errors
/// Nothing was measured, because standard output cannot be written.
pub fn command(
    machine: Machine,
    plan: &Plan,
    count: u32,
    files: FigureFiles<'_>,
) -> anyhow::Result<Ending> {
    let Scenario::Fairness(settings) = &plan.scenario else {
        bail!("the plan is of another command");
    };
    let mut origin = Origin::here();
    print(describe(plan, count))?;
    print(settings.describe_cores(&plan.cores))?;
    let (runs, failed) = measure(plan, count);
    origin.end(failed.as_ref());
    let mut failures: Vec<anyhow::Error> = failed.into_iter().collect();
    let report = FairnessReport::of(origin, machine, plan.clone(), runs);
    if report.runs.is_empty() {
        if failures.is_empty() {
            print("partial: a signal ended the command before a phase was measured")?;
        }
        return Ok(report.ending(&failures));
    }
    let (plots, unwritten) = files.write(&report, &report.plotted());
    failures.extend(unwritten);
    failures.extend(publish(&report, &plots).err());
    Ok(report.ending(&failures))
}

/// Prints the tables and the notes below them.
fn publish(report: &FairnessReport, plots: &[PathBuf]) -> anyhow::Result<()> {
    print(table::render(report))?;
    if let Some(note) = report.origin.note() {
        print(note)?;
    }
    for file in plots {
        print(format_args!("plot: {}", file.display()))?;
    }
    Ok(())
}

/// The runs, each in turn; after a signal or a run that failed, those so far, and the failure.
fn measure(plan: &Plan, count: u32) -> (Vec<Run>, Option<anyhow::Error>) {
    let mut runs = Vec::new();
    for number in 1..=count {
        if stop::is_requested() {
            break;
        }
        let run = match run_in_child::<Fairness>(plan) {
            Ok(Some(run)) => run,
            Ok(None) => break,
            Err(error) => return (runs, Some(error)),
        };
        for complaint in &run.complaints {
            error!(run = number, complaint, "wrong value or failed request");
        }
        for hang in run.hangs() {
            error!(run = number, "{hang}");
        }
        runs.push(run);
    }
    (runs, None)
}
