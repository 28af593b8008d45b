//! Every command ended by SIGTERM, SIGINT and SIGHUP, while it works: its exit status, and that it
//! leaves no process, socket or half-written file.
//!
//! The list of commands is that of the flags' parser, so that a new command fails these tests until
//! it is in [`ROWS`].

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{PipeReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::Instant;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::pipe::fcntl_getpipe_size;
use serde_json::Value;
use tempfile::TempDir;

use self::support::{Lines, PATIENCE, Process, Serve, commands};

/// Signals and their numbers.
const SIGNALS: [(&str, i32); 3] = [("TERM", 15), ("INT", 2), ("HUP", 1)];

/// When a command is signalled.
#[derive(Clone, Copy, Debug)]
enum When {
    /// As soon as it runs: it waits for something that does not come.
    Running,
    /// It has printed this.
    Printed(&'static str),
    /// It handles the signal.
    Handling,
    /// It has the process of a run.
    Child,
    /// It has used this processor time, in hundredths of a second, after which it has figures.
    Busy(u64),
}

/// How a command ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// By the signal, as without a handler.
    Signal,
    /// In order.
    Clean,
    /// Early, with 128 + the signal's number.
    Early,
    /// Early, after it has printed and written what was measured, marked partial.
    Partial,
}

/// What its standard input and output are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Streams {
    /// An input that does not end, an output that is read.
    Open,
    /// An output that takes nothing more.
    Full,
}

struct Row {
    name: &'static str,
    /// The arguments. FILE, FIFO and FOLDER are paths in an empty folder, SILENT is an address that
    /// answers nothing, QUIET the same without its scheme, SERVER one of a server.
    line: &'static str,
    streams: Streams,
    when: When,
    end: End,
}

const fn row(name: &'static str, line: &'static str, when: When, end: End) -> Row {
    Row {
        name,
        line,
        streams: Streams::Open,
        when,
        end,
    }
}

/// A command that prints and ends, held by its output.
const fn held(name: &'static str, line: &'static str) -> Row {
    Row {
        streams: Streams::Full,
        ..row(name, line, When::Running, End::Signal)
    }
}

/// An operation of `cli`, held by a server that does not answer.
const fn asked(name: &'static str, line: &'static str) -> Row {
    row(name, line, When::Handling, End::Signal)
}

const ROWS: &[Row] = &[
    row(
        "card run",
        "card run --messages 1000000000 --points 10000 --json --csv FILE",
        When::Busy(50),
        End::Partial,
    ),
    row(
        "card run",
        "card run --one-tier --trace - --csv FILE",
        When::Running,
        End::Signal,
    ),
    row(
        "card sweep",
        "card sweep --vary messages=1000,1000000000000 --warmup 0 --repeats 1 --jobs 1 --json --csv FILE",
        When::Busy(50),
        End::Partial,
    ),
    row(
        "card fit",
        "card fit --policies lru,adaptive --messages 10000 --warmup 0 --repeats 100 --jobs 1 --json --csv FILE",
        When::Busy(50),
        End::Partial,
    ),
    row(
        "card trace convert",
        "card trace convert - --to csv --out FILE",
        When::Running,
        End::Signal,
    ),
    row(
        "card trace generate",
        "card trace generate --out FIFO",
        When::Running,
        End::Signal,
    ),
    row(
        "card trace inspect",
        "card trace inspect -",
        When::Running,
        End::Signal,
    ),
    row("cli", "cli --server SERVER", When::Handling, End::Signal),
    row(
        "cli bench",
        "cli --server SERVER bench --json --operations 1000000000 --keys 10",
        When::Busy(20),
        End::Partial,
    ),
    asked("cli cas", "cli --server SILENT --timeout 1h cas k 1 v"),
    asked("cli del", "cli --server SILENT --timeout 1h del k"),
    asked("cli expire", "cli --server SILENT --timeout 1h expire k 9"),
    asked(
        "cli forget-lost",
        "cli --server SILENT --timeout 1h forget-lost",
    ),
    asked(
        "cli get",
        "cli --server SILENT --timeout 1h get k --output FILE",
    ),
    asked("cli incr", "cli --server SILENT --timeout 1h incr k"),
    asked("cli mget", "cli --server SILENT --timeout 1h mget k l"),
    asked("cli put", "cli --server SERVER put k --stdin"),
    asked("cli scan", "cli --server SILENT --timeout 1h scan"),
    asked("cli stats", "cli --server SILENT --timeout 1h stats"),
    asked("cli ttl", "cli --server SILENT --timeout 1h ttl k"),
    row(
        "cluster add",
        "cluster add --server QUIET --new QUIET",
        When::Running,
        End::Signal,
    ),
    row(
        "cluster check",
        "cluster check --map FIFO",
        When::Running,
        End::Signal,
    ),
    held(
        "cluster create",
        "cluster create --map FOLDER/data-map --servers a:1",
    ),
    row(
        "cluster failover",
        "cluster failover --map etcd://QUIET/shop --old a:1",
        When::Running,
        End::Signal,
    ),
    row(
        "cluster move-slots",
        "cluster move-slots --server QUIET --from QUIET --to QUIET --count 1",
        When::Running,
        End::Signal,
    ),
    row(
        "cluster remove",
        "cluster remove --server QUIET --old QUIET",
        When::Running,
        End::Signal,
    ),
    row(
        "cluster share",
        "cluster share --server QUIET",
        When::Running,
        End::Signal,
    ),
    row(
        "cluster show",
        "cluster show --map FIFO",
        When::Running,
        End::Signal,
    ),
    row(
        "nodes add",
        "nodes add tcp://a:1 --server QUIET",
        When::Running,
        End::Signal,
    ),
    row(
        "nodes drain",
        "nodes drain tcp://a:1 --server QUIET",
        When::Running,
        End::Signal,
    ),
    row(
        "nodes list",
        "nodes list --server QUIET",
        When::Running,
        End::Signal,
    ),
    row(
        "nodes remove",
        "nodes remove tcp://a:1 --server QUIET",
        When::Running,
        End::Signal,
    ),
    held("completions", "completions bash"),
    row(
        "console",
        "console --listen 127.0.0.1:0 --data FOLDER/data --admin-password-file FOLDER/password",
        When::Printed("ready: "),
        End::Clean,
    ),
    held("data check", "data check FOLDER"),
    held("data repair", "data repair FOLDER"),
    held("doctor", "doctor --json"),
    row(
        "fabric bandwidth",
        "fabric bandwidth --seconds 3600 --bytes 64 --json FILE",
        When::Busy(200),
        End::Partial,
    ),
    // A node that does not answer leaves nothing to print.
    row(
        "fabric bandwidth",
        "fabric bandwidth --fabric SILENT --json FILE",
        When::Handling,
        End::Early,
    ),
    row(
        "fabric ping",
        "fabric ping --fabric SILENT --json FILE",
        When::Handling,
        End::Early,
    ),
    row(
        "pool bench",
        "pool bench --seconds 3600 --json FILE",
        When::Busy(200),
        End::Partial,
    ),
    row(
        "pool demo",
        "pool demo --nodes SILENT",
        When::Running,
        End::Signal,
    ),
    row(
        "pool status",
        "pool status --nodes SILENT --wait 3600",
        When::Running,
        End::Signal,
    ),
    // A pipe without a writer.
    row("rdb check", "rdb check FIFO", When::Running, End::Signal),
    row("rdb import", "rdb import FIFO", When::Running, End::Signal),
    row(
        "rdb export",
        "rdb export --from QUIET FILE",
        When::Running,
        End::Signal,
    ),
    held("fabric devices", "fabric devices"),
    row(
        "fabric ping",
        "fabric ping --bytes 8 --operation read --count 1000000000000 --json FILE",
        When::Busy(50),
        End::Partial,
    ),
    // A page that is a pipe holds it.
    row("man", "man --out FOLDER/man", When::Running, End::Signal),
    row(
        "memnode",
        "memnode --listen tcp://127.0.0.1:0 --memory 16MiB --no-huge-pages",
        When::Printed("ready: "),
        End::Clean,
    ),
    row("run-one", "run-one", When::Handling, End::Early),
    row(
        "serve",
        "serve --resp 127.0.0.1:0 --local 32MiB --far 32MiB --cores 0 --no-huge-pages --stats-socket FILE",
        When::Printed("ready: "),
        End::Clean,
    ),
    // The memory nodes are named by one that does not answer.
    row(
        "serve",
        "serve --resp 127.0.0.1:0 --cores 0 --nodes-from etcd://QUIET/p --wait-for-nodes 1h",
        When::Handling,
        End::Clean,
    ),
    row(
        "top",
        "top /nonexistent/engine.sock",
        When::Running,
        End::Signal,
    ),
    row(
        "tune",
        "tune --workload ycsb-c --zipf 0 --cores 0 --knobs window --records 30000 --operations 10000000 \
         --local 8MiB --far 128MiB --far-latency 2ms --out FILE",
        When::Child,
        End::Early,
    ),
    row(
        "tune",
        "tune --predict cores=8 --repeats 1000 --keys-per-core 5000 --hot-ops 8000 --no-prefault --json --plot FILE",
        When::Child,
        End::Signal,
    ),
];

/// What commands connect to.
struct Peers {
    /// Accepts and answers nothing.
    silent: TcpListener,
    server: Serve,
}

impl Peers {
    fn start() -> Self {
        Self {
            silent: TcpListener::bind("127.0.0.1:0").unwrap(),
            server: Serve::start(&["--native", "tcp://127.0.0.1:0", "--cores", "0"]),
        }
    }
}

/// A command that runs in a folder of its own.
struct Run {
    process: Process,
    folder: TempDir,
    /// Held open, so that the input does not end.
    _stdin: Option<std::process::ChildStdin>,
    /// Not read, so that the output stays full.
    _full: Option<PipeReader>,
    out: Option<Lines>,
    log: Lines,
}

/// A standard output that takes nothing more, and its reader.
fn full_pipe() -> (PipeReader, Stdio) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let bytes = fcntl_getpipe_size(&writer).unwrap();
    writer.write_all(&vec![b' '; bytes]).unwrap();
    (reader, writer.into())
}

/// Makes what the lines of [`ROWS`] name.
fn prepare(folder: &Path) {
    let mut secret = OpenOptions::new();
    secret.write(true).create_new(true).mode(0o600);
    let mut secret = secret.open(folder.join("password")).unwrap();
    secret.write_all(b"correct horse battery\n").unwrap();
    fs::create_dir(folder.join("man")).unwrap();
    for pipe in ["fifo", "man/farcore.1"] {
        let mode = Mode::RUSR | Mode::WUSR;
        mknodat(CWD, folder.join(pipe), FileType::Fifo, mode, 0).unwrap();
    }
}

/// What may be in a folder after a command: what was there before, whole files, databases.
fn may_stay(name: &str, end: End) -> bool {
    let was_there = ["password", "fifo"].contains(&name);
    let is_file = name == "file" && end == End::Partial;
    was_there || is_file || name.starts_with("man") || name.starts_with("data")
}

impl Run {
    /// Starts the command of a row; `signals` says how `env` sets the signals.
    fn start(row: &Row, peers: &Peers, signals: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        let at = |name: &str| folder.path().join(name).display().to_string();
        let silent = format!("tcp://{}", peers.silent.local_addr().unwrap());
        let line = row
            .line
            .replace("FILE", &at("file"))
            .replace("FIFO", &at("fifo"))
            .replace("FOLDER", &folder.path().display().to_string())
            .replace("SILENT", &silent)
            .replace("QUIET", silent.trim_start_matches("tcp://"))
            .replace("SERVER", peers.server.native.as_deref().unwrap());
        let (full, out) = match row.streams {
            Streams::Open => (None, Stdio::piped()),
            Streams::Full => {
                let (reader, writer) = full_pipe();
                (Some(reader), writer)
            }
        };
        let mut command = Command::new("env");
        command
            .args(signals.split_whitespace())
            .arg(env!("CARGO_BIN_EXE_farcore"))
            .args(line.split_whitespace())
            .current_dir(folder.path())
            .env("TMPDIR", folder.path())
            .env("XDG_RUNTIME_DIR", folder.path())
            .env("XDG_STATE_HOME", folder.path())
            .env("HOME", folder.path())
            .env_remove("RUST_LOG")
            .stdin(Stdio::piped())
            .stdout(out)
            .stderr(Stdio::piped());
        let mut process = Process(command.spawn().unwrap());
        let out = process.0.stdout.take().map(Lines::of);
        let log = Lines::of(process.0.stderr.take().unwrap());
        let _stdin = process.0.stdin.take();
        Self {
            process,
            folder,
            _stdin,
            _full: full,
            out,
            log,
        }
    }

    fn of_process(&self, file: &str) -> String {
        let id = self.process.0.id();
        fs::read_to_string(format!("/proc/{id}/{file}")).unwrap_or_default()
    }

    fn has_thread(&self, name: &str) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.0.id()));
        let mut tasks = tasks.into_iter().flatten().flatten();
        tasks.any(|task| {
            let of = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            of.trim_end() == name
        })
    }

    /// The numbers of its runs: other children tell it about the machine.
    fn runs(&self) -> Vec<String> {
        let id = self.process.0.id();
        let text = self.of_process(&format!("task/{id}/children"));
        let is_run = |child: &&str| {
            let words = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).contains("run-one")
        };
        let children = text.split_whitespace().filter(is_run);
        children.map(str::to_owned).collect()
    }

    /// Hundredths of a second that it has run on a processor.
    fn busy(&self) -> u64 {
        let stat = self.of_process("stat");
        let (_, fields) = stat.rsplit_once(") ").unwrap_or_default();
        // The fields 14 and 15 of proc(5), after two of them.
        let ticks = fields.split(' ').skip(11).take(2);
        ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum()
    }

    fn wait_until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            let is_alive = self.process.is_alive();
            assert!(is_alive, "it ended before it was {what}");
            assert!(start.elapsed() < PATIENCE, "it is not {what}");
            thread::yield_now();
        }
    }

    fn wait(&mut self, when: When, signal: i32) {
        // `env` has become the command.
        self.wait_until("running", |run| run.of_process("comm") == "farcore\n");
        match when {
            When::Running => {}
            When::Printed(text) => drop(self.out.as_mut().unwrap().wait(text)),
            When::Handling => self.wait_until("handling", |run| run.process.handles(signal)),
            When::Child => self.wait_until("a parent", |run| !run.runs().is_empty()),
            When::Busy(ticks) => self.wait_until("busy", |run| run.busy() >= ticks),
        }
    }

    /// Everything that is wrong about its end.
    fn check(self, row: &Row, status: ExitStatus, signal: i32, children: &[String]) {
        let context = format!("{} by signal {signal}", row.name);
        let Self {
            folder, out, log, ..
        } = self;
        let log = log.rest().join("\n");
        assert!(!log.contains("panicked"), "{context}: {log}");
        let expected = match row.end {
            End::Signal => (None, Some(signal)),
            End::Clean => (Some(0), None),
            End::Early | End::Partial => (Some(128 + signal), None),
        };
        let ended = (status.code(), status.signal());
        assert_eq!(ended, expected, "{context}: {log}");
        let start = Instant::now();
        for child in children {
            while Path::new(&format!("/proc/{child}")).exists() {
                assert!(start.elapsed() < PATIENCE, "{context}: a child is left");
                thread::yield_now();
            }
        }
        for entry in fs::read_dir(folder.path()).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(may_stay(&name, row.end), "{context}: {name} is left");
        }
        if row.end == End::Partial {
            check_figures(row, folder.path(), out, &context);
        }
    }
}

/// The figures of a measurement that ended early: printed, written, marked partial.
fn check_figures(row: &Row, folder: &Path, out: Option<Lines>, context: &str) {
    let printed = out.unwrap().rest().join("\n");
    assert!(!printed.is_empty(), "{context}: no figures are printed");
    let written = fs::read_to_string(folder.join("file"));
    if row.line.contains("FILE") {
        let text = written.as_deref().unwrap_or_default();
        assert!(text.lines().count() > 1, "{context}: {text}");
    }
    // The JSON is in the file of a flag, or printed.
    let json = match row.line.contains("--json FILE") {
        true => written.unwrap(),
        false => printed,
    };
    let json: Value = serde_json::from_str(&json).unwrap();
    let origin = &json["origin"];
    assert_eq!(origin["partial"], true, "{context}: {origin}");
    for field in ["version", "commit", "date"] {
        assert!(origin[field].is_string(), "{context}: {origin}");
    }
    assert!(origin["command"].is_array(), "{context}: {origin}");
}

#[test]
fn every_command_is_in_the_list() {
    let names: BTreeSet<String> = ROWS.iter().map(|row| row.name.to_owned()).collect();
    assert_eq!(names, commands());
}

#[test]
fn every_command_ends_by_a_signal_and_leaves_nothing() {
    let peers = Peers::start();
    for (name, signal) in SIGNALS {
        for row in ROWS {
            let mut run = Run::start(row, &peers, "--default-signal");
            run.wait(row.when, signal);
            let children = run.runs();
            run.process.signal(name);
            let status = run.process.end();
            run.check(row, status, signal, &children);
        }
    }
    assert_eq!(peers.server.line("DBSIZE"), ":0", "a measurement left keys");
}

/// As `nohup` and shells without job control want it.
#[test]
fn a_hangup_that_was_ignored_at_the_start_stays_ignored() {
    let peers = Peers::start();
    for row in ROWS {
        let mut run = Run::start(row, &peers, "--default-signal --ignore-signal=HUP");
        run.wait(row.when, 15);
        assert!(!run.process.handles(1), "{} handles SIGHUP", row.name);
        let children = run.runs();
        run.process.signal("HUP");
        run.process.signal("TERM");
        let status = run.process.end();
        run.check(row, status, 15, &children);
    }
}

/// Without an engine there is nothing to end in order, but the wait for a memory node must end.
#[test]
fn a_server_that_waits_for_its_memory_node_ends_by_a_signal() {
    let peers = Peers::start();
    for (name, signal) in SIGNALS {
        let serve = row(
            "serve",
            "serve --resp 127.0.0.1:0 --local 32MiB --far 32MiB --cores 0 --no-huge-pages --fabric SILENT",
            When::Handling,
            End::Clean,
        );
        let mut run = Run::start(&serve, &peers, "--default-signal");
        run.wait(serve.when, signal);
        // The handler is there a moment before what it does.
        run.wait_until("waiting for signals", |run| run.has_thread("signals"));
        run.process.signal(name);
        let status = run.process.end();
        run.check(&serve, status, signal, &[]);
    }
}

/// Nothing can be done at SIGKILL, so that the kernel ends the run.
#[test]
fn the_run_of_a_search_ends_with_its_killed_command() {
    let peers = Peers::start();
    let tune = ROWS.iter().find(|row| row.name == "tune").unwrap();
    let killed = Row {
        end: End::Signal,
        ..row(tune.name, tune.line, tune.when, tune.end)
    };
    let mut run = Run::start(&killed, &peers, "--default-signal");
    run.wait(killed.when, 15);
    let children = run.runs();
    run.process.signal("KILL");
    let status = run.process.end();
    run.check(&killed, status, 9, &children);
}
