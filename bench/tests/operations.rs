//! `operations` and `expiry` at test size: all parts run, nothing is wrong, and the JSON has the
//! figures. No figure is compared with what is wanted of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use farcore_bench::expiry::report::ExpiryReport;
use farcore_bench::operations::report::OperationsReport;
use farcore_bench::operations::settings::Part;
use serde::de::DeserializeOwned;

/// Runs the program; returns what it printed and the JSON that it wrote.
fn run<T: DeserializeOwned>(flags: &str) -> (String, T) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("figures.json");
    let output = Command::new(env!("CARGO_BIN_EXE_farcore-bench"))
        .args(flags.split_whitespace())
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let (text, errors) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    let report = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    (String::from_utf8(text).unwrap(), report)
}

#[test]
fn every_part_of_operations_runs() {
    let (text, report): (_, OperationsReport) = run(
        "operations --keys 2000 --scan-keys 20000 --export-keys 20000 --long-value 4MiB \
         --far 64MiB --no-prefault",
    );
    let parts: Vec<Part> = report.runs.iter().map(|run| run.part).collect();
    assert_eq!(
        parts,
        [Part::Requests, Part::Scan, Part::Export, Part::Long]
    );
    for run in &report.runs {
        assert_eq!((run.wrong_values, run.errors.len()), (0, 0), "{run:?}");
        for row in &run.rows {
            assert!(row.figure > 0.0, "{row:?}");
            assert_eq!(row.ratio.is_some(), row.beside.is_some(), "{row:?}");
            assert!(text.contains(&row.name), "{}", row.name);
        }
    }
    let rows = report.runs.iter().map(|run| run.rows.len());
    assert_eq!(rows.collect::<Vec<_>>(), [10, 2, 2, 4]);
}

#[test]
fn keys_expire_in_every_place() {
    let (text, report): (_, ExpiryReport) = run(
        "expiry --expiring 20000 --keys 5000 --lead 6s --within 300ms --after 100ms,1s --load 2 \
         --far 64MiB --no-prefault",
    );
    assert_eq!(report.runs.len(), 2);
    for run in &report.runs {
        let faults = (run.wrong_values, run.found_late, run.errors);
        assert_eq!(faults, (0, 0, 0), "{run:?}");
        assert!(run.gets_before > 0 && run.gets_during > 0, "{run:?}");
        let after: Vec<u64> = run.comebacks.iter().map(|back| back.after_ms).collect();
        assert_eq!(after, [100, 1_000]);
        assert!(run.p99_during_ns >= run.p50_during_ns, "{run:?}");
    }
    for line in ["p99 while keys expire", "bytes back after 1 s"] {
        assert!(text.contains(line), "{text}");
    }
}
