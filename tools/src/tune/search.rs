//! The search: one knob after the other, each value against what is best so far, by paired runs.
//!
//! A block runs the best so far and every value still in question once, in random order; each value
//! gets one ratio from it. So whatever disturbs the machine for longer than a block disturbs all of
//! them. After a few blocks the worse half of the values leaves, then the pairs are doubled
//! (successive halving: Jamieson and Talwalkar, 2016). What is left at the end has been lucky as
//! well as good, so it moves the knob only if it is better in fresh pairs, too. When no knob moves
//! any more, the profile as a whole is proven against the default in fresh pairs; as long as that
//! fails, the knob that brought least goes back.
//!
//! - I1: the profile that is handed back is the default, or is proven better: as a whole, or, if
//!   the search was interrupted, step by step.
//! - I2: a search that was not interrupted depends on nothing but the seed and what the runs reach.

use farcore::Profile;
use farcore_tuning::RatioEstimate;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use super::knob::Knob;

/// Pairs after which values leave for the first time.
const FIRST_PAIRS: usize = 3;

/// Why a run gave no figure.
#[derive(Debug)]
pub(super) enum Stop {
    /// The user wants what there is.
    Interrupted,
    /// The run failed, or gave a wrong value.
    Failed(anyhow::Error),
}

/// What runs the workload.
pub(super) trait Trial {
    /// Runs it once; answers what it reached, the more the better.
    fn run(&mut self, profile: &Profile) -> Result<f64, Stop>;
    /// Whether an engine could be opened with these settings.
    fn allows(&self, profile: &Profile) -> bool;
    /// True if so many runs more are within the budget.
    fn has_time_for(&self, runs: usize) -> bool;
    /// Tells what comes now.
    fn announce(&mut self, what: &str);
    /// Tells what was found out about a knob.
    fn found(&mut self, sweep: &Sweep);
}

/// How to search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Pairs of a proof.
    pub(super) repeats: usize,
    /// How sure a proof has to be.
    pub(super) confidence: f64,
    /// Names the order of the runs.
    pub(super) seed: u64,
}

/// A knob and what is to be tried.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) knob: Knob,
    pub(super) default: u32,
    /// In order, the default among them.
    pub(super) values: Vec<u32>,
}

/// What was measured of one value, against what was best so far.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) value: u32,
    pub(super) estimate: RatioEstimate,
}

/// What was found out about one knob.
#[derive(Clone, Debug)]
pub(super) struct Sweep {
    pub(super) knob: Knob,
    pub(super) default: u32,
    /// What it was set to before.
    pub(super) before: u32,
    /// In the order of the values.
    pub(super) rows: Vec<Row>,
    /// The best value in fresh pairs, if it came so far.
    pub(super) proof: Option<(u32, RatioEstimate)>,
    /// What it was set to after it.
    pub(super) after: u32,
}

/// Why the search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Nothing is left to be tried.
    Complete,
    /// The time was over.
    Budget,
    /// The user did not want to wait.
    Interrupted,
}

/// What a search has found.
#[derive(Clone, Debug)]
pub(super) struct Findings {
    pub(super) sweeps: Vec<Sweep>,
    /// What is to be used.
    pub(super) profile: Profile,
    /// It against the default, if that was measured.
    pub(super) proof: Option<RatioEstimate>,
    /// Knobs that had moved and were put back, because the whole was not proven better with them.
    pub(super) put_back: Vec<Knob>,
    pub(super) ended: Ended,
}

/// Searches the best settings for what the trial runs.
///
/// # Errors
/// A run failed.
pub(super) fn search(
    trial: &mut impl Trial,
    ranges: &[Range],
    options: Options,
) -> anyhow::Result<Findings> {
    let mut search = Search {
        trial,
        options,
        random: SmallRng::seed_from_u64(options.seed),
        findings: Findings {
            sweeps: Vec::new(),
            profile: Profile::default(),
            proof: None,
            put_back: Vec::new(),
            ended: Ended::Complete,
        },
    };
    let outcome = search.passes(ranges).and_then(|()| search.prove());
    match outcome {
        Ok(()) => {}
        Err(Stop::Interrupted) => {
            search.findings.ended = Ended::Interrupted;
            // Its steps were proven and the whole was not: then nothing is.
            if search.findings.proof.is_some() {
                search.findings.profile = Profile::default();
            }
        }
        Err(Stop::Failed(error)) => return Err(error),
    }
    Ok(search.findings)
}

struct Search<'a, T> {
    trial: &'a mut T,
    options: Options,
    random: SmallRng,
    findings: Findings,
}

/// A value in question.
struct Candidate {
    value: u32,
    profile: Profile,
    ratios: Vec<f64>,
}

impl<T: Trial> Search<'_, T> {
    /// Goes through the knobs until none moves any more, or the time is over.
    fn passes(&mut self, ranges: &[Range]) -> Result<(), Stop> {
        // What all others were set to when each was swept: the same once more would tell nothing
        // new.
        let mut known = vec![None; ranges.len()];
        loop {
            let mut swept = false;
            for (range, known) in ranges.iter().zip(&mut known) {
                let others = range.knob.turned(&self.findings.profile, None);
                if *known == Some(others) || range.values.len() < 2 {
                    continue;
                }
                if !self.sweep(range)? {
                    self.findings.ended = Ended::Budget;
                    return Ok(());
                }
                *known = Some(others);
                swept = true;
            }
            if !swept {
                return Ok(());
            }
        }
    }

    /// Tries the values of one knob; false if the time is over before anything can be said.
    fn sweep(&mut self, range: &Range) -> Result<bool, Stop> {
        let Options {
            repeats,
            confidence,
            ..
        } = self.options;
        let best = self.findings.profile;
        let before = range.knob.of(&best).unwrap_or(range.default);
        let values = range.values.iter().filter(|&&value| value != before);
        let mut open: Vec<Candidate> = values
            .map(|&value| Candidate {
                value,
                profile: range
                    .knob
                    .turned(&best, (value != range.default).then_some(value)),
                ratios: Vec::new(),
            })
            .filter(|candidate| self.trial.allows(&candidate.profile))
            .collect();
        if open.is_empty() {
            return Ok(true);
        }
        let mut left = Vec::new();
        let mut pairs = FIRST_PAIRS.min(repeats);
        let mut timely = true;
        while timely {
            let name = range.knob.name();
            self.trial
                .announce(&format!("{name}: {} values, {pairs} pairs", open.len()));
            while open.first().is_some_and(|first| first.ratios.len() < pairs) {
                // What is found must be proven, and then the whole.
                if !self.trial.has_time_for(open.len() + 1 + 4 * repeats) {
                    timely = false;
                    break;
                }
                self.block(&best, &mut open)?;
            }
            if !timely || pairs == repeats {
                break;
            }
            open.sort_by(|one, other| median(&other.ratios).total_cmp(&median(&one.ratios)));
            left.extend(open.split_off(open.len().div_ceil(2)));
            if open
                .first()
                .is_none_or(|first| median(&first.ratios) <= 1.0)
            {
                break;
            }
            pairs = if open.len() == 1 {
                repeats
            } else {
                (pairs * 2).min(repeats)
            };
        }
        open.sort_by(|one, other| median(&other.ratios).total_cmp(&median(&one.ratios)));
        let finalist = open.first().map(|first| (first.value, first.profile));
        let hopeful = timely
            && open.first().is_some_and(|first| {
                RatioEstimate::of(&first.ratios, confidence)
                    .is_some_and(|estimate| estimate.is_better(confidence))
            });
        left.append(&mut open);
        left.sort_by_key(|candidate| candidate.value);
        let rows: Vec<Row> = left
            .iter()
            .filter_map(|candidate| {
                Some(Row {
                    value: candidate.value,
                    estimate: RatioEstimate::of(&candidate.ratios, confidence)?,
                })
            })
            .collect();
        if rows.is_empty() {
            return Ok(false);
        }
        let mut sweep = Sweep {
            knob: range.knob,
            default: range.default,
            before,
            rows,
            proof: None,
            after: before,
        };
        if let (true, Some((value, profile))) = (hopeful, finalist) {
            self.trial
                .announce(&format!("{} = {value}: proof", range.knob.name()));
            let estimate = self.compare(&profile, &best)?;
            sweep.proof = Some((value, estimate));
            if estimate.is_better(confidence) {
                sweep.after = value;
                self.findings.profile = profile;
            }
        }
        self.trial.found(&sweep);
        self.findings.sweeps.push(sweep);
        Ok(timely)
    }

    /// Runs the best so far and each candidate once.
    fn block(&mut self, best: &Profile, open: &mut [Candidate]) -> Result<(), Stop> {
        let mut order: Vec<usize> = (0..=open.len()).collect();
        order.shuffle(&mut self.random);
        let mut reached = vec![0.0; order.len()];
        for place in order {
            let profile = open.get(place).map_or(best, |candidate| &candidate.profile);
            reached[place] = self.trial.run(profile)?;
        }
        let base = reached[open.len()];
        for (candidate, reached) in open.iter_mut().zip(reached) {
            candidate.ratios.push(reached / base);
        }
        Ok(())
    }

    /// One profile against another, in fresh pairs whose order changes from pair to pair.
    fn compare(&mut self, one: &Profile, other: &Profile) -> Result<RatioEstimate, Stop> {
        let mut ratios = Vec::with_capacity(self.options.repeats);
        for pair in 0..self.options.repeats {
            let (first, second) = if pair % 2 == 0 {
                (one, other)
            } else {
                (other, one)
            };
            let (first, second) = (self.trial.run(first)?, self.trial.run(second)?);
            ratios.push(if pair % 2 == 0 {
                first / second
            } else {
                second / first
            });
        }
        RatioEstimate::of(&ratios, self.options.confidence)
            .ok_or_else(|| Stop::Failed(anyhow::anyhow!("a run reached nothing: {ratios:?}")))
    }

    /// Proves the whole against the default; what is not proven goes back, the knob that brought
    /// least first.
    fn prove(&mut self) -> Result<(), Stop> {
        while !self.findings.profile.is_empty() {
            self.trial
                .announce("the profile against the default: proof");
            let profile = self.findings.profile;
            let estimate = self.compare(&profile, &Profile::default())?;
            self.findings.proof = Some(estimate);
            if estimate.is_better(self.options.confidence) {
                return Ok(());
            }
            let moved = self.findings.sweeps.iter().filter_map(|sweep| {
                let (_, proof) = sweep.proof?;
                let is_set = sweep.knob.of(&profile) == Some(sweep.after);
                (is_set && sweep.after != sweep.before).then_some((sweep.knob, proof.low))
            });
            let least = moved.min_by(|(_, one), (_, other)| one.total_cmp(other));
            let Some((knob, _)) = least else {
                self.findings.profile = Profile::default();
                return Ok(());
            };
            self.findings.profile = knob.turned(&profile, None);
            self.findings.put_back.push(knob);
        }
        Ok(())
    }
}

/// The middle of some ratios, for the order among values; 0 where there are none.
fn median(ratios: &[f64]) -> f64 {
    RatioEstimate::of(ratios, 0.5).map_or(0.0, |estimate| estimate.median)
}

#[cfg(test)]
mod tests;
