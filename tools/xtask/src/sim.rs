//! `cargo xtask sim`: builds and runs `farcore-sim`.

use std::process::Command;

use anyhow::{Context, Result, bail};

fn command(profile: &str, arguments: &[String]) -> Command {
    let mut command = super::cargo(&["run", "-q", "-p", "farcore-sim", "--profile", profile]);
    // Only these builds have faults to switch on.
    if arguments.iter().any(|one| one.starts_with("--mutation")) {
        command.args(["--features", "mutations"]);
    }
    command.arg("--").args(arguments);
    command
}

pub(crate) fn perform(arguments: &[String]) -> Result<()> {
    super::run(&mut command("dev", arguments))
}

/// Runs a seed with and without optimization, debug assertions and all: every step must agree.
pub(crate) fn compare_profiles(arguments: &[String]) -> Result<()> {
    let hash_in = |profile: &str| -> Result<String> {
        let mut command = command(profile, arguments);
        let output = command
            .stderr(std::process::Stdio::inherit())
            .output()
            .with_context(|| format!("cannot start {command:?}"))?;
        if !output.status.success() {
            bail!("{command:?} ended with {}", output.status);
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let hash = text.lines().find(|line| line.starts_with("trace hash"));
        hash.map(str::to_owned)
            .context("the run printed no trace hash")
    };
    let (one, other) = (hash_in("dev")?, hash_in("instructions")?);
    println!("dev:          {one}\ninstructions: {other}");
    if one != other {
        bail!("the traces differ");
    }
    Ok(())
}
