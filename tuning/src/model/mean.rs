//! Estimates a mean from a few independent runs, with Student's confidence interval: the runs are
//! assumed to be about normally distributed, as averages of many messages are.

use serde::{Deserialize, Serialize};

/// The 97.5 % quantiles of Student's distribution for 1 to 30 degrees of freedom; Hollander, Wolfe
/// and Chicken, "Nonparametric Statistical Methods", table A.2, and every other.
const QUANTILES: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// Of the normal distribution.
const NORMAL: f64 = 1.960;

/// A mean and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeanEstimate {
    /// The number of runs.
    pub runs: usize,
    /// The mean.
    pub mean: f64,
    /// The lower end of the interval; the mean itself of one run.
    pub low: f64,
    /// The upper end of the interval.
    pub high: f64,
}

impl MeanEstimate {
    /// Estimates the mean. `None` for no runs, or if a figure is not finite.
    #[must_use]
    pub fn of(figures: &[f64]) -> Option<Self> {
        if figures.is_empty() || !figures.iter().all(|figure| figure.is_finite()) {
            return None;
        }
        let runs = figures.len();
        let mean = figures.iter().sum::<f64>() / runs as f64;
        let freedom = runs - 1;
        let squares: f64 = figures.iter().map(|figure| (figure - mean).powi(2)).sum();
        let half = if freedom == 0 {
            0.0
        } else {
            let quantile = QUANTILES.get(freedom - 1).copied().unwrap_or(NORMAL);
            quantile * (squares / freedom as f64 / runs as f64).sqrt()
        };
        Some(Self {
            runs,
            mean,
            low: mean - half,
            high: mean + half,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_textbook() {
        // Student's own data of 1908, differences of sleep: mean 1.58, s 1.23, 95 % 0.70 to 2.46.
        let sleep = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];
        let estimate = MeanEstimate::of(&sleep).unwrap();
        assert!((estimate.mean - 1.58).abs() < 1e-9, "{estimate:?}");
        assert!((estimate.low - 0.70).abs() < 0.005, "{estimate:?}");
        assert!((estimate.high - 2.46).abs() < 0.005, "{estimate:?}");
    }

    #[test]
    fn one_run_has_no_interval() {
        let estimate = MeanEstimate::of(&[3.0]).unwrap();
        assert_eq!((estimate.low, estimate.high), (3.0, 3.0));
        assert_eq!(MeanEstimate::of(&[]), None);
        assert_eq!(MeanEstimate::of(&[1.0, f64::NAN]), None);
        let many = MeanEstimate::of(&[1.0; 50]).unwrap();
        assert_eq!((many.low, many.high), (1.0, 1.0));
    }
}
