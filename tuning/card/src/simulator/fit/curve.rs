//! The figures of a search: points, curves, the answer and its reason.

use serde::Serialize;

use super::{FitPolicy, FitSettings};
use crate::handle::OBJECTS_MAX;
use crate::simulator::{Outcome, Verdict};
use farcore_tuning::MeanEstimate;

/// A link that is busier is what the messages wait for.
const SATURATED: f64 = 0.8;
/// A share of the pages behind CXL from which on they are full: a little less than what is kept
/// free of them.
const FULL: f64 = 0.9;

/// The figures of one simulation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct FitRun {
    messages_s: f64,
    hit_ratio: f64,
    p99_ns: f64,
    cxl_share: f64,
    host_share: f64,
    cxl_load: f64,
    host_load: f64,
    card_full: f64,
    cxl_full: f64,
    is_steady: bool,
    messages: u64,
}

impl FitRun {
    pub(super) fn of(outcome: &Outcome) -> Self {
        let served = outcome.statistics.served;
        let share = |part: u64| part as f64 / served.total().max(1) as f64;
        let card = &outcome.settings.card;
        let (card_tokens, pages) = outcome
            .series
            .last()
            .map_or((0, 0), |point| (point.card_tokens, point.cxl_pages));
        Self {
            messages_s: outcome.messages_s,
            hit_ratio: outcome.hit_ratio,
            p99_ns: outcome.p99_ns as f64,
            cxl_share: share(served.cxl),
            host_share: share(served.host),
            cxl_load: outcome.cxl_load,
            host_load: outcome.host_load,
            card_full: card_tokens as f64 / f64::from(card.card_entries),
            cxl_full: pages as f64 / f64::from(card.cxl_pages.max(1)),
            is_steady: outcome.verdict == Verdict::Steady,
            messages: outcome.settings.messages,
        }
    }
}

/// A point of a curve: means over its simulations.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct FitPoint {
    /// The number of objects.
    pub count: u32,
    /// Messages a second, with their 95 % interval.
    pub messages_s: MeanEstimate,
    /// The share of accesses that did not leave the card.
    pub hit_ratio: f64,
    /// The 99th percentile of latency, in nanoseconds.
    pub p99_ns: f64,
    /// The share of accesses that CXL served.
    pub cxl_share: f64,
    /// The share of accesses that the host served.
    pub host_share: f64,
    /// How much of the CXL link was used.
    pub cxl_load: f64,
    /// How much of the link to the host was used.
    pub host_load: f64,
    /// How full the card's table was at the end.
    pub card_full: f64,
    /// How full the CXL tier was at the end.
    pub cxl_full: f64,
    /// All its simulations were steady.
    pub is_steady: bool,
    /// Counted messages of the longest.
    pub messages: u64,
}

impl FitPoint {
    pub(super) fn of(count: u32, runs: &[FitRun]) -> Option<Self> {
        let mean = |figure: fn(&FitRun) -> f64| {
            runs.iter().map(figure).sum::<f64>() / runs.len().max(1) as f64
        };
        let rates: Vec<f64> = runs.iter().map(|run| run.messages_s).collect();
        Some(Self {
            count,
            messages_s: MeanEstimate::of(&rates)?,
            hit_ratio: mean(|run| run.hit_ratio),
            p99_ns: mean(|run| run.p99_ns),
            cxl_share: mean(|run| run.cxl_share),
            host_share: mean(|run| run.host_share),
            cxl_load: mean(|run| run.cxl_load),
            host_load: mean(|run| run.host_load),
            card_full: mean(|run| run.card_full),
            cxl_full: mean(|run| run.cxl_full),
            is_steady: runs.iter().all(|run| run.is_steady),
            messages: runs.iter().map(|run| run.messages).max().unwrap_or(0),
        })
    }
}

/// What keeps the card from going on at its rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Saturated {
    /// The link to the host.
    HostLink,
    /// The link to the CXL tier.
    CxlLink,
    /// No link: messages in flight wait for latencies.
    Latency,
}

/// The number that fits.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct FitAnswer {
    /// The largest number that was seen to keep the target; 0 if none does.
    pub fits: u32,
    /// The largest of those whose whole interval keeps it.
    pub surely: u32,
    /// The smallest number that does not keep it; none if all do.
    pub slows: Option<u32>,
    /// What is short at that number.
    pub saturated: Option<Saturated>,
}

/// The curve of a policy.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FitCurve {
    /// The policy.
    pub policy: FitPolicy,
    /// Its points, by count.
    pub points: Vec<FitPoint>,
    /// The number that fits, as far as it is known.
    pub answer: FitAnswer,
}

impl FitPoint {
    /// What is short here.
    #[must_use]
    pub fn saturated(&self) -> Saturated {
        if self.cxl_load.max(self.host_load) < SATURATED {
            Saturated::Latency
        } else if self.host_load >= self.cxl_load {
            Saturated::HostLink
        } else {
            Saturated::CxlLink
        }
    }
}

impl FitCurve {
    /// Why no more than what fits do: one sentence.
    #[must_use]
    pub fn reason(&self, settings: &FitSettings) -> String {
        let things = settings.object.words();
        let card = &settings.base.card;
        let slows = self.answer.slows;
        let found = self.points.iter().find(|point| Some(point.count) == slows);
        let Some(point) = found else {
            let most = self.points.last().map_or(0, |point| point.count);
            return match most as usize == OBJECTS_MAX {
                true => format!("all {most} {things} that a card can name fit"),
                false => format!("no more than {most} {things} were simulated"),
            };
        };
        let (percent, count) = (|share: f64| share * 100.0, point.count);
        let table = match point.card_full {
            full if full < 0.5 => format!(
                "the thresholds leave {:.0} % of the card's {} places empty",
                percent(1.0 - full),
                card.card_entries
            ),
            full => format!(
                "the card's {} places are {:.0} % full",
                card.card_entries,
                percent(full)
            ),
        };
        let pages = match point.cxl_full {
            full if full >= FULL => format!(
                " and the {} pages behind CXL are {:.0} % full",
                card.cxl_pages,
                percent(full)
            ),
            _ => String::new(),
        };
        let elsewhere = percent(point.cxl_share + point.host_share);
        let wait = match point.saturated() {
            Saturated::HostLink => format!(
                "the link to the host is {:.0} % busy ({} fetches of {:.0} ns at a time)",
                percent(point.host_load),
                card.host.transfers_max,
                card.host_link().latency_ns
            ),
            Saturated::CxlLink => {
                format!("the CXL link is {:.0} % busy", percent(point.cxl_load))
            }
            Saturated::Latency => format!(
                "no link is busy ({:.0} % at most): all messages in flight wait for latencies",
                percent(point.cxl_load.max(point.host_load))
            ),
        };
        format!(
            "with {count} {things} {table}{pages}, {elsewhere:.1} % of the accesses go elsewhere, and \
             {wait}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_names_what_is_full_and_what_is_busy() {
        let mut settings = FitSettings::default();
        settings.base.card.cxl_pages = 16;
        settings.base.card.host_busy = 0.5;
        let run = FitRun {
            messages_s: 5e7,
            hit_ratio: 0.8,
            p99_ns: 9e3,
            cxl_share: 0.15,
            host_share: 0.05,
            cxl_load: 0.2,
            host_load: 0.97,
            card_full: 0.994,
            cxl_full: 0.96,
            is_steady: true,
            messages: 1_000_000,
        };
        let reason_of = |run: FitRun, slows: Option<u32>| {
            let curve = FitCurve {
                policy: FitPolicy::Adaptive,
                points: vec![FitPoint::of(256, &[run]).unwrap()],
                answer: FitAnswer {
                    fits: 0,
                    surely: 0,
                    slows,
                    saturated: None,
                },
            };
            curve.reason(&settings)
        };
        let reason = |run: FitRun| reason_of(run, Some(256));
        assert_eq!(
            reason(run),
            "with 256 queue pairs the card's 4096 places are 99 % full and the 16 pages behind CXL \
             are 96 % full, 20.0 % of the accesses go elsewhere, and the link to the host is 97 % \
             busy (8 fetches of 1700 ns at a time)"
        );
        let idle = FitRun {
            host_load: 0.3,
            card_full: 0.25,
            cxl_full: 0.5,
            ..run
        };
        assert_eq!(
            reason(idle),
            "with 256 queue pairs the thresholds leave 75 % of the card's 4096 places empty, 20.0 % \
             of the accesses go elsewhere, and no link is busy (30 % at most): all messages in \
             flight wait for latencies"
        );
        let busy = FitRun {
            cxl_load: 0.99,
            ..run
        };
        assert!(reason(busy).ends_with("and the CXL link is 99 % busy"));
        // Of a search that was ended early.
        let words = "no more than 256 queue pairs were simulated";
        assert_eq!(reason_of(run, None), words);
    }
}
