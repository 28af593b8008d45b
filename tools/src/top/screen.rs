//! The view on a terminal: keys, samples and signals in, a picture out.
//!
//! Owns the terminal's mode.
//!
//! - I1: SIGTERM, SIGHUP and SIGINT end the view as `q` does, and the terminal is as it was before.
//! - I2: Ctrl-Z and SIGTSTP give the terminal back before the process stops. It is taken again and
//!   drawn anew when the process goes on, also after a stop that no handler saw.
//!
//! Source: signal(7); termios(3), "Raw mode".

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use anyhow::{Context, Result};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, enable_raw_mode};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::app::{Action, App};
use super::draw;
use crate::watch::source::{Order, Sample, Source};

/// The terminal type that can neither move the cursor nor clear the screen.
const DUMB: &str = "dumb";

enum Message {
    Sample(Sample),
    Event(Event),
    Signal(i32),
    /// The terminal is lost.
    End(io::Error),
}

/// Whether there is a terminal that can be drawn on, with keys.
pub(super) fn is_possible() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == DUMB);
    io::stdout().is_terminal() && io::stdin().is_terminal() && !is_dumb
}

/// Starts a thread that ends with the process, or when its channel closes.
fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(work);
    started.context("cannot start a thread")?;
    Ok(())
}

/// Starts the threads that send samples and signals. Keys come later, with the terminal.
fn start_senders(source: Source, app: &App, sender: &Sender<Message>) -> Result<Sender<Order>> {
    let (order, orders) = mpsc::channel();
    let (sampler, samples) = mpsc::channel();
    let interval = app.interval;
    start("samples", move || source.run(interval, &orders, &sampler))?;
    let sampled = sender.clone();
    start("relay", move || {
        for sample in samples {
            if sampled.send(Message::Sample(sample)).is_err() {
                return;
            }
        }
    })?;
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGTSTP, SIGCONT])
        .context("cannot wait for signals")?;
    let signalled = sender.clone();
    start("signals", move || {
        for signal in signals.forever() {
            if signalled.send(Message::Signal(signal)).is_err() {
                return;
            }
        }
    })?;
    Ok(order)
}

/// Sends the keys of the terminal.
fn start_keys(sender: Sender<Message>) -> Result<()> {
    start("keys", move || {
        loop {
            let message = event::read().map_or_else(Message::End, Message::Event);
            let is_end = matches!(message, Message::End(_));
            if sender.send(message).is_err() || is_end {
                return;
            }
        }
    })
}

/// Takes the terminal again after the process was stopped: the shell has changed its mode.
fn resume(terminal: &mut DefaultTerminal) -> Result<()> {
    // The library keeps the mode that it found first, and does nothing if it believes it is set.
    ratatui::restore();
    enable_raw_mode()
        .and_then(|()| execute!(io::stdout(), EnterAlternateScreen))
        .and_then(|()| terminal.clear())
        .context("the terminal cannot be drawn on")
}

/// Gives the terminal back and stops the process until it is continued.
fn suspend(terminal: &mut DefaultTerminal) -> Result<()> {
    ratatui::restore();
    emulate_default_handler(SIGTSTP).context("the process cannot be stopped")?;
    resume(terminal)
}

/// Handles one message; false ends the view.
fn handle(
    message: Message,
    app: &mut App,
    terminal: &mut DefaultTerminal,
    order: &Sender<Order>,
) -> Result<bool> {
    let action = match message {
        Message::Sample((path, sample)) => {
            app.on_sample(path, sample);
            Action::None
        }
        Message::Event(Event::Key(key)) if key.is_press() => app.on_key(key),
        Message::Event(_) => Action::None,
        Message::Signal(SIGTSTP) => Action::Suspend,
        Message::Signal(SIGCONT) => {
            resume(terminal)?;
            Action::None
        }
        Message::Signal(_) => Action::Quit,
        Message::End(error) => return Err(error).context("the terminal is lost"),
    };
    // If the sampling thread has ended, no sample comes.
    match action {
        Action::None => {}
        Action::Quit => return Ok(false),
        Action::Suspend => suspend(terminal)?,
        Action::Interval => drop(order.send(Order::Interval(app.interval))),
        Action::NextEngine => drop(order.send(Order::NextEngine)),
    }
    Ok(true)
}

fn serve(
    app: &mut App,
    terminal: &mut DefaultTerminal,
    messages: &Receiver<Message>,
    order: &Sender<Order>,
) -> Result<()> {
    loop {
        terminal
            .draw(|frame| draw::draw(frame, app))
            .context("the terminal cannot be drawn on")?;
        let message = messages.recv().context("the threads of the view ended")?;
        if !handle(message, app, terminal, order)? {
            return Ok(());
        }
    }
}

/// Shows an engine until the user quits or a signal ends the view.
///
/// # Errors
/// The terminal is lost.
pub(super) fn watch(source: Source, app: &mut App) -> Result<()> {
    let (sender, messages) = mpsc::channel();
    // Signals are caught before the terminal is taken, so that none leaves it taken.
    let order = start_senders(source, app, &sender)?;
    let mut terminal = ratatui::try_init().context("the terminal cannot be drawn on")?;
    let ended = start_keys(sender).and_then(|()| serve(app, &mut terminal, &messages, &order));
    ratatui::restore();
    ended
}
