//! `embed` at test size: every caller of every engine runs, nothing is wrong, and the JSON has the
//! figures. No figure is compared with what is wanted of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use farcore_bench::experiments::embed::report::{EmbedReport, Row};
use farcore_bench::experiments::embed::settings::{Caller, Part, Subject};
use rustix::process::{Pid, Signal, kill_process};

fn bench(line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farcore-bench"))
        .args(["embed"])
        .args(line.split_whitespace())
        .output()
        .unwrap()
}

/// Runs the command; returns what it printed and the JSON that it wrote.
fn run(flags: &str) -> (String, EmbedReport) {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("figures.json");
    let output = bench(&format!("{flags} --json {}", json.display()));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    (String::from_utf8(output.stdout).unwrap(), report)
}

const SMALL: &str = "--keys 2000 --seconds 0.01 --idle-seconds 0.01 --pairs 2 --no-prefault";

fn has_two_cores() -> bool {
    std::thread::available_parallelism().is_ok_and(|cores| cores.get() > 1)
}

#[test]
fn every_caller_of_every_engine_runs() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().display();
    let (text, report) = run(&format!(
        "{SMALL} --threads 1,3 --tasks 1,50 --repeats 2 --plot {plot}"
    ));
    assert_eq!((report.wrong_values, report.errors.len()), (0, 0));
    let dedicated = has_two_cores().then_some(Subject::FarcoreDedicated);
    let ours: Vec<Subject> = [Subject::Farcore].into_iter().chain(dedicated).collect();
    for &engine in Subject::DEFAULT {
        if engine == Subject::FarcoreDedicated && !has_two_cores() {
            continue;
        }
        let callers = [
            (Caller::Handle, [1, 3]),
            (Caller::Client, [1, 3]),
            (Caller::Batch, [1, 3]),
            (Caller::Tasks, [1, 50]),
            (Caller::Window, [1, 3]),
        ];
        for (caller, counts) in callers {
            for count in counts {
                let row = report.row(engine, caller, count).unwrap();
                check(row);
            }
        }
        assert!(text.contains(engine.name()), "{text}");
    }
    assert_eq!(report.idle.len(), ours.len());
    assert!(report.idle.iter().all(|idle| idle.share_of_a_core >= 0.0));
    let beside: Vec<Subject> = report.beside.iter().map(|one| one.engine).collect();
    assert_eq!(beside, ours);
    for one in &report.beside {
        assert_eq!((one.ratios.len(), one.ratio.unwrap().pairs), (2, 2));
    }
    assert!(report.call_bytes > 0);
    for words in [
        "a map has no asynchronous form",
        "handle: threads that block",
        "tasks: tasks that await",
        "idle: farcore takes",
        "beside: a program on all cores runs at",
        "wrong values: 0",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(text.contains("feature `peers`"), !report.peers, "{text}");
    let plot = fs::read_to_string(folder.path().join("embed.svg")).unwrap();
    assert!(plot.contains("batch, p99") && plot.contains("dashmap"));
}

/// A row has all of its figures, over both rounds.
fn check(row: &Row) {
    assert_eq!(row.rounds, 2, "{row:?}");
    assert!(row.mops.median > 0.0 && row.samples > 0, "{row:?}");
    assert!(row.mops.least <= row.mops.median && row.mops.median <= row.mops.most);
    let percentiles = [row.p50_ns.median, row.p99_ns.median, row.p999_ns.median];
    assert!(percentiles[0] > 0.0 && percentiles.is_sorted(), "{row:?}");
    assert!(row.cpu_ns_per_op.median > 0.0, "{row:?}");
}

#[test]
fn engines_take_turns_with_one_seed() {
    let (_, report) = run(
        "--keys 500 --seconds 0.01 --no-prefault --parts callers --engines farcore,dashmap --callers client \
         --threads 2 --repeats 2 --seed 9 --reads 0",
    );
    let order: Vec<(Subject, u32)> = report
        .runs
        .iter()
        .map(|run| (run.engine, run.round))
        .collect();
    assert_eq!(
        order,
        [
            (Subject::Farcore, 0),
            (Subject::Dashmap, 0),
            (Subject::Farcore, 1),
            (Subject::Dashmap, 1)
        ]
    );
    assert!(report.runs.iter().all(|run| run.part == Part::Callers));
    assert!(report.plans.iter().all(|plan| plan.seed == 9));
    let figures = |name: &str| report.origin.command.iter().any(|part| part == name);
    assert!(figures("embed") && !report.origin.date.is_empty());
    assert!(!report.machine.cores.is_empty() && !report.origin.partial);
}

#[test]
fn far_data_is_compared_with_local_data() {
    let (text, report) = run(
        "--keys 200000 --seconds 0.05 --no-prefault --parts callers --local-percent 50 --far-latency 2us \
         --callers tasks --tasks 16 --repeats 1",
    );
    assert_eq!(report.engines(), [Subject::Farcore, Subject::FarcoreFar]);
    let row = report.row(Subject::FarcoreFar, Caller::Tasks, 16).unwrap();
    assert!(row.ratio_to_local.unwrap().median > 0.0, "{row:?}");
    assert!(text.contains("local memory for 50 % of the data"), "{text}");
    assert!(text.contains("of all local"), "{text}");
    assert_eq!((report.wrong_values, report.errors.len()), (0, 0));
}

/// The signal comes in the second round, so the first one has figures.
#[test]
fn a_signal_leaves_the_figures_so_far() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("figures.json");
    let mut child = Command::new("env")
        .arg("--default-signal=INT")
        .arg(env!("CARGO_BIN_EXE_farcore-bench"))
        .args(["embed", "--parts", "callers", "--engines", "dashmap"])
        .args(["--callers", "client", "--threads", "1", "--keys", "100"])
        .args(["--seconds", "0.01", "--repeats", "1000", "--json"])
        .arg(&json)
        .env_remove("RUST_LOG")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let is_loaded = |line: &String| line.contains("loaded");
    for _ in 0..2 {
        log.by_ref()
            .map(Result::unwrap)
            .find(is_loaded)
            .expect("a round starts");
    }
    let number = i32::try_from(child.id()).unwrap();
    kill_process(Pid::from_raw(number).unwrap(), Signal::INT).unwrap();
    let rest: Vec<String> = log.map(Result::unwrap).collect();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{rest:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("partial: a signal ended"), "{text}");
    let report: EmbedReport = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    assert!(report.origin.partial && !report.rows.is_empty());
}

#[test]
fn bad_flags_end_with_a_message_and_a_failure() {
    for (line, message) in [
        ("--threads 0", "--threads is 0: it must be 1 to 128"),
        ("--threads many", "write a whole number"),
        ("--reads 2", "--reads is 2: it must be 0"),
        ("--value-bytes 20", "--value-bytes is 20"),
        ("--callers direct", "possible values"),
        ("--engines rocksdb", "possible values"),
        ("--far-latency 2us", "--far-latency has no effect"),
        ("--callers tasks --threads 2", "--threads has no effect"),
        (
            "--local-percent 1 --keys 1000 --threads 1",
            "--local-percent is 1: local memory would be",
        ),
        (
            "--local-percent 1 --keys 1000 --threads 16",
            "of local memory is too little for 1000 keys",
        ),
        ("--json /nonexistent/x", "--json /nonexistent/x cannot"),
    ] {
        let output = bench(line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.contains(message), "{line}: {said}");
        assert!(!said.contains("panicked"), "{line}: {said}");
    }
}
