//! The command itself: files it writes, exit status, messages about bad flags.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farcore-bench"))
        .args(line.split_whitespace())
        .output()
        .unwrap()
}

#[test]
fn a_run_writes_table_json_and_plots() {
    let folder = std::env::temp_dir().join(format!("farcore-bench-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let json = folder.join("figures.json");
    let line = format!(
        "contest --keys-per-core 500 --hot-ops 400 --local 32MiB --far 32MiB --runs 2 --engines \
         locked-lru,dashmap --json {} --plot {}",
        json.display(),
        folder.display()
    );
    let output = bench(&line);
    let (said, logged) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{logged}");
    assert!(
        said.contains("500 keys a core") && said.contains("wrong values"),
        "{said}"
    );
    assert!(
        logged.contains("phase starts") && logged.contains("phase ends"),
        "{logged}"
    );
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["runs"][1]["engine"], "dashmap");
    assert_eq!(report["runs"][0]["phases"].as_array().unwrap().len(), 11);
    assert_eq!(report["runs"][0]["wrong_values"], 0);
    assert!(report["machine"]["cores"].is_array());
    for plot in ["throughput.svg", "latency.svg"] {
        assert!(
            fs::read_to_string(folder.join(plot))
                .unwrap()
                .contains("verify4")
        );
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn bad_flags_end_with_a_message_and_a_failure() {
    for (line, message) in [
        ("contest --cores 4095", "core 4095, which does not exist"),
        ("contest --keys-per-core 0", "must be at least 1"),
        ("contest --window 0", "--window is 0"),
        ("contest --local 4096", "need at least"),
        ("contest --engines farcore --local 1TiB", "are needed and"),
        (
            "contest --engines dashmap --keys-per-core 2000000000",
            "not enough memory for dashmap",
        ),
        ("ycsb --workload a --value-bytes 17", "multiple of 16"),
        ("ycsb --workload e", "possible values"),
    ] {
        let output = bench(line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(message),
            "{line}: {said}"
        );
        assert!(!said.contains("panicked"), "{line}: {said}");
    }
}
