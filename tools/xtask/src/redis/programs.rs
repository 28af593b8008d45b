//! `cargo xtask redis programs`: queues of jobs, rate limiters and caches that others wrote do
//! their work on the server: results, retries, delays, schedules, a killed worker's jobs, and many
//! jobs.
//!
//! A program has a driver in `tools/xtask/redis/programs`. It receives HOST PORT JOBS, deletes the
//! server's data, and prints one line: name, version, what it did, `N jobs, R jobs/s`. Each run
//! has a server of its own unless one is given.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use super::ci;
use super::place::Place;
use super::process::Process;
use super::server::Server;
use super::setup;
use crate::limited::{self, Run};

/// Time limit of a driver's checks, and of each job beside them.
const CHECKS_LIMIT: Duration = Duration::from_secs(150);
const JOB_LIMIT: Duration = Duration::from_millis(50);

/// Name, the program that runs the driver, and the driver.
type Program = (&'static str, Runner, &'static str);
/// Those whose checks wait longest come first.
const PROGRAMS: [Program; 10] = [
    ("rq", PYTHON, "on_rq.py"),
    ("celery", PYTHON, "on_celery.py"),
    ("arq", Runner::Python("py-arq"), "on_arq.py"),
    ("huey", PYTHON, "on_huey.py"),
    ("limits", PYTHON, "on_limits.py"),
    ("bullmq", Runner::Node, "on_bullmq.cjs"),
    ("bull", Runner::Node, "on_bull.cjs"),
    ("dramatiq", PYTHON, "on_dramatiq.py"),
    ("django-redis", PYTHON, "on_django_redis.py"),
    ("lock", PYTHON, "on_lock.py"),
];
const PYTHON: Runner = Runner::Python("py-programs");

#[derive(Clone, Copy, Debug)]
enum Runner {
    /// The Python of a virtual environment.
    Python(&'static str),
    Node,
}

#[derive(Debug, Args)]
pub(crate) struct Programs {
    /// A server that runs, e.g. 127.0.0.1:6379; its data are deleted [default: `farcore serve` is
    /// started for each program]
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "binary")]
    server: Option<Server>,
    /// The program `farcore` [default: it is built]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Runs each program on this server too, and prints the ratio of jobs a second, e.g.
    /// "redis-server --port {port} --save ''"
    #[arg(long, value_name = "COMMAND")]
    beside: Option<String>,
    /// Only programs whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// How many jobs a program does after its checks.
    #[arg(long, default_value_t = 10_000)]
    jobs: u32,
    /// How many programs run at once; figures need one. One that fails beside others is run again
    /// alone.
    #[arg(long, default_value_t = 1)]
    at_once: usize,
}

/// The server of our side.
enum Ours<'a> {
    Running(&'a Server),
    Started(&'a Path),
}

/// How a driver ended.
struct Outcome {
    succeeded: bool,
    line: String,
    /// Jobs a second.
    rate: Option<f64>,
}

impl Outcome {
    fn of(run: &Run) -> Self {
        let last = run.output.lines().last().unwrap_or("it printed nothing");
        let (succeeded, line) = match run.status {
            None => (false, "it hangs: its time limit is over"),
            Some(status) => (status.success(), last),
        };
        Self {
            succeeded,
            line: line.to_owned(),
            rate: rate_of(line),
        }
    }
}

/// Jobs a second, which end a driver's line.
fn rate_of(line: &str) -> Option<f64> {
    let rest = line.strip_suffix(" jobs/s")?;
    rest.rsplit(' ').next()?.parse().ok()
}

/// The command of a driver, without its arguments.
fn begin(place: &Place, runner: Runner, driver: &str) -> Result<Command> {
    let mut command = match runner {
        Runner::Python(environment) => {
            let mut python = Command::new(place.python(environment)?);
            python.env("PYTHONDONTWRITEBYTECODE", "1");
            python
        }
        Runner::Node => {
            let mut node = Command::new(place.program("py-programs/bin/node")?);
            node.env("NODE_PATH", place.program("node-programs/node_modules")?);
            node
        }
    };
    command.arg(place.driver("programs").join(driver));
    Ok(command)
}

impl Programs {
    fn drive(
        &self,
        place: &Place,
        program: &Program,
        server: &Server,
        log: &str,
    ) -> Result<Outcome> {
        let mut command = begin(place, program.1, program.2)?;
        let numbers = [server.port.to_string(), self.jobs.to_string()];
        command.arg(&server.host).args(numbers);
        let limit = CHECKS_LIMIT + JOB_LIMIT.saturating_mul(self.jobs);
        let run = limited::run(command, limit, &place.log(log)?)?;
        Ok(Outcome::of(&run))
    }

    /// Runs a program, and beside it on the other server; prints a line, and returns whether it
    /// succeeded.
    fn run(&self, place: &Place, ours: &Ours<'_>, program: &Program) -> Result<bool> {
        let name = program.0;
        let log = format!("program-{name}");
        let found = match ours {
            Ours::Running(server) => self.drive(place, program, server, &log)?,
            Ours::Started(binary) => {
                let command = format!("{} serve {}", binary.display(), ci::FLAGS);
                let process =
                    Process::start(&command, None, &place.log(&format!("{log}-server"))?)?;
                self.drive(place, program, process.server(), &log)?
            }
        };
        let mut beside = String::new();
        if let Some(command) = &self.beside {
            let log = format!("{log}-beside");
            let process = Process::start(command, None, &place.log(&format!("{log}-server"))?)?;
            let other = self.drive(place, program, process.server(), &log)?;
            beside = match (found.rate, other.rate) {
                (Some(ours), Some(theirs)) => {
                    format!("; {:.2} times {theirs} jobs/s", ours / theirs)
                }
                _ => format!("; beside: {}", other.line),
            };
        }
        let verdict = if found.succeeded { "ok" } else { "FAILED" };
        println!("{verdict:<8}{name:<14}{}{beside}", found.line);
        Ok(found.succeeded)
    }

    /// Runs the selected programs, some at once, and returns the names of those that failed.
    fn run_all(&self, place: &Place, ours: &Ours<'_>) -> Result<Vec<&'static str>> {
        let selected: Vec<_> = (PROGRAMS.iter())
            .filter(|program| program.0.contains(&self.only))
            .collect();
        ensure!(!selected.is_empty(), "no program has such a name");
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || -> Result<()> {
            // ORDERING: it only counts.
            while let Some(program) = selected.get(next.fetch_add(1, Ordering::Relaxed)) {
                if !self.run(place, ours, program)? {
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.push(program.0);
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.at_once.max(1))
                .map(|_| scope.spawn(work))
                .collect();
            threads.into_iter().try_for_each(|thread| {
                let ended = thread.join().ok();
                ended.context("a thread that runs programs panicked")?
            })
        })?;
        Ok(failed.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs programs that failed beside others once more, each alone; the names of those that fail
    /// again.
    fn run_alone(
        &self,
        place: &Place,
        ours: &Ours<'_>,
        names: &[&'static str],
    ) -> Result<Vec<&'static str>> {
        let mut failed = Vec::new();
        for program in PROGRAMS.iter().filter(|program| names.contains(&program.0)) {
            println!("again   {:<14}alone", program.0);
            if !self.run(place, ours, program)? {
                failed.push(program.0);
            }
        }
        Ok(failed)
    }
}

pub(super) fn perform(place: &Place, programs: &Programs) -> Result<()> {
    setup::perform_programs(place)?;
    let binary;
    let ours = if let Some(server) = &programs.server {
        ensure!(
            programs.at_once <= 1,
            "programs that run at once need servers of their own: leave --server out"
        );
        server.expect_alive()?;
        Ours::Running(server)
    } else {
        binary = ci::binary(programs.binary.as_deref())?;
        Ours::Started(&binary)
    };
    let mut failed = programs.run_all(place, &ours)?;
    if programs.at_once > 1 {
        // Their clocks go on while others have the processors.
        failed = programs.run_alone(place, &ours, &failed)?;
    }
    if !failed.is_empty() {
        bail!(
            "programs failed: {}; outputs are in {}",
            failed.join(", "),
            place.at("logs").display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_ends_its_line_with_its_rate() {
        assert_eq!(
            rate_of("rq 3.0.0: result, retry; 500 jobs, 250 jobs/s"),
            Some(250.0)
        );
        for line in [
            "",
            "250",
            "jobs/s",
            "AssertionError: 3 jobs",
            "a lot of jobs/s",
        ] {
            assert_eq!(rate_of(line), None, "{line}");
        }
    }

    #[test]
    fn every_driver_belongs_to_a_program() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("redis/programs");
        let mut files: Vec<_> = (folder.read_dir().unwrap())
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("on_"))
            .collect();
        let mut drivers: Vec<_> = PROGRAMS.iter().map(|program| program.2).collect();
        files.sort_unstable();
        drivers.sort_unstable();
        assert_eq!(files, drivers);
    }
}
