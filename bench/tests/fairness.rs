//! The fairness command at test size: every phase runs, every value is right, and a run ends
//! although a client hangs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farcore-bench"))
        .args(line.split_whitespace())
        .output()
        .unwrap()
}

/// A folder that is removed with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("farcore-fairness-{name}-{}", std::process::id());
        let folder = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(&folder.0).unwrap();
        folder
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// 20 MiB of records beside 8 MiB of local memory.
const SMALL: &str =
    "--cores 0 --keys 10000 --value 2000 --local 8MiB --far 64MiB --window 16 --seconds 0.1";

#[test]
fn every_phase_is_measured_and_every_value_is_right() {
    let folder = Folder::new("phases");
    let json = folder.0.join("figures.json");
    let output = bench(&format!(
        "fairness {SMALL} --flooders 2 --puts 10 --sleepers 1 --sleeper-window 2 --give-up 60 --json {} --plot {}",
        json.display(),
        folder.0.display()
    ));
    let (said, logged) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{said}{logged}");
    for words in [
        "4 clients, threads of clients: 4, not pinned",
        "beside both",
        "wrong values: 0, failed requests: 0",
        "far gets that read far memory",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let run = &report["runs"][0];
    let names: Vec<&str> = run["phases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|phase| phase["phase"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["alone", "flooders", "sleepers", "both"]);
    for phase in run["phases"].as_array().unwrap() {
        assert_eq!(phase["hangs"].as_array().unwrap().len(), 0, "{phase}");
        let requests = phase["requests"].as_array().unwrap();
        assert_eq!(requests.len(), 3);
        for request in requests {
            let of = |name: &str| request[name].as_u64().unwrap();
            assert!(of("answers") > 0 && of("p50_ns") > 0, "{phase}");
            assert!(of("p50_ns") <= of("p999_ns") && of("p999_ns") <= of("max_ns"));
            assert!(of("max_ns") <= phase["longest_wait_ns"].as_u64().unwrap());
        }
    }
    for (phase, flooders, unread) in [(0, 0, 0), (1, 2, 0), (2, 0, 2), (3, 2, 2)] {
        let phase = &run["phases"][phase];
        assert_eq!(phase["flooders"].as_array().unwrap().len(), flooders);
        assert!(phase["unread"].as_u64().unwrap() <= unread, "{phase}");
    }
    // No key of the older half of the data has been read before the first phase.
    assert!(run["phases"][0]["far_reads"].as_u64().unwrap() > 0);
    assert_eq!(run["wrong_values"], 0);
    assert!(run["close_seconds"].is_number());
    assert!(report["machine"]["cores"].is_array());
    let plot = fs::read_to_string(folder.0.join("latency.svg")).unwrap();
    assert!(plot.contains("beside sleepers") && plot.contains("far get"));
}

#[test]
fn a_client_that_polls_is_measured_too() {
    let folder = Folder::new("poll");
    let json = folder.0.join("figures.json");
    let output = bench(&format!(
        "fairness {SMALL} --flooders 1 --sleepers 0 --one-thread --measure near --pin --encrypt --runs 2 --give-up 60 --json {}",
        json.display()
    ));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("threads of clients: 1, pinned to cores"),
        "{said}"
    );
    assert!(said.contains("medians of 2 runs"), "{said}");
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let phases = report["phases"].as_array().unwrap();
    assert_eq!(
        (phases.len(), report["runs"].as_array().unwrap().len()),
        (2, 2)
    );
    for phase in phases {
        assert_eq!(phase["runs"], 2);
        assert_eq!(phase["requests"].as_array().unwrap().len(), 1);
        assert_eq!(phase["requests"][0]["request"], "near");
    }
}

/// A wait longer than the limit is reported and does not block the command. Far memory is a second
/// away, so that every far get waits too long.
#[test]
fn a_run_ends_although_a_client_hangs() {
    let folder = Folder::new("hang");
    let json = folder.0.join("figures.json");
    let output = bench(&format!(
        "fairness {SMALL} --flooders 1 --sleepers 0 --far-latency 1s --give-up 0.2 --json {}",
        json.display()
    ));
    let (said, logged) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(!output.status.success(), "{said}{logged}");
    assert!(said.contains("hung in 1 of 1 runs: "), "{said}{logged}");
    assert!(
        logged.contains("in 1 of 1 runs a client waited longer than --give-up"),
        "{logged}"
    );
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let run = &report["runs"][0];
    let in_phases = run["phases"].as_array().unwrap().iter();
    let in_phases: usize = in_phases
        .map(|phase| phase["hangs"].as_array().unwrap().len())
        .sum();
    assert!(in_phases > 0 || run["stuck"].is_object(), "{run}");
}

#[test]
fn bad_flags_end_with_a_message_and_a_failure() {
    for (line, message) in [
        ("--flooders 65", "--flooders is 65: it must be 0 to 64"),
        ("--value 4", "--value is 4 bytes: it must be 8 to"),
        ("--seconds 0", "--seconds is 0"),
        ("--form sleep", "possible values"),
        ("--measure delete", "possible values"),
        ("--keys 1000 --local 16MiB", "so that the older half of"),
        ("--value 1000000 --keys 100 --local 16MiB", "farcore takes"),
    ] {
        let output = bench(&format!("fairness {line}"));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(message),
            "{line}: {said}"
        );
        assert!(!said.contains("panicked"), "{line}: {said}");
    }
}

/// Far memory is full before all keys are loaded: requests fail, keys are absent, and no value is
/// wrong.
#[test]
fn full_far_memory_is_an_error_and_no_wrong_value() {
    let folder = Folder::new("full");
    let json = folder.0.join("figures.json");
    let output = bench(&format!(
        "fairness --cores 0 --keys 20000 --value 2000 --local 8MiB --far 4MiB --window 16 --seconds \
         0.1 --flooders 1 --sleepers 0 --give-up 60 --json {}",
        json.display()
    ));
    let (said, logged) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(3), "{said}{logged}");
    assert!(said.contains(" FarFull)"), "{said}");
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let run = &report["runs"][0];
    assert_eq!(run["wrong_values"], 0, "{logged}");
    assert!(run["errors"]["FarFull"].as_u64().unwrap() > 0);
    assert_eq!(report["partial"], false);
}
