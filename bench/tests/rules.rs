//! The contest as it is held, at test size: its course, its time limit, workers beyond the cores,
//! and what it refuses before anything runs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// One run at a time, because all of them pin their threads to the same cores.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn contest(flags: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_farcore-bench"))
        .arg("contest")
        .args(flags.split_whitespace())
        .env_remove("RUST_LOG")
        .output()
        .unwrap()
}

/// Standard output, the log, and the log's last line.
fn texts(output: &Output) -> (String, String, String) {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let logged = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = logged.lines().last().unwrap_or_default().to_owned();
    (said, logged, last)
}

#[test]
fn a_scale_runs_an_untimed_pass_and_then_every_phase() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures.json");
    let output = contest(&format!(
        "--scale 2 --keys-per-core 3000 --encrypt=secrecy-only --far-latency 2us --time-limit 9m \
         --local 24MiB --far 16MiB --json {}",
        file.display()
    ));
    let (said, logged, _) = texts(&output);
    assert!(output.status.success(), "{logged}");
    for part in [
        "contest by its rules, 2000 hot requests",
        "for 2 workers, 3000 keys a worker",
        "encryption secrecy only",
        "time limit 9m",
        "farcore, seconds: write and read ",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let pass = logged.find("untimed pass starts").unwrap();
    let phases = logged.matches("phase ends").count();
    assert!(
        logged[..pass].matches("phase ends").count() == 0 && phases == 22,
        "{logged}"
    );
    let report: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let run = &report["runs"][0];
    assert_eq!(report["runs"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&run["engine"], &run["partial"]),
        (&"farcore".into(), &false.into())
    );
    assert_eq!(run["wrong_values"], 0);
    let ops = |at: usize| run["phases"][at]["ops"].as_u64().unwrap();
    assert_eq!((ops(0), ops(4), ops(6), ops(10)), (6000, 600, 5000, 2000));
}

#[test]
fn sixteen_workers_run_on_fewer_cores() {
    let _turn = turn();
    let output = contest(
        "--scale official --keys-per-core 300 --local 48MiB --far 32MiB --engines \
         farcore,locked-lru",
    );
    let (said, logged, _) = texts(&output);
    assert!(output.status.success(), "{logged}");
    assert!(said.contains("for 16 workers, 300 keys a worker"), "{said}");
    assert!(
        said.contains("locked-lru, seconds: write and read "),
        "{said}"
    );
}

#[test]
fn a_time_limit_ends_the_run_and_names_what_is_unfinished() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures.json");
    let output = contest(&format!(
        "--scale 1 --keys-per-core 400000 --local 256MiB --far 256MiB --time-limit 1ms --json {}",
        file.display()
    ));
    let (said, logged, last) = texts(&output);
    assert_eq!(output.status.code(), Some(4), "{logged}");
    let limit = "the time limit of 1ms has passed; unfinished: write (";
    assert!(last.contains(limit), "{last}");
    assert!(
        last.contains("of 400000 requests); verify, rewrite,"),
        "{last}"
    );
    assert!(last.contains("hot (not begun)"), "{last}");
    assert!(said.contains("partial"), "{said}");
    let report: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(report["runs"][0]["partial"], true);
    assert!(
        report["failure"].as_str().unwrap().contains(limit),
        "{report}"
    );
}

#[test]
fn what_cannot_run_is_refused_with_the_reason() {
    let cases = [
        (
            "--scale some",
            "`some` is no scale: write `official`, or a number",
        ),
        ("--scale 0", "`0` is no scale"),
        (
            "--time-limit 0s",
            "--time-limit is 0s: it must be 1ms to 1day",
        ),
        (
            "--scale official --far 20GiB",
            " bytes are missing: raise --far",
        ),
        (
            "--scale 2 --local 32MiB --far 64MiB",
            " bytes are missing: raise --far",
        ),
    ];
    for (flags, words) in cases {
        let output = contest(flags);
        let (_, logged, _) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{flags}: {logged}");
        assert!(logged.contains(words), "{flags}: {logged}");
    }
}
