//! `farcore card run`: one simulation, as a table, JSON, files and a plot.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use farcore_card::simulator::{
    Outcome, Progress, Simulation, SimulationSettings, Statistics, Verdict,
};
use farcore_card::trace::Recording;
use farcore_command::origin::Origin;
use farcore_command::outputs::print;
use farcore_command::stop;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::columns::Sheet;
use super::file::FileFlags;
use super::flags::{SettingFlags, TraceFlags, simulation};
use super::{one_tier, plot};
use crate::given::Given;
use crate::text::grouped;

/// Flags of `card run`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    settings: SettingFlags,
    #[command(flatten)]
    trace: TraceFlags,
    #[command(flatten)]
    one_tier: one_tier::OneTierFlags,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    files: FileFlags,
}

/// The outcome as JSON, and where it comes from.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    origin: Origin,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

/// Runs the command.
///
/// # Errors
/// A flag is wrong, the trace cannot be read, or an output cannot be written.
pub(crate) fn run(arguments: &Arguments, given: &Given) -> Result<ExitCode> {
    let mut settings = if arguments.one_tier.is_wanted() {
        arguments.one_tier.settings(&arguments.settings, given)?
    } else {
        arguments.one_tier.refuse(given)?;
        let settings = arguments.settings.settings()?;
        SettingFlags::refuse_idle(&settings, given)?;
        settings
    };
    let files = arguments.files.open()?;
    let recording = arguments.trace.read(&mut settings, given)?;
    if arguments.one_tier.is_wanted() {
        let one_tier = &arguments.one_tier;
        one_tier.run(&settings, recording, arguments.json, files)?;
        return Ok(ExitCode::SUCCESS);
    }
    check_warmup(&settings, recording.as_deref())?;
    stop::forward_signals().context("signals cannot be caught")?;
    let outcome = watched(simulation(settings, recording.as_ref())?);
    files.write(&Sheet::of_series(&outcome.series), || {
        plot::course(&outcome)
    })?;
    if arguments.json {
        let mut origin = Origin::here();
        origin.end(None);
        let answer = Answer {
            origin,
            outcome: &outcome,
        };
        print(serde_json::to_string_pretty(&answer)?)?;
    } else {
        print(table(&outcome))?;
        if stop::is_requested() {
            print("partial: a signal ended the simulation")?;
        }
    }
    // The figures of an interrupted run are of its messages until then.
    Ok(stop::status().map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// Checks that a trace has messages after the warm-up.
fn check_warmup(settings: &SimulationSettings, recording: Option<&Recording>) -> Result<()> {
    let messages = recording.map_or(u64::MAX, |recording| recording.messages().len() as u64);
    ensure!(
        settings.warmup < messages,
        "--warmup is {}: the trace has {messages} messages; write a smaller number than that",
        settings.warmup
    );
    Ok(())
}

/// Runs a simulation with a bar if stderr is a terminal; a signal ends it.
fn watched(simulation: Simulation) -> Outcome {
    let bar = io::stderr().is_terminal().then(|| {
        let bar = ProgressBar::new(0);
        let style = ProgressStyle::with_template("{wide_bar} {percent} % {msg} {eta}");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        bar
    });
    let outcome = simulation.run(|progress: Progress<'_>| {
        if let Some(bar) = &bar {
            bar.set_length(progress.total);
            bar.set_position(progress.started);
            if let Some(point) = progress.point {
                bar.set_message(format!("{:.1} M/s", point.messages_s / 1e6));
            }
        }
        if stop::is_requested() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    outcome
}

fn percent(part: u64, of: u64) -> String {
    format!("{:.2} %", part as f64 * 100.0 / of.max(1) as f64)
}

/// A rate for people: whole messages a second.
fn rate(messages_s: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "rates are positive; the cast saturates"
    )]
    let whole = messages_s.round() as u64;
    grouped(whole)
}

/// Rows of a name, a figure and more of it.
type Lines = Vec<[String; 3]>;

/// The verdict on the course, and of which part the figures are.
fn verdict(outcome: &Outcome) -> [String; 3] {
    let more = match outcome.verdict {
        Verdict::Steady => format!(
            "rate, latencies and loads are of the steady part, from {:.2} ms on",
            outcome.steady_since_ns as f64 / 1e6
        ),
        Verdict::Warming => {
            "the figures still change: simulate more --messages for those that last".to_owned()
        }
        Verdict::TooShort => "too few messages to tell: simulate more --messages".to_owned(),
    };
    [
        "course".to_owned(),
        outcome.verdict.words().to_owned(),
        more,
    ]
}

fn table(outcome: &Outcome) -> String {
    let counted = &outcome.statistics;
    let moved = &counted.migration;
    let mut lines: Lines = vec![
        verdict(outcome),
        [
            "messages a second".to_owned(),
            rate(outcome.messages_s),
            format!(
                "of {} that the card can start",
                rate(outcome.settings.card.messages_s)
            ),
        ],
        [
            "latency p50, p99, p99.9".to_owned(),
            format!("{} ns", grouped(outcome.p50_ns)),
            format!(
                "{} ns, {} ns, mean {:.0} ns",
                grouped(outcome.p99_ns),
                grouped(outcome.p999_ns),
                counted.latency.mean()
            ),
        ],
    ];
    lines.extend(paths(counted));
    lines.push([
        "moves between tiers".to_owned(),
        grouped(moved.total()),
        format!(
            "{} to the card, {} to CXL, {} home; over a link p99 {} ns",
            grouped(moved.to_card),
            grouped(moved.card_to_cxl + moved.host_to_cxl),
            grouped(moved.card_to_host + moved.cxl_to_host),
            grouped(counted.migration_latency.quantile(0.99))
        ),
    ]);
    lines.push([
        "load of the links".to_owned(),
        format!("{:.1} %", outcome.cxl_load * 100.0),
        format!("CXL; the host's {:.1} %", outcome.host_load * 100.0),
    ]);
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.add_rows(lines);
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// Where tokens were found, and what that path did.
fn paths(counted: &Statistics) -> Lines {
    let (served, batch, expand) = (&counted.served, &counted.batch, &counted.expand);
    let (hot, moved) = (&counted.hot, &counted.migration);
    let accesses = served.total();
    let rows = [
        (
            "tokens found on the card",
            served.card,
            format!(
                "{} updates, {} conflicts, {} strict changes",
                grouped(hot.updates),
                grouped(hot.conflicts),
                grouped(hot.strict)
            ),
        ),
        (
            "in the staging area",
            served.staging,
            format!(
                "{} prefetched ones used",
                grouped(counted.staging.prefetches_used)
            ),
        ),
        (
            "behind CXL",
            served.cxl,
            format!(
                "{} batches, {} transfers, {} tokens prefetched, p99 {} ns",
                grouped(batch.batches),
                grouped(batch.transfers),
                grouped(batch.prefetched),
                grouped(counted.batch_latency.quantile(0.99))
            ),
        ),
        (
            "at the host",
            served.host,
            format!(
                "{} urgent, {} in the background, {} denied, p99 {} ns",
                grouped(expand.urgent),
                grouped(expand.background),
                grouped(expand.denied),
                grouped(counted.expand_latency.quantile(0.99))
            ),
        ),
        (
            "on their way",
            served.migrating,
            format!(
                "{} waited, {} went on, {} reconciled",
                grouped(moved.waited),
                grouped(moved.passed),
                grouped(moved.reconciled)
            ),
        ),
    ];
    let line =
        |(name, part, more): (&str, u64, String)| [name.to_owned(), percent(part, accesses), more];
    rows.map(line).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_every_path() {
        let settings = SimulationSettings {
            messages: 5_000,
            warmup: 100,
            ..SimulationSettings::default()
        };
        let outcome = watched(Simulation::new(settings).unwrap());
        let text = table(&outcome);
        for words in [
            "of 100,000,000 that the card can start",
            "tokens found on the card",
            "behind CXL",
            "urgent",
            "moves between tiers",
            "too short",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!(
            Sheet::of_series(&outcome.series).rows(),
            outcome.series.len()
        );
        assert!(
            plot::course(&outcome)
                .unwrap()
                .contains("Load of the links")
        );
    }
}
