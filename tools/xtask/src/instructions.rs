//! `cargo xtask instructions`: counts the instructions of the hot paths under valgrind, and fails
//! if a path takes more than its figure in `engine/benches/instructions.json` plus a slack.
//!
//! Counts depend on the code and the compiler, not on the load of the machine. The slack is for
//! layout and inlining, which change with unrelated code.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The file of the figures, by path.
const FIGURES: &str = "engine/benches/instructions.json";
/// Instructions that a path may take beyond its figure, in percent.
pub(crate) const SLACK_PERCENT: u64 = 3;

/// Builds the benchmark and returns its path.
fn build() -> Result<PathBuf> {
    let mut command = super::cargo(&["build", "--profile", "instructions", "-p", "farcore"]);
    command.args(["--features", "internals", "--bin", "instructions"]);
    command.args(["--locked", "--message-format", "json-render-diagnostics"]);
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}", output.status);
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let built = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == "instructions")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    built.context("cargo did not report the path of the benchmark")
}

/// The count in valgrind's output: `==1234== Collected : 5678`.
fn collected(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains("Collected :"))?;
    line.rsplit(' ').next()?.parse().ok()
}

fn count(benchmark: &Path, path: &str) -> Result<u64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.args([
        "--collect-atstart=no",
        "--toggle-collect=*instructions::measured*",
    ]);
    let output =
        command.arg(benchmark).arg(path).output().context(
            "cannot start valgrind: install it, on Debian with `apt-get install valgrind`",
        )?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{command:?} ended with {}:\n{said}", output.status);
    }
    let count = collected(&said).filter(|&count| count > 0);
    count.with_context(|| format!("{command:?} counted nothing:\n{said}"))
}

/// Counts every path; `write` replaces the figures by the counts.
pub(crate) fn perform(write: bool) -> Result<()> {
    let text = fs::read_to_string(FIGURES)
        .with_context(|| format!("{FIGURES} cannot be read: run this in the project's folder"))?;
    let mut figures: BTreeMap<String, u64> =
        serde_json::from_str(&text).with_context(|| format!("{FIGURES} cannot be parsed"))?;
    let benchmark = build()?;
    let mut slower = Vec::new();
    for (path, figure) in &mut figures {
        let counted = count(&benchmark, path)?;
        let ratio = counted as f64 / (*figure).max(1) as f64;
        println!("{path:<14} {counted:>12} instructions, {ratio:.3} of {figure}");
        if write {
            *figure = counted;
        } else if counted > *figure + *figure * SLACK_PERCENT / 100 {
            slower.push(format!("{path} ({ratio:.3} of its figure)"));
        }
    }
    if write {
        let text = serde_json::to_string_pretty(&figures)? + "\n";
        return fs::write(FIGURES, text).with_context(|| format!("{FIGURES} cannot be written"));
    }
    if slower.is_empty() {
        return Ok(());
    }
    bail!(
        "more than {SLACK_PERCENT} % above the figure: {}. If that is intended, write the new figures with \
         `cargo xtask instructions --write`",
        slower.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_of_valgrind_is_found() {
        let said = "==7== Events    : Ir\n==7== Collected : 123456\n==7== \n";
        assert_eq!(collected(said), Some(123_456));
        assert_eq!(collected("==7== Collected : many\n"), None);
        assert_eq!(collected("nothing"), None);
    }
}
