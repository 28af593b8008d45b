//! The first administrator's password: from a file, or from the terminal without echo and twice.
//!
//! - I1: the terminal shows again what is typed, however reading ends.

use std::fs;
use std::io::{self, BufRead, IsTerminal, Stdin, Write};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use farcore_rdma::control::exposed_mode;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tracing::warn;
use zeroize::Zeroizing;

/// Shortest password, in characters: the console's own limit.
const CHARACTERS_MIN: usize = 12;
/// How often two unlike or short passwords may be typed.
const TRIES: usize = 3;

/// A terminal that does not show what is typed while this lives.
struct Silent {
    stdin: Stdin,
    before: Termios,
}

impl Silent {
    fn new() -> Result<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin).context("the terminal's settings")?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        // The end of the line is shown, so that the next text begins on a line of its own.
        silent.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(&stdin, OptionalActions::Flush, &silent).context("the terminal's settings")?;
        Ok(Self { stdin, before })
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // There is no other place for its error.
        let _ = tcsetattr(&self.stdin, OptionalActions::Now, &self.before);
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
    eprintln!("This is the first start: choose the password of the administrator {name}.");
    for _ in 0..TRIES {
        let password = ask("Password, at least 12 characters")?;
        if password.chars().count() < CHARACTERS_MIN {
            eprintln!("That is shorter than {CHARACTERS_MIN} characters.");
            continue;
        }
        if ask("The same again")? == password {
            return Ok(password);
        }
        eprintln!("The two are not alike.");
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
    if let Some(mode) = fs::metadata(file).ok().as_ref().and_then(exposed_mode) {
        warn!(
            "--admin-password-file {name}: mode {mode:04o} lets other users read the password; run `chmod 600 {name}`"
        );
    }
    Ok(Zeroizing::new(line.to_owned()))
}
