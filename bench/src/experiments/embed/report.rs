//! The figures of `embed`, in the form that `--json` writes.
//!
//! I1: figures of a crowd are medians over the rounds, with the least and the most; a ratio is the
//!     median of the ratios of figures of the same round.

use farcore_command::machine::Machine;
use farcore_command::origin::Origin;
use farcore_tuning::{HistogramSnapshot, RatioEstimate};
use serde::{Deserialize, Serialize};

use super::settings::{Caller, Crowd, Part, Subject};
use super::stage::Led;
use crate::failures::{self, ErrorCounts};
use crate::plan::Plan;

/// Everything that one command measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EmbedReport {
    /// The command, the program and the date.
    #[serde(flatten)]
    pub origin: Origin,
    /// The machine.
    pub machine: Machine,
    /// Whether the maps and caches of other projects are built in.
    pub peers: bool,
    /// The plan of each kind of run: sizes, cores, seed and every other setting.
    pub plans: Vec<Plan>,
    /// One entry for each engine and crowd.
    pub rows: Vec<Row>,
    /// Idle engines.
    pub idle: Vec<Idle>,
    /// A program beside an idle engine.
    pub beside: Vec<Beside>,
    /// Bytes of a waiting call in its task; 0 if no task called farcore.
    pub call_bytes: u64,
    /// Wrong and missing values. Anything but 0 is a failure.
    pub wrong_values: u64,
    /// Operations that ended with an error, by kind.
    pub errors: ErrorCounts,
    /// The runs, in the order in which they ran.
    pub runs: Vec<Run>,
}

/// One run: one engine in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The engine.
    pub engine: Subject,
    /// What was measured.
    pub part: Part,
    /// The round, counted from 0.
    pub round: u32,
    /// Time to open the engine, pre-faulting included.
    pub startup_seconds: f64,
    /// Time to load all keys.
    pub load_seconds: f64,
    /// The crowds, in order.
    pub crowds: Vec<CrowdFigures>,
    /// The idle engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
    /// The program beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Beside>,
    /// Bytes of a waiting call in its task; 0 for maps.
    pub call_bytes: u64,
    /// Wrong and missing values.
    pub wrong_values: u64,
    /// A description of the first of them, or of the first error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complaint: Option<String>,
    /// Operations that ended with an error, by kind.
    #[serde(default)]
    pub errors: ErrorCounts,
    /// Whether a signal ended the run.
    pub partial: bool,
}

/// The figures of one crowd in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CrowdFigures {
    /// Who called.
    pub caller: Caller,
    /// Threads or tasks.
    pub count: usize,
    /// Operations that were answered; a batch counts its keys.
    pub operations: u64,
    /// Length of the measurement.
    pub seconds: f64,
    /// Processor time of the whole process meanwhile.
    pub cpu_seconds: f64,
    /// Calls that were timed.
    pub samples: u64,
    /// Median latency of a call.
    pub p50_ns: u64,
    /// Exceeded by one call in a hundred.
    pub p99_ns: u64,
    /// Exceeded by one call in a thousand.
    pub p999_ns: u64,
}

/// An engine without requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Idle {
    /// The engine.
    pub engine: Subject,
    /// Length of the measurement.
    pub seconds: f64,
    /// Processor time as a share of one core.
    pub share_of_a_core: f64,
}

/// A program that computes on all cores, beside an idle engine and without one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Beside {
    /// The engine.
    pub engine: Subject,
    /// Its speed beside the engine, as a ratio to its speed without; `None` without a pair.
    pub ratio: Option<RatioEstimate>,
    /// The ratio of each pair.
    pub ratios: Vec<f64>,
}

/// A figure over the rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

/// One crowd of one engine over the rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The engine.
    pub engine: Subject,
    /// Who called.
    pub caller: Caller,
    /// Threads or tasks.
    pub count: usize,
    /// Rounds.
    pub rounds: usize,
    /// Million operations a second, all callers together.
    pub mops: Spread,
    /// Median latency of a call.
    pub p50_ns: Spread,
    /// Exceeded by one call in a hundred.
    pub p99_ns: Spread,
    /// Exceeded by one call in a thousand.
    pub p999_ns: Spread,
    /// Processor time of an operation, that of the engine's threads included.
    pub cpu_ns_per_op: Spread,
    /// Calls that were timed, all rounds together.
    pub samples: u64,
    /// The rate as a ratio to that of `farcore`, whose data is all local; for `farcore-far`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_to_local: Option<Spread>,
}

impl Spread {
    /// The spread of some figures; zeros without any.
    #[must_use]
    pub fn of(figures: &[f64]) -> Self {
        if figures.is_empty() {
            return Self::default();
        }
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len() - 1;
        Self {
            median: f64::midpoint(sorted[last / 2], sorted[sorted.len() / 2]),
            least: sorted[0],
            most: sorted[last],
        }
    }
}

impl CrowdFigures {
    pub(super) fn of(crowd: Crowd, led: Led, operations: u64, latency: &HistogramSnapshot) -> Self {
        Self {
            caller: crowd.caller,
            count: crowd.count,
            operations,
            seconds: led.seconds,
            cpu_seconds: led.cpu_seconds,
            samples: latency.count(),
            p50_ns: latency.quantile(0.5),
            p99_ns: latency.quantile(0.99),
            p999_ns: latency.quantile(0.999),
        }
    }

    /// Million operations a second.
    #[must_use]
    pub fn mops(&self) -> f64 {
        self.operations as f64 / self.seconds.max(f64::MIN_POSITIVE) / 1e6
    }

    fn cpu_ns_per_op(&self) -> f64 {
        self.cpu_seconds * 1e9 / self.operations.max(1) as f64
    }
}

impl Run {
    /// A run without figures.
    #[must_use]
    pub fn of(engine: Subject, part: Part) -> Self {
        Self {
            engine,
            part,
            round: 0,
            startup_seconds: 0.0,
            load_seconds: 0.0,
            crowds: Vec::new(),
            idle: None,
            beside: None,
            call_bytes: 0,
            wrong_values: 0,
            complaint: None,
            errors: ErrorCounts::new(),
            partial: false,
        }
    }

    /// Whether nothing was measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.crowds.is_empty() && self.idle.is_none() && self.beside.is_none()
    }

    fn crowd(&self, crowd: Crowd) -> Option<&CrowdFigures> {
        let is_it = |one: &&CrowdFigures| one.caller == crowd.caller && one.count == crowd.count;
        self.crowds.iter().find(is_it)
    }
}

impl EmbedReport {
    /// The report of these runs.
    #[must_use]
    pub fn of(origin: Origin, machine: Machine, plans: Vec<Plan>, runs: Vec<Run>) -> Self {
        let mut errors = ErrorCounts::new();
        for run in &runs {
            failures::add(&mut errors, &run.errors);
        }
        Self {
            origin,
            machine,
            peers: cfg!(feature = "peers"),
            plans,
            rows: rows(&runs),
            idle: runs.iter().filter_map(|run| run.idle).collect(),
            beside: runs.iter().filter_map(|run| run.beside.clone()).collect(),
            call_bytes: runs.iter().map(|run| run.call_bytes).max().unwrap_or(0),
            wrong_values: runs.iter().map(|run| run.wrong_values).sum(),
            errors,
            runs,
        }
    }

    /// The row of an engine's crowd. For maps, that of the caller which stands for it there.
    #[must_use]
    pub fn row(&self, engine: Subject, caller: Caller, count: usize) -> Option<&Row> {
        let caller = caller.of(engine.is_ours());
        let is_it = |row: &&Row| row.engine == engine && row.caller == caller && row.count == count;
        self.rows.iter().find(is_it)
    }

    /// The engines with rows, in order.
    #[must_use]
    pub fn engines(&self) -> Vec<Subject> {
        let mut engines = Vec::new();
        for row in &self.rows {
            if !engines.contains(&row.engine) {
                engines.push(row.engine);
            }
        }
        engines
    }

    /// The crowds of all engines, in order. Where only maps ran, those of maps.
    #[must_use]
    pub fn crowds(&self) -> Vec<Crowd> {
        let is_any_ours = self.rows.iter().any(|row| row.engine.is_ours());
        let mut crowds: Vec<Crowd> = Vec::new();
        for row in &self.rows {
            let crowd = Crowd {
                caller: row.caller,
                count: row.count,
            };
            let is_shown_elsewhere = is_any_ours && row.caller == Caller::Direct;
            if !is_shown_elsewhere && !crowds.contains(&crowd) {
                crowds.push(crowd);
            }
        }
        crowds
    }
}

/// The rows of all engines and crowds, in the order of the runs.
fn rows(runs: &[Run]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for run in runs {
        for figures in &run.crowds {
            let crowd = Crowd {
                caller: figures.caller,
                count: figures.count,
            };
            let is_it = |row: &Row| {
                (row.engine, row.caller, row.count) == (run.engine, crowd.caller, crowd.count)
            };
            if !rows.iter().any(is_it) {
                rows.push(row(runs, run.engine, crowd));
            }
        }
    }
    rows
}

fn row(runs: &[Run], engine: Subject, crowd: Crowd) -> Row {
    let rounds: Vec<(u32, &CrowdFigures)> = runs
        .iter()
        .filter(|run| run.engine == engine)
        .filter_map(|run| Some((run.round, run.crowd(crowd)?)))
        .collect();
    let spread = |of: &dyn Fn(&CrowdFigures) -> f64| {
        let figures: Vec<f64> = rounds.iter().map(|(_, figures)| of(figures)).collect();
        Spread::of(&figures)
    };
    let local = |round: u32| {
        let local = runs.iter().find(|run| {
            run.engine == Subject::Farcore && run.part == Part::Callers && run.round == round
        });
        local.and_then(|run| run.crowd(crowd))
    };
    let ratios: Vec<f64> = rounds
        .iter()
        .filter_map(|(round, figures)| Some(figures.mops() / local(*round)?.mops()))
        .filter(|ratio| ratio.is_finite())
        .collect();
    let is_far = engine == Subject::FarcoreFar && !ratios.is_empty();
    Row {
        engine,
        caller: crowd.caller,
        count: crowd.count,
        rounds: rounds.len(),
        mops: spread(&CrowdFigures::mops),
        p50_ns: spread(&|figures| figures.p50_ns as f64),
        p99_ns: spread(&|figures| figures.p99_ns as f64),
        p999_ns: spread(&|figures| figures.p999_ns as f64),
        cpu_ns_per_op: spread(&CrowdFigures::cpu_ns_per_op),
        samples: rounds.iter().map(|(_, figures)| figures.samples).sum(),
        ratio_to_local: is_far.then(|| Spread::of(&ratios)),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A report of one crowd, with these operations in each round.
    pub(in crate::experiments::embed) fn report(
        engines: &[(Subject, Caller, &[u64])],
    ) -> EmbedReport {
        let mut runs = Vec::new();
        for &(engine, caller, rounds) in engines {
            for (round, &operations) in (0..).zip(rounds) {
                let figures = CrowdFigures {
                    caller,
                    count: 4,
                    operations,
                    seconds: 0.5,
                    cpu_seconds: 1.0,
                    samples: 100,
                    p50_ns: 500,
                    p99_ns: 2_000,
                    p999_ns: 3_000_000,
                };
                runs.push(Run {
                    round,
                    crowds: vec![figures],
                    ..Run::of(engine, Part::Callers)
                });
            }
        }
        EmbedReport::of(Origin::default(), Machine::default(), Vec::new(), runs)
    }

    #[test]
    fn a_row_has_median_and_spread_over_the_rounds() {
        let rounds = [3_000_000, 1_000_000, 2_000_000];
        let report = report(&[(Subject::Farcore, Caller::Handle, &rounds)]);
        let row = report.row(Subject::Farcore, Caller::Handle, 4).unwrap();
        let spread = Spread {
            median: 4.0,
            least: 2.0,
            most: 6.0,
        };
        assert_eq!((row.mops, row.rounds, row.samples), (spread, 3, 300));
        assert_eq!(row.cpu_ns_per_op.median, 500.0);
        assert_eq!(row.ratio_to_local, None);
        assert!(report.row(Subject::Farcore, Caller::Handle, 5).is_none());
        assert_eq!(Spread::of(&[4.0, 1.0]).median, 2.5);
    }

    #[test]
    fn ratios_are_those_of_one_round() {
        let report = report(&[
            (Subject::Farcore, Caller::Tasks, &[4, 8, 4]),
            (Subject::FarcoreFar, Caller::Tasks, &[2, 6, 4]),
        ]);
        let row = report.row(Subject::FarcoreFar, Caller::Tasks, 4).unwrap();
        let ratio = row.ratio_to_local.unwrap();
        assert_eq!((ratio.median, ratio.least, ratio.most), (0.75, 0.5, 1.0));
    }

    #[test]
    fn a_direct_call_stands_for_every_single_call() {
        let report = report(&[
            (Subject::Farcore, Caller::Client, &[1]),
            (Subject::Dashmap, Caller::Direct, &[2]),
        ]);
        let callers = |crowds: Vec<Crowd>| -> Vec<Caller> {
            crowds.iter().map(|crowd| crowd.caller).collect()
        };
        assert_eq!(callers(report.crowds()), [Caller::Client]);
        assert_eq!(report.engines(), [Subject::Farcore, Subject::Dashmap]);
        let row = report.row(Subject::Dashmap, Caller::Client, 4).unwrap();
        assert_eq!(row.caller, Caller::Direct);
    }
}
