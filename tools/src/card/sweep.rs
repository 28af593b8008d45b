//! `farcore card sweep`: simulations with every combination of some settings, several times each
//! with other seeds, on all cores.
//!
//! - I1: after a signal, the combinations whose simulations are all complete are printed and
//!   written, marked partial.
//! - I2: a flag or a varied setting that has no effect in any combination is refused. One that has
//!   an effect in some is not.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::num::NonZero;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use clap::error::ErrorKind;
use clap::{Args, Parser};
use comfy_table::{CellAlignment, Table, presets};
use farcore_card::simulator::{Outcome, SimulationSettings};
use farcore_card::trace::Recording;
use farcore_command::origin::Origin;
use farcore_command::outputs::{complain, print};
use farcore_command::plain;
use farcore_command::stop;
use farcore_tuning::MeanEstimate;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::columns::{OUTCOME, Sheet};
use super::file::FileFlags;
use super::flags::{SettingFlags, TraceFlags, idle, simulation};
use super::plot;
use crate::given::Given;

/// Most simulations of a sweep.
const RUNS_MAX: usize = 100_000;

/// Flags of `card sweep`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A setting and its values: the name of a flag below, e.g. queue-pairs=100,1000,10000. Can be
    /// repeated: every combination is simulated
    #[arg(long, value_name = "NAME=VALUES", required = true)]
    vary: Vec<String>,
    /// Simulations of each combination, with seeds that count up
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    repeats: u64,
    /// Simulations at one time [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    jobs: Option<u16>,
    #[command(flatten)]
    settings: SettingFlags,
    #[command(flatten)]
    trace: TraceFlags,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: FileFlags,
}

/// A setting and its values.
#[derive(Clone, PartialEq, Debug)]
struct Axis {
    name: String,
    values: Vec<String>,
}

/// A combination of values, and the figures of its simulations.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) values: Vec<String>,
    pub(super) figures: BTreeMap<&'static str, MeanEstimate>,
}

/// Parses the flags of one combination.
#[derive(Debug, Parser)]
#[command(name = "card sweep", no_binary_name = true)]
struct Combination {
    #[command(flatten)]
    flags: SettingFlags,
}

fn axis(text: &str) -> Result<Axis> {
    let parts = text.split_once('=');
    let (name, values) =
        parts.ok_or_else(|| anyhow!("--vary {text}: write e.g. queue-pairs=100,1000"))?;
    let name = name.trim().trim_start_matches("--");
    let values: Vec<String> = values.split(',').map(|one| one.trim().to_owned()).collect();
    if name.is_empty() || values.iter().any(String::is_empty) {
        bail!("--vary {text}: write e.g. queue-pairs=100,1000");
    }
    if ["settings", "seed"].contains(&name) {
        bail!("--vary {text}: {name} cannot vary; --repeats takes other seeds");
    }
    Ok(Axis {
        name: name.replace('_', "-"),
        values,
    })
}

/// Every combination of values, the last axis fastest.
fn combinations(axes: &[Axis]) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    for axis in axes {
        let extend = |one: Vec<String>| {
            let values = axis.values.iter();
            values.map(move |value| {
                let mut more = one.clone();
                more.push(value.clone());
                more
            })
        };
        all = all.into_iter().flat_map(extend).collect();
    }
    all
}

/// The settings of a combination: those of `start`, changed by the flags and, instead of them, by
/// its values. A preset among the values comes before the flags, as it does on a command line.
fn settings(
    flags: &SettingFlags,
    start: &SimulationSettings,
    axes: &[Axis],
    values: &[String],
) -> Result<SimulationSettings> {
    let words = axes
        .iter()
        .zip(values)
        .flat_map(|(axis, value)| [format!("--{}", axis.name), value.clone()]);
    let is_varied = |name: &str| axes.iter().any(|axis| axis.name == name);
    if let Some(flag) = flags.arrival() {
        let others = ["window", "rate"].into_iter().filter(|name| *name != flag);
        if let Some(varied) = others.into_iter().find(|name| is_varied(name)) {
            bail!("--vary {varied} and --{flag} cannot be used together: omit one");
        }
    }
    let mut made = Combination {
        flags: flags.clone(),
    };
    made.try_update_from(words).map_err(|error| {
        if error.kind() == ErrorKind::UnknownArgument {
            let names: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
            return anyhow!(
                "--vary {}: there is no such setting; write the name of a flag below it in --help",
                names.join(", ")
            );
        }
        let text = plain(error).to_string();
        let line = text.lines().next().unwrap_or_default();
        anyhow!("--vary: {}", line.trim_start_matches("error: "))
    })?;
    let mut settings = start.clone();
    if let Some(preset) = made.flags.preset.filter(|_| is_varied("preset")) {
        if made.flags.settings.is_some() {
            bail!("--vary preset has no effect with --settings, which name the card: omit one");
        }
        settings.card = preset.card();
    }
    made.flags.apply(&mut settings).context("--vary")?;
    Ok(settings)
}

/// Refuses typed flags and varied settings without effect in any of the combinations.
fn refuse_idle(all: &[SimulationSettings], given: &Given, varied: &Given) -> Result<()> {
    let Some((first, others)) = all.split_first() else {
        return Ok(());
    };
    let mut common = idle(first);
    for other in others {
        let other = idle(other);
        common.retain_mut(|(flag, why)| {
            let found = other.iter().find(|found| found.0 == *flag);
            if found.is_some_and(|found| found.1 != *why) {
                "in any combination".clone_into(why);
            }
            found.is_some()
        });
    }
    for (flag, why) in common {
        given.refuse(&[flag], &why)?;
        varied.refuse(&[flag], &why).context("--vary")?;
    }
    Ok(())
}

/// Each of the settings with seeds that count up.
fn repeated(all: &[SimulationSettings], repeats: u64) -> Vec<SimulationSettings> {
    let mut plans = Vec::new();
    for settings in all {
        for repeat in 0..repeats {
            let mut settings = settings.clone();
            settings.workload.seed = settings.workload.seed.wrapping_add(repeat);
            plans.push(settings);
        }
    }
    plans
}

/// Runs the command.
///
/// # Errors
/// A flag is wrong, the trace cannot be read, or an output cannot be written.
pub(crate) fn run(arguments: &Arguments, given: &Given) -> Result<ExitCode> {
    let axes: Vec<Axis> = arguments
        .vary
        .iter()
        .map(|text| axis(text))
        .collect::<Result<_>>()?;
    let varied = Given::these(axes.iter().map(|axis| &axis.name));
    for Axis { name, .. } in &axes {
        let why = format!("with --vary {name}");
        given.refuse(&[name.replace('-', "_")], &why)?;
    }
    let mut start = arguments.settings.start()?;
    let mut base = start.clone();
    arguments.settings.apply(&mut base)?;
    let why = "with sweep, which has no series";
    given.refuse(&["points"], why)?;
    varied.refuse(&["points"], why).context("--vary")?;
    arguments.trace.refuse_idle(&varied).context("--vary")?;
    let files = arguments.files.open()?;
    let recording = arguments.trace.read(&mut base, given)?;
    // A series would only take memory.
    base.points = 1;
    (start.arrival, start.points) = (base.arrival, base.points);
    if recording.is_some() && given.refuse(&["repeats"], "").is_err() && arguments.repeats > 1 {
        bail!(
            "--repeats has no effect with --trace, whose messages are the same each time: omit it"
        );
    }
    let repeats = if recording.is_some() {
        1
    } else {
        arguments.repeats
    };
    let combinations = combinations(&axes);
    if combinations.len().saturating_mul(usize::try_from(repeats)?) > RUNS_MAX {
        bail!(
            "{} combinations, {repeats} times each, are more than {RUNS_MAX} simulations: vary less",
            combinations.len()
        );
    }
    let settings = |values: &Vec<String>| settings(&arguments.settings, &start, &axes, values);
    let all: Vec<_> = combinations.iter().map(settings).collect::<Result<_>>()?;
    refuse_idle(&all, given, &varied)?;
    let plans = repeated(&all, repeats);
    stop::forward_signals().context("signals cannot be caught")?;
    let outcomes = simulate(plans, recording.as_ref(), arguments.jobs)?;
    let mut origin = Origin::here();
    origin.end(None);
    let rows = rows(combinations, outcomes, usize::try_from(repeats)?);
    let ended = stop::status().map_or(ExitCode::SUCCESS, ExitCode::from);
    if let Some(note) = origin.note() {
        if rows.is_empty() {
            complain("farcore card sweep: a signal ended it before the first combination");
            return Ok(ended);
        }
        complain(format_args!("farcore card sweep: {note}"));
    }
    let names: Vec<String> = axes.into_iter().map(|axis| axis.name).collect();
    files.write(&sheet(&names, &rows), || plot::sweep(&names, &rows))?;
    if arguments.json {
        let answer = serde_json::json!({
            "origin": origin, "names": names, "settings": base, "repeats": repeats, "rows": rows
        });
        print(serde_json::to_string_pretty(&answer)?)?;
    } else {
        print(table(&names, &rows))?;
    }
    Ok(ended)
}

/// Runs simulations on several threads; their outcomes have the order of the plans. Those that a
/// signal has ended are missing.
fn simulate(
    plans: Vec<SimulationSettings>,
    recording: Option<&Arc<Recording>>,
    jobs: Option<u16>,
) -> Result<Vec<Option<Outcome>>> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let jobs = jobs.map_or(cores, usize::from).min(plans.len());
    let bar = io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::new(plans.len() as u64);
        if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} {eta}") {
            bar.set_style(style);
        }
        bar
    });
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, Result<Outcome>)>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while !stop::is_requested() {
                    // ORDERING: a number for each; the scope's end orders the rest.
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(plan) = plans.get(at) else {
                        break;
                    };
                    let outcome = simulation(plan.clone(), recording).map(|simulation| {
                        simulation.run(|_| match stop::is_requested() {
                            true => ControlFlow::Break(()),
                            false => ControlFlow::Continue(()),
                        })
                    });
                    if stop::is_requested() {
                        break;
                    }
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.push((at, outcome));
                    if let Some(bar) = &bar {
                        bar.inc(1);
                    }
                }
            });
        }
    });
    if let Some(bar) = &bar {
        bar.finish_and_clear();
    }
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut outcomes = vec![None; plans.len()];
    for (at, outcome) in results {
        outcomes[at] = Some(outcome?);
    }
    Ok(outcomes)
}

/// The rows of the combinations of which no outcome is missing.
fn rows(
    combinations: Vec<Vec<String>>,
    outcomes: Vec<Option<Outcome>>,
    repeats: usize,
) -> Vec<Row> {
    let mut outcomes = outcomes.into_iter();
    let groups = combinations.into_iter().filter_map(|values| {
        let group: Vec<Option<Outcome>> = outcomes.by_ref().take(repeats).collect();
        let group = group.into_iter().collect::<Option<Vec<Outcome>>>()?;
        Some((values, group))
    });
    let row = |(values, group): (Vec<String>, Vec<Outcome>)| {
        let figures = OUTCOME.iter().filter_map(|&(name, figure)| {
            let figures: Vec<f64> = group.iter().map(figure).collect();
            MeanEstimate::of(&figures).map(|estimate| (name, estimate))
        });
        Row {
            values,
            figures: figures.collect(),
        }
    };
    groups.map(row).collect()
}

fn sheet(names: &[String], rows: &[Row]) -> Sheet {
    let texts = names.iter().enumerate().map(|(at, name)| {
        let values = rows.iter().map(|row| row.values[at].clone());
        (name.clone(), values.collect())
    });
    let mut figures = Vec::new();
    for (name, _) in OUTCOME {
        for (suffix, of) in [
            ("", (|one| one.mean) as fn(&MeanEstimate) -> f64),
            ("_low", |one| one.low),
            ("_high", |one| one.high),
        ] {
            let values = rows
                .iter()
                .map(|row| row.figures.get(name).map_or(f64::NAN, of));
            figures.push((format!("{name}{suffix}"), values.collect()));
        }
    }
    Sheet {
        texts: texts.collect(),
        figures,
    }
}

/// A mean and half of its interval, in units.
fn shown(estimate: &MeanEstimate, unit: f64, decimals: usize) -> String {
    let (mean, half) = (estimate.mean / unit, (estimate.high - estimate.mean) / unit);
    if estimate.runs == 1 {
        format!("{mean:.decimals$}")
    } else {
        format!("{mean:.decimals$} \u{b1} {half:.decimals$}")
    }
}

fn table(names: &[String], rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let figures = [
        ("messages_s", "M messages/s", 1e6, 2),
        ("hit_ratio", "hits %", 0.01, 2),
        ("p50_ns", "p50 ns", 1.0, 0),
        ("p99_ns", "p99 ns", 1.0, 0),
        ("p999_ns", "p99.9 ns", 1.0, 0),
        ("cxl_load", "CXL %", 0.01, 1),
        ("host_load", "host %", 0.01, 1),
        ("migrations", "moves", 1.0, 0),
        ("steady", "steady %", 0.01, 0),
    ];
    let header = names.iter().map(String::as_str);
    table.set_header(header.chain(figures.map(|figure| figure.1)));
    for row in rows {
        let values = row.values.iter().cloned();
        let cells = figures.iter().map(|&(name, _, unit, decimals)| {
            let estimate = row.figures.get(name);
            estimate.map_or_else(String::new, |one| shown(one, unit, decimals))
        });
        table.add_row(values.chain(cells));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use farcore_card::workload::Pattern;

    use super::*;

    fn axes(texts: &[&str]) -> Result<Vec<Axis>> {
        texts.iter().map(|text| axis(text)).collect()
    }

    #[test]
    fn every_combination_is_made_once() {
        let axes = axes(&["queue-pairs=1,2", "policy=lru, fifo,hybrid"]).unwrap();
        let all = combinations(&axes);
        assert_eq!(all.len(), 6);
        assert_eq!(
            (all[0].join(" "), all[5].join(" ")),
            ("1 lru".into(), "2 hybrid".into())
        );
        let base = SimulationSettings::default();
        let made = settings(&SettingFlags::default(), &base, &axes, &all[5]).unwrap();
        assert_eq!(made.workload.population.queue_pairs, 2);
        assert_eq!(made.card, base.card);
    }

    #[test]
    fn a_preset_can_vary() {
        let base = SimulationSettings {
            messages: 5,
            ..SimulationSettings::default()
        };
        let axes = axes(&["preset=plain"]).unwrap();
        let line = ["--adaptive", "--card-entries", "99"];
        let flags = Combination::try_parse_from(line).unwrap().flags;
        let made = settings(&flags, &base, &axes, &["plain".to_owned()]).unwrap();
        assert_eq!((made.card.cxl_pages, made.messages), (0, 5));
        // Flags of the card hold for every preset.
        assert_eq!(made.card.card_entries, 99);
        assert!(made.card.thresholds.adaptive);
    }

    #[test]
    fn wrong_axes_are_refused() {
        for (text, message) in [
            ("queue-pairs", "write e.g. queue-pairs=100,1000"),
            ("queue-pairs=1,,2", "write e.g."),
            ("seed=1,2", "--repeats"),
        ] {
            let error = axis(text).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        let base = SimulationSettings::default();
        for (text, message) in [
            ("nothing=1", "--vary nothing: there is no such setting"),
            ("queue-pairs=x", "write a whole number"),
            ("policy=arc", "arc"),
            ("card-entries=1", "--card-entries is 1: write 16 to 65536"),
        ] {
            let axes = axes(&[text]).unwrap();
            let values = &combinations(&axes)[0];
            let made = settings(&SettingFlags::default(), &base, &axes, values);
            let error = format!("{:#}", made.unwrap_err());
            assert!(error.contains(message), "{error}");
        }
    }

    /// Refuses what has no effect in the combinations of a line.
    fn refused(vary: &[&str], line: &str) -> Result<()> {
        let words = line.split_whitespace();
        let flags = Combination::try_parse_from(words.clone()).unwrap().flags;
        let typed = words.filter_map(|word| word.strip_prefix("--"));
        let axes = axes(vary).unwrap();
        let start = flags.start().unwrap();
        let all: Result<Vec<_>> = combinations(&axes)
            .iter()
            .map(|values| settings(&flags, &start, &axes, values))
            .collect();
        let varied = Given::these(axes.iter().map(|axis| &axis.name));
        refuse_idle(&all.unwrap(), &Given::these(typed), &varied)
    }

    #[test]
    fn what_has_an_effect_in_no_combination_is_refused() {
        for (vary, line, flag) in [
            (&["alpha=1,2"][..], "--policy lru", "--vary: --alpha"),
            (&["alpha=1,2", "policy=lru,fifo"], "", "--vary: --alpha"),
            (&["policy=lru,fifo"], "--alpha 3", "--alpha"),
            (&["to-cxl=1,2"], "--preset plain", "--vary: --to-cxl"),
            (&["preset=plain", "to-cxl=3"], "", "--vary: --to-cxl"),
            (&["cxl-pages=0"], "--batch-max 3", "--batch-max"),
            (&["exponent=1"], "--pattern uniform", "--vary: --exponent"),
            (&["pattern=zipf,uniform"], "--period 9", "--period"),
        ] {
            let error = format!("{:#}", refused(vary, line).unwrap_err());
            let start = format!("{flag} has no effect ");
            assert!(error.starts_with(&start), "{vary:?} {line}: {error}");
        }
    }

    #[test]
    fn what_has_an_effect_in_one_combination_is_not_refused() {
        for (vary, line) in [
            (&["alpha=1,2", "policy=lru,hybrid"][..], ""),
            (&["policy=lru,hybrid"], "--alpha 3"),
            (&["preset=plain,tiers", "to-cxl=3"], "--batch-max 3"),
            (&["cxl-pages=0,8"], "--cxl-latency 300"),
            (&["pattern=uniform,zipf", "exponent=1,2"], ""),
            (&["pattern=scan,zipf"], "--period 9 --special 2"),
        ] {
            let ended = refused(vary, line);
            assert!(ended.is_ok(), "{vary:?} {line}: {ended:?}");
        }
    }

    #[test]
    fn a_flag_holds_where_a_value_gives_it_an_effect() {
        let line = ["--period", "9", "--special", "2"];
        let flags = Combination::try_parse_from(line).unwrap().flags;
        let axes = axes(&["pattern=storm"]).unwrap();
        let start = SimulationSettings::default();
        let made = settings(&flags, &start, &axes, &["storm".to_owned()]).unwrap();
        let Pattern::Storm { period, burst, .. } = made.workload.pattern else {
            panic!("{:?}", made.workload.pattern);
        };
        assert_eq!((period, burst), (9, 2));
    }

    #[test]
    fn outcomes_keep_the_order_of_their_plans() {
        let plan = |seed| {
            let mut plan = SimulationSettings {
                messages: 1_000,
                warmup: 0,
                ..SimulationSettings::default()
            };
            plan.workload.seed = seed;
            plan
        };
        let plans: Vec<_> = (0..8).map(plan).collect();
        let mut outcomes = simulate(plans, None, Some(2)).unwrap();
        let seeds = outcomes
            .iter()
            .flatten()
            .map(|outcome| outcome.settings.workload.seed);
        assert!(seeds.eq(0..8));
        let combinations = vec![vec!["a".to_owned()], vec!["b".to_owned()]];
        let all = outcomes.clone();
        // A combination of which one is missing is left out.
        outcomes[2] = None;
        let left = super::rows(combinations.clone(), outcomes, 4);
        assert_eq!((left.len(), left[0].values[0].as_str()), (1, "b"));
        let rows = super::rows(combinations, all, 4);
        assert_eq!((rows.len(), rows[1].figures["messages_s"].runs), (2, 4));
        let text = table(&["x".to_owned()], &rows);
        assert!(
            text.contains("M messages/s") && text.contains('\u{b1}'),
            "{text}"
        );
        assert_eq!(sheet(&["x".to_owned()], &rows).rows(), 2);
    }
}
