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

use std::fs;

use anyhow::{Context, bail};
use tracing::error;

use self::report::{FairnessReport, Run};
use crate::child::fairness_in_child;
use crate::cli::FairnessArgs;
use crate::compare::describe;
use crate::engines::Farcore;
use crate::machine::Machine;
use crate::plan::{Plan, Scenario};
use crate::plot;

/// Runs a plan `--runs` times, prints the tables, writes the files.
///
/// # Errors
/// A run failed, a file could not be written, a value was wrong, a request failed, or a client
/// waited longer than `--give-up` for an answer.
pub fn command(machine: Machine, plan: &Plan, args: &FairnessArgs) -> anyhow::Result<()> {
    let Scenario::Fairness(settings) = &plan.scenario else {
        bail!("the plan is of another command");
    };
    println!("{}", describe(plan, args.runs));
    println!("{}", settings.describe_cores(&plan.cores));
    Farcore::check(plan)?;
    if let Some(folder) = &args.plot {
        fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    }
    let mut runs: Vec<Run> = Vec::new();
    for number in 1..=args.runs {
        let run = fairness_in_child(plan)?;
        for complaint in &run.complaints {
            error!(run = number, complaint, "wrong value or failed request");
        }
        for hang in run.hangs() {
            error!(run = number, "{hang}");
        }
        runs.push(run);
    }
    let report = FairnessReport::of(machine, plan.clone(), runs);
    println!("{}", table::render(&report));
    if let Some(file) = &args.json {
        let text = serde_json::to_vec_pretty(&report)?;
        fs::write(file, text)
            .with_context(|| format!("{} could not be written", file.display()))?;
    }
    if let Some(folder) = &args.plot {
        for file in plot::write(folder, &report.plotted())? {
            println!("plot: {}", file.display());
        }
    }
    report.verdict()
}
