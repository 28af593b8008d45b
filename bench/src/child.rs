//! Each run in a process of its own, so that no engine inherits another's heap, page faults or
//! pinned threads.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use farcore_tuning::{LogFormat, log_format};
use serde::de::DeserializeOwned;

use crate::fairness::{lead, report};
use crate::plan::{Plan, Scenario};
use crate::run::{Outcome, run};

/// The hidden command that a child is started with.
const COMMAND: &str = "run-one";

/// Runs a plan in a new process of this program, which shows its progress and its log.
///
/// # Errors
/// The process could not be started, failed (its reason is on standard error), or was killed.
pub fn run_in_child(plan: &Plan) -> anyhow::Result<Outcome> {
    run_with(plan, Stdio::inherit())
}

/// Runs a plan in a new process of this program, which shows nothing.
///
/// # Errors
/// The process could not be started, failed (the error says why), or was killed.
pub fn run_in_silent_child(plan: &Plan) -> anyhow::Result<Outcome> {
    run_with(plan, Stdio::piped())
}

/// Runs a plan of the fairness command in a new process of this program, which shows its progress
/// and its log.
///
/// # Errors
/// As [`run_in_child`]. An answer that stays away is none.
pub fn fairness_in_child(plan: &Plan) -> anyhow::Result<report::Run> {
    run_with(plan, Stdio::inherit())
}

fn run_with<T: DeserializeOwned>(plan: &Plan, complaints: Stdio) -> anyhow::Result<T> {
    let program = std::env::current_exe().context("this program cannot find itself")?;
    let mut child = Command::new(program)
        .arg(COMMAND)
        .env(LogFormat::VARIABLE, log_format().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(complaints)
        .spawn()
        .context("a process for the run could not be started")?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(&serde_json::to_vec(plan)?)?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let (name, status) = (plan.engine.name(), output.status);
        let complaints = String::from_utf8_lossy(&output.stderr);
        // Empty where it was shown already.
        let last = complaints.trim_end().lines().next_back();
        let colon = if last.is_some() { ": " } else { "" };
        bail!(
            "the run of {name} ended with {status}{colon}{}",
            last.unwrap_or_default()
        );
    }
    serde_json::from_slice(&output.stdout).context("the run's answer is not understood")
}

/// The child's side.
///
/// # Errors
/// The plan is not understood, or the run failed.
pub fn serve() -> anyhow::Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let plan: Plan = serde_json::from_str(&text).context("the plan is not understood")?;
    let mut output = std::io::stdout();
    if !matches!(plan.scenario, Scenario::Fairness(_)) {
        return Ok(output.write_all(&serde_json::to_vec(&run(plan)?)?)?);
    }
    let outcome = lead::run(&plan)?;
    output.write_all(&serde_json::to_vec(&outcome)?)?;
    output.flush()?;
    if outcome.is_stuck() {
        // Threads hang in the engine: nothing but the end of the process ends them.
        std::process::exit(0);
    }
    Ok(())
}
