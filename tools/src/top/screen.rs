//! The view on a terminal: keys, samples and signals in, a picture out.
//!
//! Owns the terminal's mode.
//!
//! - I1: SIGTERM, SIGHUP and SIGINT end the view as `q` does, and the terminal is as it was before.
//! - I2: Ctrl-Z and SIGTSTP give the terminal back before the process stops. It is taken again and
//!   drawn anew when the process goes on, also after a stop that no handler saw.
//! - I3: a terminal that has vanished is an error and no panic: what gives the terminal back may
//!   fail.
//!
//! Source: signal(7); termios(3), "Raw mode".

use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::panic;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use anyhow::{Context, Result};
use farcore_command::stop;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, enable_raw_mode};
use ratatui::{DefaultTerminal, Terminal};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

use super::app::{Action, App};
use super::draw;
use crate::watch::source::{Order, Sample, Source};

/// The terminal type that can neither move the cursor nor clear the screen.
const DUMB: &str = "dumb";

enum Message {
    Sample(Box<Sample>),
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
            if sampled.send(Message::Sample(Box::new(sample))).is_err() {
                return;
            }
        }
    })?;
    let heeded = stop::heeded(&[SIGTERM, SIGHUP, SIGINT, SIGTSTP, SIGCONT]);
    let mut signals = Signals::new(heeded).context("cannot wait for signals")?;
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

/// Takes the terminal. It draws every cell anew.
fn take() -> Result<ManuallyDrop<DefaultTerminal>> {
    enable_raw_mode()
        .and_then(|()| execute!(io::stdout(), EnterAlternateScreen, Clear(ClearType::All)))
        .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())))
        .map(ManuallyDrop::new)
        .inspect_err(|_| give_back())
        .context("the terminal cannot be drawn on")
}

/// Gives the terminal back; one that has vanished needs nothing.
fn give_back() {
    let _ = ratatui::try_restore();
    let _ = execute!(io::stdout(), Show);
}

/// Has a panic give the terminal back before its message.
fn give_back_on_panic() {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        give_back();
        hook(panic);
    }));
}

/// The view and its terminal.
struct Screen<'a> {
    app: &'a mut App,
    /// Never dropped: a drop that cannot show the cursor prints an error, and panics if it cannot
    /// print.
    terminal: ManuallyDrop<DefaultTerminal>,
    order: Sender<Order>,
    /// Whether the terminal is the shell's until SIGCONT comes.
    is_suspended: bool,
}

impl Screen<'_> {
    /// Gives the terminal back and stops the process. The next message is that it goes on.
    fn suspend(&mut self) -> Result<()> {
        give_back();
        self.is_suspended = true;
        emulate_default_handler(SIGTSTP).context("the process cannot be stopped")
    }

    /// Takes the terminal again after a stop: the shell has changed its mode.
    fn resume(&mut self) -> Result<()> {
        if !self.is_suspended {
            // SIGSTOP was not seen. The library must forget that it has set the mode.
            give_back();
        }
        self.is_suspended = false;
        // A new one draws every cell. `Terminal::clear` would ask the terminal for its cursor, and
        // the thread of the keys would read the answer.
        self.terminal = take()?;
        Ok(())
    }

    /// Handles one message; false ends the view.
    fn handle(&mut self, message: Message) -> Result<bool> {
        let action = match message {
            Message::Sample(sampled) => {
                let (path, sample) = *sampled;
                self.app.on_sample(path, sample);
                Action::None
            }
            Message::Event(Event::Key(key)) if key.is_press() => self.app.on_key(key),
            Message::Event(_) => Action::None,
            Message::Signal(SIGTSTP) => Action::Suspend,
            Message::Signal(SIGCONT) => {
                self.resume()?;
                Action::None
            }
            Message::Signal(_) => Action::Quit,
            Message::End(error) => return Err(error).context("the terminal is lost"),
        };
        // If the sampling thread has ended, no sample comes.
        match action {
            Action::None => {}
            Action::Quit => return Ok(false),
            Action::Suspend => self.suspend()?,
            Action::Interval => drop(self.order.send(Order::Interval(self.app.interval))),
            Action::NextEngine => drop(self.order.send(Order::NextEngine)),
        }
        Ok(true)
    }

    fn serve(&mut self, messages: &Receiver<Message>) -> Result<()> {
        loop {
            if !self.is_suspended {
                let app = &*self.app;
                self.terminal
                    .draw(|frame| draw::draw(frame, app))
                    .context("the terminal cannot be drawn on")?;
            }
            let message = messages.recv().context("the threads of the view ended")?;
            if !self.handle(message)? {
                return Ok(());
            }
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
    give_back_on_panic();
    let mut screen = Screen {
        app,
        terminal: take()?,
        order,
        is_suspended: false,
    };
    let ended = start_keys(sender).and_then(|()| screen.serve(&messages));
    give_back();
    ended
}
