//! What fits: the rate of messages by the number of queue pairs or regions, for several policies
//! side by side, the largest number with which each keeps a target, and why no more.
//!
//! [`Fit`] plans simulations and takes their figures; who drives it runs them, on as many threads
//! as it likes. First come all counts of a grid, then bisections between the last count that fits
//! and the first that does not. The rate is taken to fall with the number.
//!
//! - I1: the plan depends on the figures alone, not on the order in which they come.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{
    CardSettings, MaintenanceSettings, Outcome, Progress, Simulation, SimulationSettings, Verdict,
};
use crate::metadata_cache::handle::OBJECTS_MAX;
use crate::metadata_cache::policy::PolicyName;
use crate::metadata_cache::settings::{Setting, SettingError};
use crate::model::MeanEstimate;

/// Counts of a grid: each twice the one before.
const GRID: [u32; 9] = [256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 32_768, 65_536];
/// The answer is known to one part in this many.
const PARTS: u32 = 32;
/// Bisections from a factor of two to that.
const BISECTIONS: u64 = 5;
/// A link that is busier is what the messages wait for.
const SATURATED: f64 = 0.8;
/// Points of a simulation, of which the last has the tokens in the tiers.
const POINTS: u32 = 8;
/// Most policies, and most simulations of a point.
const POLICIES_MAX: usize = 8;
const REPEATS_MAX: f64 = 100.0;

/// What there may be more of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FitObject {
    /// Queue pairs.
    #[default]
    QueuePairs,
    /// Regions.
    Regions,
}

impl FitObject {
    /// The words for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::QueuePairs => "queue pairs",
            Self::Regions => "regions",
        }
    }
}

/// A way to use a card's memory and what is behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum FitPolicy {
    /// Three tiers with adaptive thresholds.
    Adaptive,
    /// Three tiers with fixed thresholds.
    Fixed,
    /// A card as they are sold, from which this policy evicts.
    Plain(PolicyName),
}

impl FitPolicy {
    /// Those that are compared if nothing else is said.
    pub const DEFAULT: [Self; 3] = [Self::Adaptive, Self::Fixed, Self::Plain(PolicyName::Lru)];

    /// The name on command lines and in files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Adaptive => "adaptive",
            Self::Fixed => "fixed",
            Self::Plain(policy) => policy.name(),
        }
    }

    /// The card with this policy.
    #[must_use]
    pub fn card(self, card: &CardSettings) -> CardSettings {
        let mut card = card.clone();
        match self {
            Self::Adaptive => card.thresholds.adaptive = true,
            Self::Fixed => card.thresholds.adaptive = false,
            Self::Plain(policy) => {
                let plain = CardSettings::plain();
                card = CardSettings {
                    policy,
                    cxl_pages: plain.cxl_pages,
                    thresholds: plain.thresholds,
                    maintenance: MaintenanceSettings {
                        free_share: plain.maintenance.free_share,
                        ..card.maintenance
                    },
                    ..card
                };
            }
        }
        card
    }
}

impl fmt::Display for FitPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FitPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "adaptive" => Ok(Self::Adaptive),
            "fixed" => Ok(Self::Fixed),
            _ => match text.parse() {
                Ok(PolicyName::Belady) | Err(_) => Err(format!(
                    "`{text}` is no policy: write adaptive, fixed, or one of a plain card: lru, \
                     fifo, lfu, clock, sieve, s3-fifo, hybrid"
                )),
                Ok(policy) => Ok(Self::Plain(policy)),
            },
        }
    }
}

impl TryFrom<String> for FitPolicy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<FitPolicy> for String {
    fn from(policy: FitPolicy) -> Self {
        policy.name().to_owned()
    }
}

/// What to look for.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FitSettings {
    /// The card and its workload, of which the number of objects varies. A run is as long as this
    /// says, or longer until it is steady.
    pub base: SimulationSettings,
    /// What there may be more of.
    pub object: FitObject,
    /// What is compared.
    pub policies: Vec<FitPolicy>,
    /// The share of the card's rate that is to be kept.
    pub kept: f64,
    /// Simulations of each point, with seeds that count up.
    pub repeats: u32,
    /// Most counted messages of a run.
    pub messages_max: u64,
}

impl Default for FitSettings {
    fn default() -> Self {
        Self {
            base: SimulationSettings {
                messages: 1_000_000,
                points: POINTS,
                ..SimulationSettings::default()
            },
            object: FitObject::default(),
            policies: FitPolicy::DEFAULT.to_vec(),
            kept: 0.95,
            repeats: 3,
            messages_max: 16_000_000,
        }
    }
}

impl FitSettings {
    /// Checks every setting.
    ///
    /// # Errors
    /// The first that is wrong, with its value and limits.
    pub fn validate(&self) -> Result<(), SettingError> {
        self.base.validate()?;
        Setting::new("kept", self.kept).within(0.01, 1.0)?;
        Setting::new("repeats", f64::from(self.repeats)).within(1.0, REPEATS_MAX)?;
        Setting::new("policies", self.policies.len() as f64).within(1.0, POLICIES_MAX as f64)?;
        Setting::new("messages-max", self.messages_max as f64).within(1.0, 1e12)?;
        for &policy in &self.policies {
            self.settings(policy, GRID[0], 0).validate()?;
        }
        Ok(())
    }

    /// The rate that is to be kept, in messages a second.
    #[must_use]
    pub fn target(&self) -> f64 {
        self.kept * self.base.card.messages_s
    }

    /// The settings of one simulation.
    #[must_use]
    pub fn settings(&self, policy: FitPolicy, count: u32, repeat: u32) -> SimulationSettings {
        let mut settings = self.base.clone();
        settings.card = policy.card(&settings.card);
        let population = &mut settings.workload.population;
        match self.object {
            FitObject::QueuePairs => population.queue_pairs = count,
            FitObject::Regions => population.regions = count,
        }
        let seed = &mut settings.workload.seed;
        *seed = seed.wrapping_add(u64::from(repeat));
        settings
    }
}

/// One simulation of a [`Fit`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FitJob {
    policy: usize,
    count: u32,
    repeat: u32,
}

/// The figures of one simulation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FitRun {
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
}

impl FitRun {
    fn of(outcome: &Outcome) -> Self {
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
}

impl FitPoint {
    fn of(count: u32, runs: &[FitRun]) -> Option<Self> {
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

/// A search for what fits.
#[derive(Clone, Debug)]
pub struct Fit {
    settings: FitSettings,
    /// The simulations of each policy, by count and repeat.
    runs: Vec<BTreeMap<u32, BTreeMap<u32, FitRun>>>,
}

impl Fit {
    /// A search.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn new(mut settings: FitSettings) -> Result<Self, SettingError> {
        settings.validate()?;
        settings.base.points = POINTS;
        Ok(Self {
            runs: vec![BTreeMap::new(); settings.policies.len()],
            settings,
        })
    }

    /// What is looked for.
    #[must_use]
    pub fn settings(&self) -> &FitSettings {
        &self.settings
    }

    /// The simulations that can be run now, in any order; none when all is known.
    #[must_use]
    pub fn jobs(&self) -> Vec<FitJob> {
        let policies = 0..self.settings.policies.len();
        let missing = |policy: usize, count: u32| {
            let done = self.runs[policy].get(&count);
            (0..self.settings.repeats)
                .filter(move |repeat| done.is_none_or(|done| !done.contains_key(repeat)))
                .map(move |repeat| FitJob {
                    policy,
                    count,
                    repeat,
                })
        };
        let grid = policies
            .clone()
            .flat_map(|policy| GRID.iter().flat_map(move |&count| missing(policy, count)));
        let grid: Vec<FitJob> = grid.collect();
        if !grid.is_empty() {
            return grid;
        }
        let next = policies.flat_map(|policy| {
            let count = self.bisected(&self.answer(policy));
            count
                .into_iter()
                .flat_map(move |count| missing(policy, count))
        });
        next.collect()
    }

    /// The count to look at between what fits and what does not, if they are apart.
    fn bisected(&self, answer: &FitAnswer) -> Option<u32> {
        let slows = answer.slows?;
        let is_near = slows - answer.fits <= answer.fits / PARTS + 1;
        (!is_near).then(|| u32::midpoint(answer.fits, slows))
    }

    /// Simulations that were run, and about how many there will be.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        let done = self.runs.iter().flat_map(BTreeMap::values);
        let done: u64 = done.map(|runs| runs.len() as u64).sum();
        if self.jobs().is_empty() {
            return (done, done);
        }
        let each = GRID.len() as u64 + BISECTIONS;
        let all = each * u64::from(self.settings.repeats) * self.runs.len() as u64;
        (done, all.max(done + 1))
    }

    /// Runs a simulation; nothing if `observe` has ended it.
    ///
    /// # Errors
    /// A setting is wrong.
    pub fn run(
        settings: &FitSettings,
        job: FitJob,
        observe: impl FnMut(Progress<'_>) -> ControlFlow<()>,
    ) -> Result<Option<FitRun>, SettingError> {
        let Some(&policy) = settings.policies.get(job.policy) else {
            return Ok(None);
        };
        let simulation = Simulation::new(settings.settings(policy, job.count, job.repeat))?;
        let outcome = simulation.run_until_steady(settings.messages_max, observe);
        Ok((!outcome.is_interrupted).then(|| FitRun::of(&outcome)))
    }

    /// Takes the figures of a simulation.
    pub fn add(&mut self, job: FitJob, run: FitRun) {
        if let Some(runs) = self.runs.get_mut(job.policy) {
            runs.entry(job.count).or_default().insert(job.repeat, run);
        }
    }

    fn points(&self, policy: usize) -> Vec<FitPoint> {
        let point = |(&count, runs): (&u32, &BTreeMap<u32, FitRun>)| {
            let runs: Vec<FitRun> = runs.values().copied().collect();
            FitPoint::of(count, &runs)
        };
        self.runs[policy].iter().filter_map(point).collect()
    }

    fn answer(&self, policy: usize) -> FitAnswer {
        let target = self.settings.target();
        let points = self.points(policy);
        let keeps = |point: &&FitPoint| point.messages_s.mean >= target;
        let fitting = points.iter().take_while(keeps);
        let fits = fitting.clone().last().map_or(0, |point| point.count);
        let surely = fitting.take_while(|point| point.messages_s.low >= target);
        let slowing = points.iter().find(|point| !keeps(point));
        FitAnswer {
            fits,
            surely: surely.last().map_or(0, |point| point.count),
            slows: slowing.map(|point| point.count),
            saturated: slowing.map(FitPoint::saturated),
        }
    }

    /// The curves as far as they are known.
    #[must_use]
    pub fn curves(&self) -> Vec<FitCurve> {
        let policies = self.settings.policies.iter().enumerate();
        let curve = |(at, &policy): (usize, &FitPolicy)| FitCurve {
            policy,
            points: self.points(at),
            answer: self.answer(at),
        };
        policies.map(curve).collect()
    }

    /// Why no more than what fits do: one sentence.
    #[must_use]
    pub fn reason(&self, curve: &FitCurve) -> String {
        let things = self.settings.object.words();
        let card = &self.settings.base.card;
        let slows = curve.answer.slows;
        let found = curve.points.iter().find(|point| Some(point.count) == slows);
        let Some(point) = found else {
            let most = OBJECTS_MAX;
            return format!("all {most} {things} that a card can name fit");
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
        let elsewhere = percent(point.cxl_share + point.host_share);
        let wait = match point.saturated() {
            Saturated::HostLink => format!(
                "the link to the host is {:.0} % busy ({} fetches of {} ns at a time)",
                percent(point.host_load),
                card.host.transfers_max,
                card.host.latency_ns
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
            "with {count} {things} {table}, {elsewhere:.1} % of the accesses go elsewhere, and {wait}"
        )
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata_cache::simulator::Arrival;
    use crate::metadata_cache::workload::{Pattern, Population};

    fn settings() -> FitSettings {
        let mut settings = FitSettings {
            policies: vec![FitPolicy::Plain(PolicyName::Lru)],
            repeats: 2,
            messages_max: 20_000,
            ..FitSettings::default()
        };
        let base = &mut settings.base;
        base.card.card_entries = 1_000;
        base.card.staging_entries = 16;
        base.workload.pattern = Pattern::Uniform;
        base.workload.population = Population {
            queue_pairs: 0,
            regions: 0,
            completion_queues: 0,
            domains: 1,
        };
        base.arrival = Arrival::Closed { window: 32 };
        (base.messages, base.warmup) = (20_000, 70_000);
        settings
    }

    fn searched(settings: FitSettings) -> Fit {
        let mut fit = Fit::new(settings).unwrap();
        let mut before = 0;
        loop {
            let jobs = fit.jobs();
            if jobs.is_empty() {
                return fit;
            }
            for job in jobs {
                let run = Fit::run(&fit.settings, job, |_| ControlFlow::Continue(()));
                fit.add(job, run.unwrap().unwrap());
                let (done, all) = fit.progress();
                assert!(done > before && done <= all);
                before = done;
            }
        }
    }

    #[test]
    fn about_as_many_fit_as_the_card_has_places_and_the_reason_says_why() {
        let fit = searched(settings());
        let [curve] = &fit.curves()[..] else {
            panic!("one policy");
        };
        let answer = curve.answer;
        assert!((950..1_250).contains(&answer.fits), "{answer:?}");
        assert!(answer.surely <= answer.fits, "{answer:?}");
        assert_eq!(answer.saturated, Some(Saturated::HostLink));
        let reason = fit.reason(curve);
        assert!(reason.contains("1000 places are 100 % full"), "{reason}");
        assert!(reason.contains("link to the host is"), "{reason}");
        assert!(curve.points.len() > GRID.len());
        assert!(curve.points.is_sorted_by_key(|point| point.count));
    }

    #[test]
    fn a_target_that_all_keep_or_none_has_an_answer() {
        let mut settings = settings();
        settings.kept = 0.01;
        let fit = searched(settings.clone());
        let curve = &fit.curves()[0];
        assert_eq!((curve.answer.fits, curve.answer.slows), (65_536, None));
        assert!(fit.reason(curve).starts_with("all 65536 queue pairs"));
        // A link that lets one message through at a time, and no place for 256.
        settings.kept = 1.0;
        settings.base.card.card_entries = 16;
        settings.base.card.host.transfers_max = 1;
        let answer = searched(settings).curves()[0].answer;
        assert!(answer.fits < 64 && answer.slows.is_some(), "{answer:?}");
    }

    #[test]
    fn policies_have_names_and_cards() {
        for name in ["adaptive", "fixed", "lru", "s3-fifo"] {
            assert_eq!(name.parse::<FitPolicy>().unwrap().name(), name);
        }
        for name in ["belady", "best", ""] {
            assert!(name.parse::<FitPolicy>().is_err(), "{name}");
        }
        let card = CardSettings {
            card_entries: 77,
            ..CardSettings::default()
        };
        let plain = FitPolicy::Plain(PolicyName::Lru).card(&card);
        let wanted = CardSettings {
            card_entries: 77,
            ..CardSettings::plain()
        };
        assert_eq!(plain, wanted);
        assert!(!FitPolicy::Fixed.card(&card).thresholds.adaptive);
    }

    #[test]
    fn wrong_settings_are_named() {
        let mut wrong = settings();
        wrong.kept = 2.0;
        let error = Fit::new(wrong).unwrap_err().to_string();
        assert_eq!(error, "kept is 2: write 0.01 to 1");
        let mut wrong = settings();
        wrong.policies.clear();
        assert!(Fit::new(wrong).is_err());
    }
}
