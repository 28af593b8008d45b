//! Signals that end `farcore cli`: a measurement early, all else at once.
//!
//! - I1: SIGINT, SIGTERM and SIGHUP request the end of a measurement, which prints its figures and
//!   removes its keys. A second signal ends the process, as the first one does without a
//!   measurement.
//! - I2: when a signal ends the process, the terminal is as it was before the prompt. While a line
//!   is edited, SIGINT begins a new one instead, which is the line editor's.
//! - I3: a signal that was ignored when the process started stays ignored.
//!
//! Source: signal(7); termios(3).

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;

use anyhow::{Context, Result};
use farcore_bench::stop::heeded;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// What a shell adds to the number of the signal that ended a process.
const STATUS_OF_SIGNAL: i32 = 128;
/// Ends the mode in which a terminal marks what is pasted.
const END_OF_PASTES: &[u8] = b"\x1b[?2004l";

/// The signal that has requested the end of a measurement, or 0.
static REQUESTED: AtomicI32 = AtomicI32::new(0);
/// Whether there is a measurement to end.
static MEASURES: AtomicBool = AtomicBool::new(false);

/// Whether a signal has requested the end of a measurement.
pub(super) fn is_requested() -> bool {
    REQUESTED.load(Ordering::SeqCst) != 0
}

/// The exit code of a command whose measurement a signal has ended; `None` without one.
pub(super) fn status() -> Option<u8> {
    let signal = REQUESTED.load(Ordering::SeqCst);
    (signal != 0).then(|| u8::try_from(STATUS_OF_SIGNAL + signal).unwrap_or(u8::MAX))
}

/// A measurement, which signals end early while this lives.
#[derive(Debug)]
pub(super) struct Measuring(());

impl Measuring {
    pub(super) fn begin() -> Self {
        MEASURES.store(true, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        MEASURES.store(false, Ordering::SeqCst);
    }
}

/// Waits for signals in a thread, from here to the end of the process.
///
/// # Errors
/// The handlers or their thread cannot be installed.
pub(super) fn start() -> Result<()> {
    let signals = Signals::new(heeded(&[SIGINT, SIGTERM, SIGHUP]));
    let mut signals = signals.context("signals cannot be caught")?;
    // Fails where standard input is no terminal.
    let mode = tcgetattr(io::stdin()).ok();
    let serve = move || {
        for signal in signals.forever() {
            let is_first = || {
                let swapped =
                    REQUESTED.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
                swapped.is_ok()
            };
            if MEASURES.load(Ordering::SeqCst) && is_first() {
                continue;
            }
            if let Some(mode) = &mode {
                // A terminal that has vanished needs nothing.
                let _ = tcsetattr(io::stdin(), OptionalActions::Now, mode);
                end_pastes();
            }
            // It ends the process.
            let _ = emulate_default_handler(signal);
        }
    };
    let thread = thread::Builder::new().name("signals".to_owned());
    thread.spawn(serve).context("cannot start a thread")?;
    Ok(())
}

fn end_pastes() {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let mut out = io::stderr();
    if out.is_terminal() && !is_dumb {
        let _ = out.write_all(END_OF_PASTES).and_then(|()| out.flush());
    }
}
