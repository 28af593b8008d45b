//! The curve of the native protocol: an example of the client, which also is the server.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cargo;

/// Where the server listens in the guest.
const LISTEN: &str = "rdma+tcp://10.77.0.1:0";

/// Builds the example: optimised, and quick to build.
fn build() -> Result<PathBuf> {
    let mut command = cargo(&["build", "--locked", "--profile", "instructions"]);
    command.args(["-p", "farcore-client", "--example", "curve"]);
    command.args(["--features", "verbs"]);
    command.arg("--message-format=json-render-diagnostics");
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} ended with {}",
        output.status
    );
    let messages = String::from_utf8_lossy(&output.stdout);
    let built = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == "curve")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    built.context("cargo did not report the path of the example")
}

/// The command that prints the curve in the guest.
pub(super) fn command(rounds: u32, seconds: f64) -> Result<Vec<OsString>> {
    let mut words = vec![build()?.into_os_string()];
    let rest = ["transfers", "--listen", LISTEN, "--rounds"];
    words.extend(rest.map(OsString::from));
    words.extend([rounds.to_string().into(), "--seconds".into()]);
    words.push(seconds.to_string().into());
    Ok(words)
}
