//! Commands on a terminal: whatever ends or suspends `top`, the prompt of `cli` and the password of
//! `console`, its mode is as it was before; progress is one line.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Instant;

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use self::support::{PATIENCE, Process, Serve, terminal, text_of};

/// Where no engine is, so that the view waits.
const NOWHERE: &str = "/nonexistent/engine.sock";
/// What a terminal that can draw is sent when a view takes it, and when it gives it back.
const TAKEN: &str = "\u{1b}[?1049h";
const GIVEN_BACK: &str = "\u{1b}[?1049l";
const WAITING: &str = "waiting for an engine";

/// A terminal of 80 columns, and a command on it, mostly `top`.
struct Terminal {
    top: Process,
    keys: File,
    /// Its mode is that of the terminal.
    line: File,
    output: Receiver<String>,
    seen: String,
}

/// Starts `farcore` on a new terminal: its master, its line, the process.
fn farcore_on(kind: &str, arguments: &[&str]) -> (File, File, Process) {
    let (master, line) = terminal();
    let end = || Stdio::from(OwnedFd::from(line.try_clone().unwrap()));
    // As from a shell, whatever the signals that this process ignores.
    let process = Command::new("env")
        .args(["--default-signal", env!("CARGO_BIN_EXE_farcore")])
        .args(arguments)
        .env("TERM", kind)
        .env_remove("XDG_STATE_HOME")
        .env_remove("HOME")
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn();
    (master, line, Process(process.unwrap()))
}

fn top_on(kind: &str) -> (File, File, Process) {
    farcore_on(kind, &["top", NOWHERE, "--interval", "100ms"])
}

impl Terminal {
    fn start(kind: &str) -> Self {
        Self::of(top_on(kind))
    }

    fn of((keys, line, top): (File, File, Process)) -> Self {
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

/// Signals that end a command, and their numbers.
const ENDS: [(&str, i32); 3] = [("TERM", 15), ("INT", 2), ("HUP", 1)];

#[test]
fn a_signal_ends_the_prompt_and_gives_the_terminal_back() {
    let server = Serve::start(&["--native", "tcp://127.0.0.1:0", "--cores", "0"]);
    let address = server.native.as_deref().unwrap();
    for (name, signal) in ENDS {
        for kind in ["xterm", "dumb"] {
            let prompt = farcore_on(kind, &["cli", "--server", address]);
            let mut terminal = Terminal::of(prompt);
            terminal.wait("> ");
            // A terminal that cannot draw keeps its mode.
            if kind == "xterm" {
                assert!(!terminal.is_as_before(), "{name}");
            }
            terminal.top.signal(name);
            let status = terminal.top.end();
            assert_eq!(status.signal(), Some(signal), "{name}: {status}");
            assert!(terminal.is_as_before(), "{name} on {kind}");
        }
    }
}

#[test]
fn control_c_begins_a_new_line_of_the_prompt() {
    let server = Serve::start(&["--native", "tcp://127.0.0.1:0", "--cores", "0"]);
    let address = server.native.as_deref().unwrap();
    let mut terminal = Terminal::of(farcore_on("xterm", &["cli", "--server", address]));
    terminal.wait("> ");
    terminal.keys.write_all(b"left\x03").unwrap();
    terminal.wait("left");
    terminal.wait("> ");
    terminal.keys.write_all(b"\x04").unwrap();
    assert_eq!(terminal.top.end().code(), Some(0));
    assert!(terminal.is_as_before());
}

/// A command without a prompt that waits for an answer, and a listener that never answers.
fn waiting_command() -> (TcpListener, [String; 7]) {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("tcp://{}", silent.local_addr().unwrap());
    let words = ["cli", "--server", &server, "--timeout", "1h", "get", "k"];
    (silent, words.map(str::to_owned))
}

#[test]
fn a_command_without_a_prompt_leaves_the_terminal_to_others() {
    for (name, signal) in ENDS {
        let (silent, words) = waiting_command();
        let words = words.each_ref().map(String::as_str);
        let mut terminal = Terminal::of(farcore_on("xterm", &words));
        // The command waits for signals before it connects.
        let _connection = silent.accept().unwrap();
        // As a pager does, which reads what the command prints.
        let mut mode = tcgetattr(&terminal.line).unwrap();
        mode.local_modes.remove(LocalModes::ICANON);
        tcsetattr(&terminal.line, OptionalActions::Now, &mode).unwrap();
        terminal.top.signal(name);
        let status = terminal.top.end();
        assert_eq!(status.signal(), Some(signal), "{name}: {status}");
        let mode = tcgetattr(&terminal.line).unwrap().local_modes;
        assert!(!mode.contains(LocalModes::ICANON), "{name}");
        let Terminal { line, output, .. } = terminal;
        drop(line);
        // The reader ends with the terminal.
        let seen: String = output.iter().collect();
        assert!(!seen.contains('\u{1b}'), "{name}: {seen:?}");
    }
}

#[test]
fn a_signal_ends_a_command_in_the_background() {
    let (silent, words) = waiting_command();
    let (master, line) = terminal();
    let end = || Stdio::from(OwnedFd::from(line.try_clone().unwrap()));
    // A shell with jobs, whose terminal this is. It ends the command when it has read a line.
    let script = r#"set -m; "$@" & read -r line; kill -s TERM $!; wait $!; echo "status $?""#;
    let shell = Command::new("env")
        .args(["--default-signal", "setsid", "--ctty", "sh", "-c", script])
        .args(["sh", env!("CARGO_BIN_EXE_farcore")])
        .args(words)
        .env("TERM", "xterm")
        .stdin(end())
        .stdout(end())
        .stderr(end())
        .spawn();
    let mut shell = Process(shell.unwrap());
    let output = text_of(master.try_clone().unwrap());
    // The command waits for signals before it connects.
    let _connection = silent.accept().unwrap();
    (&master).write_all(b"end it\n").unwrap();
    assert!(shell.end().success());
    drop(line);
    // The reader ends with the terminal.
    let seen: String = output.iter().collect();
    assert!(seen.contains("status 143"), "{seen:?}");
    assert!(!seen.contains('\u{1b}'), "{seen:?}");
}

#[test]
fn a_prompt_whose_terminal_has_vanished_ends_without_a_panic() {
    let server = Serve::start(&["--native", "tcp://127.0.0.1:0", "--cores", "0"]);
    let address = server.native.as_deref().unwrap();
    let (mut master, line, mut prompt) = farcore_on("xterm", &["cli", "--server", address]);
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("> ") {
        let mut piece = [0; 4096];
        let bytes = master.read(&mut piece).unwrap();
        seen.extend_from_slice(&piece[..bytes]);
    }
    drop((master, line));
    // A panic would end it with 101, or with a signal.
    let status = prompt.end();
    assert!(matches!(status.code(), Some(0 | 1)), "{status}");
}

#[test]
fn a_signal_ends_the_typing_of_a_password_and_the_terminal_shows_again_what_is_typed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").display().to_string();
    let console = ["console", "--listen", "127.0.0.1:0", "--data", &data];
    let shows = |terminal: &Terminal| {
        let mode = tcgetattr(&terminal.line).unwrap().local_modes;
        mode.contains(LocalModes::ECHO)
    };
    for (name, signal) in ENDS {
        let mut terminal = Terminal::of(farcore_on("xterm", &console));
        terminal.wait("Password");
        assert!(!shows(&terminal), "{name}");
        terminal.top.signal("TSTP");
        terminal.wait_for_stop(true);
        assert!(shows(&terminal), "{name}: while it is stopped");
        terminal.top.signal("CONT");
        terminal.wait_for_stop(false);
        let start = Instant::now();
        while shows(&terminal) {
            assert!(start.elapsed() < PATIENCE, "it is not silent again");
            thread::yield_now();
        }
        terminal.top.signal(name);
        let status = terminal.top.end();
        assert_eq!(status.signal(), Some(signal), "{name}: {status}");
        assert!(shows(&terminal), "{name}");
        assert!(!folder.path().join("data").exists(), "{name}");
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

/// The lines that a terminal was sent, without sequences that move its cursor.
fn lines_of(text: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '\u{1b}' {
            // A sequence ends with a letter.
            rest.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(c);
        }
    }
    plain.split(['\r', '\n']).map(str::to_owned).collect()
}

#[test]
fn progress_is_one_line_of_eighty_columns() {
    for (line, shown) in [
        ("card run --messages 3000000", "M/s"),
        (
            "card sweep --vary queue-pairs=1,2,3 --messages 1000 --repeats 2",
            "6/6",
        ),
        ("fabric ping --count 1000 --bytes 8,64", "read 64 B"),
        ("fabric bandwidth --count 100000", "write 1 MiB"),
        (
            "tune --cores 0 --local 16MiB --far 16MiB --no-prefault --repeats 6 --keys-per-core 300 \
             --hot-ops 300 --knobs batch,window --out /dev/null",
            "first run",
        ),
    ] {
        let (master, line_end) = terminal();
        let output = text_of(master);
        let child = Command::new(env!("CARGO_BIN_EXE_farcore"))
            .args(line.split_whitespace())
            .env("TERM", "xterm")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::from(OwnedFd::from(line_end)))
            .spawn();
        let mut process = Process(child.unwrap());
        let status = process.end();
        assert!(status.success(), "{line}: {status}");
        // The reader ends with the terminal.
        let text: String = output.iter().collect();
        let lines = lines_of(&text);
        assert!(
            lines.iter().any(|one| one.contains(shown)),
            "{line}: {text:?}"
        );
        for one in lines
            .iter()
            .filter(|one| !one.starts_with("farcore tune: "))
        {
            assert!(one.chars().count() <= 80, "{line}: {one:?}");
        }
    }
}
