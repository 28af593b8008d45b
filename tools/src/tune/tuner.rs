//! The command that tunes: flags, the plan that they give, the files at the end. Files are checked

//! before the first run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum};
use farcore_bench::cli::TraceSize;
use farcore_bench::cli::YcsbSize;
use farcore_bench::engines::Farcore;
use farcore_bench::machine::Machine;
use farcore_bench::plan::{Plan, Workload};
use farcore_bench::report::HotKeyReport;
use farcore_tuning::RatioEstimate;

use super::RunArgs;
use super::chart;
use super::knob::Knob;
use super::report::{self, Setting};
use super::search::{Ended, Findings, Options, Range, Stop, Trial, search};
use super::trial::{Metric, Runs};
use crate::text;

/// Confidence of a proof.
const CONFIDENCE: f64 = 0.95;
/// Default of pairs of a proof.
const PAIRS: u32 = 12;
/// Most pairs of a proof.
const PAIRS_MOST: usize = 100;
/// Exit code that shells expect of an interrupted command.
const INTERRUPTED: u8 = 130;

/// The workload to tune for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    Contest,
    Ycsb(Workload),
    Trace(PathBuf),
}

/// Flags of the tuner.
#[derive(Debug, Args)]
pub(super) struct TunerArgs {
    /// Workload to tune for: contest, ycsb-a, ycsb-b, ycsb-c, ycsb-d, ycsb-f, or trace:FILE
    #[arg(long, default_value = "contest", value_parser = target)]
    workload: Target,
    /// Settings to tune [default: all]
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    knobs: Option<Vec<Knob>>,
    /// Rate to optimise [default: total for the contest, else hot]
    #[arg(long)]
    metric: Option<Metric>,
    /// Time for the search; a proof that has begun is completed
    #[arg(long, value_name = "DURATION", default_value = "15m", value_parser = humantime::parse_duration)]
    budget: Duration,
    /// File of the profile
    #[arg(long, value_name = "FILE", default_value = "farcore-profile.toml")]
    out: PathBuf,
    /// Write a report with plots into a folder
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    #[command(flatten)]
    ycsb: YcsbSize,
    #[command(flatten)]
    trace: TraceSize,
}

fn target(name: &str) -> Result<Target, String> {
    if name == "contest" {
        return Ok(Target::Contest);
    }
    if let Some(file) = name.strip_prefix("trace:").filter(|file| !file.is_empty()) {
        return Ok(Target::Trace(file.into()));
    }
    name.strip_prefix("ycsb-")
        .and_then(|letter| Workload::from_str(letter, false).ok())
        .map(Target::Ycsb)
        .ok_or_else(|| {
            "write contest, ycsb-a, ycsb-b, ycsb-c, ycsb-d, ycsb-f, or trace:FILE".to_owned()
        })
}

/// Runs the command.
pub(super) fn run(arguments: &TunerArgs, runs: &RunArgs) -> ExitCode {
    match tune(arguments, runs) {
        Ok(Ended::Interrupted) => ExitCode::from(INTERRUPTED),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("farcore tune: {}", text::line(&error));
            ExitCode::FAILURE
        }
    }
}

impl TunerArgs {
    fn plan(&self, machine: &Machine, runs: &RunArgs) -> anyhow::Result<Plan> {
        let setup = &runs.setup;
        Ok(match &self.workload {
            Target::Contest => runs.contest.plan(machine, setup),
            Target::Ycsb(workload) => {
                self.ycsb
                    .plan(*workload, runs.contest.skew(), machine, setup)
            }
            Target::Trace(file) => self.trace.plan(file, machine, setup)?,
        })
    }

    fn metric(&self) -> Metric {
        self.metric.unwrap_or(match self.workload {
            Target::Contest => Metric::Total,
            Target::Ycsb(_) | Target::Trace(_) => Metric::Hot,
        })
    }
}

fn tune(arguments: &TunerArgs, run_args: &RunArgs) -> anyhow::Result<Ended> {
    let repeats = run_args.repeats.unwrap_or(PAIRS);
    let least = RatioEstimate::pairs_min(CONFIDENCE);
    if !(least..=PAIRS_MOST).contains(&(repeats as usize)) {
        bail!("--repeats is {repeats}: a proof takes {least} to {PAIRS_MOST} pairs of runs");
    }
    let machine = Machine::here();
    let plan = arguments.plan(&machine, run_args)?;
    plan.validate(&machine)?;
    Farcore::check(&plan)?;
    let ranges = ranges(arguments, &plan)?;
    // Fail before the runs rather than after them.
    if let Some(folder) = &arguments.report {
        fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
    }
    check_file(&arguments.out)?;
    if cfg!(debug_assertions) {
        eprintln!(
            "farcore tune: this is a debug build; its best settings may differ from a release build's"
        );
    }
    let setting = Setting {
        workload: farcore_bench::compare::describe(&plan, repeats),
        metric: arguments.metric(),
        machine,
        command: std::env::args().collect::<Vec<_>>().join(" "),
        confidence: CONFIDENCE,
    };
    println!("{}", setting.workload);
    let mut runs = Runs::new(plan, setting.metric, arguments.budget)?;
    runs.announce("first run: warm-up and length of a run");
    match runs.run(&farcore::Profile::default()) {
        Ok(_) => {}
        Err(Stop::Interrupted) => bail!("interrupted before the first finding"),
        Err(Stop::Failed(error)) => return Err(error),
    }
    let options = Options {
        repeats: repeats as usize,
        confidence: CONFIDENCE,
        seed: run_args.setup.seed,
    };
    let findings = search(&mut runs, &ranges, options);
    runs.finish();
    let findings = findings?;
    let comment = report::comment(&findings, &setting);
    write(&arguments.out, &findings.profile.to_toml(&comment))?;
    println!("{}", report::summary(&findings));
    println!(
        "{} runs in {}; profile: {}",
        runs.count(),
        humantime::format_duration(Duration::from_secs(runs.elapsed().as_secs())),
        arguments.out.display()
    );
    if let Some(folder) = &arguments.report {
        write_report(folder, &findings, &setting, runs.hot_keys())?;
    }
    Ok(findings.ended)
}

/// The settings to tune, each once, with the values to try.
fn ranges(arguments: &TunerArgs, plan: &Plan) -> anyhow::Result<Vec<Range>> {
    let config = Farcore::config(plan)?;
    let knobs = arguments.knobs.as_deref();
    let knobs = knobs.unwrap_or(Knob::value_variants());
    let mut ranges: Vec<Range> = Vec::new();
    for &knob in knobs {
        let default = knob.default_of(plan, &config)?;
        let values = knob.values(default, plan.cores.len());
        if !ranges.iter().any(|range| range.knob == knob) {
            ranges.push(Range {
                knob,
                default,
                values,
            });
        }
    }
    Ok(ranges)
}

/// Writes the report and its plot into a folder.
fn write_report(
    folder: &Path,
    findings: &Findings,
    setting: &Setting,
    hot_keys: &[HotKeyReport],
) -> anyhow::Result<()> {
    let plot = "sweeps.svg";
    if !findings.sweeps.is_empty() {
        let file = folder.join(plot);
        chart::write(&file, &findings.sweeps)
            .map_err(|error| anyhow!("{}: {error}", file.display()))?;
    }
    let file = folder.join("report.md");
    write(&file, &report::markdown(findings, setting, hot_keys, plot))?;
    println!("report: {}", file.display());
    Ok(())
}

fn check_file(file: &Path) -> anyhow::Result<()> {
    let folder = match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    if file.is_dir() || !folder.is_dir() {
        bail!(
            "--out {}: name a file in a folder that exists",
            file.display()
        );
    }
    Ok(())
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("{} could not be written", file.display()))
}
