//! The search: one setting after the other, each value against the best profile so far, by paired
//! runs.
//!
//! A block runs the best profile and every remaining value once, in random order; each value gets
//! one ratio from it. So a disturbance longer than a block affects all of them. After a few blocks
//! the worse half of the values is dropped and the number of pairs is doubled (successive halving:
//! Jamieson and Talwalkar, 2016). The last value may have been lucky, so it is adopted only if it
//! is better in fresh pairs, too. When no setting changes any more, the whole profile is proven
//! against the default in fresh pairs; while that fails, the setting with the least gain is reset.
//!
//! - I1: the returned profile is the default or proven better: as a whole, or, if the search was
//!   interrupted, setting by setting.
//! - I2: a search that was not interrupted depends only on the seed and the rates of the runs.

use farcore::Profile;
use farcore_tuning::RatioEstimate;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

use super::knob::Knob;

/// Pairs before values are dropped for the first time.
const FIRST_PAIRS: usize = 3;

/// Why a run has no figure.
#[derive(Debug)]
pub(super) enum Stop {
    /// The user has interrupted the search.
    Interrupted,
    /// The run failed, or returned a wrong value.
    Failed(anyhow::Error),
}

/// Runs the workload and reports progress.
pub(super) trait Trial {
    /// Runs the workload once; returns its rate.
    fn run(&mut self, profile: &Profile) -> Result<f64, Stop>;
    /// Whether an engine can be opened with these settings.
    fn allows(&self, profile: &Profile) -> bool;
    /// Whether this number of further runs is within the budget.
    fn has_time_for(&self, runs: usize) -> bool;
    /// Shows what is tried next.
    fn announce(&mut self, what: &str);
    /// Shows the outcome of a setting.
    fn found(&mut self, sweep: &Sweep);
}

/// Parameters of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Pairs of a proof.
    pub(super) repeats: usize,
    /// Confidence of a proof.
    pub(super) confidence: f64,
    /// Determines the order of the runs.
    pub(super) seed: u64,
}

/// A setting and the values to try.
#[derive(Clone, Debug)]
pub(super) struct Range {
    pub(super) knob: Knob,
    pub(super) default: u32,
    /// In order, the default included.
    pub(super) values: Vec<u32>,
}

/// The ratio of one value to the best profile before it.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) value: u32,
    pub(super) estimate: RatioEstimate,
}

/// The outcome of one setting.
#[derive(Clone, Debug)]
pub(super) struct Sweep {
    pub(super) knob: Knob,
    pub(super) default: u32,
    /// The value before.
    pub(super) before: u32,
    /// In the order of the values.
    pub(super) rows: Vec<Row>,
    /// The best value in fresh pairs, if there was a proof.
    pub(super) proof: Option<(u32, RatioEstimate)>,
    /// The value after.
    pub(super) after: u32,
}

/// Why the search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// All values were tried.
    Complete,
    /// The time ran out.
    Budget,
    /// The user interrupted it.
    Interrupted,
}

/// The findings of a search.
#[derive(Clone, Debug)]
pub(super) struct Findings {
    pub(super) sweeps: Vec<Sweep>,
    /// The profile to use.
    pub(super) profile: Profile,
    /// The profile against the default, if that was measured.
    pub(super) proof: Option<RatioEstimate>,
    /// Settings that were reset, because the whole profile was not proven better with them.
    pub(super) put_back: Vec<Knob>,
    pub(super) ended: Ended,
    /// Whether all values of at least one setting were compared.
    pub(super) has_outcome: bool,
}

/// Searches the best settings for the workload of a trial.
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
            has_outcome: false,
        },
    };
    let outcome = search.passes(ranges).and_then(|()| search.prove());
    match outcome {
        Ok(()) => {}
        Err(Stop::Interrupted) => {
            search.findings.ended = Ended::Interrupted;
            // A failed proof of the whole outweighs the proofs of its settings.
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

/// A value that is not dropped yet.
struct Candidate {
    value: u32,
    profile: Profile,
    ratios: Vec<f64>,
}

impl<T: Trial> Search<'_, T> {
    /// Sweeps the settings until none changes any more, or the time runs out.
    fn passes(&mut self, ranges: &[Range]) -> Result<(), Stop> {
        // The other settings at the last sweep of each: an equal sweep would show nothing new.
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
                self.findings.has_outcome = true;
                swept = true;
            }
            if !swept {
                return Ok(());
            }
        }
    }

    /// Tries the values of one setting; false if the time ran out before its end.
    fn sweep(&mut self, range: &Range) -> Result<bool, Stop> {
        let confidence = self.options.confidence;
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
        let mut dropped = Vec::new();
        let timely = self.narrow(range.knob, &best, &mut open, &mut dropped)?;
        open.sort_by(|one, other| median(&other.ratios).total_cmp(&median(&one.ratios)));
        let finalist = open.first().map(|first| (first.value, first.profile));
        let hopeful = timely
            && open.first().is_some_and(|first| {
                RatioEstimate::of(&first.ratios, confidence)
                    .is_some_and(|estimate| estimate.is_better(confidence))
            });
        dropped.append(&mut open);
        dropped.sort_by_key(|candidate| candidate.value);
        let rows: Vec<Row> = dropped
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

    /// Successive halving: measures the open candidates and drops the worse half, until one is left
    /// or none is better than the best profile. False if the time ran out.
    fn narrow(
        &mut self,
        knob: Knob,
        best: &Profile,
        open: &mut Vec<Candidate>,
        dropped: &mut Vec<Candidate>,
    ) -> Result<bool, Stop> {
        let repeats = self.options.repeats;
        let mut pairs = FIRST_PAIRS.min(repeats);
        loop {
            let name = knob.name();
            self.trial
                .announce(&format!("{name}: {} values, {pairs} pairs", open.len()));
            while open.first().is_some_and(|first| first.ratios.len() < pairs) {
                // The best value must be proven, and then the whole profile.
                if !self.trial.has_time_for(open.len() + 1 + 4 * repeats) {
                    return Ok(false);
                }
                self.block(best, open)?;
            }
            if pairs == repeats {
                return Ok(true);
            }
            open.sort_by(|one, other| median(&other.ratios).total_cmp(&median(&one.ratios)));
            dropped.extend(open.split_off(open.len().div_ceil(2)));
            if open
                .first()
                .is_none_or(|first| median(&first.ratios) <= 1.0)
            {
                return Ok(true);
            }
            pairs = if open.len() == 1 {
                repeats
            } else {
                (pairs * 2).min(repeats)
            };
        }
    }

    /// Runs the best profile and each candidate once.
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

    /// Compares two profiles in fresh pairs, in alternating order.
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
            .ok_or_else(|| Stop::Failed(anyhow::anyhow!("a run has no rate: {ratios:?}")))
    }

    /// Proves the whole profile against the default. While that fails, resets the setting with the
    /// least gain.
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

/// The median of ratios, for ordering values; 0 without ratios.
fn median(ratios: &[f64]) -> f64 {
    RatioEstimate::of(ratios, 0.5).map_or(0.0, |estimate| estimate.median)
}

#[cfg(test)]
mod tests;
