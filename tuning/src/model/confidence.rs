//! Estimates a ratio between two builds from paired runs, with a confidence interval.
//!
//! Each pair gives one ratio. The logarithms are assumed to be symmetric about a median, which
//! holds for chance differences between two runs in a row on one machine; nothing else is assumed.
//! The median is estimated by the median of all pairwise averages (Hodges and Lehmann, 1963), its
//! interval by the exact distribution of Wilcoxon's signed-rank statistic: Hollander, Wolfe and
//! Chicken, "Nonparametric Statistical Methods", 3.1 to 3.3.

use serde::{Deserialize, Serialize};

/// Limit on the pairs: beyond it, the counts of the exact distribution overflow an `f64`.
pub const PAIRS_MAX: usize = 1000;

/// An estimated ratio between two things that were measured in pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatioEstimate {
    /// The number of pairs.
    pub pairs: usize,
    /// The estimate.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
    /// The probability that the interval holds the true ratio. With few pairs it can be less than
    /// requested.
    pub confidence: f64,
}

impl RatioEstimate {
    /// Estimates the ratio, with the narrowest interval of at least this confidence. With too few
    /// pairs, the interval spans all ratios and `confidence` is what that reaches.
    ///
    /// `None` for no pairs, for more than [`PAIRS_MAX`], or if a ratio is not positive and finite.
    /// Time and memory grow with the square of the pairs.
    #[must_use]
    pub fn of(ratios: &[f64], confidence: f64) -> Option<Self> {
        let sound = |&ratio: &f64| ratio.is_finite() && ratio > 0.0;
        if ratios.is_empty() || ratios.len() > PAIRS_MAX || !ratios.iter().all(sound) {
            return None;
        }
        let logs: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let mut averages: Vec<f64> = (logs.iter().enumerate())
            .flat_map(|(at, one)| logs[at..].iter().map(move |other| (one + other) / 2.0))
            .collect();
        averages.sort_by(f64::total_cmp);
        let (cut, confidence) = cut(ratios.len(), confidence);
        let half = averages.len() / 2;
        let median = if averages.len() % 2 == 1 {
            averages[half]
        } else {
            (averages[half - 1] + averages[half]) / 2.0
        };
        Some(Self {
            pairs: ratios.len(),
            median: median.exp(),
            low: averages[cut].exp(),
            high: averages[averages.len() - 1 - cut].exp(),
            confidence,
        })
    }

    /// True if the whole interval lies above 1 with at least this confidence.
    #[must_use]
    pub fn is_better(&self, confidence: f64) -> bool {
        self.low > 1.0 && self.confidence >= confidence
    }

    /// The fewest pairs that can reach a confidence.
    #[must_use]
    pub fn pairs_min(confidence: f64) -> usize {
        let reached = |&pairs: &usize| cut(pairs, confidence).1 >= confidence;
        (1..PAIRS_MAX).find(reached).unwrap_or(PAIRS_MAX)
    }
}

/// The number of sorted averages outside the interval on each side, and its confidence.
fn cut(pairs: usize, confidence: f64) -> (usize, f64) {
    // For each sum: the number of subsets of the ranks 1 to `pairs` that add up to it.
    let mut ways = vec![0.0; pairs * (pairs + 1) / 2 + 1];
    ways[0] = 1.0;
    for rank in 1..=pairs {
        for sum in (rank..=rank * (rank + 1) / 2).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    let all: f64 = ways.iter().sum();
    let outside = (1.0 - confidence) / 2.0;
    let mut below = 0.0;
    let tails: Vec<f64> = ways
        .iter()
        .map(|count| {
            below += count / all;
            below
        })
        .collect();
    let cut = tails.iter().take_while(|&&tail| tail <= outside).count();
    let cut = cut.saturating_sub(1);
    (cut, 1.0 - 2.0 * tails[cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-9
    }

    #[expect(clippy::approx_constant, reason = "a measurement, not pi")]
    #[test]
    fn the_textbook_example_is_reproduced() {
        // Hollander and Wolfe, table 3.1 (depression scale, two visits): estimate 0.46, interval
        // 0.010 to 0.786.
        let first: [f64; 9] = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30];
        let second = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29];
        let ratios: Vec<f64> = (first.iter().zip(second))
            .map(|(first, second)| (first - second).exp())
            .collect();
        let estimate = RatioEstimate::of(&ratios, 0.95).unwrap();
        assert!(is(estimate.median.ln(), 0.46), "{estimate:?}");
        assert!(is(estimate.low.ln(), 0.010), "{estimate:?}");
        assert!(is(estimate.high.ln(), 0.786), "{estimate:?}");
        // P(V <= 5) is 10 of 512, on each side.
        assert!(is(estimate.confidence, 1.0 - 20.0 / 512.0), "{estimate:?}");
        assert!(estimate.is_better(0.95) && !estimate.is_better(0.99));
    }

    #[test]
    fn cuts_are_those_of_the_tables() {
        // Critical values of the signed-rank statistic, two-sided: the sums at or below them are
        // cut off.
        for (pairs, confidence, critical) in [
            (6, 0.95, 0),
            (7, 0.95, 2),
            (8, 0.95, 3),
            (10, 0.95, 8),
            (10, 0.99, 3),
            (15, 0.95, 25),
            (20, 0.95, 52),
            (25, 0.99, 68),
        ] {
            let (cut, reached) = cut(pairs, confidence);
            assert_eq!(cut, critical, "{pairs} pairs");
            assert!(reached >= confidence, "{pairs} pairs: {reached}");
        }
    }

    #[test]
    fn few_pairs_report_a_lower_confidence() {
        let estimate = RatioEstimate::of(&[1.2, 1.1, 1.3], 0.95).unwrap();
        assert!(
            is(estimate.low, 1.1) && is(estimate.high, 1.3),
            "{estimate:?}"
        );
        assert!(is(estimate.confidence, 0.75), "{estimate:?}");
        assert!(!estimate.is_better(0.95) && estimate.is_better(0.75));
        let fewest = [0.5, 0.75, 0.9, 0.95, 0.99].map(RatioEstimate::pairs_min);
        assert_eq!(fewest, [2, 3, 5, 6, 8]);
    }

    #[test]
    fn better_and_worse_mirror_each_other() {
        let ratios = [1.01, 0.98, 1.05, 1.1, 1.02, 0.97, 1.3, 1.04];
        let back: Vec<f64> = ratios.iter().map(|ratio| 1.0 / ratio).collect();
        let there = RatioEstimate::of(&ratios, 0.9).unwrap();
        let back = RatioEstimate::of(&back, 0.9).unwrap();
        assert!(is(there.median * back.median, 1.0) && is(there.low * back.high, 1.0));
        assert!(!back.is_better(0.9), "{back:?}");
    }

    #[test]
    fn invalid_ratios_are_refused() {
        for ratios in [&[][..], &[0.0], &[1.0, -1.0], &[f64::NAN], &[f64::INFINITY]] {
            assert_eq!(RatioEstimate::of(ratios, 0.95), None, "{ratios:?}");
        }
        assert_eq!(RatioEstimate::of(&vec![1.0; PAIRS_MAX + 1], 0.95), None);
        let most = RatioEstimate::of(&vec![1.5; PAIRS_MAX], 0.95).unwrap();
        assert!(is(most.median, 1.5) && most.is_better(0.95), "{most:?}");
    }
}
