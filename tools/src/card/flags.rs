//! The flags of a simulation's settings. A setting that no flag names is that of `--settings`, or
//! of the preset.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use farcore_card::policy::PolicyName;
use farcore_card::simulator::{
    Arrival, CardSettings, Outcome, Simulation, SimulationSettings, Treatment,
};
use farcore_card::trace::{Recording, TraceLimits};
use farcore_card::workload::{Pattern, WorkloadSettings};

use super::number::{real, whole};
use crate::given::Given;

/// Longest file of settings; an outcome with a series of 10 000 points is shorter.
const SETTINGS_BYTES_MAX: u64 = 64 << 20;
const TRACE_ONLY: [&str; 12] = [
    "pattern",
    "exponent",
    "period",
    "special",
    "queue_pairs",
    "regions",
    "completion_queues",
    "domains",
    "relaxed_share",
    "strict_share",
    "foreign_share",
    "seed",
];

/// A card to start from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Preset {
    /// Three tiers: the card, CXL, the host.
    Tiers,
    /// A card as they are sold: every miss fills it, and the host is behind it.
    Plain,
}

/// How queue pairs and regions are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum PatternName {
    /// All alike.
    Uniform,
    /// By popularity.
    Zipf,
    /// By popularity that changes.
    Shifting,
    /// By popularity, with bursts of new connections.
    Storm,
    /// By popularity, with scans.
    Scan,
}

/// What happens to a message that meets a migration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum TreatmentName {
    /// It waits.
    Wait,
    /// It goes on with the old copy.
    Optimistic,
}

/// Flags of settings.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct SettingFlags {
    /// The card to start from [default: tiers]
    #[arg(long, value_name = "NAME")]
    pub(super) preset: Option<Preset>,
    /// Settings as JSON, or the output of `card run --json`, whose settings they are
    #[arg(long, value_name = "FILE", conflicts_with = "preset")]
    pub(super) settings: Option<PathBuf>,
    #[command(flatten)]
    workload: WorkloadFlags,
    #[command(flatten)]
    card: CardFlags,
    /// Messages in flight [default: 512]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    window: Option<u32>,
    /// Messages a second that arrive, whatever the card can do
    #[arg(long, value_name = "N", conflicts_with = "window", value_parser = real)]
    rate: Option<f64>,
    /// Messages that are counted [default: 2000000]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    messages: Option<u64>,
    /// Messages before them, until the tiers are filled [default: 200000]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    warmup: Option<u64>,
    /// Points of the series [default: 100]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    points: Option<u32>,
}

/// Flags of the workload.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct WorkloadFlags {
    /// How queue pairs and regions are drawn [default: zipf]
    #[arg(long, value_name = "NAME")]
    pattern: Option<PatternName>,
    /// Exponent of the popularity, 0 to 4 [default: 1]
    #[arg(long, value_name = "X", value_parser = real)]
    exponent: Option<f64>,
    /// Messages of a period of shifting, storm and scan [default: 20000]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    period: Option<u64>,
    /// Messages of the burst or the scan at the end of a period [default: 4000]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    special: Option<u64>,
    /// Queue pairs, 0 for none [default: 1024]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    queue_pairs: Option<u32>,
    /// Regions, 0 for none [default: 1024]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    regions: Option<u32>,
    /// Completion queues, 0 for none [default: 64]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    completion_queues: Option<u32>,
    /// Protection domains [default: 4]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    domains: Option<u32>,
    /// Share of messages that change relaxed fields, such as packet numbers [default: 0.5]
    #[arg(long, value_name = "X", value_parser = real)]
    relaxed_share: Option<f64>,
    /// Share of messages that change strict fields, such as keys [default: 0.001]
    #[arg(long, value_name = "X", value_parser = real)]
    strict_share: Option<f64>,
    /// Share of messages without permission [default: 0]
    #[arg(long, value_name = "X", value_parser = real)]
    foreign_share: Option<f64>,
    /// The seed [default: 1]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    seed: Option<u64>,
}

/// Flags of the card.
#[derive(Clone, Debug, Default, Args)]
struct CardFlags {
    /// Messages a second that the card can start [default: 100000000]
    #[arg(long, value_name = "N", value_parser = real)]
    card_rate: Option<f64>,
    /// Tokens that the card holds, 16 to 65536 [default: 4096]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    card_entries: Option<u32>,
    /// Which token leaves the full card: lru, fifo, lfu, clock, sieve, s3-fifo, hybrid
    #[arg(long, value_name = "NAME")]
    policy: Option<PolicyName>,
    /// Weight of recency in the policy hybrid, in uses [default: 2]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    alpha: Option<u32>,
    /// Queue pairs, from the first, whose tokens stay on the card [default: 0]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    pinned: Option<u32>,
    /// Tokens in the staging area [default: 512]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    staging_entries: Option<u32>,
    /// Pages of 4 KiB behind CXL, 0 for none [default: 1024]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    cxl_pages: Option<u32>,
    /// Latency of the CXL link in nanoseconds [default: 250]
    #[arg(long, value_name = "NS", value_parser = real)]
    cxl_latency: Option<f64>,
    /// Latency of the link to the host in nanoseconds [default: 850]
    #[arg(long, value_name = "NS", value_parser = real)]
    host_latency: Option<f64>,
    /// Transfers in flight on the link to the host [default: 8]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    host_transfers: Option<u32>,
    /// Share of the host's memory and of the link to it that others use, 0 to 0.95 [default: 0]
    #[arg(long, value_name = "X", value_parser = real)]
    host_busy: Option<f64>,
    /// Bytes that the host sends for a token [default: 375]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    context_bytes: Option<u32>,
    /// Uses in a window that bring a token to the CXL tier [default: 16]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    to_cxl: Option<u32>,
    /// Uses in a window that bring a token to the card [default: 128]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    to_card: Option<u32>,
    /// The window of these in nanoseconds [default: 1000000]
    #[arg(long, value_name = "NS", value_parser = whole::<u64>)]
    window_ns: Option<u64>,
    /// Let these follow the load of links and host and the hit ratio [default: true, plain: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    adaptive: Option<bool>,
    /// What a message does that meets a migration [default: optimistic]
    #[arg(long, value_name = "NAME")]
    treatment: Option<TreatmentName>,
    /// Most tokens of a batch, 1 to 256 [default: 256]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    batch_max: Option<u32>,
}

/// Sets a setting that a flag names.
fn set<T: Copy>(setting: &mut T, flag: Option<T>) {
    if let Some(value) = flag {
        *setting = value;
    }
}

impl Preset {
    pub(super) fn card(self) -> CardSettings {
        match self {
            Self::Tiers => CardSettings::default(),
            Self::Plain => CardSettings::plain(),
        }
    }
}

impl SettingFlags {
    /// The settings.
    ///
    /// # Errors
    /// A flag is wrong, or has no effect.
    pub(super) fn settings(&self) -> Result<SimulationSettings> {
        let mut settings = self.start()?;
        self.apply(&mut settings)?;
        self.workload.refuse_idle(&settings.workload)?;
        Ok(settings)
    }

    /// The settings before the flags that change some: of the file, or the preset.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn start(&self) -> Result<SimulationSettings> {
        match &self.settings {
            Some(path) => read_settings(path),
            None => Ok(SimulationSettings {
                card: self.preset.map_or_else(CardSettings::default, Preset::card),
                ..SimulationSettings::default()
            }),
        }
    }

    /// The flag that says how messages arrive, if one does.
    pub(super) fn arrival(&self) -> Option<&'static str> {
        let window = self.window.map(|_| "window");
        window.or(self.rate.map(|_| "rate"))
    }

    /// Refuses flags that have no effect on a simulation of these settings.
    ///
    /// # Errors
    /// One was typed.
    pub(super) fn refuse_idle(settings: &SimulationSettings, given: &Given) -> Result<()> {
        for (flag, why) in idle(settings) {
            given.refuse(&[flag], &why)?;
        }
        Ok(())
    }

    /// Changes the settings that flags name.
    ///
    /// # Errors
    /// A setting is wrong.
    pub(super) fn apply(&self, settings: &mut SimulationSettings) -> Result<()> {
        self.workload.apply(&mut settings.workload)?;
        self.card.apply(&mut settings.card);
        if let Some(window) = self.window {
            settings.arrival = Arrival::Closed { window };
        }
        if let Some(messages_s) = self.rate {
            settings.arrival = Arrival::Open { messages_s };
        }
        set(&mut settings.messages, self.messages);
        set(&mut settings.warmup, self.warmup);
        set(&mut settings.points, self.points);
        settings.validate().map_err(flagged)
    }
}

/// The flags without effect on a simulation of these settings, and why.
pub(super) fn idle(settings: &SimulationSettings) -> Vec<(&'static str, String)> {
    let card = &settings.card;
    let mut idle = Vec::new();
    if card.policy != PolicyName::Hybrid {
        idle.push(("alpha", format!("with --policy {}", card.policy.name())));
    }
    if card.cxl_pages == 0 {
        let why = "without pages behind CXL (--cxl-pages)";
        idle.extend(["cxl_latency", "to_cxl", "batch_max"].map(|flag| (flag, why.to_owned())));
    }
    idle.extend(idle_of_pattern(&settings.workload.pattern));
    idle
}

/// The flags that have no effect on accesses of a pattern, and why.
fn idle_of_pattern(pattern: &Pattern) -> impl Iterator<Item = (&'static str, String)> {
    let why = format!("with --pattern {}", pattern.name());
    let (exponent, period, special) = parts(pattern);
    [
        ("exponent", exponent.is_some()),
        ("period", period.is_some()),
        ("special", special.is_some()),
    ]
    .into_iter()
    .filter(|(_, is_used)| !is_used)
    .map(move |(flag, _)| (flag, why.clone()))
}

impl WorkloadFlags {
    /// Refuses flags that have no effect on this workload.
    ///
    /// # Errors
    /// There is one.
    pub(super) fn refuse_idle(&self, settings: &WorkloadSettings) -> Result<()> {
        let given = [
            ("exponent", self.exponent.is_some()),
            ("period", self.period.is_some()),
            ("special", self.special.is_some()),
        ];
        let given = given.into_iter().filter(|(_, is_given)| *is_given);
        let given = Given::these(given.map(|(flag, _)| flag));
        for (flag, why) in idle_of_pattern(&settings.pattern) {
            given.refuse(&[flag], &why)?;
        }
        Ok(())
    }

    /// Changes the settings that flags name.
    ///
    /// # Errors
    /// A setting is wrong.
    pub(super) fn apply(&self, settings: &mut WorkloadSettings) -> Result<()> {
        self.apply_pattern(settings);
        let population = &mut settings.population;
        set(&mut population.queue_pairs, self.queue_pairs);
        set(&mut population.regions, self.regions);
        set(&mut population.completion_queues, self.completion_queues);
        set(&mut population.domains, self.domains);
        set(&mut settings.relaxed_share, self.relaxed_share);
        set(&mut settings.strict_share, self.strict_share);
        set(&mut settings.foreign_share, self.foreign_share);
        set(&mut settings.seed, self.seed);
        settings.validate().map_err(flagged)
    }

    fn apply_pattern(&self, settings: &mut WorkloadSettings) {
        let name = self.pattern.unwrap_or_else(|| named(&settings.pattern));
        let old = parts(&settings.pattern);
        let exponent = self.exponent.unwrap_or(old.0.unwrap_or(1.0));
        let period = self.period.unwrap_or(old.1.unwrap_or(20_000));
        let special = self.special.unwrap_or(old.2.unwrap_or(period / 5));
        settings.pattern = match name {
            PatternName::Uniform => Pattern::Uniform,
            PatternName::Zipf => Pattern::Zipf { exponent },
            PatternName::Shifting => Pattern::Shifting { exponent, period },
            PatternName::Storm => Pattern::Storm {
                exponent,
                period,
                burst: special,
            },
            PatternName::Scan => Pattern::Scan {
                exponent,
                period,
                length: special,
            },
        };
    }
}

fn named(pattern: &Pattern) -> PatternName {
    match pattern {
        Pattern::Uniform => PatternName::Uniform,
        Pattern::Zipf { .. } => PatternName::Zipf,
        Pattern::Shifting { .. } => PatternName::Shifting,
        Pattern::Storm { .. } => PatternName::Storm,
        Pattern::Scan { .. } => PatternName::Scan,
    }
}

/// Exponent, period and special messages of a pattern that has them.
fn parts(pattern: &Pattern) -> (Option<f64>, Option<u64>, Option<u64>) {
    match *pattern {
        Pattern::Uniform => (None, None, None),
        Pattern::Zipf { exponent } => (Some(exponent), None, None),
        Pattern::Shifting { exponent, period } => (Some(exponent), Some(period), None),
        Pattern::Storm {
            exponent,
            period,
            burst,
        } => (Some(exponent), Some(period), Some(burst)),
        Pattern::Scan {
            exponent,
            period,
            length,
        } => (Some(exponent), Some(period), Some(length)),
    }
}

impl CardFlags {
    fn apply(&self, card: &mut CardSettings) {
        set(&mut card.messages_s, self.card_rate);
        set(&mut card.card_entries, self.card_entries);
        set(&mut card.policy, self.policy);
        set(&mut card.weights.alpha, self.alpha);
        set(&mut card.pinned, self.pinned);
        set(&mut card.staging_entries, self.staging_entries);
        set(&mut card.cxl_pages, self.cxl_pages);
        set(&mut card.cxl.latency_ns, self.cxl_latency);
        set(&mut card.host.latency_ns, self.host_latency);
        set(&mut card.host.transfers_max, self.host_transfers);
        set(&mut card.host_busy, self.host_busy);
        set(&mut card.context_bytes, self.context_bytes);
        set(&mut card.thresholds.to_cxl, self.to_cxl);
        set(&mut card.thresholds.to_card, self.to_card);
        set(&mut card.thresholds.window_ns, self.window_ns);
        set(&mut card.thresholds.adaptive, self.adaptive);
        let treatment = self.treatment.map(|name| match name {
            TreatmentName::Wait => Treatment::Wait,
            TreatmentName::Optimistic => Treatment::Optimistic,
        });
        set(&mut card.treatment, treatment);
        if let Some(max) = self.batch_max {
            card.batch.max = max;
            card.batch.min = card.batch.min.min(max);
        }
    }
}

/// Settings and the flags that set them, where the names differ.
const FLAGS: [(&str, &str); 7] = [
    ("arrival: the trace ", "recorded-times: the trace "),
    ("messages-s ", "card-rate "),
    ("cxl-latency-ns ", "cxl-latency "),
    ("host-latency-ns ", "host-latency "),
    ("burst ", "special "),
    ("length ", "special "),
    (
        "queue-pairs + regions + completion-queues is ",
        "queue-pairs, --regions and --completion-queues together are ",
    ),
];

/// An error of a setting, worded by its flag.
pub(super) fn flagged(error: impl std::fmt::Display) -> anyhow::Error {
    let text = error.to_string();
    let named = FLAGS.iter().find_map(|(setting, flag)| {
        let rest = text.strip_prefix(setting)?;
        Some(format!("{flag}{rest}"))
    });
    anyhow!("--{}", named.unwrap_or(text))
}

fn read_settings(path: &Path) -> Result<SimulationSettings> {
    let name = || format!("--settings {}", path.display());
    let mut text = String::new();
    let file = File::open(path).with_context(name)?;
    let read = file.take(SETTINGS_BYTES_MAX + 1).read_to_string(&mut text);
    read.with_context(name)?;
    if text.len() as u64 > SETTINGS_BYTES_MAX {
        bail!("{} is longer than {SETTINGS_BYTES_MAX} bytes", name());
    }
    if let Ok(outcome) = serde_json::from_str::<Outcome>(&text) {
        return Ok(outcome.settings);
    }
    serde_json::from_str(&text).with_context(|| format!("{} is no JSON of settings", name()))
}

/// The flags of a recorded workload.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct TraceFlags {
    /// Use the messages of this trace; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
    /// Most messages that are read [default: 20000000]
    #[arg(long, value_name = "N", requires = "trace", value_parser = whole::<usize>)]
    limit: Option<usize>,
    /// Let messages arrive at their recorded times
    #[arg(long, requires = "trace", conflicts_with_all = ["window", "rate"])]
    recorded_times: bool,
}

impl TraceFlags {
    /// Refuses flags that have no effect beside a trace.
    ///
    /// # Errors
    /// One was given.
    pub(super) fn refuse_idle(&self, given: &Given) -> Result<()> {
        if self.trace.is_some() {
            given.refuse(&TRACE_ONLY, "with --trace")?;
        }
        if self.recorded_times {
            given.refuse(&["window", "rate"], "with --recorded-times")?;
        }
        Ok(())
    }

    /// Reads the trace, if there is one.
    ///
    /// # Errors
    /// It cannot be read, or a flag has no effect beside it.
    pub(super) fn read(
        &self,
        settings: &mut SimulationSettings,
        given: &Given,
    ) -> Result<Option<Arc<Recording>>> {
        let Some(path) = &self.trace else {
            return Ok(None);
        };
        self.refuse_idle(given)?;
        if self.recorded_times {
            settings.arrival = Arrival::Recorded;
        }
        let recording = read_trace(Some("--trace"), path, self.limit)?;
        Ok(Some(Arc::new(recording)))
    }
}

/// Reads a trace from a file, which a flag may name, or from standard input.
///
/// # Errors
/// It cannot be read, or is no trace.
pub(super) fn read_trace(
    flag: Option<&str>,
    path: &Path,
    limit: Option<usize>,
) -> Result<Recording> {
    if limit == Some(0) {
        bail!("--limit is 0: write 1 or more");
    }
    let mut limits = TraceLimits::default();
    set(&mut limits.messages, limit);
    let name = || format!("{} {}", flag.unwrap_or("the trace"), path.display());
    let recording = if path == Path::new("-") {
        Recording::read(std::io::stdin().lock(), limits)
    } else {
        let file = File::open(path).with_context(name)?;
        Recording::read(BufReader::new(file), limits)
    };
    recording.with_context(name)
}

/// A simulation of settings and, if there is one, a trace.
///
/// # Errors
/// A setting is wrong.
pub(super) fn simulation(
    settings: SimulationSettings,
    recording: Option<&Arc<Recording>>,
) -> Result<Simulation> {
    let simulation = match recording {
        Some(recording) => Simulation::of_recording(settings, Arc::clone(recording)),
        None => Simulation::new(settings),
    };
    simulation.map_err(flagged)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        flags: SettingFlags,
    }

    fn settings(line: &str) -> Result<SimulationSettings> {
        let words = std::iter::once("card").chain(line.split_whitespace());
        Line::try_parse_from(words)?.flags.settings()
    }

    #[test]
    fn flags_change_the_settings_that_they_name() {
        let base = settings("").unwrap();
        assert_eq!(base, SimulationSettings::default());
        let plain = settings("--preset plain --policy sieve --queue-pairs 7 --adaptive").unwrap();
        assert_eq!(plain.card.policy, PolicyName::Sieve);
        assert_eq!(
            (plain.card.cxl_pages, plain.workload.population.queue_pairs),
            (0, 7)
        );
        assert!(plain.card.thresholds.adaptive);
        let storm = settings("--pattern storm --period 100").unwrap();
        let wanted = Pattern::Storm {
            exponent: 1.0,
            period: 100,
            burst: 20,
        };
        assert_eq!(storm.workload.pattern, wanted);
        let open = settings("--rate 5e6 --adaptive false").unwrap();
        assert_eq!(open.arrival, Arrival::Open { messages_s: 5e6 });
    }

    #[test]
    fn errors_name_flag_value_and_limits() {
        for (line, message) in [
            ("--card-entries 3", "--card-entries is 3: write 16 to 65536"),
            ("--card-rate 1", "--card-rate is 1: write 1000 to"),
            (
                "--pattern uniform --exponent 1",
                "--exponent has no effect with --pattern uniform",
            ),
            ("--period 9", "--period has no effect with --pattern zipf"),
            (
                "--pattern scan --period 10 --special 11",
                "--special is 11: write 0 to 10",
            ),
            (
                "--cxl-latency 1e9",
                "--cxl-latency is 1000000000: write 0 to 1000000",
            ),
            (
                "--queue-pairs 0 --regions 0 --completion-queues 0",
                "--completion-queues together are 0: write 1 to",
            ),
            ("--host-busy 1", "--host-busy is 1: write 0 to 0.95"),
            ("--policy arc", "`arc` is no policy"),
            ("--policy belady", "--one-tier"),
            ("--settings /nowhere", "--settings /nowhere"),
        ] {
            let error = format!("{:#}", settings(line).unwrap_err());
            assert!(error.contains(message), "{line}: {error}");
        }
    }

    #[test]
    fn settings_come_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings.json");
        std::fs::write(&path, r#"{"workload":{"seed":9},"messages":77}"#).unwrap();
        let read = settings(&format!("--settings {} --warmup 5", path.display())).unwrap();
        assert_eq!((read.workload.seed, read.messages, read.warmup), (9, 77, 5));
        std::fs::write(&path, r#"{"mesages":77}"#).unwrap();
        let error = settings(&format!("--settings {}", path.display())).unwrap_err();
        assert!(format!("{error:#}").contains("mesages"), "{error:#}");
    }
}
