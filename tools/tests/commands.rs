//! Every command with a closed pipe, with a wrong flag, with an output that cannot be written, and
//! ended by a signal; completions and manual pages.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use self::support::{Process, closed_pipe};

/// The number of SIGTERM.
const TERM: i32 = 15;
/// A workload of a fraction of a second.
const TUNE: &str = "tune --cores 0 --local 16MiB --far 16MiB --no-prefault --repeats 6 --keys-per-core 300 --hot-ops 300 \
                    --knobs batch";
const PING: &str = "fabric ping --count 20 --bytes 8";
const BANDWIDTH: &str = "fabric bandwidth --count 20 --bytes 64";

fn farcore(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_farcore"));
    command.args(line.split_whitespace());
    command.stdin(Stdio::null()).env_remove("RUST_LOG");
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn path(folder: &tempfile::TempDir, name: &str) -> PathBuf {
    folder.path().join(name)
}

/// A report of an engine for predictions.
fn report(folder: &Path) -> PathBuf {
    let mut report = farcore::Report {
        format: farcore::Report::FORMAT,
        ..farcore::Report::default()
    };
    let mut core = farcore::CoreReport::default();
    core.counters.gets = 10_000;
    core.counters.requests_own = 10_000;
    core.counters.busy_ns = 4_000_000;
    report.cores.push(core);
    let file = folder.join("report.json");
    fs::write(&file, serde_json::to_vec(&report).unwrap()).unwrap();
    file
}

#[test]
fn a_closed_stdout_is_no_panic_and_loses_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let report = report(folder.path());
    let file = |name| path(&folder, name).display().to_string();
    let predict = format!("tune --predict cores=8 --from {}", report.display());
    for (line, written) in [
        ("doctor".to_owned(), None),
        ("doctor --json".to_owned(), None),
        ("--help".to_owned(), None),
        ("completions bash".to_owned(), None),
        ("fabric devices".to_owned(), None),
        (format!("{PING} --json {}", file("a")), Some("a")),
        (format!("{BANDWIDTH} --json {}", file("b")), Some("b")),
        (format!("fabric devices --json {}", file("c")), Some("c")),
        (predict.clone(), None),
        (format!("{predict} --json --plot {}", file("d")), Some("d")),
        (format!("{TUNE} --out {}", file("e")), Some("e")),
        (format!("man --out {}", file("f")), Some("f/farcore.1")),
        ("top /nonexistent/engine.sock".to_owned(), None),
    ] {
        let output = farcore(&line).stdout(closed_pipe()).output().unwrap();
        let said = said(&output);
        assert!(!said.contains("panicked"), "{line}: {said}");
        // The doctor's verdict is of this machine.
        let code = output.status.code();
        let is_doctor = line.starts_with("doctor");
        assert!(
            code == Some(0) || is_doctor && code == Some(1),
            "{line}: {code:?} {said}"
        );
        if let Some(name) = written {
            let text = fs::read_to_string(path(&folder, name)).unwrap();
            assert!(!text.is_empty(), "{line}");
        }
    }
}

#[test]
fn a_closed_stderr_is_no_panic() {
    for line in [
        "fabric ping --count 0",
        "memnode --memory lots",
        "top --once /nonexistent",
    ] {
        let output = farcore(line).stderr(closed_pipe()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}");
    }
}

#[test]
fn an_output_that_cannot_be_written_is_an_error_before_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let report = report(folder.path());
    let predict = format!("tune --predict cores=8 --from {}", report.display());
    // Work that would outlast any patience.
    for (line, flag) in [
        ("fabric ping --count 1000000000000 --json", "--json"),
        ("fabric bandwidth --seconds 3600 --json", "--json"),
        ("fabric devices --json", "--json"),
        ("tune --keys-per-core 300 --out", "--out"),
        (&*format!("{predict} --plot"), "--plot"),
        ("top --once --samples 1000 --interval 1h --svg", "--svg"),
    ] {
        for (place, why) in [("/nonexistent/x", "No such file"), ("/", "directory")] {
            let line = format!("{line} {place}");
            let output = farcore(&line).output().unwrap();
            let said = said(&output);
            assert_eq!(output.status.code(), Some(1), "{line}: {said}");
            let parts = [&*format!("{flag} {place} cannot be written"), why];
            assert!(
                parts.iter().all(|part| said.contains(part)),
                "{line}: {said}"
            );
            assert_eq!(said.matches("os error").count(), 1, "{line}: {said}");
            assert_eq!(output.stdout, b"", "{line}");
        }
    }
    // A full disk.
    let full = fs::File::create("/dev/full").unwrap();
    let output = farcore(PING).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("standard output cannot be written: No space left"));
}

#[test]
fn wrong_flags_are_named_as_they_were_typed() {
    for (line, code, part) in [
        ("doctor --jason", 2, "--json"),
        ("fabric ping --count many", 2, "--count"),
        ("fabric ping --count 0", 1, "--count is 0"),
        ("fabric ping --port 1", 1, "--port has no effect"),
        (
            "fabric ping --token-file x",
            1,
            "--token-file has no effect",
        ),
        (
            "fabric ping --fabric tcp://127.0.0.1:1 --device mlx5_0",
            1,
            "--device has no effect with tcp://",
        ),
        ("fabric bandwidth --batch 0", 1, "--batch is 0"),
        ("fabric devices --count 1", 2, "--count"),
        ("memnode", 2, "--memory <SIZE>"),
        ("memnode --memory 1MiB --port 1", 1, "--port has no effect"),
        ("top --json", 2, "--once"),
        ("top --interval 1ms", 1, "--interval is 1ms"),
        (
            "top --once --json --size 9x9",
            1,
            "--size has no effect with --json",
        ),
        (
            "top --log-format json",
            1,
            "--log-format has no effect with top",
        ),
        ("tune --json", 1, "--json has no effect without --predict"),
        (
            "tune --predict cores=1 --budget 1s",
            1,
            "--budget has no effect with --predict",
        ),
        (
            "tune --predict cores=1 --from x --repeats 2",
            1,
            "--repeats has no effect with --from",
        ),
        ("completions csh", 2, "possible values"),
        ("man", 2, "--out <DIR>"),
        ("mend", 2, "unrecognized subcommand"),
    ] {
        let output = farcore(line).output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        assert!(said.contains(part), "{line}: {said}");
        assert_eq!(output.stdout, b"", "{line}");
        if code == 1 {
            assert_eq!(said.lines().count(), 1, "{line}: {said}");
        }
    }
}

#[test]
fn a_measurement_that_is_killed_leaves_no_empty_file() {
    let folder = tempfile::tempdir().unwrap();
    for (name, line) in [
        (
            "ping",
            "fabric ping --bytes 8 --operation read --count 1000000000000",
        ),
        ("bandwidth", "fabric bandwidth --bytes 64 --seconds 3600"),
    ] {
        let file = path(&folder, name);
        let child = farcore(&format!("{line} --json {}", file.display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let mut process = Process(child.unwrap());
        process.signal("TERM");
        assert_eq!(process.end().signal(), Some(TERM), "{name}");
        assert!(!file.exists(), "{name}");
    }
}

#[test]
fn completions_and_manual_pages_cover_every_command() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = farcore(&format!("completions {shell}")).output().unwrap();
        assert!(output.status.success(), "{shell}");
        let text = String::from_utf8(output.stdout).unwrap();
        for part in ["memnode", "token-file", "log-format", "bandwidth", "mget"] {
            assert!(text.contains(part), "{shell}: {part}");
        }
        assert!(!text.contains("run-one"), "{shell} offers a hidden command");
    }
    let pages = path(&folder, "man/man1");
    let output = farcore(&format!("man --out {}", pages.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let names: Vec<String> = fs::read_dir(&pages)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for name in [
        "farcore.1",
        "farcore-cli-get.1",
        "farcore-doctor.1",
        "farcore-fabric-ping.1",
        "farcore-memnode.1",
        "farcore-top.1",
        "farcore-tune.1",
    ] {
        assert!(names.iter().any(|one| one == name), "{name}: {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("run-one")));
    let text = fs::read_to_string(pages.join("farcore-memnode.1")).unwrap();
    assert!(
        text.contains("\\-\\-token\\-file") && text.contains("SYNOPSIS"),
        "{text}"
    );
}
