//! The command that tunes: flags, the plan that they give, the files at the end. Files are checked

//! before the first run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use farcore_bench::cli::TraceSize;
use farcore_bench::cli::YcsbSize;
use farcore_bench::engines::Farcore;
use farcore_bench::plan::{Plan, Workload};
use farcore_bench::report::HotKeyReport;
use farcore_command::machine::Machine;
use farcore_command::origin::Origin;
use farcore_command::outputs::{OutputFile, complain, print};
use farcore_command::stop;
use farcore_tuning::RatioEstimate;

use super::RunArgs;
use super::chart;
use super::fault::in_flags;
use super::knob::Knob;
use super::report::{self, Setting};
use super::search::{Ended, Findings, Options, Range, Stop, Trial, search};
use super::trial::{Metric, Runs};

/// Confidence of a proof.
const CONFIDENCE: f64 = 0.95;
/// Default of pairs of a proof.
const PAIRS: u32 = 12;
/// Most pairs of a proof.
const PAIRS_MOST: usize = 100;
/// The plot beside the report.
const PLOT: &str = "sweeps.svg";

/// The workload to tune for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Contest,
    Ycsb(Workload),
    Trace(PathBuf),
}

/// Flags of the tuner.
#[derive(Debug, Args)]
pub(super) struct TunerArgs {
    /// Workload to tune for: contest, ycsb-a to ycsb-f, or trace:FILE
    #[arg(long, default_value = "contest", value_parser = target)]
    pub(super) workload: Target,
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

fn target(name: &str) -> std::result::Result<Target, String> {
    if name == "contest" {
        return Ok(Target::Contest);
    }
    if let Some(file) = name.strip_prefix("trace:").filter(|file| !file.is_empty()) {
        return Ok(Target::Trace(file.into()));
    }
    name.strip_prefix("ycsb-")
        .and_then(|letter| Workload::from_str(letter, false).ok())
        .map(Target::Ycsb)
        .ok_or_else(|| "write contest, ycsb-a to ycsb-f, or trace:FILE".to_owned())
}

/// Runs the command. An interrupted search has an exit code of its own.
///
/// # Errors
/// A flag is wrong, a run failed, the budget is too small, or an output cannot be written.
pub(super) fn run(arguments: &TunerArgs, runs: &RunArgs) -> Result<ExitCode> {
    Ok(match tune(arguments, runs)? {
        // 128 and the signal's number, as shells expect.
        Ended::Interrupted => stop::status().map_or(ExitCode::FAILURE, ExitCode::from),
        Ended::Complete | Ended::Budget => ExitCode::SUCCESS,
    })
}

impl TunerArgs {
    fn plan(&self, machine: &Machine, runs: &RunArgs) -> Result<Plan> {
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

fn tune(arguments: &TunerArgs, run_args: &RunArgs) -> Result<Ended> {
    let repeats = run_args.repeats.unwrap_or(PAIRS);
    let least = RatioEstimate::pairs_min(CONFIDENCE);
    if !(least..=PAIRS_MOST).contains(&(repeats as usize)) {
        bail!("--repeats is {repeats}: a proof takes {least} to {PAIRS_MOST} pairs of runs");
    }
    let machine = Machine::here();
    let plan = arguments.plan(&machine, run_args)?;
    plan.validate(&machine)?;
    let checked = Farcore::check(&plan).and_then(|()| ranges(arguments, &plan));
    let ranges = checked.map_err(|error| in_flags(&error))?;
    // Fail before the runs rather than after them.
    let profile = OutputFile::open("--out", &arguments.out)?;
    let files = (arguments.report.as_deref())
        .map(ReportFiles::open)
        .transpose()?;
    if cfg!(debug_assertions) {
        complain(
            "farcore tune: this is a debug build; its best settings may differ from a release build's",
        );
    }
    let setting = Setting {
        workload: farcore_bench::compare::describe(&plan, repeats),
        metric: arguments.metric(),
        machine,
        origin: Origin::here(),
        confidence: CONFIDENCE,
    };
    print(&setting.workload)?;
    let mut runs = Runs::new(plan, setting.metric, arguments.budget)?;
    let options = Options {
        repeats: repeats as usize,
        confidence: CONFIDENCE,
        seed: run_args.setup.seed,
    };
    let found = find(&mut runs, &ranges, options, arguments);
    let Some(findings) = found.map_err(|error| in_flags(&error))? else {
        return Ok(Ended::Interrupted);
    };
    let comment = report::comment(&findings, &setting);
    profile.write(findings.profile.to_toml(&comment))?;
    let folder = match files {
        Some(files) => Some(files.write(&findings, &setting, runs.hot_keys())?),
        None => None,
    };
    print(report::summary(&findings))?;
    print(format_args!(
        "{} runs in {}; profile: {}",
        runs.count(),
        humantime::format_duration(Duration::from_secs(runs.elapsed().as_secs())),
        arguments.out.display()
    ))?;
    if let Some(file) = folder {
        print(format_args!("report: {}", file.display()))?;
    }
    Ok(findings.ended)
}

/// The findings of a search; `None` if it was interrupted before the first one.
fn find(
    runs: &mut Runs,
    ranges: &[Range],
    options: Options,
    arguments: &TunerArgs,
) -> Result<Option<Findings>> {
    runs.announce("first run: warm-up and length of a run");
    let findings = match runs.run(&farcore::Profile::default()) {
        Ok(_) => Some(search(runs, ranges, options)),
        Err(Stop::Interrupted) => None,
        Err(Stop::Failed(error)) => return Err(error),
    };
    runs.finish();
    let findings = findings.transpose()?.filter(|findings| {
        // A profile without an outcome must not replace one that has some.
        findings.has_outcome || findings.ended != Ended::Interrupted
    });
    let Some(findings) = findings else {
        complain(format_args!(
            "farcore tune: interrupted before the first setting was compared; {} is not changed",
            arguments.out.display()
        ));
        return Ok(None);
    };
    ensure!(
        findings.has_outcome || findings.ended != Ended::Budget,
        "--budget {} ended before the values of one setting were compared: that needs about {}, or fewer --repeats; {} is not changed",
        humantime::format_duration(arguments.budget),
        humantime::format_duration(runs.needed_budget()),
        arguments.out.display()
    );
    Ok(Some(findings))
}

/// The settings to tune, each once, with the values to try.
fn ranges(arguments: &TunerArgs, plan: &Plan) -> Result<Vec<Range>> {
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

/// The files of a report.
#[derive(Debug)]
struct ReportFiles {
    plot: OutputFile,
    text: OutputFile,
    path: PathBuf,
}

impl ReportFiles {
    /// Opens the files in a folder, which is made if it does not exist.
    fn open(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)
            .with_context(|| format!("--report {} cannot be made", folder.display()))?;
        let path = folder.join("report.md");
        Ok(Self {
            plot: OutputFile::open("--report", &folder.join(PLOT))?,
            text: OutputFile::open("--report", &path)?,
            path,
        })
    }

    /// Writes the report and its plot; returns the path of the report.
    fn write(
        self,
        findings: &Findings,
        setting: &Setting,
        hot_keys: &[HotKeyReport],
    ) -> Result<PathBuf> {
        if !findings.sweeps.is_empty() {
            self.plot.write(&chart::svg(&findings.sweeps)?)?;
        }
        let text = report::markdown(findings, setting, hot_keys, PLOT);
        self.text.write(&text)?;
        Ok(self.path)
    }
}
