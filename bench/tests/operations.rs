//! `operations` and `expiry` at test size: all parts run, nothing is wrong, and the JSON has the
//! figures. No figure is compared with what is wanted of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use farcore_bench::experiments::expiry::report::ExpiryReport;
use farcore_bench::experiments::operations::report::OperationsReport;
use farcore_bench::experiments::operations::settings::Part;
use serde::de::DeserializeOwned;

/// Runs the program, which succeeds; returns what it printed and the JSON that it wrote.
fn run<T: DeserializeOwned>(flags: &str) -> (String, T) {
    run_to(0, flags)
}

/// Runs the program, which ends with this status; returns what it printed and the JSON that it
/// wrote.
fn run_to<T: DeserializeOwned>(status: i32, flags: &str) -> (String, T) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("figures.json");
    let output = Command::new(env!("CARGO_BIN_EXE_farcore-bench"))
        .args(flags.split_whitespace())
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let (text, errors) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{errors}");
    let report = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    (String::from_utf8(text).unwrap(), report)
}

#[test]
fn every_part_of_operations_runs() {
    let (text, report): (_, OperationsReport) = run(
        "operations --keys 2000 --scan-keys 20000 --export-keys 20000 --long-value 4MiB \
         --collection-elements 2000 --far 64MiB --no-prefault",
    );
    let parts: Vec<Part> = report.runs.iter().map(|run| run.part).collect();
    assert_eq!(
        parts,
        [
            Part::Requests,
            Part::Scan,
            Part::Export,
            Part::Long,
            Part::Collections,
            Part::Sections
        ]
    );
    for run in &report.runs {
        assert_eq!(
            (run.faults.wrong_values, run.faults.errors.len()),
            (0, 0),
            "{run:?}"
        );
        for row in &run.rows {
            assert!(row.figure > 0.0, "{row:?}");
            assert_eq!(row.ratio.is_some(), row.beside.is_some(), "{row:?}");
            assert!(text.contains(&row.name), "{}", row.name);
        }
    }
    let rows = report.runs.iter().map(|run| run.rows.len());
    assert_eq!(rows.collect::<Vec<_>>(), [10, 2, 2, 4, 10, 17]);
}

#[test]
fn keys_expire_in_every_place() {
    let (text, report): (_, ExpiryReport) = run(
        "expiry --expiring 20000 --keys 5000 --lead 6s --within 300ms --after 100ms,1s --load 2 \
         --far 64MiB --no-prefault",
    );
    assert_eq!(report.runs.len(), 2);
    for run in &report.runs {
        let faults = (
            run.faults.wrong_values,
            run.found_late,
            run.faults.errors.len(),
        );
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

/// Far memory is too small for the records: requests fail, keys are absent, and no value is wrong.
#[test]
fn full_far_memory_is_an_error_and_no_wrong_value() {
    let (text, report): (_, OperationsReport) = run_to(
        3,
        "operations --parts long --cores 0 --local 32MiB --far 16MiB --long-value 32MiB --no-prefault",
    );
    let run = &report.runs[0];
    assert_eq!(run.faults.wrong_values, 0, "{run:?}");
    assert!(run.faults.errors["FarFull"] > 0, "{run:?}");
    let faults = format!(
        "wrong values: 0, errors: {} (",
        run.faults.errors.values().sum::<u64>()
    );
    assert!(text.contains(&faults), "{text}");

    let (text, report): (_, ExpiryReport) = run_to(
        3,
        "expiry --places far --cores 0 --expiring 20000 --keys 20000 --value-bytes 1024 --lead 10s \
         --within 100ms --after 100ms --load 2 --local 8MiB --far 4MiB --no-prefault",
    );
    let run = &report.runs[0];
    assert_eq!((run.faults.wrong_values, run.found_late), (0, 0), "{run:?}");
    assert!(
        run.faults.errors["FarFull"] > 0 && run.unverified_values > 0,
        "{run:?}"
    );
    assert!(
        text.contains("- FarFull") && text.contains("unverified values"),
        "{text}"
    );
}

#[test]
fn flags_without_an_effect_are_refused() {
    for (flags, message) in [
        (
            "operations --parts scan --keys 5",
            "--keys has no effect without the part requests",
        ),
        (
            "operations --parts scan --window 5",
            "--window has no effect without the part requests",
        ),
        (
            "operations --parts long --scan-keys 5",
            "--scan-keys has no effect without the part scan",
        ),
        (
            "operations --parts long --link 1GB",
            "--link has no effect without the part export",
        ),
        (
            "operations --parts long --export-keys 5",
            "--export-keys has no effect",
        ),
        (
            "operations --parts scan --far-latency 1us",
            "--far-latency has no effect",
        ),
        (
            "operations --parts scan --long-value 1MiB",
            "--long-value has no effect",
        ),
        (
            "operations --parts long --value-bytes 64",
            "--value-bytes has no effect without the part",
        ),
        ("operations --keys 0", "--keys is 0: it must be at least 1"),
        (
            "operations --parts scan --scan-keys 0",
            "--scan-keys is 0: it must be at least 1",
        ),
        (
            "expiry --wait-for-nodes",
            "--wait-for-nodes has no effect without memory nodes",
        ),
        (
            "expiry --places local --local 1GiB",
            "--local has no effect without the place far",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_farcore-bench"));
        let output = command.args(flags.split_whitespace()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags}: {said}");
        assert!(
            said.starts_with(&format!("farcore-bench: {message}")),
            "{flags}: {said}"
        );
    }
}
