//! What every command says of flags that are unknown, wrong or without effect, and of files that
//! are missing: one error that names the flag as it was typed, the limit, the value and the remedy.
//!
//! The list of commands is that of the flags' parser, so that a new command fails these tests until
//! it is in [`ROWS`]. What concerns addresses, secrets and servers is in the tests of the commands.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod card;
mod cli;
mod console;
mod fabric;
mod node;
mod others;
mod pool;
mod serve;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use self::card::CARD;
use self::cli::CLI;
use self::console::CONSOLE;
use self::fabric::FABRIC;
use self::node::NODE;
use self::others::OTHERS;
use self::pool::POOL;
use self::serve::SERVE;
use self::support::{TokenFile, commands};

/// The name of a command, its arguments, its exit code, and parts of its error. TRACE, PASSWORD,
/// FOLDER and TOKEN are files and a folder, TAKEN is an address that cannot be listened at.
type Row = (&'static str, &'static str, i32, &'static [&'static str]);

const ROWS: [&[Row]; 8] = [CARD, CLI, CONSOLE, FABRIC, NODE, POOL, SERVE, OTHERS];

fn rows() -> impl Iterator<Item = &'static Row> {
    ROWS.into_iter().flatten()
}

/// What the rows name.
struct Place {
    folder: TempDir,
    taken: TcpListener,
}

impl Place {
    fn new() -> Self {
        let place = Self {
            folder: tempfile::tempdir().unwrap(),
            taken: TcpListener::bind("127.0.0.1:0").unwrap(),
        };
        for (name, text) in [
            ("password", "correct horse battery\n"),
            ("short", "short\n"),
        ] {
            fs::write(place.path(name), text).unwrap();
        }
        let trace = "card trace generate --messages 50 --out TRACE";
        assert_eq!(place.run(trace), (Some(0), String::new()));
        place
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Runs a line: its exit code, and what it says on stderr but for its log.
    fn run(&self, line: &str) -> (Option<i32>, String) {
        let line = line
            .replace("FOLDER", &self.folder.path().display().to_string())
            .replace("PASSWORD", &self.path("password"))
            .replace("TRACE", &self.path("trace"))
            .replace("TAKEN", &self.taken.local_addr().unwrap().to_string());
        // A wrong use that is accepted would serve for ever.
        let mut command = Command::new("timeout");
        command
            .args(["60", env!("CARGO_BIN_EXE_farcore")])
            .args(line.split_whitespace())
            .stdin(Stdio::null());
        let output = command.env("RUST_LOG", "off").output().unwrap();
        assert_eq!(output.stdout, b"", "{line}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    }
}

/// What holds for every error.
fn check(name: &str, line: &str, code: i32, said: &str) {
    assert!(!said.contains("panicked"), "{line}: {said}");
    assert!(said.matches("os error").count() <= 1, "{line}: {said}");
    // A field of an engine's or a server's settings.
    let words = said.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let fields: Vec<&str> = words.filter(|word| word.contains('_')).collect();
    let is_field = |word: &&&str| {
        ["_bytes", "_max", "_ns", "_min"]
            .iter()
            .any(|end| word.ends_with(end))
    };
    assert_eq!(fields.iter().find(is_field), None, "{line}: {said}");
    if said.starts_with("error: ") {
        let is_cli = name.starts_with("cli");
        assert_eq!(code, if is_cli { 1 } else { 2 }, "{line}: {said}");
        assert_eq!(said.matches("error: ").count(), 1, "{line}: {said}");
        assert!(said.contains("--help"), "{line}: {said}");
    } else {
        // A command of commands may fail before it knows which one is meant.
        let group = name.split(' ').next().unwrap_or_default();
        let is_named = said.starts_with(&format!("farcore {group}")) || name == "run-one";
        assert!(is_named, "{line}: {said}");
        assert_eq!(said.lines().count(), 1, "{line}: {said}");
    }
}

#[test]
fn every_command_is_in_the_list() {
    let names: BTreeSet<String> = rows().map(|row| row.0.to_owned()).collect();
    assert_eq!(names, commands());
}

#[test]
fn an_unknown_flag_is_named() {
    let place = Place::new();
    for name in commands() {
        let line = format!("{name} --nothing-at-all");
        let (code, said) = place.run(&line);
        let expected = if name.starts_with("cli") { 1 } else { 2 };
        assert_eq!(code, Some(expected), "{line}: {said}");
        assert!(said.contains("'--nothing-at-all'"), "{line}: {said}");
        check(&name, &line, expected, &said);
    }
    let (code, said) = place.run("mend");
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("unrecognized subcommand 'mend'"), "{said}");
}

#[test]
fn every_error_names_flag_limit_value_and_remedy() {
    let place = Place::new();
    for &(name, line, code, parts) in rows() {
        let (ended, said) = place.run(line);
        assert_eq!(ended, Some(code), "{line}: {said}");
        for part in parts {
            assert!(said.contains(part), "{line}: no {part:?} in {said}");
        }
        check(name, line, code, &said);
        let left = fs::read_dir(place.folder.path()).unwrap();
        let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let known = |name: &String| ["password", "short", "trace"].contains(&name.as_str());
        assert!(
            names.into_iter().all(|name| known(&name)),
            "{line} leaves a file"
        );
    }
}

/// The examples of a first-time user: what the other side says is in words of the flags, too.
#[test]
fn a_token_that_differs_is_named_by_its_flag() {
    let token = TokenFile::new("misused");
    let node = support::Node::start(
        &[],
        &[
            "--listen",
            "tcp://127.0.0.1:0",
            "--memory",
            "64MiB",
            "--no-huge-pages",
            "--token-file",
            token.path(),
        ],
    );
    let open = support::Node::start(
        &[],
        &[
            "--listen",
            "tcp://127.0.0.1:0",
            "--memory",
            "64MiB",
            "--no-huge-pages",
        ],
    );
    let place = Place::new();
    fs::write(place.path("other"), "another token, long enough").unwrap();
    let (guarded, open) = (node.address, open.address);
    let serve = "serve --resp 127.0.0.1:0 --local 32MiB --far 32MiB --cores 0 --no-huge-pages";
    for command in [serve, "fabric ping --count 1"] {
        for (flags, part) in [
            (
                format!("--fabric tcp://{guarded} --token-file FOLDER/other"),
                "rejected the token: --token-file differs from the node's",
            ),
            (
                format!("--fabric tcp://{guarded}"),
                "requires a token: give --token-file",
            ),
            (
                format!("--fabric tcp://{open} --token-file FOLDER/other"),
                "has no token: omit --token-file",
            ),
        ] {
            let line = format!("{command} {flags}");
            let (code, said) = place.run(&line);
            assert_eq!(code, Some(1), "{line}: {said}");
            assert!(
                said.contains("--fabric tcp://") && said.contains(part),
                "{line}: {said}"
            );
            let name = line.split(" --").next().unwrap_or_default();
            check(name, &line, 1, &said);
        }
    }
    let line = format!("{serve} --far 1GiB --fabric tcp://{open}").replace("--far 32MiB ", "");
    let (code, said) = place.run(&line);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("--far"), "{said}");
    check("serve", &line, 1, &said);
}
