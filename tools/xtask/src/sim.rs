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

/// Runs seeds with and without debug assertions and optimization: every step must agree.
pub(crate) fn compare_profiles(arguments: &[String]) -> Result<()> {
    let hashes_in = |profile: &str| -> Result<Vec<String>> {
        let mut command = command(profile, arguments);
        command.arg("--hashes");
        let output = command
            .stderr(std::process::Stdio::inherit())
            .output()
            .with_context(|| format!("cannot start {command:?}"))?;
        if !output.status.success() {
            bail!("{command:?} ended with {}", output.status);
        }
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let hashes = text
            .lines()
            .filter(|line| line.starts_with("trace hash of seed"));
        let mut hashes: Vec<_> = hashes.map(str::to_owned).collect();
        // Several threads end in any order.
        hashes.sort_unstable();
        Ok(hashes)
    };
    let (one, other) = (hashes_in("dev")?, hashes_in("release")?);
    if one.is_empty() {
        bail!("the runs printed no trace hash");
    }
    for pair in one.iter().zip(&other) {
        if pair.0 != pair.1 {
            bail!(
                "the traces differ\ndev:     {}\nrelease: {}",
                pair.0,
                pair.1
            );
        }
    }
    println!("{} seeds have the same trace in both profiles", one.len());
    Ok(())
}
