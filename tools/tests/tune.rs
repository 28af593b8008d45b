//! `farcore tune` from the command line: tiny searches and their files, bad flags, interruption.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use farcore::{Config, Profile};

/// A workload of a fraction of a second.
const TINY: &str = "--cores 0 --local 16MiB --far 16MiB --no-prefault --repeats 6";
/// The size of such a contest.
const CONTEST: &str = "--keys-per-core 300 --hot-ops 300";

fn folder(name: &str) -> PathBuf {
    let name = format!("farcore-tune-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn tune(line: &str, out: &Path) -> Command {
    // As from a shell, whatever the signals that this process ignores.
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_farcore")]);
    command.arg("tune").args(line.split_whitespace());
    command.arg("--out").arg(out);
    command
}

#[test]
fn a_search_leaves_a_profile_and_a_report() {
    let folder = folder("search");
    let out = folder.join("profile.toml");
    let trace = folder.join("trace.csv");
    let requests = (0..400u32).map(|at| format!("{at},key{},6,100,1,get,0\n", at * at % 97));
    fs::write(&trace, requests.collect::<String>()).unwrap();
    let trace = format!("trace:{}", trace.display());
    for (workload, size, knobs) in [
        ("contest", CONTEST, "batch,spin-ns"),
        ("ycsb-b", "--records 300 --operations 300", "window"),
        (&*trace, "", "page-bytes,cache-percent"),
    ] {
        let line = format!("--workload {workload} {size} --knobs {knobs} {TINY}");
        let output = tune(&line, &out).arg("--report").arg(&folder).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{complaints}");
        let report = fs::read_to_string(folder.join("report.md")).unwrap();
        let plot = fs::read_to_string(folder.join("sweeps.svg")).unwrap();
        assert!(
            report.contains("\n## Hot keys\n") && report.contains(" % |\n"),
            "{report}"
        );
        for knob in knobs.split(',').map(|knob| knob.replace('-', "_")) {
            for text in [&*said, &report, &plot] {
                assert!(text.contains(&knob), "{knob}: {text}");
            }
        }
        assert!(report.contains("--cores 0 --local 16MiB"), "{report}");
        assert!(report.contains("| stays |") || report.contains("| proof: kept |"));
        let profile = Profile::read(&out).unwrap();
        let text = fs::read_to_string(&out).unwrap();
        assert!(
            ["Workload", "Machine", "Commit", "Command"]
                .iter()
                .all(|part| text.contains(&format!("# {part}: "))),
            "{text}"
        );
        assert_eq!(
            profile.is_empty(),
            text.contains("no settings were better"),
            "{text}"
        );
        Config::from_profile(&profile).validate().unwrap();
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_small_budget_names_the_one_it_needs_and_keeps_the_profile() {
    let folder = folder("budget");
    let out = folder.join("profile.toml");
    for old in [None, Some("batch = 32\n")] {
        if let Some(old) = old {
            fs::write(&out, old).unwrap();
        }
        let output = tune(&format!("--budget 1ms {CONTEST} {TINY}"), &out)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        for part in ["--budget 1ms", "needs about", "not changed"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert_eq!(fs::read_to_string(&out).ok().as_deref(), old);
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_interrupted_search_writes_its_findings_so_far() {
    let folder = folder("interrupt");
    let out = folder.join("profile.toml");
    let mut child = tune(
        &format!("--knobs batch,spin-ns,window,cache-percent {CONTEST} {TINY}"),
        &out,
    )
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The workload, then the outcome of the first setting.
    assert!(lines.next().unwrap().unwrap().contains("contest"));
    assert!(lines.next().unwrap().unwrap().contains("batch"));
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(killed.success());
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(
        rest.iter().any(|line| line.contains("interrupted")),
        "{rest:?}"
    );
    Profile::read(&out).unwrap();
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_signal_ends_the_first_run_of_a_search_and_keeps_the_profile() {
    let folder = folder("ended");
    let out = folder.join("profile.toml");
    let old = "batch = 32\n";
    fs::write(&out, old).unwrap();
    // One run takes longer than this test may, so that only a signal to the run ends it.
    let size = "--records 30000 --operations 10000000 --local 8MiB --far 128MiB --far-latency 2ms";
    let line = format!("--workload ycsb-c --zipf 0 --cores 0 --repeats 6 --knobs window {size}");
    let mut child = tune(&line, &out)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("ycsb"));
    let pid = child.id().to_string();
    // The handler is set before the first run starts.
    let children = format!("/proc/{pid}/task/{pid}/children");
    while fs::read_to_string(&children).unwrap().is_empty() {
        std::thread::yield_now();
    }
    let killed = Command::new("kill").args(["-TERM", &pid]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(143), "{said}");
    assert!(said.contains("is not changed"), "{said}");
    assert_eq!(fs::read_to_string(&out).unwrap(), old);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn errors_of_bad_flags_show_a_valid_value() {
    let folder = folder("flags");
    let out = folder.join("profile.toml");
    for (line, message) in [
        ("--workload ycsb-g", "write contest, ycsb-a"),
        ("--workload redis", "write contest, ycsb-a"),
        ("--knobs colour", "possible values: window, batch"),
        ("--repeats 5", "--repeats is 5: a proof takes 6 to 100"),
        ("--workload trace:", "or trace:FILE"),
        ("--workload trace:/none/such.csv", "/none/such.csv"),
        ("--budget soon", "--budget"),
        ("--cores 4095", "core 4095, which does not exist"),
        ("--window 0", "--window is 0"),
        ("--keys-per-core 0", "must be at least 1"),
        ("--local 1MiB --cores 0", "--local 1 MiB is too small"),
        ("--json", "--json has no effect without --predict"),
        ("--plot x.svg", "--plot has no effect without --predict"),
        ("--from x.json", "--from has no effect without --predict"),
        (
            "--records 9",
            "--records has no effect without --workload ycsb",
        ),
        (
            "--limit 9",
            "--limit has no effect without --workload trace",
        ),
        (
            "--workload ycsb-a --hot-ops 9",
            "--hot-ops has no effect without --workload contest",
        ),
        (
            "--port 1",
            "--port has no effect without memory nodes: name them with --fabric",
        ),
        (
            "--fabric tcp://127.0.0.1:1 --gid-index 1",
            "--gid-index has no effect beside --fabric tcp://127.0.0.1:1: it is for rdma:// and rdma+tcp://",
        ),
        (
            "--fabric tcp://127.0.0.1:1 --far-latency 2us",
            "--far-latency has no effect beside --fabric tcp://127.0.0.1:1: it is for embedded far memory",
        ),
    ] {
        let output = tune(line, &out).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(message),
            "{line}: {said}"
        );
        assert!(
            !said.contains("panicked") && !out.exists(),
            "{line}: {said}"
        );
    }
    let output = tune(TINY, &folder.join("none/profile.toml"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("--out ") && said.contains("none/profile.toml"),
        "{said}"
    );
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_failed_run_is_reported_with_its_reason() {
    let output = Command::new(env!("CARGO_BIN_EXE_farcore"))
        .arg("run-one")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("the plan cannot be parsed"),
        "{said}"
    );
}
