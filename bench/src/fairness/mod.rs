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

use anyhow::bail;
use tracing::error;

use self::report::{FairnessReport, Run};
use crate::child::fairness_in_child;
use crate::cli::FairnessArgs;
use crate::compare::describe;
use crate::ending::Ending;
use crate::engines::Farcore;
use crate::machine::Machine;
use crate::origin::Origin;
use crate::plan::{Plan, Scenario};
use crate::{outputs, plot, stop};

/// Checks what can be checked before anything runs: the engine's settings and the files.
///
/// # Errors
/// Farcore cannot run the plan, or a file could not be written.
pub fn check(plan: &Plan, args: &FairnessArgs) -> anyhow::Result<()> {
    Farcore::check(plan)?;
    if let Some(file) = &args.json {
        outputs::check_file("--json", file)?;
    }
    match &args.plot {
        Some(folder) => outputs::check_folder("--plot", folder),
        None => Ok(()),
    }
}

/// Runs a plan `--runs` times, writes the files, prints the tables. A signal ends it early, with
/// the figures so far.
///
/// # Errors
/// A run failed, or a file could not be written.
pub fn command(machine: Machine, plan: &Plan, args: &FairnessArgs) -> anyhow::Result<Ending> {
    let Scenario::Fairness(settings) = &plan.scenario else {
        bail!("the plan is of another command");
    };
    let mut origin = Origin::here();
    outputs::say(describe(plan, args.runs))?;
    outputs::say(settings.describe_cores(&plan.cores))?;
    let runs = measure(plan, args.runs)?;
    origin.partial = stop::is_requested();
    let report = FairnessReport::of(origin, machine, plan.clone(), runs);
    if let Some(file) = &args.json {
        outputs::write("--json", file, &serde_json::to_vec_pretty(&report)?)?;
    }
    let plots = match &args.plot {
        Some(folder) if !report.phases.is_empty() => plot::write(folder, &report.plotted())?,
        _ => Vec::new(),
    };
    outputs::say(table::render(&report))?;
    if report.origin.partial {
        outputs::say("partial: a signal ended the command before all runs were complete")?;
    }
    for file in plots {
        outputs::say(format_args!("plot: {}", file.display()))?;
    }
    Ok(report.ending())
}

/// The runs, each in turn; after a signal, those so far.
fn measure(plan: &Plan, count: u32) -> anyhow::Result<Vec<Run>> {
    let mut runs = Vec::new();
    for number in 1..=count {
        if stop::is_requested() {
            break;
        }
        let Some(run) = fairness_in_child(plan)? else {
            break;
        };
        for complaint in &run.complaints {
            error!(run = number, complaint, "wrong value or failed request");
        }
        for hang in run.hangs() {
            error!(run = number, "{hang}");
        }
        if runs.is_empty() || !run.partial {
            runs.push(run);
        }
    }
    Ok(runs)
}
