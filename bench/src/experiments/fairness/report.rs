//! The figures of each run, and their median, least and most over all runs. This is the form that
//! `--json` writes.

use std::fmt;

use farcore::HistogramSnapshot;
use farcore_command::machine::Machine;
use farcore_command::origin::Origin;
use serde::{Deserialize, Serialize};

use super::settings::{Phase, Request};
use crate::ending::Ending;
use crate::failures::{self, ErrorCounts};
use crate::plan::Plan;
use crate::report::{PhaseReport, RunReport, counted, mops};

/// Everything that one command measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FairnessReport {
    /// The command, the program and the date.
    #[serde(flatten)]
    pub origin: Origin,
    /// The machine.
    pub machine: Machine,
    /// The plan of every run.
    pub plan: Plan,
    /// Each phase over all runs, in order.
    pub phases: Vec<PhaseSummary>,
    /// Each run.
    pub runs: Vec<Run>,
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Time to open the engine, pre-faulting included.
    pub startup_seconds: f64,
    /// Time to write all keys.
    pub load_seconds: f64,
    /// The phases that ran.
    pub phases: Vec<PhaseFigures>,
    /// A hang outside a phase.
    pub stuck: Option<Hang>,
    /// Time to close the engine; `None` if that did not end.
    pub close_seconds: Option<f64>,
    /// Wrong, missing and unexpected answers. Anything but 0 is a failure.
    pub wrong_values: u64,
    /// Unexpected answers about keys of which a write ended with an error.
    #[serde(default)]
    pub unverified_values: u64,
    /// Requests that ended with an error. Anything but 0 is a failure.
    pub failed_requests: u64,
    /// Those requests, by the kind of their error.
    #[serde(default)]
    pub errors: ErrorCounts,
    /// Whether a signal ended the run; its last phase may be shorter than planned then.
    #[serde(default)]
    pub partial: bool,
    /// The first wrong answer or failed request of each client.
    pub complaints: Vec<String>,
}

/// One phase of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseFigures {
    /// The phase.
    pub phase: Phase,
    /// Time from the measured client's first request to its last answer.
    pub seconds: f64,
    /// The measured client's waits, by kind of request.
    pub requests: Vec<RequestFigures>,
    /// Answers to the measured client in a second.
    pub per_second: f64,
    /// Its longest wait, a wait without an answer included.
    pub longest_wait_ns: u64,
    /// The figures of each flooder.
    pub flooders: Vec<FlooderFigures>,
    /// Requests of all sleepers that are in flight when measuring starts.
    pub unread: u64,
    /// READs of far memory.
    pub far_reads: u64,
    /// Waits that were longer than the limit.
    pub hangs: Vec<Hang>,
}

/// The measured client's waits for one kind of request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestFigures {
    /// The kind.
    pub request: Request,
    /// Answers.
    pub answers: u64,
    /// Median wait. A request without an answer counts with the time that it has waited.
    pub p50_ns: u64,
    /// Exceeded by one wait in a hundred.
    pub p99_ns: u64,
    /// Exceeded by one in a thousand.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
    /// Answers that all flooders received during a wait: the median over waits that ended.
    pub passed_by_p50: u64,
    /// Exceeded by one wait in a hundred.
    pub passed_by_p99: u64,
}

/// One flooder in one phase.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlooderFigures {
    /// Answers in a second.
    pub per_second: f64,
    /// Longest time without any answer.
    pub longest_wait_ns: u64,
}

/// A wait that was longer than the limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hang {
    /// The phase. A phase that is given up names all clients that have waited for more than half
    /// of the limit.
    pub phase: String,
    /// The client that waited.
    pub client: String,
    /// The request or call, where that is known.
    pub request: Option<String>,
    /// The wait until the phase was ended.
    pub waited_seconds: f64,
    /// Time from the end of the phase, when flooders stop and sleepers read their answers, until
    /// all clients had their answers; `None` if they never did.
    pub ended_after_seconds: Option<f64>,
}

impl fmt::Display for Hang {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (phase, client) = (&self.phase, &self.client);
        write!(
            formatter,
            "{phase}: {client} had no answer for {:.1} s",
            self.waited_seconds
        )?;
        if let Some(request) = &self.request {
            write!(formatter, " ({request})")?;
        }
        match self.ended_after_seconds {
            Some(seconds) => write!(
                formatter,
                "; it arrived within {seconds:.2} s once the other clients had stopped"
            ),
            None => write!(formatter, "; the run ended there"),
        }
    }
}

impl PhaseFigures {
    /// A phase that has not run yet.
    #[must_use]
    pub const fn of(phase: Phase) -> Self {
        Self {
            phase,
            seconds: 0.0,
            requests: Vec::new(),
            per_second: 0.0,
            longest_wait_ns: 0,
            flooders: Vec::new(),
            unread: 0,
            far_reads: 0,
            hangs: Vec::new(),
        }
    }

    /// Answers to the slowest flooder divided by those to the fastest, 0 to 1; 0 if no flooder
    /// received any.
    #[must_use]
    pub fn least_to_most(&self) -> f64 {
        let rates = || self.flooders.iter().map(|one| one.per_second);
        let most = rates().fold(0.0, f64::max);
        if most > 0.0 {
            rates().fold(f64::MAX, f64::min) / most
        } else {
            0.0
        }
    }
}

impl RequestFigures {
    /// The figures of some waits. `unanswered`: one of them is of a request without an answer.
    #[must_use]
    pub fn of(
        request: Request,
        waits: &HistogramSnapshot,
        passed_by: &HistogramSnapshot,
        unanswered: bool,
    ) -> Self {
        Self {
            request,
            answers: waits.count() - u64::from(unanswered),
            p50_ns: waits.quantile(0.5),
            p99_ns: waits.quantile(0.99),
            p999_ns: waits.quantile(0.999),
            max_ns: waits.max(),
            passed_by_p50: passed_by.quantile(0.5),
            passed_by_p99: passed_by.quantile(0.99),
        }
    }
}

impl Run {
    /// Whether threads of this run still hang.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.stuck.is_some() || self.hangs().any(|hang| hang.ended_after_seconds.is_none())
    }

    /// All hangs.
    pub fn hangs(&self) -> impl Iterator<Item = &Hang> {
        let in_phases = self.phases.iter().flat_map(|phase| &phase.hangs);
        in_phases.chain(&self.stuck)
    }
}

/// One figure over all runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
}

impl Spread {
    /// The spread of some values; zeros if there are none.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or(0.0);
        Self {
            median: at(values.len() / 2),
            least: at(0),
            most: at(values.len().saturating_sub(1)),
        }
    }
}

/// One phase over all runs that reached it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseSummary {
    /// The phase.
    pub phase: Phase,
    /// Runs that reached it.
    pub runs: usize,
    /// Runs in which a client hung.
    pub hung: usize,
    /// The measured client's waits, by kind of request.
    pub requests: Vec<RequestSummary>,
    /// Answers to the measured client in a second.
    pub per_second: Spread,
    /// Its longest wait, in nanoseconds.
    pub longest_wait_ns: Spread,
    /// Answers to all flooders in a second.
    pub flooders_per_second: Spread,
    /// Answers to the slowest flooder divided by those to the fastest.
    pub least_to_most: Spread,
    /// Longest time that a flooder received no answer, in nanoseconds.
    pub flooders_longest_wait_ns: Spread,
    /// Requests of all sleepers that are in flight when measuring starts.
    pub unread: Spread,
    /// READs of far memory.
    pub far_reads: Spread,
}

/// One kind of request in one phase over all runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestSummary {
    /// The kind.
    pub request: Request,
    /// Answers.
    pub answers: Spread,
    /// Median wait.
    pub p50_ns: Spread,
    /// Exceeded by one wait in a hundred.
    pub p99_ns: Spread,
    /// Exceeded by one in a thousand.
    pub p999_ns: Spread,
    /// The longest.
    pub max_ns: Spread,
    /// Answers that all flooders received during a wait: the median.
    pub passed_by_p50: Spread,
    /// Exceeded by one wait in a hundred.
    pub passed_by_p99: Spread,
}

impl RequestSummary {
    fn of(request: Request, phases: &[&PhaseFigures]) -> Option<Self> {
        let requests = phases.iter().flat_map(|phase| &phase.requests);
        let figures: Vec<_> = requests.filter(|one| one.request == request).collect();
        if figures.is_empty() {
            return None;
        }
        let spread =
            |of: fn(&RequestFigures) -> u64| Spread::of(figures.iter().map(|one| of(one) as f64));
        Some(Self {
            request,
            answers: spread(|one| one.answers),
            p50_ns: spread(|one| one.p50_ns),
            p99_ns: spread(|one| one.p99_ns),
            p999_ns: spread(|one| one.p999_ns),
            max_ns: spread(|one| one.max_ns),
            passed_by_p50: spread(|one| one.passed_by_p50),
            passed_by_p99: spread(|one| one.passed_by_p99),
        })
    }
}

impl PhaseSummary {
    fn of(phase: Phase, runs: &[&Run]) -> Option<Self> {
        let all = runs.iter().flat_map(|run| &run.phases);
        let phases: Vec<_> = all.filter(|one| one.phase == phase).collect();
        if phases.is_empty() {
            return None;
        }
        let spread =
            |of: &dyn Fn(&PhaseFigures) -> f64| Spread::of(phases.iter().map(|one| of(one)));
        let requests = Request::ALL.into_iter();
        Some(Self {
            phase,
            runs: phases.len(),
            hung: phases.iter().filter(|one| !one.hangs.is_empty()).count(),
            requests: requests
                .filter_map(|request| RequestSummary::of(request, &phases))
                .collect(),
            per_second: spread(&|one| one.per_second),
            longest_wait_ns: spread(&|one| one.longest_wait_ns as f64),
            flooders_per_second: spread(&|one| {
                one.flooders.iter().map(|flooder| flooder.per_second).sum()
            }),
            least_to_most: spread(&PhaseFigures::least_to_most),
            flooders_longest_wait_ns: spread(&|one| {
                let waits = one.flooders.iter().map(|flooder| flooder.longest_wait_ns);
                waits.max().unwrap_or(0) as f64
            }),
            unread: spread(&|one| one.unread as f64),
            far_reads: spread(&|one| one.far_reads as f64),
        })
    }
}

impl FairnessReport {
    /// The report of all runs of one plan. A partial run has no part in the figures of the phases,
    /// unless it is the only one.
    #[must_use]
    pub fn of(origin: Origin, machine: Machine, plan: Plan, runs: Vec<Run>) -> Self {
        use Phase::{Alone, Both, Flooders, Sleepers};
        let phases = [Alone, Flooders, Sleepers, Both].into_iter();
        let counted = counted(&runs, |run| run.partial);
        Self {
            origin,
            machine,
            plan,
            phases: phases
                .filter_map(|phase| PhaseSummary::of(phase, &counted))
                .collect(),
            runs,
        }
    }

    /// The medians in the form that the plots take, with a kind of request in place of an engine.
    #[must_use]
    pub fn plotted(&self) -> Vec<RunReport> {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "medians of whole numbers"
        )]
        let whole = |spread: Spread| spread.median as u64;
        let of = |request: Request| {
            let phases: Vec<_> = self
                .phases
                .iter()
                .filter_map(|phase| {
                    let waits = phase.requests.iter().find(|one| one.request == request)?;
                    Some(PhaseReport {
                        name: phase.phase.name().to_owned(),
                        ops: whole(waits.answers),
                        mops: mops(whole(phase.per_second), 1.0),
                        p50_ns: whole(waits.p50_ns),
                        p99_ns: whole(waits.p99_ns),
                        p999_ns: whole(waits.p999_ns),
                        ..PhaseReport::default()
                    })
                })
                .collect();
            (!phases.is_empty()).then(|| RunReport {
                engine: request.name().to_owned(),
                phases,
                ..RunReport::default()
            })
        };
        Request::ALL.into_iter().filter_map(of).collect()
    }

    /// How the command ends: with the faults of all runs, and what failed beside them.
    #[must_use]
    pub fn ending(&self, failures: &[anyhow::Error]) -> Ending {
        let wrong: u64 = self.runs.iter().map(|run| run.wrong_values).sum();
        let hung = |run: &&Run| run.hangs().next().is_some();
        let hung = self.runs.iter().filter(hung).count();
        let runs = self.runs.len();
        let hung = (hung > 0).then(|| {
            format!("in {hung} of {runs} runs a client waited longer than --give-up for an answer")
        });
        Ending::of(wrong, &self.errors(), hung, failures)
    }

    /// The failed requests of all runs, by kind.
    #[must_use]
    pub fn errors(&self) -> ErrorCounts {
        let mut errors = ErrorCounts::new();
        for run in &self.runs {
            failures::add(&mut errors, &run.errors);
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_all_values() {
        let spread = Spread::of([3.0, 1.0, 2.0]);
        assert_eq!((spread.least, spread.median, spread.most), (1.0, 2.0, 3.0));
        assert_eq!(Spread::of([]), Spread::default());
    }

    #[test]
    fn the_slowest_flooder_is_compared_with_the_fastest() {
        let flooder = |per_second| FlooderFigures {
            per_second,
            longest_wait_ns: 0,
        };
        let mut phase = PhaseFigures::of(Phase::Flooders);
        assert_eq!(phase.least_to_most(), 0.0);
        phase.flooders = vec![flooder(100.0), flooder(25.0), flooder(50.0)];
        assert_eq!(phase.least_to_most(), 0.25);
        phase.flooders = vec![flooder(0.0), flooder(0.0)];
        assert_eq!(phase.least_to_most(), 0.0);
    }

    #[test]
    fn a_hang_is_described_in_full() {
        let hang = |ended_after_seconds| Hang {
            phase: "beside both".to_owned(),
            client: "the measured client".to_owned(),
            request: Some("far get".to_owned()),
            waited_seconds: 10.04,
            ended_after_seconds,
        };
        assert_eq!(
            hang(None).to_string(),
            "beside both: the measured client had no answer for 10.0 s (far get); the run ended there"
        );
        assert!(hang(Some(0.5)).to_string().contains("within 0.50 s once"));
        let run = |hangs| Run {
            phases: vec![PhaseFigures {
                hangs,
                ..PhaseFigures::of(Phase::Both)
            }],
            ..Run::default()
        };
        assert!(run(vec![hang(None)]).is_stuck());
        assert!(!run(vec![hang(Some(0.5))]).is_stuck() && !run(Vec::new()).is_stuck());
    }
}
