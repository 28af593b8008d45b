//! How a command ends: its exit status, its files although no reader is left, and its processes
//! when a signal meets it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use serde_json::Value;

use self::support::{assert_ends, run_of};

/// The command, whatever the signals that this process ignores.
fn command(line: &str) -> Command {
    command_as("env --default-signal=HUP,INT,TERM", line)
}

/// The command behind another one that sets its signals.
fn command_as(before: &str, line: &str) -> Command {
    let mut words = before.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    command
        .args(words)
        .arg(env!("CARGO_BIN_EXE_farcore-bench"))
        .args(line.split_whitespace())
        .env_remove("RUST_LOG");
    command
}

fn bench(line: &str) -> Output {
    command(line).output().unwrap()
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

#[test]
fn errors_are_no_wrong_values_and_have_a_status_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures.json");
    let output = bench(&format!(
        "contest --engines locked-lru --cores 0 --keys-per-core 40000 --hot-ops 100 --local 2MiB \
         --far 1MiB --json {}",
        file.display()
    ));
    let said = String::from_utf8_lossy(&output.stdout);
    let logged = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}{logged}");
    assert!(said.contains("FarFull"), "{said}");
    let last = logged.lines().last().unwrap();
    assert!(
        last.contains("requests ended with an error: ") && last.contains(" FarFull"),
        "{last}"
    );
    let run = &json(&file)["runs"][0];
    assert_eq!(run["wrong_values"], 0);
    assert!(run["errors"]["FarFull"].as_u64().unwrap() > 0);
}

#[test]
fn figures_carry_their_origin() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures.json");
    let line = format!(
        "contest --engines sharded --cores 0 --keys-per-core 100 --seed 7 --json {}",
        file.display()
    );
    let output = bench(&line);
    assert_eq!(output.status.code(), Some(0));
    let report = json(&file);
    let arguments: Vec<&str> = line.split_whitespace().collect();
    let written = report["command"].as_array().unwrap();
    assert_eq!(written.len(), arguments.len() + 1);
    assert!(
        written[1..]
            .iter()
            .zip(arguments)
            .all(|(one, other)| one == other)
    );
    assert_eq!(report["partial"], false);
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(report["plans"][0]["seed"], 7);
    assert_eq!(report["plans"][0]["keys_per_core"], 100);
    assert!(report["date"].as_str().unwrap().ends_with('Z'));
    assert!(report["commit"].is_string());
    for fact in ["cpu_model", "kernel", "governor", "load_average"] {
        assert!(!report["machine"][fact].is_null(), "{fact}");
    }
}

#[test]
fn files_that_cannot_be_written_fail_the_command_before_it_runs() {
    for flag in ["--json", "--plot", "--record"] {
        let command = if flag == "--record" {
            "ycsb --workload a"
        } else {
            "contest"
        };
        let output = bench(&format!(
            "{command} --engines farcore {flag} /dev/null/file"
        ));
        let logged = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{logged}");
        assert!(
            logged.contains(&format!("{flag} /dev/null/file")),
            "{logged}"
        );
        assert!(!logged.contains("phase starts"), "{logged}");
    }
}

#[test]
fn a_run_that_fails_hides_no_figures_of_the_runs_before_it() {
    // No process listens there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures.json");
    let line = |engines: &str| {
        format!(
            "contest --engines {engines} --cores 0 --keys-per-core 100 --fabric tcp://{address} \
             --wait-for-nodes=1ms --json {}",
            file.display()
        )
    };
    let output = bench(&line("sharded,farcore"));
    let said = String::from_utf8_lossy(&output.stdout);
    let logged = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}{logged}");
    assert!(said.contains("verify4"), "{said}");
    let failure = "the run of farcore failed: the engine could not be opened: ";
    assert!(said.contains(&format!("\npartial: {failure}")), "{said}");
    assert!(logged.lines().last().unwrap().contains(failure), "{logged}");
    let report = json(&file);
    assert_eq!(report["partial"], true);
    assert!(report["failure"].as_str().unwrap().starts_with(failure));
    assert_eq!(report["runs"].as_array().unwrap().len(), 1);
    assert_eq!(report["runs"][0]["engine"], "sharded");
    // Nothing was measured: older figures stay.
    let output = bench(&line("farcore"));
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(json(&file), report);
}

/// A command in the middle of its last phase, which takes minutes, and the process of its run.
struct Running {
    command: Child,
    stdout: ChildStdout,
    run: OwnedFd,
}

/// Starts a run whose requests wait for far memory for a while.
fn start(flags: &str) -> Running {
    start_as("env --default-signal=HUP,INT,TERM", flags)
}

/// Starts a run whose requests wait for far memory, behind a command that sets its signals.
fn start_as(before: &str, flags: &str) -> Running {
    let line = format!(
        "ycsb --workload c --zipf 0 --engines farcore --cores 0 --records 30000 --operations \
         10000000 --local 8MiB --far 128MiB --far-latency 2ms --window 64 {flags}"
    );
    let mut command = command_as(before, &line)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = command.stdout.take().unwrap();
    let mut lines = BufReader::new(command.stderr.take().unwrap()).lines();
    let starts = |line: &String| line.contains("phase starts") && line.contains("transactions");
    let found = lines.by_ref().map(Result::unwrap).find(starts);
    assert!(found.is_some(), "the last phase starts");
    // A command whose log is not read would wait for a reader.
    std::thread::spawn(move || lines.for_each(drop));
    let run = pidfd_open(run_of(command.id()), PidfdFlags::empty()).unwrap();
    Running {
        command,
        stdout,
        run,
    }
}

impl Running {
    fn signal(&self, signal: Signal) {
        let number = i32::try_from(self.command.id()).unwrap();
        kill_process(Pid::from_raw(number).unwrap(), signal).unwrap();
    }

    /// Waits for both processes; returns the status of the command and what it printed.
    fn end(mut self) -> (std::process::ExitStatus, String) {
        let number = i32::try_from(self.command.id()).unwrap();
        let command = pidfd_open(Pid::from_raw(number).unwrap(), PidfdFlags::empty());
        assert_ends(&command.unwrap(), "the command");
        assert_ends(&self.run, "its run");
        let mut said = String::new();
        self.stdout.read_to_string(&mut said).unwrap();
        (self.command.wait().unwrap(), said)
    }
}

#[test]
fn a_signal_ends_command_and_run_with_what_was_measured() {
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let folder = tempfile::tempdir().unwrap();
        let (file, socket) = (
            folder.path().join("figures.json"),
            folder.path().join("socket"),
        );
        let running = start(&format!(
            "--json {} --stats-socket {}",
            file.display(),
            socket.display()
        ));
        assert!(socket.exists());
        running.signal(signal);
        let (ended, said) = running.end();
        assert_eq!(ended.code(), Some(status), "{said}");
        assert!(said.contains("farcore (partial)"), "{said}");
        let report = json(&file);
        assert_eq!(report["partial"], true);
        let run = &report["runs"][0];
        assert_eq!(
            (&run["partial"], &run["wrong_values"]),
            (&Value::from(true), &Value::from(0))
        );
        let ops = |phase: usize| run["phases"][phase]["ops"].as_u64().unwrap();
        assert!(ops(0) == 30_000 && ops(1) < 10_000_000);
        assert!(!socket.exists(), "the run removed its socket");
    }
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    // As `nohup` does.
    let running = start_as("env --ignore-signal=HUP", "");
    pidfd_send_signal(&running.run, Signal::HUP).unwrap();
    running.signal(Signal::HUP);
    // Had one of them heeded SIGHUP, the status would be its.
    running.signal(Signal::TERM);
    let (ended, said) = running.end();
    assert_eq!(ended.code(), Some(143), "{said}");
}

#[test]
fn a_run_ends_when_its_command_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let running = start(&format!("--stats-socket {}", socket.display()));
    assert!(socket.exists());
    running.signal(Signal::KILL);
    running.end();
    assert!(!socket.exists(), "the run removed its socket");
}

#[test]
fn a_record_that_cannot_be_written_hides_no_figures() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures.json");
    let output = bench(&format!(
        "ycsb --workload f --engines farcore --cores 0 --records 600 --operations 900 --local 16MiB \
         --far 16MiB --record /dev/full --json {}",
        file.display()
    ));
    let said = String::from_utf8_lossy(&output.stdout);
    let logged = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}{logged}");
    assert!(said.contains("transactions"), "{said}{logged}");
    let last = logged.lines().last().unwrap();
    let start = "farcore-bench: --record /dev/full cannot be written: No space left";
    assert!(last.starts_with(start), "{last}");
    assert_eq!(json(&file)["runs"][0]["phases"][1]["ops"], 900);
}

/// As the kernel does when memory runs out.
#[test]
fn a_run_that_is_killed_leaves_no_socket() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let running = start(&format!("--stats-socket {}", socket.display()));
    assert!(socket.exists());
    pidfd_send_signal(&running.run, Signal::KILL).unwrap();
    let (ended, said) = running.end();
    assert_eq!(ended.code(), Some(4), "{said}");
    assert!(
        !socket.exists(),
        "the command removed the socket of its run"
    );
}

#[test]
fn a_socket_that_cannot_be_opened_fails_the_command_before_it_runs() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let http = format!("--http {}", taken.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let live = format!("--stats-socket {}", path.display());
    let _listener = UnixListener::bind(path).unwrap();
    for (flag, words) in [
        (
            "--stats-socket /dev/null/socket",
            "--stats-socket /dev/null/socket cannot be opened: Not a directory",
        ),
        (&live, "cannot be opened: another process listens there"),
        (&http, "give --http another address: Address already in use"),
    ] {
        for command in ["contest --engines sharded,farcore", "fairness"] {
            let output = bench(&format!("{command} {flag}"));
            let logged = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{logged}");
            assert!(logged.contains(words), "{logged}");
            assert!(output.stdout.is_empty());
        }
    }
}

#[test]
fn a_run_that_is_killed_fails_the_command_in_plain_words() {
    let mut command =
        command("contest --engines sharded --cores 0 --keys-per-core 100 --runs 1000")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
    let mut lines = BufReader::new(command.stderr.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    // A run may end by itself before it is killed; the next one is killed then.
    let status = loop {
        if let Some(status) = command.try_wait().unwrap() {
            break status;
        }
        let run = std::panic::catch_unwind(|| run_of(command.id()));
        if let Ok(run) = run {
            let _ = kill_process(run, Signal::KILL);
        }
    };
    let last = lines.map(Result::unwrap).last().unwrap();
    assert_eq!(status.code(), Some(4), "{last}");
    assert!(
        last.contains("the run of sharded was lost: SIGKILL ended it"),
        "{last}"
    );
}

#[test]
fn a_run_whose_command_has_died_does_not_start() {
    // No process has the number 0.
    let run = command("run-one")
        .env("FARCORE_BENCH_PARENT", "0")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(
        !run.status.success() && said.contains("the command of this run has ended"),
        "{said}"
    );
}
