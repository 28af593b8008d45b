//! Every command whose output ends early: behind `| head`, with an output or an error output that
//! was closed before the start, on a full disk. No panic, the exit code of the work, and files are
//! written.
//!
//! The list of commands is that of the flags' parser, so that a new command fails these tests until
//! it is in [`ROWS`] or [`SERVICES`].

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use self::support::{Lines, Process, Serve, closed_pipe, commands};

/// Name, arguments and exit code. FILE and FOLDER are paths in an empty folder, REPORT, TRACE
/// MAP and DUMP are files, SERVER is the address of a server with the key `k`.
type Row = (&'static str, &'static str, i32);

/// Commands that print something and end. A file that one of them names is checked.
const ROWS: &[Row] = &[
    ("cluster check", "cluster check --map MAP", 0),
    (
        "cluster create",
        "cluster create --map FILE --servers a:1",
        0,
    ),
    ("cluster show", "cluster show --map MAP", 0),
    ("data check", "data check FOLDER/data", 0),
    ("data repair", "data repair FOLDER/data", 0),
    ("rdb check", "rdb check DUMP", 0),
    ("rdb import", "rdb import DUMP --to RESP", 0),
    ("rdb export", "rdb export --from RESP FILE", 0),
    (
        "card run",
        "card run --messages 1000 --warmup 0 --csv FILE",
        0,
    ),
    (
        "card run",
        "card run --messages 1000 --warmup 0 --json --plot FILE",
        0,
    ),
    (
        "card run",
        "card run --messages 1000 --one-tier --csv FILE",
        0,
    ),
    (
        "card sweep",
        "card sweep --vary queue-pairs=1,2 --messages 1000 --warmup 0 --repeats 1 --csv FILE",
        0,
    ),
    (
        "card fit",
        "card fit --policies lru --messages 1000 --messages-max 1000 --warmup 0 --repeats 1 --csv FILE",
        0,
    ),
    ("card trace inspect", "card trace inspect TRACE", 0),
    ("card trace inspect", "card trace inspect TRACE --json", 0),
    (
        "cli bench",
        "cli --server SERVER bench --operations 10 --keys 1",
        0,
    ),
    ("cli cas", "cli --server SERVER cas k 99999999 v --json", 3),
    ("cli del", "cli --server SERVER del gone --json", 2),
    ("cli expire", "cli --server SERVER expire k --never", 0),
    ("cli forget-lost", "cli --server SERVER forget-lost", 0),
    ("cli get", "cli --server SERVER get k", 0),
    ("cli get", "cli --server SERVER get k --output FILE", 0),
    ("cli incr", "cli --server SERVER incr n", 0),
    ("cli mget", "cli --server SERVER mget k k", 0),
    ("cli put", "cli --server SERVER put other v", 0),
    ("cli scan", "cli --server SERVER scan", 0),
    ("cli stats", "cli --server SERVER stats", 0),
    ("cli ttl", "cli --server SERVER ttl k", 0),
    ("completions", "completions bash", 0),
    ("doctor", "doctor", 0),
    ("doctor", "doctor --json", 0),
    (
        "fabric bandwidth",
        "fabric bandwidth --count 20 --bytes 64 --json FILE",
        0,
    ),
    ("fabric devices", "fabric devices --json FILE", 0),
    (
        "fabric ping",
        "fabric ping --count 20 --bytes 8 --json FILE",
        0,
    ),
    (
        "pool bench",
        "pool bench --seconds 0.02 --threads 1 --json FILE",
        0,
    ),
    ("pool demo", "pool demo", 0),
    ("tune", "tune --predict cores=8 --from REPORT", 0),
    (
        "tune",
        "tune --predict cores=8 --from REPORT --json --plot FILE",
        0,
    ),
    (
        "tune",
        "tune --cores 0 --local 16MiB --far 16MiB --no-prefault --repeats 6 --keys-per-core 300 --hot-ops 300 \
         --knobs batch --out FILE",
        0,
    ),
    ("help", "--help", 0),
];

/// Commands that print nothing but into files; they have no output to lose.
const SILENT: &[Row] = &[
    (
        "card trace convert",
        "card trace convert TRACE --to csv --out FILE",
        0,
    ),
    (
        "card trace generate",
        "card trace generate --messages 10 --out FILE",
        0,
    ),
    ("man", "man --out FOLDER/man", 0),
];

/// Commands that go on without an output, and end by a signal.
const SERVICES: &[(&str, &str)] = &[
    (
        "console",
        "console --listen 127.0.0.1:0 --data FOLDER/data --admin-password-file FOLDER/password",
    ),
    (
        "memnode",
        "memnode --listen tcp://127.0.0.1:0 --memory 16MiB --no-huge-pages",
    ),
    (
        "serve",
        "serve --resp 127.0.0.1:0 --local 32MiB --far 32MiB --cores 0 --no-huge-pages",
    ),
];

/// `run-one` answers its parent; the others have a test of their own.
const ELSEWHERE: [&str; 13] = [
    "cli",
    "cluster add",
    "cluster failover",
    "cluster move-slots",
    "cluster remove",
    "cluster share",
    "nodes add",
    "nodes drain",
    "nodes list",
    "nodes remove",
    "pool status",
    "run-one",
    "top",
];

/// The files that the lines name, and a server.
struct Place {
    folder: TempDir,
    server: Serve,
}

impl Place {
    fn new() -> Self {
        let place = Self {
            folder: tempfile::tempdir().unwrap(),
            server: Serve::start(&["--native", "tcp://127.0.0.1:0", "--cores", "0"]),
        };
        assert_eq!(place.server.line("SET k v"), "+OK");
        assert_eq!(place.server.line("SET n 1"), "+OK");
        let made = place.command("card trace generate --messages 50 --out TRACE");
        assert!({ made }.status().unwrap().success());
        let mut report = farcore::Report {
            format: farcore::Report::FORMAT,
            ..farcore::Report::default()
        };
        let mut core = farcore::CoreReport::default();
        core.counters.gets = 10_000;
        core.counters.requests_own = 10_000;
        core.counters.busy_ns = 4_000_000;
        report.cores.push(core);
        let report = serde_json::to_vec(&report).unwrap();
        fs::write(place.path("report.json"), report).unwrap();
        // An empty file of Redis, without a checksum.
        fs::write(place.path("dump.rdb"), b"REDIS0010\xff\0\0\0\0\0\0\0\0").unwrap();
        fs::create_dir(place.path("data")).unwrap();
        let made = place.command("cluster create --map MAP --servers a:1,b:1");
        assert!({ made }.output().unwrap().status.success());
        fs::write(place.path("password"), "correct horse battery\n").unwrap();
        place
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The command of a line, with `before` in front of it.
    fn behind(&self, before: &[&str], line: &str) -> Command {
        let line = line
            .replace("FILE", &self.path("file"))
            .replace("FOLDER", &self.folder.path().display().to_string())
            .replace("MAP", &self.path("map"))
            .replace("DUMP", &self.path("dump.rdb"))
            .replace("REPORT", &self.path("report.json"))
            .replace("TRACE", &self.path("trace"))
            .replace("RESP", &self.server.address.to_string())
            .replace("SERVER", self.server.native.as_deref().unwrap());
        let farcore = env!("CARGO_BIN_EXE_farcore");
        let mut words = before.iter().copied().chain([farcore]);
        let mut command = Command::new(words.next().unwrap_or(farcore));
        command.args(words).args(line.split_whitespace());
        command.stdin(Stdio::null()).env_remove("RUST_LOG");
        command
    }

    fn command(&self, line: &str) -> Command {
        self.behind(&[], line)
    }

    /// Checks an end: its exit code, no panic, and the file of the line; removes the file.
    fn check(&self, line: &str, how: &str, output: &Output, code: i32) -> String {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!said.contains("panicked"), "{line} {how}: {said}");
        // The doctor's verdict is of this machine.
        let is_verdict = line.starts_with("doctor") && output.status.code() == Some(1);
        assert!(
            output.status.code() == Some(code) || is_verdict,
            "{line} {how}: {:?} {said}",
            output.status
        );
        if line.contains("FILE") {
            let file = self.path("file");
            let bytes = fs::read(&file).unwrap_or_default();
            assert!(
                !bytes.is_empty(),
                "{line} {how}: no file is written: {said}"
            );
            fs::remove_file(file).unwrap();
        }
        said
    }
}

/// The number of SIGTERM.
const TERM: i32 = 15;
/// Commands of a shell that close a stream and become the rest of the line.
const CLOSED_OUT: [&str; 3] = ["sh", "-c", "exec \"$0\" \"$@\" >&-"];
const CLOSED_ERROR: [&str; 3] = ["sh", "-c", "exec \"$0\" \"$@\" 2>&-"];

#[test]
fn every_command_is_in_a_list() {
    let rows = ROWS.iter().chain(SILENT).map(|row| row.0);
    let services = SERVICES.iter().map(|row| row.0);
    let names = rows.chain(services).chain(ELSEWHERE);
    let names: BTreeSet<String> = names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect();
    assert_eq!(names, commands());
}

#[test]
fn an_output_that_is_closed_is_no_error() {
    let place = Place::new();
    for &(_, line, code) in ROWS.iter().chain(SILENT) {
        let output = place.command(line).stdout(closed_pipe()).output().unwrap();
        place.check(line, "in a closed pipe", &output, code);
        let output = place.behind(&CLOSED_OUT, line).output().unwrap();
        place.check(line, "without an output", &output, code);
        let output = place.command(line).stderr(closed_pipe()).output().unwrap();
        place.check(line, "with errors in a closed pipe", &output, code);
        let output = place.behind(&CLOSED_ERROR, line).output().unwrap();
        place.check(line, "without an error output", &output, code);
    }
}

#[test]
fn a_full_disk_is_an_error_after_the_files_are_written() {
    let place = Place::new();
    for &(name, line, _) in ROWS {
        let full = File::create("/dev/full").unwrap();
        let output = place.command(line).stdout(full).output().unwrap();
        let code = if name == "help" { 0 } else { 1 };
        if line.starts_with("tune --cores") {
            // It prints what it is about to do, so that it fails before the work.
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{line}: {said}");
            assert!(
                said.contains("standard output cannot be written"),
                "{line}: {said}"
            );
            assert!(!Path::new(&place.path("file")).exists(), "{line}");
            continue;
        }
        let said = place.check(line, "on a full disk", &output, code);
        // The library of the flags prints the help, and takes a lost one for none.
        let is_said = said.contains("standard output cannot be written: No space left on device");
        assert!(is_said || name == "help", "{line}: {said}");
        assert_eq!(
            said.matches("os error").count(),
            usize::from(is_said),
            "{line}: {said}"
        );
    }
}

#[test]
fn services_go_on_without_an_output() {
    let place = Place::new();
    for &(name, line) in SERVICES {
        let full = File::create("/dev/full").unwrap();
        let closed: &[&str] = &CLOSED_OUT;
        for (before, out) in [
            (&[][..], closed_pipe()),
            (&[], full.into()),
            (closed, Stdio::null()),
        ] {
            let mut command = place.behind(before, line);
            let child = command.stdout(out).stderr(Stdio::piped()).spawn();
            let mut process = Process(child.unwrap());
            let log = Lines::of(process.0.stderr.take().unwrap());
            // It handles signals from its start on.
            while !process.handles(TERM) {
                assert!(process.is_alive(), "{name}: {}", log.rest().join("\n"));
                std::thread::yield_now();
            }
            process.signal("TERM");
            let status = process.end();
            let log = log.rest().join("\n");
            assert_eq!(status.code(), Some(0), "{name}: {log}");
            assert!(!log.contains("panicked"), "{name}: {log}");
        }
    }
}

#[test]
fn a_script_and_a_view_end_with_their_reader() {
    let place = Place::new();
    // More than its output can hold.
    fs::write(place.path("script"), "get k\n".repeat(1_000)).unwrap();
    let mut command = place.command("cli --server SERVER");
    let script = File::open(place.path("script")).unwrap();
    let output = command
        .stdin(script)
        .stdout(closed_pipe())
        .output()
        .unwrap();
    place.check("cli", "in a closed pipe", &output, 0);
    let mut command = place.command("cli --server SERVER");
    let script = File::open(place.path("script")).unwrap();
    let full = File::create("/dev/full").unwrap();
    let output = command.stdin(script).stdout(full).output().unwrap();
    let said = place.check("cli", "on a full disk", &output, 1);
    assert!(said.contains("standard output cannot be written"), "{said}");
    let line = "top /nonexistent/engine.sock";
    let output = place.command(line).stdout(closed_pipe()).output().unwrap();
    place.check(line, "in a closed pipe", &output, 0);
    let full = File::create("/dev/full").unwrap();
    let output = place.command(line).stdout(full).output().unwrap();
    let said = place.check(line, "on a full disk", &output, 1);
    assert!(said.contains("standard output cannot be written"), "{said}");
}
