//! What holds for each command that measures: its files, its streams, and its end by a signal.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::Value;

use self::support::{assert_ends, run_of};

/// Commands that end soon, and a word of their tables.
const SHORT: [(&str, &str); 7] = [
    (
        "contest --engines sharded --cores 0 --keys-per-core 100",
        "verify4",
    ),
    (
        "ycsb --workload c --engines sharded --cores 0 --records 100 --operations 100",
        "transactions",
    ),
    (
        "fairness --cores 0 --keys 10000 --value 2000 --local 8MiB --far 64MiB --sleepers 0 \
         --flooders 0 --seconds 0.1 --give-up 60",
        "measured",
    ),
    (
        "cache --traces scan --keys 1000 --requests 5000",
        "miss ratio",
    ),
    (
        "operations --parts scan --scan-keys 2000 --cores 0 --far 64MiB --no-prefault",
        "Mkeys/s",
    ),
    (
        "embed --parts callers --engines dashmap --callers client --threads 1 --keys 100 --seconds \
         0.01 --repeats 1",
        "Mops/s",
    ),
    (
        "expiry --places local --cores 0 --expiring 2000 --keys 1000 --lead 4s --within 100ms \
         --after 100ms --far 64MiB --no-prefault",
        "keys that expire",
    ),
];

/// Commands that take minutes, and what their runs log when they are at work.
const LONG: [(&str, &str); 5] = [
    (
        "fairness --cores 0 --keys 10000 --value 2000 --local 8MiB --far 64MiB --sleepers 0 \
         --flooders 0 --seconds 600 --give-up 700",
        "phase starts",
    ),
    (
        "cache --traces zipf-1.0 --keys 100000 --requests 4000000000",
        "the engine is open",
    ),
    (
        "operations --parts requests --keys 2000000 --cores 0 --local 256MiB --far 2GiB \
         --no-prefault",
        "phase starts",
    ),
    (
        "embed --parts callers --engines farcore --callers client --threads 1 --keys 1000 --seconds \
         600 --repeats 1 --no-prefault",
        "loaded",
    ),
    (
        "expiry --places local --cores 0 --expiring 2000 --keys 1000 --lead 4s --within 100ms \
         --after 10m --far 64MiB --no-prefault",
        "the last key has expired",
    ),
];

fn command(line: &str) -> Command {
    let mut command = Command::new("env");
    command
        .arg("--default-signal=HUP,INT,TERM")
        .arg(env!("CARGO_BIN_EXE_farcore-bench"))
        .args(line.split_whitespace())
        .env_remove("RUST_LOG");
    command
}

fn json(file: &Path) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

#[test]
fn json_is_written_although_the_reader_of_the_table_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures.json");
    for (line, _) in SHORT {
        let line = format!("{line} --json {}", file.display());
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = command(&line);
        let output = command.stdout(writer).stderr(Stdio::piped()).output();
        let output = output.unwrap();
        let logged = String::from_utf8_lossy(&output.stderr);
        assert!(!logged.contains("panicked"), "{logged}");
        assert_eq!(output.status.code(), Some(0), "{line}: {logged}");
        let report = json(&file);
        for fact in ["command", "version", "commit", "date", "machine"] {
            assert!(!report[fact].is_null(), "{line}: {fact}");
        }
        assert!(!report["machine"]["load_average"].is_null());
        assert_eq!(report["partial"], false, "{line}");
        let plan = report.get("plan").unwrap_or(&report["plans"][0]);
        assert_eq!(plan["seed"], 1, "{line}");
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_file_that_cannot_be_written_hides_no_table() {
    for (line, word) in SHORT {
        let output = command(&format!("{line} --json /dev/full")).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let logged = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{line}: {logged}");
        assert!(said.contains(word), "{line}: {said}");
        let last = logged.lines().last().unwrap();
        let start = "farcore-bench: --json /dev/full cannot be written: No space left";
        assert!(last.starts_with(start), "{line}: {last}");
    }
}

#[test]
fn a_wrong_path_fails_the_command_before_it_runs() {
    for (line, _) in SHORT {
        let output = command(&format!("{line} --json /dev/null/file")).output();
        let output = output.unwrap();
        let logged = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {logged}");
        let message = "farcore-bench: --json /dev/null/file cannot be written: Not a directory";
        assert!(logged.starts_with(message), "{line}: {logged}");
        assert!(output.stdout.is_empty(), "{line}");
    }
}

#[test]
fn a_full_standard_output_is_an_error_and_no_panic() {
    for (line, _) in SHORT {
        let full = fs::OpenOptions::new().write(true).open("/dev/full");
        let mut command = command(line);
        let output = command.stdout(full.unwrap()).stderr(Stdio::piped());
        let output = output.output().unwrap();
        let logged = String::from_utf8_lossy(&output.stderr);
        assert!(!logged.contains("panicked"), "{line}: {logged}");
        assert_eq!(output.status.code(), Some(4), "{line}: {logged}");
        assert!(
            logged.contains("standard output cannot be written"),
            "{line}"
        );
    }
}

/// Starts a command, signals it once its run is at work, and waits for both; returns the status and
/// what the command printed.
fn interrupted(line: &str, at_work: &str, signal: Signal) -> (Option<i32>, String) {
    let mut command = command(line)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(command.stderr.take().unwrap()).lines();
    let found = lines
        .by_ref()
        .map(Result::unwrap)
        .find(|line| line.contains(at_work));
    assert!(found.is_some(), "{line}: {at_work}");
    // A command whose log is not read would wait for a reader.
    std::thread::spawn(move || lines.for_each(drop));
    let run = pidfd_open(run_of(command.id()), PidfdFlags::empty()).unwrap();
    let number = Pid::from_raw(i32::try_from(command.id()).unwrap()).unwrap();
    let process = pidfd_open(number, PidfdFlags::empty()).unwrap();
    kill_process(number, signal).unwrap();
    assert_ends(&process, line);
    assert_ends(&run, line);
    let mut said = String::new();
    let mut stdout = command.stdout.take().unwrap();
    stdout.read_to_string(&mut said).unwrap();
    (command.wait().unwrap().code(), said)
}

#[test]
fn a_signal_ends_every_command_and_its_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures.json");
    for (line, at_work) in LONG {
        let with_json = format!("{line} --json {}", file.display());
        let (status, said) = interrupted(&with_json, at_work, Signal::TERM);
        assert_eq!(status, Some(143), "{line}: {said}");
        assert!(said.contains("\npartial: a signal ended"), "{line}: {said}");
        if file.exists() {
            let report = json(&file);
            assert_eq!(report["partial"], true, "{line}");
            assert_eq!(report["runs"][0]["partial"], true, "{line}");
            assert_eq!(report["runs"][0]["wrong_values"], 0, "{line}");
            fs::remove_file(&file).unwrap();
        }
    }
}

#[test]
fn figures_measured_before_a_signal_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures.json");
    for ((line, at_work), figure) in [
        (LONG[4], "/runs/0/gets_during"),
        (LONG[1], "/runs/0/replay"),
    ] {
        let line = format!("{line} --json {}", file.display());
        let (_, said) = interrupted(&line, at_work, Signal::INT);
        assert!(said.contains(" (partial)"), "{line}: {said}");
        let report = json(&file);
        let figure = report.pointer(figure).unwrap();
        assert!(figure.is_object() || figure.as_u64() > Some(0), "{report}");
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn every_run_ends_when_its_command_is_killed() {
    for (line, at_work) in LONG {
        let (status, _) = interrupted(line, at_work, Signal::KILL);
        assert_eq!(status, None, "{line}");
    }
}

/// Numbers beyond every limit are refused in words: nothing overflows.
#[test]
fn the_largest_numbers_are_refused() {
    for line in [
        "contest --keys-per-core",
        "contest --scale 2 --keys-per-core",
        "contest --scale official --hot-ops",
        "contest --hot-ops",
        "contest --window",
        "contest --local",
        "contest --far",
        "ycsb --workload a --value-bytes",
        "ycsb --workload d --records 4000000000 --operations",
        "ycsb --workload e --engines farcore --operations 1 --records",
        "fairness --keys",
        "fairness --value",
        "fairness --flooders",
        "fairness --sleeper-window",
        "fairness --sleeper-value",
        "cache --local",
        "cache --far",
        "cache --keys",
        "cache --value-bytes",
        "cache --put-rounds 1 --requests",
        "expiry --keys",
        "expiry --expiring",
        "expiry --value-bytes",
        "operations --keys",
        "operations --scan-keys",
        "operations --export-keys",
        "operations --value-bytes",
        "operations --long-value",
        "embed --keys",
        "embed --value-bytes",
        "embed --threads",
        "embed --tasks",
        "embed --pairs",
        "embed --local-percent",
    ] {
        let output = command(&format!("{line} {}", u64::MAX)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.starts_with("farcore-bench: "), "{line}: {said}");
    }
}
