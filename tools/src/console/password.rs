//! The first administrator's password: from a file, or from the terminal without echo and twice.
//!
//! - I1: the terminal shows again what is typed, however reading ends or is suspended.
//!
//! Source: signal(7); termios(3).

use std::fs;
use std::io::{self, BufRead, IsTerminal, Stdin, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail, ensure};
use farcore_command::outputs::complain;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::low_level::emulate_default_handler;
use zeroize::Zeroizing;

use crate::token;

/// Shortest password, in characters: the console's own limit.
const CHARACTERS_MIN: usize = 12;
/// How often two unlike or short passwords may be typed.
const TRIES: usize = 3;

/// The terminal's mode before it was silent, while it is.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

fn before() -> MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a password is being typed.
pub(super) fn is_typed() -> bool {
    before().is_some()
}

/// Does what a signal does that no handler catches, with the terminal as it was before: it ends the
/// process, or stops it until the shell continues it.
pub(super) fn act(signal: i32) {
    let mode = before();
    let silent = tcgetattr(io::stdin()).ok();
    // A terminal that has vanished needs nothing.
    if let Some(mode) = &*mode {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, mode);
    }
    let _ = emulate_default_handler(signal);
    // The process goes on.
    if let (Some(_), Some(silent)) = (&*mode, &silent) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, silent);
    }
}

/// A terminal that does not show what is typed while this lives.
struct Silent {
    stdin: Stdin,
}

impl Silent {
    fn new() -> Result<Self> {
        let stdin = io::stdin();
        let mode = tcgetattr(&stdin).context("the terminal's settings")?;
        let mut silent = mode.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        // The end of the line is shown, so that the next text begins on a line of its own.
        silent.local_modes.insert(LocalModes::ECHONL);
        *before() = Some(mode);
        let is_set = tcsetattr(&stdin, OptionalActions::Flush, &silent);
        let silent = Self { stdin };
        is_set.context("the terminal's settings")?;
        Ok(silent)
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        if let Some(mode) = before().take() {
            // There is no other place for its error.
            let _ = tcsetattr(&self.stdin, OptionalActions::Now, &mode);
        }
    }
}

/// Reads one line from the terminal.
fn ask(words: &str) -> Result<Zeroizing<String>> {
    let silent = Silent::new()?;
    let mut stderr = io::stderr();
    write!(stderr, "{words}: ")?;
    stderr.flush()?;
    let mut line = Zeroizing::new(String::new());
    let read = silent.stdin.lock().read_line(&mut line)?;
    ensure!(
        read > 0,
        "the terminal has ended before a password was typed"
    );
    let end = line.trim_end_matches(['\n', '\r']).len();
    line.truncate(end);
    Ok(line)
}

/// Reads a new password from the terminal, twice.
///
/// # Errors
/// There is no terminal, it ends, or no password was typed twice alike.
pub(super) fn from_terminal(name: &str) -> Result<Zeroizing<String>> {
    ensure!(
        io::stdin().is_terminal() && io::stderr().is_terminal(),
        "the first start makes the administrator {name}, and there is no terminal to type a password at: give --admin-password-file FILE"
    );
    complain(format_args!(
        "This is the first start: choose the password of the administrator {name}."
    ));
    for _ in 0..TRIES {
        let password = ask("Password, at least 12 characters")?;
        if password.chars().count() < CHARACTERS_MIN {
            complain(format_args!(
                "That is shorter than {CHARACTERS_MIN} characters."
            ));
            continue;
        }
        if ask("The same again")? == password {
            return Ok(password);
        }
        complain("The two are not alike.");
    }
    bail!("no password was typed twice alike: start again, or give --admin-password-file FILE")
}

/// Reads the password of a file: its first line.
///
/// # Errors
/// The file cannot be read or its first line is empty.
pub(super) fn from_file(file: &Path) -> Result<Zeroizing<String>> {
    let name = file.display();
    let text = fs::read_to_string(file);
    let text = Zeroizing::new(text.with_context(|| format!("--admin-password-file {name}"))?);
    let line = text.lines().next().unwrap_or_default();
    ensure!(
        !line.is_empty(),
        "--admin-password-file {name}: its first line is empty; write the password there"
    );
    let characters = line.chars().count();
    ensure!(
        characters >= CHARACTERS_MIN,
        "--admin-password-file {name}: the password has {characters} characters; write at least {CHARACTERS_MIN}"
    );
    token::warn_if_exposed("--admin-password-file", file, "password");
    Ok(Zeroizing::new(line.to_owned()))
}
