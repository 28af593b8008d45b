//! What people of this project do often: `cargo xtask <task>`.

mod instructions;
mod lab;
mod overhead;
mod results;

use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "What people of this project do often")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// All that must hold before a change lands: format, lints, model check, tests.
    Ci,
    /// The model checks of queues, rings and bells under loom.
    Loom,
    /// The contest at its default size; further arguments go to it.
    Bench {
        /// Arguments for `farcore-bench contest`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// The model test of the shard, from one seed.
    Sim {
        /// The seed, as a failing test prints it.
        #[arg(long)]
        seed: u64,
    },
    /// The instructions of the hot paths, counted under valgrind; fails where one takes 5 % more
    /// than it did.
    Instructions {
        /// Write what was counted in place of the figures.
        #[arg(long)]
        write: bool,
    },
    /// The published page, docs/results.md: every configuration beside other engines, medians, and
    /// where we lose.
    Results(results::Results),
    /// What counting and watching cost, from pairs of runs.
    #[command(subcommand)]
    Overhead(overhead::Overhead),
    /// What this machine lacks to run Farcore well.
    Doctor,
    /// Verbs without an RDMA card: a command in a throw-away virtual machine with Soft-RoCE
    /// devices.
    #[command(subcommand)]
    Lab(lab::Lab),
}

fn run(command: &mut Command) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    command.args(arguments);
    command
}

fn perform(task: Task) -> Result<ExitCode> {
    let done = match task {
        Task::Overhead(overhead) => overhead::perform(overhead),
        Task::Results(results) => results::perform(&results),
        Task::Instructions { write } => instructions::perform(write),
        Task::Lab(lab) => return Ok(lab::perform(lab)),
        Task::Ci => run(Command::new("bash").arg(".ci/run")),
        Task::Loom => run(cargo(&["test", "--target-dir", "target/loom"])
            .args([
                "-p", "farcore", "--lib", "--", "model::", "--skip", "shard::",
            ])
            .env("RUSTFLAGS", "--cfg farcore_loom")),
        Task::Bench { arguments } => {
            run(
                cargo(&["run", "--release", "-p", "farcore-bench", "--", "contest"])
                    .args(arguments),
            )
        }
        Task::Sim { seed } => run(cargo(&[
            "test",
            "-p",
            "farcore",
            "--lib",
            "--",
            "shard::tests",
            "--nocapture",
        ])
        .env("FARCORE_SEED", seed.to_string())),
        Task::Doctor => run(&mut cargo(&[
            "run",
            "-q",
            "-p",
            "farcore-tools",
            "--",
            "doctor",
        ])),
    };
    done.map(|()| ExitCode::SUCCESS)
}

fn main() -> ExitCode {
    match perform(Arguments::parse().task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
