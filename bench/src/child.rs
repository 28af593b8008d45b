//! Each run in a process of its own, so that no engine inherits another's heap, page faults or pinned threads.

use std::io::{Read, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::plan::Plan;
use crate::run::{Outcome, run};

/// The hidden command that a child is started with.
const COMMAND: &str = "run-one";

/// Runs a plan in a new process of this program.
///
/// # Errors
/// The process could not be started, failed (its reason is on standard error), or was killed.
pub fn run_in_child(plan: &Plan) -> anyhow::Result<Outcome> {
    let program = std::env::current_exe().context("this program cannot find itself")?;
    let mut child = Command::new(program)
        .arg(COMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("a process for the run could not be started")?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(&serde_json::to_vec(plan)?)?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "the run of {} ended with {}",
            plan.engine.name(),
            output.status
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
    let plan = serde_json::from_str(&text).context("the plan is not understood")?;
    let outcome = run(plan)?;
    std::io::stdout().write_all(&serde_json::to_vec(&outcome)?)?;
    Ok(())
}
