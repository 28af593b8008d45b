//! `farcore top`: shows a running engine in the terminal, through its statistics socket.
//!
//! `app` holds the state and handles keys, `column` defines the columns of a core's row, `draw`
//! draws the view, `picture` turns a view into text or SVG. `screen` owns the terminal, `plain`
//! prints where there is none. Reports and rates come from [`crate::watch`].
//!
//! - I1: the view waits for an engine that is lost, and shows its last figures until then.
//! - I2: an engine that takes over the path of another starts a new history.
//! - I3: however the command ends or is suspended, the terminal is as it was before.

mod app;
mod cluster_line;
mod column;
mod copies_line;
mod data_line;
mod draw;
mod picture;
mod plain;
mod replication_line;
mod screen;

#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, bail, ensure};
use clap::Args;
use farcore_command::origin::Origin;
use farcore_command::outputs::{OutputFile, print};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use serde::Serialize;

use self::app::App;
use crate::given::Given;
use crate::watch::rates::Rates;
use crate::watch::source::Source;

/// The view's size without a terminal.
const SIZE: (u16, u16) = (80, 24);
/// The longest side of a view.
const SIDE_MAX: u16 = 1000;
/// The shortest and the longest time between two reports.
const INTERVAL_MIN: Duration = Duration::from_millis(100);
const INTERVAL_MAX: Duration = Duration::from_hours(24);

/// Rates as JSON, and where they come from.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    origin: Origin,
    #[serde(flatten)]
    rates: &'a Rates,
}

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The engine's statistics socket [default: the newest in the default folder]
    path: Option<PathBuf>,
    /// Time between two reports of the engine, 100ms to 24h.
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    interval: humantime::Duration,
    /// Print one view and exit.
    #[arg(long)]
    once: bool,
    /// Print rates and states as JSON.
    #[arg(long, requires = "once")]
    json: bool,
    /// Draw the view into a file, as SVG.
    #[arg(long, requires = "once", value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Intervals to watch before the view is printed or drawn.
    #[arg(long, requires = "once", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    samples: u32,
    /// Size of the printed or drawn view [default: the terminal's, or 80x24]
    #[arg(long, requires = "once", value_name = "WIDTHxHEIGHT", value_parser = parse_size)]
    size: Option<(u16, u16)>,
}

fn parse_size(text: &str) -> Result<(u16, u16), String> {
    let side = |text: &str| {
        let side = text.parse().ok();
        side.filter(|side| (1..=SIDE_MAX).contains(side))
    };
    let sides = text.split_once('x');
    let sides = sides.and_then(|(width, height)| Some((side(width)?, side(height)?)));
    sides.ok_or_else(|| format!("`{text}` is not a size: write e.g. 80x24, each up to {SIDE_MAX}"))
}

/// Draws the view into memory.
fn view(app: &App, (width, height): (u16, u16)) -> Buffer {
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| draw::draw(frame, app));
    terminal.backend().buffer().clone()
}

/// The size of printed views without a flag.
fn default_size() -> (u16, u16) {
    let terminal = ratatui::crossterm::terminal::size().ok();
    let terminal = terminal.filter(|&(width, height)| width > 0 && height > 0);
    terminal
        .filter(|_| io::stdout().is_terminal())
        .unwrap_or(SIZE)
}

fn once(arguments: &Arguments, source: &mut Source, app: &mut App) -> Result<()> {
    let svg = OutputFile::open_if("--svg", arguments.svg.as_deref())?;
    for round in 0..=arguments.samples {
        if round > 0 {
            thread::sleep(app.interval);
        }
        let (path, sample) = source.sample();
        let sample = sample.map_err(|why| anyhow!(why))?;
        app.on_sample(path, Ok(sample));
    }
    let Some(rates) = &app.rates else {
        bail!("another engine took over the path: run the command again");
    };
    let view = view(app, arguments.size.unwrap_or_else(default_size));
    let is_drawn = svg.is_some();
    if let Some(svg) = svg {
        svg.write(picture::svg(&view))?;
    }
    if arguments.json {
        let origin = Origin::here();
        print(serde_json::to_string_pretty(&Answer { origin, rates })?)?;
    } else if !is_drawn {
        print(picture::text(&view).trim_end_matches('\n'))?;
    }
    Ok(())
}

/// Shows an engine until the user quits, or prints one view.
///
/// # Errors
/// A flag is wrong, the terminal is lost, or there is no engine to print.
pub(crate) fn run(arguments: &Arguments, given: &Given) -> Result<ExitCode> {
    given.refuse(&["log_format"], "with top, which has no log")?;
    let interval = Duration::from(arguments.interval);
    ensure!(
        (INTERVAL_MIN..=INTERVAL_MAX).contains(&interval),
        "--interval is {}: it must be 100ms to 24h, because a report takes a millisecond of the engine's machine",
        arguments.interval
    );
    ensure!(
        !arguments.json || arguments.svg.is_some() || arguments.size.is_none(),
        "--size has no effect with --json: omit one of them"
    );
    let mut source = Source::new(arguments.path.clone());
    let mut app = App::new(interval);
    if arguments.once {
        once(arguments, &mut source, &mut app)?;
    } else if screen::is_possible() {
        screen::watch(source, &mut app)?;
    } else {
        plain::watch(source, &mut app)?;
    }
    Ok(ExitCode::SUCCESS)
}
