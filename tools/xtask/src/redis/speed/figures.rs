//! The figures of all rounds, and the comparisons of the first server with each other one.

use std::fmt;

use anyhow::{Context, Result};
use farcore_tuning::RatioEstimate;
use serde::Serialize;

/// Confidence of an interval.
const CONFIDENCE: f64 = 0.95;

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(in crate::redis) struct Sample {
    pub(in crate::redis) server: &'static str,
    pub(in crate::redis) test: &'static str,
    pub(in crate::redis) pipeline: u32,
    pub(in crate::redis) round: u32,
    pub(in crate::redis) requests_per_second: f64,
    /// The server's, all its threads.
    pub(in crate::redis) processor_ns_per_request: f64,
}

#[derive(Debug, Default)]
pub(in crate::redis) struct Figures {
    samples: Vec<Sample>,
}

/// What is printed, and written as JSON.
#[derive(Debug, Serialize)]
pub(in crate::redis) struct Report {
    medians: Vec<Median>,
    comparisons: Vec<Comparison>,
    samples: Vec<Sample>,
}

#[derive(Debug, Serialize)]
struct Median {
    server: &'static str,
    test: &'static str,
    pipeline: u32,
    requests_per_second: f64,
    processor_ns_per_request: f64,
}

/// The first server's figures, divided by those of another one in the same round.
#[derive(Debug, Serialize)]
struct Comparison {
    server: &'static str,
    against: &'static str,
    test: &'static str,
    pipeline: u32,
    /// Above 1: the first serves more requests a second.
    rate: RatioEstimate,
    /// Below 1: the first needs less processor time.
    processor: Option<RatioEstimate>,
}

impl Figures {
    pub(in crate::redis) fn add(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// What differs between samples but for the round, in the order of the measurements.
    fn kinds(&self) -> Vec<&Sample> {
        (self.samples.iter())
            .filter(|sample| sample.round == 0)
            .collect()
    }

    /// The samples of a server under one load, by round.
    fn of(&self, server: &str, like: &Sample) -> Vec<&Sample> {
        let is_of = |sample: &&Sample| {
            sample.server == server && sample.test == like.test && sample.pipeline == like.pipeline
        };
        self.samples.iter().filter(is_of).collect()
    }

    /// Compares the server `first` with each other one.
    pub(in crate::redis) fn report(self, first: &'static str) -> Result<Report> {
        let mut kinds = self.kinds();
        kinds.sort_by_key(|kind| (u32::MAX - kind.pipeline, kind.test != "set"));
        let medians = kinds.iter().map(|kind| {
            let samples = self.of(kind.server, kind);
            let of = |of: fn(&&Sample) -> f64| median(samples.iter().map(of));
            Median {
                server: kind.server,
                test: kind.test,
                pipeline: kind.pipeline,
                requests_per_second: of(|sample| sample.requests_per_second),
                processor_ns_per_request: of(|sample| sample.processor_ns_per_request),
            }
        });
        let others = kinds.iter().filter(|kind| kind.server != first);
        let comparisons = others.map(|kind| {
            let pair = (self.of(first, kind), self.of(kind.server, kind));
            let ratio = |of: fn(&Sample) -> f64| {
                let pairs = pair.0.iter().zip(&pair.1);
                let ratios: Vec<f64> = pairs.map(|(one, other)| of(one) / of(other)).collect();
                RatioEstimate::of(&ratios, CONFIDENCE)
            };
            Ok(Comparison {
                server: first,
                against: kind.server,
                test: kind.test,
                pipeline: kind.pipeline,
                rate: ratio(|sample| sample.requests_per_second).context("no rates")?,
                // A run that is too short for the clock of the processor has no ratio.
                processor: ratio(|sample| sample.processor_ns_per_request),
            })
        });
        Ok(Report {
            medians: medians.collect(),
            comparisons: comparisons.collect::<Result<_>>()?,
            samples: self.samples,
        })
    }
}

/// The median; not a number if there are no values.
pub(in crate::redis) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[half],
        _ => f64::midpoint(values[half - 1], values[half]),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "\n{:<10}{:<10}{:>9}{:>14}{:>22}",
            "server", "test", "pipeline", "requests/s", "processor ns/request"
        )?;
        for median in &self.medians {
            writeln!(
                f,
                "{:<10}{:<10}{:>9}{:>14.0}{:>22.0}",
                median.server,
                median.test,
                median.pipeline,
                median.requests_per_second,
                median.processor_ns_per_request
            )?;
        }
        writeln!(f, "\nratios of pairs, with their intervals")?;
        for comparison in &self.comparisons {
            writeln!(
                f,
                "{} to {}, {} by {}: rate {}, processor time {}",
                comparison.server,
                comparison.against,
                comparison.test,
                comparison.pipeline,
                shown(Some(&comparison.rate)),
                shown(comparison.processor.as_ref())
            )?;
        }
        let estimates = self.comparisons.first().map(|first| first.rate);
        if let Some(estimate) = estimates {
            let percent = estimate.confidence * 100.0;
            writeln!(f, "{} pairs, {percent:.1} % confidence", estimate.pairs)?;
        }
        Ok(())
    }
}

fn shown(ratio: Option<&RatioEstimate>) -> String {
    ratio.map_or_else(
        || "unknown".to_owned(),
        |ratio| {
            format!(
                "{:.3} ({:.3} to {:.3})",
                ratio.median, ratio.low, ratio.high
            )
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_of_one_round() {
        let mut figures = Figures::default();
        for round in 0..6 {
            // Both servers slow down together, so each pair has the same ratio.
            let slow = f64::from(round + 1);
            let rates = [("farcore", 3000.0), ("redis", 1500.0)];
            for (server, rate) in rates {
                figures.add(Sample {
                    server,
                    test: "get",
                    pipeline: 32,
                    round,
                    requests_per_second: rate / slow,
                    processor_ns_per_request: if server == "redis" { 0.0 } else { slow },
                });
            }
        }
        let report = figures.report("farcore").unwrap();
        assert_eq!((report.medians.len(), report.comparisons.len()), (2, 1));
        let comparison = &report.comparisons[0];
        assert!((comparison.rate.median - 2.0).abs() < 1e-9);
        assert!((comparison.rate.high - 2.0).abs() < 1e-9);
        assert_eq!(comparison.processor, None);
        let text = report.to_string();
        assert!(
            text.contains("farcore to redis, get by 32: rate 2.000"),
            "{text}"
        );
    }
}
