//! `farcore tune --predict`: predicts the throughput of another machine by a queueing model that
//! real runs calibrate.
//!
//! [`machine`] describes the other machine, [`adapter`] slows its adapter down by what does not
//! fit, [`calibrate`] makes runs and measures the model's error, [`forecast`] is the model,
//! [`show`] and [`plot`] show the prediction.

mod adapter;
mod calibrate;
mod forecast;
mod machine;
mod plot;
mod show;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use farcore_bench::cli::{ContestSize, SetupArgs};
use farcore_command::machine::Machine as Here;
use farcore_command::origin::Origin;
use farcore_command::outputs::{OutputFile, check_extension, print};

use self::adapter::Adapter;
pub(super) use self::machine::Machine;
use self::show::Answer;

/// Flags of predictions.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// With --predict: calibrate by this report of an engine instead of runs here; costs that its
    /// counters do not separate (a crossing, a READ) take default values
    #[arg(long, value_name = "REPORT.json")]
    pub(super) from: Option<PathBuf>,
    /// With --predict: print JSON
    #[arg(long)]
    json: bool,
    /// With --predict: draw the prediction into this SVG file
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Predicts the throughput of a machine and what saturates first.
pub(super) fn run(
    machine: &Machine,
    options: &Options,
    setup: &SetupArgs,
    size: &ContestSize,
    repeats: u32,
) -> Result<()> {
    check_extension("--plot", options.plot.as_deref(), "svg")?;
    let plot = OutputFile::open_if("--plot", options.plot.as_deref())?;
    let full = machine.messages_s;
    let (calibration, checks) = if let Some(path) = &options.from {
        (calibrate::from_report(&calibrate::read(path)?)?, Vec::new())
    } else {
        let announce = || match options.json {
            true => Ok(()),
            false => print(format_args!(
                "calibrating: the contest on 1 core and on 2, {repeats} times each"
            )),
        };
        let (plan, runs) = calibrate::measure(setup, size, repeats, announce)?;
        (
            calibrate::best(&runs, &plan)?,
            calibrate::checks(&runs, &plan)?,
        )
    };
    let adapter = Adapter::of(machine)?;
    // The model's adapter is the one with all that it must hold.
    let machine = &Machine {
        messages_s: adapter.map_or(machine.messages_s, |adapter| adapter.messages_s),
        ..*machine
    };
    let has_runs = options.from.is_none();
    let answer = Answer {
        origin: Origin::here(),
        calibrated_on: has_runs.then(Here::here),
        seed: has_runs.then_some(setup.seed),
        adapter,
        adapter_messages_s: full,
        machine: *machine,
        calibration,
        checks,
        limit: calibration.limit(machine),
        steps: calibration.steps(machine),
    };
    if let Some(plot) = plot {
        plot.write(&plot::svg(&answer)?)?;
    }
    if options.json {
        print(serde_json::to_string_pretty(&answer)?)
    } else {
        print(answer.text())
    }
}
