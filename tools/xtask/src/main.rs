//! `cargo xtask <task>`: the chores of this project. A task runs cargo or other programs in the
//! project's folder and fails if one of them fails.

mod architecture;
mod capi;
mod console;
mod crash;
mod deny;
mod flood;
mod fuzz;
mod install;
mod instructions;
mod lab;
mod limited;
mod nightly;
mod overhead;
mod redis;
mod results;
mod sim;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Chores of this project")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Run everything that must hold before a change lands: format, lints, tests, model checks,
    /// instruction counts, lab.
    Ci,
    /// Run the model checks of queues, rings, wakeups and a card's tables under loom.
    Loom,
    /// Run the contest at its default size; further arguments are passed on.
    Bench {
        /// Arguments for `farcore-bench contest`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Search for inputs that break what reads untrusted bytes: see docs/testing.md.
    Fuzz(fuzz::Fuzz),
    /// Kill a server and its memory node under load, again and again, and check what their clients
    /// read: see docs/testing.md.
    Crash(crash::Crash),
    /// Hold the licences and sources of dependencies to deny.toml, and look for advisories.
    Deny {
        /// The database of advisories, which is fetched from GitHub, is out of reach.
        #[arg(long)]
        without_advisories: bool,
    },
    /// Interpret the engine's index, log and rings with Miri, which needs a nightly compiler.
    Miri,
    /// Run unit tests under AddressSanitizer, which needs a nightly compiler.
    Sanitize {
        /// The package.
        #[arg(long, default_value = "farcore")]
        package: String,
        /// Tests; all of them, if none is named.
        filters: Vec<String>,
    },
    /// Run an engine, its memory nodes and time in one thread, from one seed or many: see
    /// docs/testing.md.
    Sim {
        /// Run seeds in the profiles `dev` and `release` and compare their trace hashes.
        #[arg(long)]
        profiles: bool,
        /// `--seed N`, `--count M`, `--minutes T`, `--jobs J`, `--liveness`, `--soak`, `--shrink`,
        /// `--mutation NAME`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Count the instructions of the hot paths under valgrind; fails if a path takes over 3 % more
    /// than its figure.
    Instructions {
        /// Replace the figures by the counts.
        #[arg(long)]
        write: bool,
    },
    /// Write docs/results.md: every published configuration beside other engines, medians, and
    /// where we lose.
    Results(results::Results),
    /// Write docs/architecture.svg, the picture in the README.
    Architecture,
    /// Measure the cost of the metrics by pairs of runs.
    #[command(subcommand)]
    Overhead(overhead::Overhead),
    /// Measure what a hostile network costs a memory node.
    #[command(subcommand)]
    Flood(flood::Flood),
    /// Check what this machine lacks to run Farcore well.
    Doctor,
    /// Run verbs without an RDMA card: a command in a throw-away virtual machine with Soft-RoCE
    /// devices.
    #[command(subcommand)]
    Lab(lab::Lab),
    /// Prove a server of the Redis protocol by foreign suites and clients; they delete its data.
    #[command(subcommand)]
    Redis(redis::Redis),
    /// Install the C interface: libraries, headers and farcore.pc.
    #[command(subcommand)]
    Capi(capi::Capi),
    /// Prove the pages of `farcore console` in a browser, and take their pictures.
    #[command(subcommand)]
    Console(console::Console),
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

/// The profile of figures that are published; `release` builds in a third of the time, and what it
/// builds is slower.
const PUBLISHED: &str = "published";

/// Builds a program of a package in the profile of published figures.
fn build_published(package: &str, program: &str) -> Result<PathBuf> {
    let mut command = cargo(&["build", "--quiet", "--locked", "--profile", PUBLISHED]);
    run(command.args(["--package", package, "--bin", program]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    Ok(PathBuf::from(target).join(PUBLISHED).join(program))
}

fn perform(task: Task) -> Result<ExitCode> {
    let done = match task {
        Task::Overhead(overhead) => overhead::perform(overhead),
        Task::Results(results) => results::perform(&results),
        Task::Architecture => architecture::perform(),
        Task::Instructions { write } => instructions::perform(write),
        Task::Fuzz(options) => fuzz::perform(&options),
        Task::Crash(options) => crash::perform(&options),
        Task::Deny { without_advisories } => deny::perform(!without_advisories),
        Task::Miri => nightly::miri(),
        Task::Sanitize { package, filters } => nightly::sanitize(&package, &filters),
        Task::Flood(flood) => flood::run(&flood),
        Task::Redis(redis) => redis::perform(redis),
        Task::Capi(capi) => capi::perform(&capi),
        Task::Console(console) => console::perform(console),
        Task::Lab(lab) => return Ok(lab::perform(lab)),
        Task::Ci => run(Command::new("bash").arg(".ci/run")),
        Task::Loom => run(&mut cargo(&["test", "-p", "farcore-models", "model::"])),
        Task::Bench { arguments } => {
            let benchmark = build_published("farcore-bench", "farcore-bench")?;
            run(Command::new(benchmark).arg("contest").args(arguments))
        }
        Task::Sim {
            profiles: true,
            arguments,
        } => sim::compare_profiles(&arguments),
        Task::Sim { arguments, .. } => sim::perform(&arguments),
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
    if let Some(code) = fuzz::wrap_compiler() {
        return code;
    }
    match perform(Arguments::parse().task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
