//! Measures what a program pays that embeds the engine: blocking calls, batches and tasks beside
//! the same callers of concurrent maps and caches.
//!
//! - [`settings`]: engines, callers and sizes; [`lead`]: one run in its own process
//! - `sequence`: keys, values and their order; `counts`: what one caller counts and times
//! - `calls`: callers on threads; `tasks`: callers on a runtime; `stage`: when they start and end
//! - `quiet`: what an engine without requests takes from the machine
//! - [`report`]: figures and medians; [`table`], `plot`: how they are shown
//!
//! Callers:
//!
//! | caller | what a thread or task does |
//! |---|---|
//! | handle | a handle of its own, and blocks: `get().wait()` |
//! | client | a clone of one client, and blocks |
//! | batch | `get_many` of 32 keys with a handle of its own |
//! | tasks | a task of a runtime with 2 threads, which awaits `client.get()` |
//! | window | keeps 64 requests in flight with `submit` and `poll` |
//! | direct | calls a map: what stands for handle, client and window there |
//!
//! I1: callers of one number make the same requests in the same order, whatever the engine.
//! I2: every value that was read is checked, byte by byte.
//! I3: engines take turns: each round runs all of them, each in a new process with newly loaded
//!     keys.

mod calls;
mod counts;
pub mod lead;
mod plot;
mod quiet;
pub mod report;
mod sequence;
pub mod settings;
mod stage;
pub mod table;
mod tasks;

use std::path::{Path, PathBuf};

use anyhow::bail;
use farcore_command::machine::Machine;
use farcore_command::origin::Origin;
use farcore_command::outputs::{OutputFile, check_folder, print};
use farcore_command::stop;
use farcore_command::words::size;
use tracing::error;

use self::report::{EmbedReport, Run};
use self::settings::Settings;
use crate::child::{Experiment, run_in_child};
use crate::cli::EmbedArgs;
use crate::ending::Ending;
use crate::engines::Farcore;
use crate::failures::{self, ErrorCounts};
use crate::plan::{Plan, Scenario};

/// The experiment of this command.
#[derive(Debug)]
pub struct Embed;

impl Experiment for Embed {
    type Run = report::Run;

    fn run(plan: Plan) -> anyhow::Result<Self::Run> {
        lead::run(&plan)
    }
}

/// The files of a command, tried before anything runs.
#[derive(Debug)]
pub struct Files<'a> {
    json: Option<OutputFile>,
    plot: Option<&'a Path>,
}

/// Checks what can be checked before anything runs: the engines' settings and the files, which it
/// returns.
///
/// # Errors
/// Farcore cannot run a plan, or a file could not be written.
pub fn check<'a>(plans: &[Plan], args: &'a EmbedArgs) -> anyhow::Result<Files<'a>> {
    for plan in plans.iter().filter(|plan| plan.engine.is_ours()) {
        let checked = Farcore::check(plan);
        let percent = settings_of(plan).and_then(|settings| settings.local_percent);
        // The engine's own words are about flags that this command does not have.
        if let (Err(_), Some(percent)) = (&checked, percent) {
            let (keys, local) = (plan.keys_max(), size(plan.local_bytes));
            bail!(
                "--local-percent is {percent}: {local} of local memory is too little for {keys} keys; raise it, or --keys"
            );
        }
        checked?;
    }
    if let Some(folder) = &args.plot {
        check_folder("--plot", folder)?;
    }
    Ok(Files {
        json: OutputFile::open_if("--json", args.json.as_deref())?,
        plot: args.plot.as_deref(),
    })
}

/// The settings of a plan of this command.
fn settings_of(plan: &Plan) -> Option<&Settings> {
    match &plan.scenario {
        Scenario::Embed(settings) => Some(settings),
        _ => None,
    }
}

/// Runs the plans, writes the files, prints the tables. A signal or a run that fails ends it early,
/// with the figures so far.
///
/// # Errors
/// Standard output cannot be written.
pub fn command(
    machine: Machine,
    plans: Vec<Plan>,
    repeats: u32,
    files: Files<'_>,
) -> anyhow::Result<Ending> {
    let mut origin = Origin::here();
    print(table::header(&plans, repeats))?;
    let (runs, failed) = measure(&plans, repeats);
    origin.end(failed.as_ref());
    let mut failures: Vec<anyhow::Error> = failed.into_iter().collect();
    let wrong = runs.iter().map(|run| run.wrong_values).sum();
    let mut errors = ErrorCounts::new();
    for run in &runs {
        failures::add(&mut errors, &run.errors);
    }
    if runs.iter().all(Run::is_empty) {
        if failures.is_empty() {
            print("partial: a signal ended the command before anything was measured")?;
        }
        return Ok(Ending::of(wrong, &errors, None, &failures));
    }
    let report = EmbedReport::of(origin, machine, plans, runs);
    failures.extend(files.json.and_then(|file| file.write_json(&report).err()));
    let plots = files.plot.map(|folder| plot::write(folder, &report));
    let plot = plots.and_then(|written| match written {
        Ok(file) => Some(file),
        Err(error) => {
            failures.push(error.context("--plot"));
            None
        }
    });
    failures.extend(publish(&report, plot).err());
    Ok(Ending::of(wrong, &errors, None, &failures))
}

/// Prints the tables and the notes below them.
fn publish(report: &EmbedReport, plot: Option<PathBuf>) -> anyhow::Result<()> {
    print(table::render(report))?;
    if let Some(note) = report.origin.note() {
        print(note)?;
    }
    if let Some(file) = plot {
        print(format_args!("plot: {}", file.display()))?;
    }
    Ok(())
}

/// The runs: plans of callers in turn, round by round, then the others once. After a signal or a
/// run that failed, those so far, and the failure.
fn measure(plans: &[Plan], repeats: u32) -> (Vec<Run>, Option<anyhow::Error>) {
    let (in_turn, once): (Vec<&Plan>, Vec<&Plan>) = plans
        .iter()
        .partition(|plan| settings_of(plan).is_some_and(Settings::is_repeated));
    let rounds = (0..repeats).flat_map(|round| in_turn.iter().map(move |plan| (round, *plan)));
    let mut runs = Vec::new();
    for (round, plan) in rounds.chain(once.into_iter().map(|plan| (0, plan))) {
        if stop::is_requested() {
            break;
        }
        let mut run = match run_in_child::<Embed>(plan) {
            Ok(Some(run)) => run,
            Ok(None) => break,
            Err(error) => return (runs, Some(error)),
        };
        run.round = round;
        if let Some(complaint) = &run.complaint {
            let engine = run.engine.name();
            error!(engine, complaint, "wrong value or failed request");
        }
        runs.push(run);
    }
    (runs, None)
}
