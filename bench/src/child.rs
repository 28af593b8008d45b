//! Runs each plan in a separate process, so that no engine inherits another's heap, page faults or
//! pinned threads.
//!
//! The parent writes the plan as JSON to the child's standard input and reads the outcome as JSON
//! from its standard output. Log and progress go to standard error.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use farcore_tuning::{LogFormat, log_format};
use serde::de::DeserializeOwned;

use crate::fairness::{lead, report};
use crate::plan::{Plan, Scenario};
use crate::run::{Outcome, run};

/// The hidden command of a child.
const COMMAND: &str = "run-one";

/// Runs a plan in a child process, which shows its progress and its log.
///
/// # Errors
/// The process could not be started, failed (its reason is on standard error), or was killed.
pub fn run_in_child(plan: &Plan) -> anyhow::Result<Outcome> {
    run_with(plan, Stdio::inherit())
}

/// Runs a plan in a child process, which shows nothing.
///
/// # Errors
/// The process could not be started, failed (the error says why), or was killed.
pub fn run_in_silent_child(plan: &Plan) -> anyhow::Result<Outcome> {
    run_with(plan, Stdio::piped())
}

/// Runs a plan of `fairness` in a child process, which shows its progress and its log.
///
/// # Errors
/// As [`run_in_child`]. A client that hangs is no error.
pub fn fairness_in_child(plan: &Plan) -> anyhow::Result<report::Run> {
    run_with(plan, Stdio::inherit())
}

fn run_with<T: DeserializeOwned>(plan: &Plan, stderr: Stdio) -> anyhow::Result<T> {
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let mut child = Command::new(program)
        .arg(COMMAND)
        .env(LogFormat::VARIABLE, log_format().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .context("the process of a run could not be started")?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(&serde_json::to_vec(plan)?)?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let (name, status) = (plan.engine.name(), output.status);
        let stderr = String::from_utf8_lossy(&output.stderr);
        // Empty if the child's standard error was inherited.
        let last = stderr.trim_end().lines().next_back();
        let colon = if last.is_some() { ": " } else { "" };
        bail!(
            "the run of {name} ended with {status}{colon}{}",
            last.unwrap_or_default()
        );
    }
    serde_json::from_slice(&output.stdout).context("the outcome of the run cannot be parsed")
}

/// Reads a plan from standard input, runs it, writes the outcome to standard output.
///
/// # Errors
/// The plan cannot be parsed, or the run failed.
pub fn serve() -> anyhow::Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let plan: Plan = serde_json::from_str(&text).context("the plan cannot be parsed")?;
    let mut output = std::io::stdout();
    if !matches!(plan.scenario, Scenario::Fairness(_)) {
        return Ok(output.write_all(&serde_json::to_vec(&run(plan)?)?)?);
    }
    let outcome = lead::run(&plan)?;
    output.write_all(&serde_json::to_vec(&outcome)?)?;
    output.flush()?;
    if outcome.is_stuck() {
        // Threads hang in the engine; only the end of the process ends them.
        std::process::exit(0);
    }
    Ok(())
}
