//! Runs each plan in a separate process, so that no engine inherits another's heap, page faults or
//! pinned threads.
//!
//! The parent writes the plan as JSON to the child's standard input and reads the outcome, or why
//! there is none, as JSON from its standard output. Log and progress go to standard error. How the
//! two processes end each other is in [`stop`].

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, bail};

use farcore_command::stop::{self, Forwarding};
use farcore_command::words;
use farcore_tuning::{LogFormat, log_format};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;

/// The hidden command of a child.
const COMMAND: &str = "run-one";

/// What a child writes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Answer<T> {
    /// The outcome.
    Ran(T),
    /// Why there is none.
    Failed(String),
}

/// A measurement that a child process makes of a plan.
pub trait Experiment {
    /// What it finds.
    type Run: Serialize + DeserializeOwned;

    /// Runs a plan in this process.
    ///
    /// # Errors
    /// There is nothing to report.
    fn run(plan: Plan) -> anyhow::Result<Self::Run>;

    /// True if threads of the run hang in the engine, so that only the end of the process ends
    /// them.
    fn is_stuck(_run: &Self::Run) -> bool {
        false
    }
}

/// Runs a plan in a child process, which shows its progress and its log. `None`: a signal ended it
/// before it had measured anything.
///
/// # Errors
/// The process could not be started, failed (the error says why), or was killed.
pub fn run_in_child<E: Experiment>(plan: &Plan) -> anyhow::Result<Option<E::Run>> {
    run_with(plan, Stdio::inherit())
}

/// Runs a plan in a child process, which shows nothing.
///
/// # Errors
/// As [`run_in_child`].
pub fn run_in_silent_child<E: Experiment>(plan: &Plan) -> anyhow::Result<Option<E::Run>> {
    run_with(plan, Stdio::piped())
}

fn run_with<T: DeserializeOwned>(plan: &Plan, stderr: Stdio) -> anyhow::Result<Option<T>> {
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let child = Command::new(program)
        .arg(COMMAND)
        .env(LogFormat::VARIABLE, log_format().to_string())
        .env(stop::PARENT, std::process::id().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(stderr)
        .spawn()
        .context("the process of a run could not be started")?;
    let number = child.id();
    let _forwarding = Forwarding::to(number).context("the process of a run was lost")?;
    let output = exchange(child, plan)?;
    if output.status.signal().is_some() {
        plan.watch.remove_left(number);
    }
    let answer = serde_json::from_slice(&output.stdout);
    match answer {
        Ok(Answer::Ran(outcome)) => Ok(Some(outcome)),
        _ if stop::is_requested() => Ok(None),
        Ok(Answer::Failed(why)) => bail!("the run of {} failed: {why}", plan.engine.name()),
        Err(_) if !output.status.success() => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!(died(plan.engine.name(), output.status, &stderr))
        }
        Err(error) => Err(error).context("the outcome of the run cannot be parsed"),
    }
}

/// Hands the plan to a child and waits for its end.
fn exchange(mut child: Child, plan: &Plan) -> anyhow::Result<std::process::Output> {
    if let Some(mut input) = child.stdin.take() {
        let written = input.write_all(&serde_json::to_vec(plan)?);
        // A child that ends before it has read its plan says why by its status.
        if let Err(error) = written
            && error.kind() != std::io::ErrorKind::BrokenPipe
        {
            return Err(error).context("the process of a run takes no plan");
        }
    }
    Ok(child.wait_with_output()?)
}

/// Why a run that reported nothing ended. `stderr` is empty if the child's was inherited.
fn died(engine: &str, status: ExitStatus, stderr: &str) -> String {
    let how = match status.signal() {
        // The kernel's choice when memory runs out, and the only one that leaves no trace.
        Some(9) => {
            "SIGKILL ended it; if memory ran out, lower --local, --far or the number of keys"
                .to_owned()
        }
        Some(signal) => format!("signal {signal} ended it"),
        None => format!("it ended with {status}"),
    };
    let last = stderr.trim_end().lines().next_back().unwrap_or_default();
    let colon = if last.is_empty() { "" } else { ": " };
    format!("the run of {engine} was lost: {how}{colon}{last}")
}

/// The plan that the parent of this process has sent.
///
/// # Errors
/// The plan cannot be parsed, or the parent has ended.
pub fn receive() -> anyhow::Result<Plan> {
    stop::follow_parent(std::env::var(stop::PARENT).ok().as_deref())?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    serde_json::from_str(&text).context("the plan cannot be parsed")
}

/// Runs a plan and writes the outcome, or why there is none, to standard output.
///
/// # Errors
/// The outcome cannot be written.
pub fn answer<E: Experiment>(plan: Plan) -> anyhow::Result<()> {
    let run = E::run(plan);
    let is_stuck = run.as_ref().is_ok_and(E::is_stuck);
    let answer = match run {
        Ok(run) => Answer::Ran(run),
        Err(error) => Answer::Failed(words::describe(&error)),
    };
    let mut output = std::io::stdout();
    output.write_all(&serde_json::to_vec(&answer)?)?;
    output.flush()?;
    if is_stuck {
        std::process::exit(0);
    }
    Ok(())
}
