//! `farcore card fit`: how many queue pairs or regions fit, with each of some policies, and why no
//! more. [`Fit`] is the search.
//!
//! - I1: after a signal, what is known until then is printed and written, marked partial.

use std::io::{self, IsTerminal};
use std::num::NonZero;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use farcore_card::settings::SettingError;
use farcore_card::simulator::{Fit, FitCurve, FitObject, FitPoint, FitPolicy, FitSettings};
use farcore_command::origin::Origin;
use farcore_command::outputs::{complain, print};
use farcore_command::stop;
use indicatif::{ProgressBar, ProgressStyle};

use super::columns::Sheet;
use super::file::FileFlags;
use super::flags::{SettingFlags, flagged};
use super::number::whole;
use super::plot;
use crate::given::Given;
use crate::text::grouped;

/// What there may be more of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
enum ObjectName {
    /// Queue pairs.
    #[default]
    QueuePairs,
    /// Regions.
    Regions,
}

/// Flags of `card fit`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What there may be more of
    #[arg(long, value_name = "NAME", default_value = "queue-pairs")]
    of: ObjectName,
    /// The policies to compare: adaptive and fixed thresholds of three tiers, or what a plain card
    /// evicts by: lru, fifo, lfu, clock, sieve, s3-fifo, hybrid [default: adaptive,fixed,lru]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    policies: Option<Vec<FitPolicy>>,
    /// The share of the card's rate that is to be kept
    #[arg(long, value_name = "X", default_value_t = 0.95)]
    keep: f64,
    /// Simulations of each point, with seeds that count up
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeats: u32,
    /// Most messages of a simulation, which goes on until it is steady [default: 16 times
    /// --messages, which are 1000000 here]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    messages_max: Option<u64>,
    /// Simulations at one time [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    jobs: Option<u16>,
    #[command(flatten)]
    settings: SettingFlags,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: FileFlags,
}

/// Runs the command.
///
/// # Errors
/// A flag is wrong, or an output cannot be written.
pub(crate) fn run(arguments: &Arguments, given: &Given) -> Result<ExitCode> {
    let why = "with fit, which varies it";
    let (object, varied) = match arguments.of {
        ObjectName::QueuePairs => (FitObject::QueuePairs, "queue_pairs"),
        ObjectName::Regions => (FitObject::Regions, "regions"),
    };
    given.refuse(&[varied], why)?;
    given.refuse(&["rate"], "with fit, which finds it: use --keep")?;
    given.refuse(&["points"], "with fit, which has no series")?;
    given.refuse(
        &["adaptive", "preset", "policy"],
        "with fit: use --policies",
    )?;
    let defaults = FitSettings::default();
    let mut base = arguments.settings.settings()?;
    if given.refuse(&["messages"], "").is_ok() && arguments.settings.settings.is_none() {
        base.messages = defaults.base.messages;
    }
    let longest = FitSettings::messages_max_of(base.messages);
    let settings = FitSettings {
        base,
        object,
        policies: arguments.policies.clone().unwrap_or(defaults.policies),
        kept: arguments.keep,
        repeats: arguments.repeats,
        messages_max: arguments.messages_max.unwrap_or(longest),
    };
    let fit = Fit::new(settings).map_err(named)?;
    let files = arguments.files.open()?;
    stop::forward_signals().context("signals cannot be caught")?;
    let fit = searched(fit, arguments.jobs)?;
    let mut origin = Origin::here();
    origin.end(None);
    let curves = fit.curves();
    let ended = stop::status().map_or(ExitCode::SUCCESS, ExitCode::from);
    if let Some(note) = origin.note() {
        if curves.iter().all(|curve| curve.points.is_empty()) {
            complain("farcore card fit: a signal ended it before the first simulation");
            return Ok(ended);
        }
        complain(format_args!("farcore card fit: {note}"));
    }
    files.write(&sheet(&curves), || plot::fit(object.words(), &curves))?;
    if arguments.json {
        let reasons: Vec<String> = curves
            .iter()
            .map(|curve| curve.reason(fit.settings()))
            .collect();
        let answer = serde_json::json!({
            "origin": origin, "settings": fit.settings(),
            "target_messages_s": fit.settings().target(),
            "curves": curves, "reasons": reasons
        });
        print(serde_json::to_string_pretty(&answer)?)?;
    } else {
        print(text(&fit, &curves))?;
    }
    Ok(ended)
}

/// An error of a setting, worded by its flag.
fn named(error: SettingError) -> anyhow::Error {
    let SettingError::Range {
        name: "kept",
        value,
        min,
        max,
    } = error
    else {
        return flagged(error);
    };
    anyhow::anyhow!("--keep is {value}: write {min} to {max}")
}

/// Runs the simulations of a search, until it ends or a signal comes.
fn searched(fit: Fit, jobs: Option<u16>) -> Result<Fit> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let bar = io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} {eta}") {
            bar.set_style(style);
        }
        bar
    });
    let observe = |fit: &Fit| {
        if let Some(bar) = &bar {
            let (done, all) = fit.progress();
            bar.set_length(all);
            bar.set_position(done);
        }
    };
    let threads = jobs.map_or(cores, usize::from);
    let searched = fit.search(threads, stop::is_requested, observe);
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    searched.map_err(named)
}

/// A figure of a point.
type Figure = (&'static str, fn(&FitPoint) -> f64);

const FIGURES: [Figure; 13] = [
    ("count", |one| f64::from(one.count)),
    ("messages_s", |one| one.messages_s.mean),
    ("messages_s_low", |one| one.messages_s.low),
    ("messages_s_high", |one| one.messages_s.high),
    ("hit_ratio", |one| one.hit_ratio),
    ("p99_ns", |one| one.p99_ns),
    ("cxl_share", |one| one.cxl_share),
    ("host_share", |one| one.host_share),
    ("cxl_load", |one| one.cxl_load),
    ("host_load", |one| one.host_load),
    ("card_full", |one| one.card_full),
    ("cxl_full", |one| one.cxl_full),
    ("steady", |one| f64::from(u8::from(one.is_steady))),
];

fn sheet(curves: &[FitCurve]) -> Sheet {
    let all = || {
        let points = |curve: &'_ FitCurve| {
            let policy = curve.policy;
            let points: Vec<_> = curve.points.iter().map(|one| (policy, *one)).collect();
            points
        };
        curves.iter().flat_map(points)
    };
    let column = |(name, figure): Figure| {
        let values = all().map(|(_, point)| figure(&point));
        (name.to_owned(), values.collect())
    };
    Sheet {
        texts: vec![(
            "policy".to_owned(),
            all().map(|(policy, _)| policy.to_string()).collect(),
        )],
        figures: FIGURES.map(column).to_vec(),
    }
}

/// The rate of a point in millions, with half of its interval; a star if it is not steady.
fn rate(point: &FitPoint) -> String {
    let estimate = point.messages_s;
    let (mean, half) = (estimate.mean / 1e6, (estimate.high - estimate.mean) / 1e6);
    let star = if point.is_steady { "" } else { "*" };
    if estimate.runs == 1 {
        format!("{mean:.1}{star}")
    } else {
        format!("{mean:.1} \u{b1} {half:.1}{star}")
    }
}

fn text(fit: &Fit, curves: &[FitCurve]) -> String {
    let things = fit.settings().object.words();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let names = curves.iter().map(|curve| curve.policy.to_string());
    table.set_header(std::iter::once(things.to_owned()).chain(names));
    let mut counts: Vec<u32> = curves
        .iter()
        .flat_map(|curve| curve.points.iter().map(|point| point.count))
        .collect();
    counts.sort_unstable();
    counts.dedup();
    for count in counts {
        let cells = curves.iter().map(|curve| {
            let point = curve.points.iter().find(|point| point.count == count);
            point.map_or_else(String::new, rate)
        });
        let head = std::iter::once(grouped(u64::from(count)));
        table.add_row(head.chain(cells));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut lines = vec![
        format!("M messages a second, by {things} (* not steady yet):"),
        table.trim_fmt(),
        String::new(),
    ];
    let target = fit.settings().target() / 1e6;
    for curve in curves.iter().filter(|curve| !curve.points.is_empty()) {
        let (policy, answer) = (curve.policy, curve.answer);
        let sure = match answer.surely == answer.fits {
            true => String::new(),
            false => format!(", surely {}", grouped(u64::from(answer.surely))),
        };
        lines.push(format!(
            "{policy}: {} {things} keep {target:.1} M/s{sure}: {}.",
            grouped(u64::from(answer.fits)),
            curve.reason(fit.settings())
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use farcore_card::policy::PolicyName;
    use farcore_card::workload::Pattern;

    use super::*;

    #[test]
    fn a_search_on_threads_ends_with_curves_and_reasons() {
        let mut settings = FitSettings {
            policies: vec![FitPolicy::Plain(PolicyName::Lru), FitPolicy::Fixed],
            repeats: 1,
            messages_max: 2_000,
            ..FitSettings::default()
        };
        settings.base.workload.pattern = Pattern::Uniform;
        (settings.base.messages, settings.base.warmup) = (2_000, 6_000);
        let fit = searched(Fit::new(settings).unwrap(), Some(2)).unwrap();
        let curves = fit.curves();
        assert!(fit.is_complete() && curves.len() == 2);
        let text = text(&fit, &curves);
        for words in ["lru: ", "fixed: ", " queue pairs keep 95.0 M/s", "16,384"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let sheet = sheet(&curves);
        let points: usize = curves.iter().map(|curve| curve.points.len()).sum();
        assert_eq!(sheet.rows(), points);
        let svg = plot::fit("queue pairs", &curves).unwrap();
        assert!(svg.contains("lru") && svg.contains("Messages, M/s"));
    }
}
