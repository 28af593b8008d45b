//! Whether a simulation has come to rest: a test on its course, which is cut into segments of equal
//! numbers of messages.
//!
//! The beginning is cut off where the standard error of the mean of the rest is least (MSER: White,
//! "An effective truncation heuristic for bias reduction in simulation output", Simulation 69,
//! 1997), at most half of it. The rest is steady if its halves do not differ, by more than a
//! tolerance and beyond chance. The figure is the rate of messages, or their mean latency if they
//! arrive at times of their own: then the rate says nothing of the card.
//!
//! - I1: a segment has whole periods of the pattern, and a run of which more is said than that it
//!   is too short has as many windows of adaptive thresholds as those need for all of their steps.
//!   So has the steady part.

use serde::{Deserialize, Serialize};

use super::{Arrival, Mark, SimulationSettings};
use farcore_tuning::HistogramSnapshot;
use farcore_tuning::MeanEstimate;

/// Segments of a run; after an extension twice as long each.
const SEGMENTS: u64 = 40;
/// Fewer say nothing.
const SEGMENTS_MIN: usize = 16;
/// Messages of a segment, at least.
const MESSAGES_MIN: u64 = 256;
/// Thresholds take one step a window, of eleven.
const WINDOWS_MIN: u64 = 10;
/// Standard errors beyond which a difference is not chance.
const ERRORS: f64 = 3.0;
/// Half of a mean's interval, in tolerances, beyond which the mean is not known well enough.
const UNCERTAIN: f64 = 2.5;

/// Whether the figures of a run are those of a longer one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// They are: nothing changes any more but by chance.
    Steady,
    /// They still change: a longer run has others.
    Warming,
    /// The run is too short to tell.
    #[default]
    TooShort,
}

impl Verdict {
    /// The words for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Warming => "warming",
            Self::TooShort => "too short",
        }
    }
}

/// The figures at the end of a segment, from the beginning on.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) mark: Mark,
    pub(super) latency: HistogramSnapshot,
}

/// The segments of a run.
#[derive(Debug)]
pub(super) struct Course {
    segments: Vec<Segment>,
    /// Messages of a segment.
    each: u64,
}

/// A verdict, and how many segments come before the steady part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    pub(super) cut: usize,
}

impl Judged {
    const fn all(verdict: Verdict) -> Self {
        Self { verdict, cut: 0 }
    }
}

impl Course {
    pub(super) fn new(settings: &SimulationSettings) -> Self {
        let period = settings.workload.pattern.period().map_or(1, |(all, _)| all);
        let each = (settings.messages / SEGMENTS).max(MESSAGES_MIN);
        Self {
            segments: Vec::new(),
            each: each.next_multiple_of(period),
        }
    }

    /// Whether a segment ends with this many messages since the beginning.
    #[inline]
    pub(super) fn is_due(&self, messages: u64) -> bool {
        messages >= self.each * (self.segments.len() as u64 + 1)
    }

    pub(super) fn add(&mut self, segment: Segment) {
        self.segments.push(segment);
    }

    /// Makes one of every two segments.
    pub(super) fn coarsen(&mut self) {
        let mut number = 0;
        self.segments.retain(|_| {
            number += 1;
            number % 2 == 0
        });
        self.each *= 2;
    }

    /// The end of the segments before the steady part; `None` if nothing comes before it.
    pub(super) fn before(&self, judged: Judged) -> Option<&Segment> {
        judged
            .cut
            .checked_sub(1)
            .and_then(|at| self.segments.get(at))
    }

    /// The judgement of all segments, of which the first begins at `start`.
    pub(super) fn judge(&self, settings: &SimulationSettings, start: &Mark) -> Judged {
        let is_closed = matches!(settings.arrival, Arrival::Closed { .. });
        let tolerance = if is_closed { 0.02 } else { 0.1 };
        let mut figures = Vec::with_capacity(self.segments.len());
        let (mut mark, mut latency) = (start, (0, 0));
        for segment in &self.segments {
            let passed = (segment.mark.at - mark.at).max(1) as f64;
            let sums = (segment.latency.count(), segment.latency.sum());
            figures.push(if is_closed {
                (segment.mark.messages - mark.messages) as f64 / passed
            } else {
                (sums.1 - latency.1) as f64 / (sums.0 - latency.0).max(1) as f64
            });
            (mark, latency) = (&segment.mark, sums);
        }
        let thresholds = &settings.card.thresholds;
        let is_short = |since: &Mark| {
            let passed_ns = (mark.at - since.at) / super::NS;
            thresholds.adaptive && passed_ns < WINDOWS_MIN * thresholds.window_ns
        };
        // Of fewer windows even a change says nothing of what comes.
        if is_short(start) {
            return Judged::all(Verdict::TooShort);
        }
        let judged = judge(&figures, tolerance);
        let first = self.before(judged).map_or(start, |segment| &segment.mark);
        match judged.verdict == Verdict::Steady && is_short(first) {
            true => Judged::all(Verdict::TooShort),
            false => judged,
        }
    }
}

fn mean_of(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len().max(1) as f64
}

/// The squared standard error of the mean.
fn error_of(figures: &[f64]) -> f64 {
    let mean = mean_of(figures);
    let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
    squares / (figures.len() as f64).powi(2)
}

fn judge(figures: &[f64], tolerance: f64) -> Judged {
    if figures.len() < SEGMENTS_MIN {
        return Judged::all(Verdict::TooShort);
    }
    let error = |&cut: &usize| error_of(&figures[cut..]);
    let cuts = 0..=figures.len() / 2;
    let least = cuts.min_by(|one, other| error(one).total_cmp(&error(other)));
    let cut = least.unwrap_or(0);
    let rest = &figures[cut..];
    let (first, second) = rest.split_at(rest.len() / 2);
    let change = (mean_of(second) - mean_of(first)).abs();
    let mean = mean_of(rest);
    let chance = (error_of(first) + error_of(second)).sqrt();
    if change > tolerance * mean && change > ERRORS * chance {
        return Judged::all(Verdict::Warming);
    }
    let half = MeanEstimate::of(rest).map_or(f64::INFINITY, |one| one.high - one.mean);
    if half > UNCERTAIN * tolerance * mean {
        return Judged::all(Verdict::TooShort);
    }
    Judged {
        verdict: Verdict::Steady,
        cut,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Figures with noise of up to this share.
    fn noisy(figures: impl IntoIterator<Item = f64>, noise: f64) -> Vec<f64> {
        let mut random = Random::new(7, 1);
        let mut one = |figure: f64| {
            let draw = f64::from(random.below(1 << 16)) / f64::from(1 << 16);
            figure * (1.0 + noise * (draw * 2.0 - 1.0))
        };
        figures.into_iter().map(&mut one).collect()
    }

    fn verdict(figures: &[f64]) -> Verdict {
        judge(figures, 0.02).verdict
    }

    #[test]
    fn what_stays_is_steady_and_what_grows_is_not() {
        assert_eq!(verdict(&[50.0; 40]), Verdict::Steady);
        for noise in [0.001, 0.01, 0.1] {
            assert_eq!(verdict(&noisy([50.0; 40], noise)), Verdict::Steady);
            let slope = (0..40).map(|at| 50.0 + f64::from(at));
            assert_eq!(verdict(&noisy(slope, noise)), Verdict::Warming);
            let late = (0..40).map(|at| if at < 30 { 50.0 } else { 80.0 });
            assert_eq!(verdict(&noisy(late, noise)), Verdict::Warming);
        }
        let waves = (0..40).map(|at| if at % 2 == 0 { 9.0 } else { 8.0 });
        assert_eq!(verdict(&noisy(waves, 0.0)), Verdict::Steady);
    }

    #[test]
    fn the_beginning_is_cut_off() {
        let rise = (0..40).map(|at| 100.0 - 50.0 * 0.5_f64.powi(at));
        let judged = judge(&noisy(rise, 0.001), 0.02);
        assert_eq!(judged.verdict, Verdict::Steady);
        assert!((4..15).contains(&judged.cut), "{judged:?}");
    }

    #[test]
    fn few_or_wild_figures_are_too_short() {
        assert_eq!(verdict(&[50.0; 15]), Verdict::TooShort);
        let wild = (0..20).map(|at| if at % 10 == 3 { 500.0 } else { 10.0 });
        assert_eq!(verdict(&noisy(wild, 0.0)), Verdict::TooShort);
        assert_eq!(verdict(&[]), Verdict::TooShort);
    }
}
