//! Runs a program with a time limit and keeps its output. It has a process group of its own, so
//! that a program that hangs is ended with all that it has started.

use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process_group};

/// What a program has printed, and how it ended.
#[derive(Debug)]
pub(crate) struct Run {
    /// Both of its outputs, without the codes of colours.
    pub(crate) output: String,
    /// `None`: it was ended, because its time was over.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) took: Duration,
}

/// Runs a program; its output also goes to a log.
pub(crate) fn run(mut command: Command, limit: Duration, log: &Path) -> Result<Run> {
    let start = Instant::now();
    let (reader, writer) = std::io::pipe()?;
    let shown = format!("cannot start {command:?}");
    command
        .stdin(Stdio::null())
        .stdout(writer.try_clone()?)
        .stderr(writer)
        .process_group(0);
    let mut child = command.spawn().context(shown)?;
    // It holds the pipe's other end, which must close with the program.
    drop(command);
    let mut log = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let lines = lines_of(reader);
    let mut output = String::new();
    let is_over = loop {
        match lines.recv_timeout(limit.saturating_sub(start.elapsed())) {
            Ok(line) => {
                let line = without_colours(&line);
                writeln!(log, "{line}")?;
                output.push_str(&line);
                output.push('\n');
            }
            Err(RecvTimeoutError::Disconnected) => break false,
            Err(RecvTimeoutError::Timeout) => break true,
        }
    };
    if is_over {
        end_group(&child);
    }
    let status = child.wait()?;
    Ok(Run {
        output,
        status: (!is_over).then_some(status),
        took: start.elapsed(),
    })
}

/// Ends a program that was started as the leader of a group, and its group.
fn end_group(leader: &Child) {
    // The group may have ended by itself.
    let _ = kill_process_group(Pid::from_child(leader), Signal::KILL);
}

/// Reads lines in a thread, because a pipe has no time limit.
fn lines_of(reader: PipeReader) -> Receiver<String> {
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        let mut line = Vec::new();
        while let Ok(1..) = reader.read_until(b'\n', &mut line) {
            let text = String::from_utf8_lossy(&line);
            if sender.send(text.trim_end().to_owned()).is_err() {
                break;
            }
            line.clear();
        }
    });
    lines
}

/// Removes the escape sequences `ESC [ ... m`.
fn without_colours(line: &str) -> String {
    let mut parts = line.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once('m').map_or(part, |(_, rest)| rest));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Run {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(command, limit, Path::new("/dev/null")).unwrap()
    }

    #[test]
    fn both_outputs_are_kept() {
        let run = shell("echo out; echo err >&2; exit 3", Duration::from_secs(600));
        assert_eq!(run.output, "out\nerr\n");
        assert_eq!(run.status.and_then(|status| status.code()), Some(3));
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_what_it_started() {
        let run = shell(
            "echo begun; sleep 1000 & sleep 1000",
            Duration::from_secs(1),
        );
        assert_eq!(run.status, None);
    }

    #[test]
    fn colours_are_removed() {
        assert_eq!(
            without_colours("[\u{1b}[0;32;49mok\u{1b}[0m]: SET"),
            "[ok]: SET"
        );
        assert_eq!(without_colours("plain"), "plain");
    }
}
