//! `farcore top`: watches a running engine through its statistics socket.
//!
//! `rates` what happened between two reports · `column` what a core's row says · `app` state, and
//! what keys do · `draw` the view · `picture` the view as text and SVG · `source` where reports
//! come from.
//!
//! - I1: the engine is asked for one report an interval, and for nothing else.
//! - I2: an engine that goes away is waited for; another one that takes its path is another engine.

mod app;
mod column;
mod draw;
mod picture;
mod rates;
mod source;
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

use self::app::{App, Wish};
use self::source::{Order, Sample, Source};
use crate::text::line;

/// The view's size where there is no terminal.
const SIZE: (u16, u16) = (80, 24);
/// The largest that is drawn.
const SIDE_MAX: u16 = 1000;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The engine's statistics socket [default: the newest where they are by custom]
    path: Option<PathBuf>,
    /// Time from one look at the engine to the next, at least 100ms.
    #[arg(long, value_name = "DURATION", default_value = "1s")]
    interval: humantime::Duration,
    /// Print one view and end.
    #[arg(long)]
    once: bool,
    /// Print rates and states as JSON.
    #[arg(long, requires = "once")]
    json: bool,
    /// Draw the view into a file.
    #[arg(long, requires = "once", value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Intervals that are looked at before the view is printed or drawn.
    #[arg(long, requires = "once", value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    samples: u32,
    /// Size of what is printed or drawn [default: the terminal's, or 80x24]
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
        bail!("another engine took the path meanwhile: ask again");
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
    /// The terminal is gone.
    End(io::Error),
}

fn watch(source: Source, app: &mut App) -> Result<()> {
    ensure!(
        io::stdout().is_terminal() && io::stdin().is_terminal(),
        "the view needs a terminal; --once prints it, --once --json prints figures"
    );
    let (say, messages) = mpsc::channel();
    let (order, orders) = mpsc::channel();
    let (give, samples) = mpsc::channel();
    let interval = app.interval;
    // The three threads end with the process, or when nobody listens any more.
    thread::Builder::new()
        .name("samples".to_owned())
        .spawn(move || source.run(interval, &orders, &give))?;
    let sampled = say.clone();
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
                if say.send(message).is_err() || ended {
                    return;
                }
            }
        })?;
    let ended = loop {
        if let Err(error) = terminal.draw(|frame| draw::draw(frame, app)) {
            break Err(error.into());
        }
        let wish = match messages.recv() {
            Ok(Message::Sample((path, sample))) => {
                app.on_sample(path, sample);
                Wish::Nothing
            }
            Ok(Message::Event(Event::Key(key))) if key.is_press() => app.on_key(key),
            Ok(Message::Event(_)) => Wish::Nothing,
            Ok(Message::End(error)) => break Err(error.into()),
            Err(error) => break Err(error.into()),
        };
        // Whoever does not listen any more is told by the messages.
        match wish {
            Wish::Nothing => {}
            Wish::Quit => break Ok(()),
            Wish::Interval => drop(order.send(Order::Interval(app.interval))),
            Wish::NextEngine => drop(order.send(Order::NextEngine)),
        }
    };
    ratatui::restore();
    ended
}

/// Shows an engine until the user has seen enough.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let shown = || {
        let interval = Duration::from(arguments.interval);
        ensure!(
            interval >= Duration::from_millis(100),
            "--interval {}: looking at the engine takes a millisecond of its machine; give at least 100ms",
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
