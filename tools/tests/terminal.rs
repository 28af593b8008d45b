//! `farcore top` on a terminal: whatever ends or suspends it, the terminal is as it was before.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Instant;

use rustix::termios::{LocalModes, tcgetattr};

use self::support::{PATIENCE, Process, terminal, text_of};

/// Where no engine is, so that the view waits.
const NOWHERE: &str = "/nonexistent/engine.sock";
/// What a terminal that can draw is sent when a view takes it, and when it gives it back.
const TAKEN: &str = "\u{1b}[?1049h";
const GIVEN_BACK: &str = "\u{1b}[?1049l";
const WAITING: &str = "waiting for an engine";

/// A terminal of 80 columns, and `farcore top` on it.
struct Terminal {
    top: Process,
    keys: File,
    /// Its mode is that of the terminal.
    line: File,
    output: Receiver<String>,
    seen: String,
}

/// Starts `farcore top` on a new terminal: its master, its line, the process.
fn top_on(kind: &str) -> (File, File, Process) {
    let (master, line) = terminal();
    let end = || Stdio::from(OwnedFd::from(line.try_clone().unwrap()));
    // As from a shell, whatever the signals that this process ignores.
    let top = Command::new("env")
        .args(["--default-signal", env!("CARGO_BIN_EXE_farcore")])
        .args(["top", NOWHERE, "--interval", "100ms"])
        .env("TERM", kind)
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn();
    (master, line, Process(top.unwrap()))
}

impl Terminal {
    fn start(kind: &str) -> Self {
        let (keys, line, top) = top_on(kind);
        Self {
            top,
            output: text_of(keys.try_clone().unwrap()),
            keys,
            line,
            seen: String::new(),
        }
    }

    /// Waits until the output since the last call contains `wanted`.
    fn wait(&mut self, wanted: &str) {
        let start = Instant::now();
        while !self.seen.contains(wanted) {
            let left = PATIENCE.saturating_sub(start.elapsed());
            match self.output.recv_timeout(left) {
                Ok(text) => self.seen.push_str(&text),
                Err(error) => panic!("no {wanted:?}: {error}\n{:?}", self.seen),
            }
        }
        let end = self.seen.find(wanted).unwrap() + wanted.len();
        self.seen.drain(..end);
    }

    /// Whether the terminal echoes and edits lines, as a shell expects.
    fn is_as_before(&self) -> bool {
        let mode = tcgetattr(&self.line).unwrap().local_modes;
        mode.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Waits until the process is, or is not, stopped.
    fn wait_for_stop(&self, is_stopped: bool) {
        let start = Instant::now();
        let stat = format!("/proc/{}/stat", self.top.0.id());
        loop {
            let text = fs::read_to_string(&stat).unwrap();
            let (_, state) = text.rsplit_once(") ").unwrap();
            if state.starts_with('T') == is_stopped {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{text}");
            thread::yield_now();
        }
    }
}

#[test]
fn signals_and_keys_end_the_view_and_give_the_terminal_back() {
    for end in ["TERM", "HUP", "INT", "q", "\u{3}"] {
        let mut terminal = Terminal::start("xterm");
        terminal.wait(TAKEN);
        terminal.wait("farcore");
        assert!(!terminal.is_as_before(), "{end}");
        if end.len() == 1 {
            terminal.keys.write_all(end.as_bytes()).unwrap();
        } else {
            terminal.top.signal(end);
        }
        terminal.wait(GIVEN_BACK);
        assert_eq!(terminal.top.end().code(), Some(0), "{end:?}");
        assert!(terminal.is_as_before(), "{end:?}");
    }
}

#[test]
fn a_view_whose_terminal_has_vanished_ends_without_a_panic() {
    let (mut master, line, mut top) = top_on("xterm");
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(TAKEN) {
        let mut piece = [0; 4096];
        let bytes = master.read(&mut piece).unwrap();
        seen.extend_from_slice(&piece[..bytes]);
    }
    drop((master, line));
    // A panic would end it with 101, or with a signal.
    let status = top.end();
    assert_eq!(status.code(), Some(1), "{status}");
}

#[test]
fn a_suspended_view_gives_the_terminal_back_and_takes_it_again() {
    let mut terminal = Terminal::start("xterm");
    terminal.wait(TAKEN);
    for stop in ["\u{1a}", "TSTP"] {
        if stop.len() == 1 {
            terminal.keys.write_all(stop.as_bytes()).unwrap();
        } else {
            terminal.top.signal(stop);
        }
        terminal.wait(GIVEN_BACK);
        terminal.wait_for_stop(true);
        assert!(terminal.is_as_before(), "{stop:?}");
        terminal.top.signal("CONT");
        terminal.wait(TAKEN);
        terminal.wait("farcore");
        assert!(!terminal.is_as_before(), "{stop:?}");
    }
    terminal.keys.write_all(b"q").unwrap();
    assert_eq!(terminal.top.end().code(), Some(0));
    assert!(terminal.is_as_before());
}

#[test]
fn a_sentence_is_whole_on_eighty_columns() {
    let mut terminal = Terminal::start("xterm");
    terminal.wait(TAKEN);
    terminal.wait("engine.sock");
    // The end of the sentence, which a narrower line would cut.
    terminal.wait("waiting");
    terminal.top.signal("TERM");
    assert_eq!(terminal.top.end().code(), Some(0));
}

#[test]
fn a_terminal_that_cannot_draw_gets_plain_lines() {
    let mut terminal = Terminal::start("dumb");
    terminal.wait(NOWHERE);
    terminal.wait(WAITING);
    assert!(terminal.is_as_before(), "its mode is left alone");
    terminal.top.signal("TERM");
    let status = terminal.top.end();
    assert_eq!(status.signal(), Some(15), "{status}");
    // The reader ends with the terminal.
    while let Ok(text) = terminal.output.try_recv() {
        terminal.seen.push_str(&text);
    }
    assert!(!terminal.seen.contains('\u{1b}'), "{:?}", terminal.seen);
}
