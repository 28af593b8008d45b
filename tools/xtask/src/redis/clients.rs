//! `cargo xtask redis clients` and `record`: each client connects with its defaults. `clients` also
//! writes, reads, sends a pipeline, and reads again after its connection was cut; `record` keeps
//! what a client sends when it connects.
//!
//! A client is a driver in `tools/xtask/redis/clients`. It receives HOST PORT CUT_PORT MODE, where
//! MODE is `full` or `connect`, and prints one line: its name, its version, what it did.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::place::Place;
use super::proxy::Proxy;
use super::server::{Server, Target};
use crate::limited::{self, Run};

/// Time limit of a driver.
const CLIENT_LIMIT: Duration = Duration::from_secs(60);
/// Where `record` writes unless it receives another folder.
const HANDSHAKES: &str = "tools/server/tests/handshakes";

/// Name, the program that runs the driver, and the driver.
const CLIENTS: [(&str, Runner, &str); 9] = [
    ("redis-cli", Runner::Bash, "redis-cli.sh"),
    ("redis-cli-terminal", Runner::Bash, "redis-cli-terminal.sh"),
    ("redis-benchmark", Runner::Bash, "redis-benchmark.sh"),
    ("redis-py-8", Runner::Python("py-new"), "redis_py.py"),
    ("redis-py-5", Runner::Python("py-old"), "redis_py.py"),
    ("django", Runner::Python("py-new"), "django_cache.py"),
    ("node-redis", Runner::Node, "node_redis.cjs"),
    ("ioredis", Runner::Node, "ioredis.cjs"),
    ("redis-rs", Runner::Cargo, "redis-rs/Cargo.toml"),
];

#[derive(Clone, Copy, Debug)]
enum Runner {
    Bash,
    /// The Python of a virtual environment.
    Python(&'static str),
    Node,
    Cargo,
}

#[derive(Debug, Args)]
pub(crate) struct Clients {
    #[command(flatten)]
    target: Target,
    /// Only clients whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
}

#[derive(Debug, Args)]
pub(crate) struct Record {
    #[command(flatten)]
    target: Target,
    /// Only clients whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// The folder of the recordings, `CLIENT.resp`.
    #[arg(long, default_value = HANDSHAKES)]
    into: PathBuf,
}

/// Runs the selected clients, each over a proxy of its own; `see` receives its name and outcome.
fn run_each(
    place: &Place,
    server: &Server,
    only: &str,
    mode: &str,
    mut see: impl FnMut(&str, &Run, &Proxy) -> Result<()>,
) -> Result<()> {
    server.expect_alive()?;
    let mut selected = CLIENTS
        .iter()
        .filter(|client| client.0.contains(only))
        .peekable();
    selected.peek().context("no client has such a name")?;
    for &(name, runner, driver) in selected {
        let mut command = begin(place, runner, driver)?;
        let proxy = Proxy::start(server)?;
        let ports = [proxy.port, proxy.cut_port].map(|port| port.to_string());
        command.arg("127.0.0.1").args(ports).arg(mode);
        let log = place.log(&format!("client-{name}"))?;
        let run = limited::run(command, CLIENT_LIMIT, &log)?;
        see(name, &run, &proxy)?;
    }
    Ok(())
}

/// The command of a driver, without its arguments.
fn begin(place: &Place, runner: Runner, driver: &str) -> Result<Command> {
    let driver = place.driver("clients").join(driver);
    let mut command = match runner {
        Runner::Bash => Command::new("bash"),
        Runner::Python(environment) => Command::new(place.python(environment)?),
        Runner::Node => {
            let mut node = Command::new(place.program("py-new/bin/node")?);
            node.env("NODE_PATH", place.program("node/node_modules")?);
            node
        }
        Runner::Cargo => {
            let target = place.at("redis-rs");
            let build = |verb| {
                let mut cargo = crate::cargo(&[verb, "--quiet", "--locked"]);
                cargo.arg("--manifest-path").arg(&driver);
                cargo.arg("--target-dir").arg(&target);
                cargo
            };
            // A build does not count against the client's time limit.
            crate::run(&mut build("build"))?;
            let mut cargo = build("run");
            cargo.arg("--");
            return Ok(cargo);
        }
    };
    command.arg(driver);
    Ok(command)
}

/// Whether a driver succeeded, and the line that it or its failure prints.
fn outcome(run: &Run) -> (bool, &str) {
    let last = run.output.lines().last().unwrap_or("it printed nothing");
    match run.status {
        None => (false, "it hangs: its time limit is over"),
        Some(status) => (status.success(), last),
    }
}

pub(super) fn perform(place: &Place, clients: &Clients) -> Result<()> {
    let server = &clients.target.server;
    let mut failed = Vec::new();
    run_each(place, server, &clients.only, "full", |name, run, _| {
        let (succeeded, line) = outcome(run);
        let verdict = if succeeded { "ok" } else { "FAILED" };
        println!("{verdict:<8}{name:<20}{line}");
        if !succeeded {
            failed.push(name.to_owned());
        }
        Ok(())
    })?;
    if !failed.is_empty() {
        bail!(
            "clients failed: {}; outputs are in {}",
            failed.join(", "),
            place.at("logs").display()
        );
    }
    Ok(())
}

pub(super) fn record(place: &Place, record: &Record) -> Result<()> {
    fs::create_dir_all(&record.into)
        .with_context(|| format!("cannot create {}", record.into.display()))?;
    let server = &record.target.server;
    run_each(
        place,
        server,
        &record.only,
        "connect",
        |name, run, proxy| {
            let (succeeded, line) = outcome(run);
            if !succeeded {
                bail!("{name} failed: {line}");
            }
            let bytes = proxy.recorded();
            let path = record.into.join(format!("{name}.resp"));
            fs::write(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
            println!("{:<48}{:>6} bytes", path.display(), bytes.len());
            Ok(())
        },
    )
}
