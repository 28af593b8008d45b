//! The runs that are compared: the workload in a child process each time, with every value
//! verified, within a budget of time.

use std::cell::Cell;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::ValueEnum;
use farcore::Profile;
use farcore_bench::engines::Farcore;
use farcore_bench::plan::Plan;
use farcore_bench::report::{HotKeyReport, RunReport};
use farcore_bench::run::run_silently;
use farcore_command::outputs::print;
use farcore_command::stop;
use indicatif::{ProgressBar, ProgressStyle};

use super::report;
use super::search::{Stop, Sweep, Trial};

/// The rate to optimise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Metric {
    /// Requests a second in the last phase: the contest's hot mix, YCSB's transactions, the trace.
    Hot,
    /// Requests a second over all phases.
    Total,
}

impl Metric {
    /// The name of its flag's value.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Total => "total",
        }
    }

    /// Million requests a second.
    fn of(self, report: &RunReport) -> f64 {
        match self {
            Self::Hot => report.phases.last().map_or(0.0, |phase| phase.mops),
            Self::Total => {
                let ops = report.phases.iter().map(|phase| phase.ops).sum();
                farcore_bench::report::mops(ops, report.total_seconds)
            }
        }
    }
}

/// Runs a plan repeatedly and shows the progress.
#[derive(Debug)]
pub(super) struct Runs {
    plan: Plan,
    metric: Metric,
    start: Instant,
    budget: Duration,
    bar: ProgressBar,
    count: u32,
    /// Time of all runs.
    spent: Duration,
    /// Hot keys of the latest run.
    hot_keys: Vec<HotKeyReport>,
    /// The budget that the latest check of the time would have been content with.
    needed: Cell<Duration>,
}

impl Runs {
    /// Starts the clock. From here on, a signal ends the current run, and the search with its
    /// findings so far ([`stop`]).
    ///
    /// # Errors
    /// The signals cannot be caught.
    pub(super) fn new(plan: Plan, metric: Metric, budget: Duration) -> anyhow::Result<Self> {
        stop::forward_signals().context("signals cannot be caught")?;
        let bar = ProgressBar::new(budget.as_secs().max(1));
        // One line on 80 columns, whatever the message.
        let style = "[{bar:20}] {elapsed} of {prefix}, {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(humantime::format_duration(budget).to_string());
        bar.enable_steady_tick(Duration::from_millis(500));
        Ok(Self {
            plan,
            metric,
            start: Instant::now(),
            budget,
            bar,
            count: 0,
            spent: Duration::ZERO,
            hot_keys: Vec::new(),
            needed: Cell::default(),
        })
    }

    /// Runs so far.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Hot keys of the latest run.
    pub(super) fn hot_keys(&self) -> &[HotKeyReport] {
        &self.hot_keys
    }

    /// Time since the start.
    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The budget that was needed when the time ran out, with a quarter to spare: runs vary.
    pub(super) fn needed_budget(&self) -> Duration {
        let needed = self.needed.get();
        Duration::from_secs((needed + needed / 4).as_secs() + 1)
    }

    /// Removes the bar from the screen.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Trial for Runs {
    fn run(&mut self, profile: &Profile) -> Result<f64, Stop> {
        if stop::is_requested() {
            return Err(Stop::Interrupted);
        }
        let begin = Instant::now();
        let plan = self.plan.clone().with_profile(*profile);
        let outcome = match run_silently(&plan) {
            Ok(outcome) => outcome,
            // The signal was forwarded to the run.
            Err(_) if stop::is_requested() => return Err(Stop::Interrupted),
            Err(error) => {
                let error = error.context(format!("with {profile}"));
                return Err(Stop::Failed(error));
            }
        };
        self.count += 1;
        self.spent += begin.elapsed();
        self.bar
            .set_position(self.elapsed().min(self.budget).as_secs());
        let report = &outcome.report;
        if report.wrong_values > 0 {
            let first = outcome.complaint.unwrap_or_default();
            let count = report.wrong_values;
            let error = anyhow!("with {profile}: {count} answers were wrong; the first: {first}");
            return Err(Stop::Failed(error));
        }
        if let Some(failure) = outcome.failure {
            return Err(Stop::Failed(anyhow!("with {profile}: {failure}")));
        }
        let reached = self.metric.of(report);
        self.hot_keys.clone_from(&report.hot_keys);
        if reached > 0.0 {
            Ok(reached)
        } else {
            let error = anyhow!(
                "with {profile}: the run was too short to measure; raise --hot-ops or --operations"
            );
            Err(Stop::Failed(error))
        }
    }

    fn allows(&self, profile: &Profile) -> bool {
        Farcore::check(&self.plan.clone().with_profile(*profile)).is_ok()
    }

    fn has_time_for(&self, runs: usize) -> bool {
        let runs = u32::try_from(runs).unwrap_or(u32::MAX);
        let runs_length = (self.spent / self.count.max(1)).saturating_mul(runs);
        let needed = self.elapsed().saturating_add(runs_length);
        self.needed.set(needed);
        needed <= self.budget
    }

    fn announce(&mut self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    fn found(&mut self, sweep: &Sweep) {
        let line = report::line(sweep);
        // The profile and the report say the same.
        self.bar.suspend(|| drop(print(line)));
    }
}
