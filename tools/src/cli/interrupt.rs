//! Signals that end `farcore cli`: a measurement early, all else at once.
//!
//! - I1: SIGINT, SIGTERM and SIGHUP request the end of a measurement, which prints its figures and
//!   removes its keys. A second signal ends the process, as the first one does without a
//!   measurement.
//! - I2: when a signal ends the process, the terminal is as it was before the prompt. Control-C is
//!   a key there, no signal: it begins a new line.
//! - I3: a signal that was ignored when the process started stays ignored.
//! - I4: without a prompt, or in the background, the terminal is another program's: nothing is
//!   changed or written there. No access to it stops the thread that ends the process.
//!
//! Source: signal(7); termios(3); tcsetattr(3p).

#![allow(unsafe_code)] // blocks a signal in one thread

use std::io::{self, IsTerminal, Write};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result};
use farcore_command::stop::heeded;
use rustix::process::getpgrp;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr};
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
/// The terminal's mode before the prompt, while there is one.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

fn before() -> MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

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

/// A prompt. A signal that ends the process while this lives gives the terminal the mode that it
/// had before.
#[derive(Debug)]
pub(super) struct Prompting(());

impl Prompting {
    /// To be called before the line editor changes the mode.
    pub(super) fn begin() -> Self {
        // Fails where standard input is no terminal.
        *before() = tcgetattr(io::stdin()).ok();
        Self(())
    }
}

impl Drop for Prompting {
    fn drop(&mut self) {
        *before() = None;
    }
}

/// Waits for signals in a thread, from here to the end of the process.
///
/// # Errors
/// The handlers or their thread cannot be installed.
pub(super) fn start() -> Result<()> {
    let signals = Signals::new(heeded(&[SIGINT, SIGTERM, SIGHUP]));
    let mut signals = signals.context("signals cannot be caught")?;
    let serve = move || {
        block_stops();
        for signal in signals.forever() {
            let is_first = || {
                let swapped =
                    REQUESTED.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
                swapped.is_ok()
            };
            if MEASURES.load(Ordering::SeqCst) && is_first() {
                continue;
            }
            give_back();
            // It ends the process.
            let _ = emulate_default_handler(signal);
        }
    };
    let thread = thread::Builder::new().name("signals".to_owned());
    thread.spawn(serve).context("cannot start a thread")?;
    Ok(())
}

/// Blocks SIGTTOU in this thread: a process that came into the background would be stopped when it
/// gives the terminal back, and never end.
fn block_stops() {
    let mut stops = MaybeUninit::uninit();
    // SAFETY: sigemptyset initializes the set before the others read it, and it outlives them. No
    // old mask is wanted. None of them fails with a valid set and a valid signal.
    unsafe {
        libc::sigemptyset(stops.as_mut_ptr());
        libc::sigaddset(stops.as_mut_ptr(), libc::SIGTTOU);
        libc::pthread_sigmask(libc::SIG_BLOCK, stops.as_ptr(), ptr::null_mut());
    }
}

/// Gives the terminal of a prompt the mode that it had before.
fn give_back() {
    let mode = before();
    let Some(mode) = &*mode else {
        return;
    };
    // The mode is now that of the program in the foreground, such as the shell.
    if tcgetpgrp(io::stdin()).is_ok_and(|group| group != getpgrp()) {
        return;
    }
    // A terminal that has vanished needs nothing.
    let _ = tcsetattr(io::stdin(), OptionalActions::Now, mode);
    end_pastes();
}

fn end_pastes() {
    let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let mut out = io::stderr();
    if out.is_terminal() && !is_dumb {
        let _ = out.write_all(END_OF_PASTES).and_then(|()| out.flush());
    }
}
