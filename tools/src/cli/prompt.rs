//! The prompt of a terminal: line editing, completion of commands, history.
//!
//! - I1: an error is printed and the prompt goes on. A signal ends it, also after a measurement.
//! - I2: values that were typed are in this process's history only.

use std::borrow::Cow;
use std::env;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use farcore_client::FabricAddress;
use farcore_command::outputs::complain;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};

use super::escaped::escaped;
use super::history::{self, History};
use super::interrupt::{self, Prompting};
use super::lines;
use super::operations::Session;
use super::words::names;
use crate::text::line as one_line;

/// Completes the first word.
#[derive(Debug)]
struct Words(Vec<String>);

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        Ok((0, self.matching(line.get(..position).unwrap_or(line))))
    }
}

impl Words {
    fn matching(&self, begun: &str) -> Vec<String> {
        let matching = self.0.iter().filter(|word| word.starts_with(begun));
        matching.map(|word| format!("{word} ")).collect()
    }
}

impl Hinter for Words {
    type Hint = String;
}
impl Highlighter for Words {
    fn highlight<'l>(&self, line: &'l str, _position: usize) -> Cow<'l, str> {
        Cow::Borrowed(line)
    }
}
impl Validator for Words {}
impl Helper for Words {}

/// Opens the history; without one the prompt works, too.
fn open_history() -> (Option<History>, Vec<String>) {
    let path = history::path(env::var_os("XDG_STATE_HOME"), env::var_os("HOME"));
    let Some(path) = path else {
        return (None, Vec::new());
    };
    match History::open(&path) {
        Ok((history, lines)) => (Some(history), lines),
        Err(error) => {
            let path = path.display();
            complain(format_args!(
                "farcore cli: no history: {path}: {error}; XDG_STATE_HOME names another folder"
            ));
            (None, Vec::new())
        }
    }
}

/// Reads and carries out commands until the end.
///
/// # Errors
/// The terminal cannot be used, or standard output cannot be written.
pub(super) fn run(session: &mut Session, server: &FabricAddress) -> Result<ExitCode> {
    let _prompting = Prompting::begin();
    let config = Config::builder().auto_add_history(false).build();
    let mut editor = Editor::<Words, _>::with_history(config, MemHistory::new())
        .context("the terminal cannot be used")?;
    editor.set_helper(Some(Words(names())));
    let (mut history, lines) = open_history();
    for line in lines {
        editor.add_history_entry(line)?;
    }
    let prompt = format!("{server}> ");
    loop {
        let line = match editor.readline(&prompt) {
            Ok(line) => line,
            // Control-C begins a new line, as in a shell.
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(ExitCode::SUCCESS),
            Err(error) => return Err(error).context("the terminal cannot be read"),
        };
        editor.add_history_entry(line.as_str())?;
        let kept = history.as_mut().map_or(Ok(()), |file| file.append(&line));
        if let Err(error) = kept {
            complain(format_args!("farcore cli: no history any more: {error}"));
            history = None;
        }
        let outcome = lines::carry_out(session, line.as_bytes());
        session.output.flush()?;
        match outcome {
            Ok(true) => {}
            Ok(false) => return Ok(ExitCode::SUCCESS),
            Err(error) => complain(format_args!(
                "error: {}",
                escaped(one_line(&error).as_bytes())
            )),
        }
        if let Some(status) = interrupt::status() {
            return Ok(ExitCode::from(status));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_word_is_completed() {
        let words = Words(names());
        assert_eq!(words.matching("st"), ["stats "]);
        assert_eq!(words.matching("get k"), Vec::<String>::new());
        assert!(words.matching("").len() > 10);
    }
}
