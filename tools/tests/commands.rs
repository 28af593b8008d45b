//! Outputs that cannot be written, completions and manual pages, of every command.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use self::support::commands;

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
        ("card run --messages 1000000000000 --csv", "--csv"),
        ("card run --messages 1000000000000 --plot", "--plot"),
        (
            "card sweep --vary queue-pairs=1 --messages 1000000000000 --csv",
            "--csv",
        ),
        (
            "card fit --messages 1000000000000 --messages-max 1000000000000 --csv",
            "--csv",
        ),
        ("card trace generate --messages 20000000 --out", "--out"),
        ("card trace convert - --to csv --out", "--out"),
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
}

#[test]
fn completions_and_manual_pages_cover_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let mut names = commands();
    assert!(names.remove("run-one"), "it is hidden");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = farcore(&format!("completions {shell}")).output().unwrap();
        assert!(output.status.success(), "{shell}");
        let text = String::from_utf8(output.stdout).unwrap();
        let words = names.iter().flat_map(|name| name.split(' '));
        for part in words.chain(["token-file", "log-format"]) {
            assert!(text.contains(part), "{shell}: {part}");
        }
        assert!(!text.contains("run-one"), "{shell} offers a hidden command");
    }
    let pages = path(&folder, "man/man1");
    let output = farcore(&format!("man --out {}", pages.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    for name in &names {
        let page = format!("farcore-{}.1", name.replace(' ', "-"));
        let text = fs::read_to_string(pages.join(&page)).unwrap();
        assert!(text.contains("SYNOPSIS"), "{page}: {text}");
    }
    let text = fs::read_to_string(pages.join("farcore-memnode.1")).unwrap();
    assert!(text.contains("\\-\\-token\\-file"), "{text}");
    let text = fs::read_to_string(pages.join("farcore.1")).unwrap();
    assert!(
        text.contains("Exit status") && text.contains("128 + n"),
        "{text}"
    );
}
