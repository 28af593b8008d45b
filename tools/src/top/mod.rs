//! `farcore top`: shows a running engine in the terminal, through its statistics socket.
//!
//! `app` holds the state and handles keys, `column` defines the columns of a core's row, `draw`
//! draws the view, `picture` turns a view into text or SVG. Reports and rates come from
//! [`crate::watch`].
//!
//! - I1: the view waits for an engine that is lost, and shows its last figures until then.
//! - I2: an engine that takes over the path of another starts a new history.

mod app;
mod column;
mod draw;
mod picture;

#[cfg(test)]
mod tests;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event};

use self::app::{Action, App};
use crate::text::line;
use crate::watch::source::{Order, Sample, Source};

/// The view's size without a terminal.
const SIZE: (u16, u16) = (80, 24);
/// The longest side of a view.
const SIDE_MAX: u16 = 1000;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The engine's statistics socket [default: the newest in the default folder]
    path: Option<PathBuf>,
    /// Time between two reports of the engine, at least 100ms.
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

fn once(arguments: &Arguments, source: &mut Source, app: &mut App) -> Result<()> {
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
    let mut out = io::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, rates)?;
        writeln!(out)?;
    }
    let terminal = || {
        let size = ratatui::crossterm::terminal::size().ok()?;
        io::stdout().is_terminal().then_some(size)
    };
    let size = arguments.size.or_else(terminal).unwrap_or(SIZE);
    let view = view(app, size);
    if let Some(file) = &arguments.svg {
        fs::write(file, picture::svg(&view))
            .with_context(|| format!("{} could not be written", file.display()))?;
    }
    if !arguments.json && arguments.svg.is_none() {
        out.write_all(picture::text(&view).as_bytes())?;
    }
    Ok(())
}

enum Message {
    Sample(Sample),
    Event(Event),
    /// The terminal is lost.
    End(io::Error),
}

fn watch(source: Source, app: &mut App) -> Result<()> {
    ensure!(
        io::stdout().is_terminal() && io::stdin().is_terminal(),
        "the view needs a terminal: --once prints it, --once --json prints its figures"
    );
    let (sender, messages) = mpsc::channel();
    let (order, orders) = mpsc::channel();
    let (sampler, samples) = mpsc::channel();
    let interval = app.interval;
    // The three threads end with the process, or when their channel closes.
    thread::Builder::new()
        .name("samples".to_owned())
        .spawn(move || source.run(interval, &orders, &sampler))?;
    let sampled = sender.clone();
    thread::Builder::new()
        .name("relay".to_owned())
        .spawn(move || {
            for sample in samples {
                if sampled.send(Message::Sample(sample)).is_err() {
                    return;
                }
            }
        })?;
    let mut terminal = ratatui::try_init().context("the terminal cannot be drawn on")?;
    thread::Builder::new()
        .name("keys".to_owned())
        .spawn(move || {
            loop {
                let message = event::read().map_or_else(Message::End, Message::Event);
                let ended = matches!(message, Message::End(_));
                if sender.send(message).is_err() || ended {
                    return;
                }
            }
        })?;
    let ended = loop {
        if let Err(error) = terminal.draw(|frame| draw::draw(frame, app)) {
            break Err(error.into());
        }
        let action = match messages.recv() {
            Ok(Message::Sample((path, sample))) => {
                app.on_sample(path, sample);
                Action::None
            }
            Ok(Message::Event(Event::Key(key))) if key.is_press() => app.on_key(key),
            Ok(Message::Event(_)) => Action::None,
            Ok(Message::End(error)) => break Err(error.into()),
            Err(error) => break Err(error.into()),
        };
        // If the sampling thread has ended, the next `recv` fails.
        match action {
            Action::None => {}
            Action::Quit => break Ok(()),
            Action::Interval => drop(order.send(Order::Interval(app.interval))),
            Action::NextEngine => drop(order.send(Order::NextEngine)),
        }
    };
    ratatui::restore();
    ended
}

/// Shows an engine until the user quits, or prints one view.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let shown = || {
        let interval = Duration::from(arguments.interval);
        ensure!(
            interval >= Duration::from_millis(100),
            "--interval is {}: it must be at least 100ms, because a report takes a millisecond of the engine's machine",
            arguments.interval
        );
        let mut source = Source::new(arguments.path.clone());
        let mut app = App::new(interval);
        if arguments.once {
            once(arguments, &mut source, &mut app)
        } else {
            watch(source, &mut app)
        }
    };
    match shown() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("farcore top: {}", line(&error));
            ExitCode::FAILURE
        }
    }
}
