//! `cargo xtask redis speed`: paired runs of `redis-benchmark` against Farcore, Debian's Redis and
//! Valkey, each in a process of its own on core 0 or, of Farcore, on the cores that a flag names,
//! the client on core 1. With `--zipf` the client is our own.
//!
//! In each round every server is started, measured and ended; the order of servers turns from round
//! to round. The client is often the slower side, so the server's processor time for each request
//! is measured beside the rate.

pub(super) mod figures;
pub(super) mod skewed;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use self::figures::{Figures, Sample};
use self::skewed::{Client, Skewed, Test, on_core};
use super::place::Place;
use super::process::Process;
use super::valkey;
use crate::lab::output_of;

/// The client's core.
pub(super) const CLIENT_CORE: usize = 1;

#[derive(Debug, Args)]
pub(crate) struct Speed {
    /// The command of Farcore's server; `{port}` in it becomes a free port. Without it, Redis and
    /// Valkey are compared.
    #[arg(long, value_name = "COMMAND")]
    server_cmd: Option<String>,
    /// The servers to compare with, of `redis` and `valkey`.
    #[arg(long, value_delimiter = ',', default_value = "redis,valkey")]
    against: Vec<Foreign>,
    /// The processors that Farcore's server may use; the others have one thread, on core 0.
    #[arg(long, value_name = "LIST", default_value = "0")]
    server_cores: String,
    /// Rounds; each gives a pair for every comparison.
    #[arg(long, default_value_t = 12)]
    pairs: u32,
    /// Requests in flight for each connection.
    #[arg(long, value_delimiter = ',', default_value = "32,1")]
    pipelines: Vec<u32>,
    /// Requests of a measurement, divided by 10 without a pipeline.
    #[arg(long, default_value_t = 2_000_000)]
    requests: u32,
    /// Bytes of a value.
    #[arg(long, default_value_t = 128)]
    value_bytes: u32,
    /// Connections.
    #[arg(long, default_value_t = 50)]
    connections: u32,
    /// Keys that requests are spread over, at most 1,000,000,000.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000_000))]
    keys: u32,
    /// Store all keys first, and draw keys with this exponent, e.g. 0.99, by a client of our own.
    /// Without it redis-benchmark draws them evenly.
    #[arg(long, value_name = "EXPONENT", value_parser = exponent)]
    zipf: Option<f64>,
    /// Also write all figures to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Servers that `setup` installs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Foreign {
    Redis,
    Valkey,
}

/// A server and the command that starts it.
#[derive(Debug)]
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) command: String,
    pub(super) cores: String,
}

impl Contender {
    /// Farcore's server on some cores.
    pub(super) fn ours(command: &str, cores: &str) -> Self {
        Self {
            name: "farcore",
            command: command.to_owned(),
            cores: cores.to_owned(),
        }
    }
}

/// What the client does in one measurement.
#[derive(Clone, Copy, Debug)]
struct Load {
    test: Test,
    pipeline: u32,
    requests: u32,
}

impl Foreign {
    pub(super) fn contender(self, place: &Place) -> Result<Contender> {
        let flags = "--port {port} --bind 127.0.0.1 --save '' --appendonly no --daemonize no";
        let (name, binary) = match self {
            Self::Redis => ("redis", "redis-server".to_owned()),
            Self::Valkey => ("valkey", valkey::binary_in(place, "py-new")?),
        };
        Ok(Contender {
            name,
            command: format!("{binary} {flags}"),
            cores: "0".to_owned(),
        })
    }
}

pub(super) fn perform(place: &Place, speed: &Speed) -> Result<()> {
    let ours = speed.server_cmd.as_ref();
    let ours = ours.map(|command| Contender::ours(command, &speed.server_cores));
    let mut contenders: Vec<Contender> = ours.into_iter().collect();
    for foreign in &speed.against {
        contenders.push(foreign.contender(place)?);
    }
    if contenders.len() < 2 {
        bail!("there is nothing to compare: give --server-cmd, or two servers with --against");
    }
    let mut figures = Figures::default();
    for round in 0..speed.pairs {
        for at in order(round, contenders.len()) {
            measure(place, speed, &contenders[at], round, &mut figures)?;
        }
        println!("round {} of {} measured", round + 1, speed.pairs);
    }
    let report = figures.report(contenders[0].name)?;
    print!("{report}");
    if let Some(path) = &speed.json {
        write_json(path, &report)?;
    }
    Ok(())
}

pub(super) fn write_json(path: &Path, report: &figures::Report) -> Result<()> {
    std::fs::write(path, serde_json::to_string_pretty(report)?)
        .with_context(|| format!("cannot write {}", path.display()))
}

/// The order of a round: each server is equally often first, and followed by each other one.
pub(super) fn order(round: u32, servers: usize) -> Vec<usize> {
    let first = round as usize % servers;
    let is_turned = round as usize / servers % 2 == 1;
    let turn = |step| if is_turned { servers - step } else { step };
    (0..servers)
        .map(|step| (first + turn(step)) % servers)
        .collect()
}

/// An exponent of a Zipf distribution.
fn exponent(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(exponent) if (0.0..=4.0).contains(&exponent) => Ok(exponent),
        _ => Err("write an exponent from 0, for all keys alike, to 4".to_owned()),
    }
}

/// Starts a server, measures each load, and ends it.
fn measure(
    place: &Place,
    speed: &Speed,
    contender: &Contender,
    round: u32,
    figures: &mut Figures,
) -> Result<()> {
    let log = place.log(&format!("speed-{}", contender.name))?;
    let process = Process::start(&contender.command, Some(&contender.cores), &log)
        .with_context(|| format!("cannot measure {}", contender.name))?;
    let mut client = (speed.zipf)
        .map(|zipf| filled(speed, zipf, &process))
        .transpose()?;
    for &pipeline in &speed.pipelines {
        // Sets come first, so that gets find their keys.
        for test in [Test::Set, Test::Get] {
            let load = Load {
                test,
                pipeline,
                requests: speed.requests / if pipeline == 1 { 10 } else { 1 },
            };
            let before = process.processor_time()?;
            let rate = match &mut client {
                None => drive(speed, &process, load)?,
                Some(client) => on_core(CLIENT_CORE, || {
                    client.measure(test, load.requests, pipeline as usize)
                })?,
            };
            let spent = process.processor_time()?.saturating_sub(before);
            figures.add(Sample {
                server: contender.name,
                test: test.name(),
                pipeline,
                round,
                requests_per_second: rate,
                processor_ns_per_request: spent.as_nanos() as f64 / f64::from(load.requests),
            });
        }
    }
    Ok(())
}

/// A client that draws keys itself, once all of them are stored.
fn filled(speed: &Speed, zipf: f64, process: &Process) -> Result<Client> {
    let skewed = Skewed {
        zipf,
        keys: speed.keys,
        value_bytes: speed.value_bytes as usize,
        connections: speed.connections as usize,
    };
    on_core(CLIENT_CORE, || Client::filled(process.server(), skewed))
}

/// Runs `redis-benchmark` once; returns its rate.
fn drive(speed: &Speed, process: &Process, load: Load) -> Result<f64> {
    let mut command = Command::new("taskset");
    command
        .args(["-c", &CLIENT_CORE.to_string()])
        .args(["redis-benchmark", "-h", "127.0.0.1"])
        .args(["-p", &process.port().to_string()])
        .args(["-P", &load.pipeline.to_string()])
        .args(["-d", &speed.value_bytes.to_string()])
        .args(["-c", &speed.connections.to_string()])
        .args(["-n", &load.requests.to_string()])
        .args(["-r", &speed.keys.to_string()])
        .args(["-t", load.test.name(), "--csv"]);
    let output = output_of(&mut command)?;
    let output = String::from_utf8_lossy(&output);
    rate(&output).with_context(|| format!("redis-benchmark printed no rate: {output}"))
}

/// The rate of the only test of `redis-benchmark --csv`.
pub(super) fn rate(csv: &str) -> Option<f64> {
    let line = csv
        .lines()
        .find(|line| !line.starts_with("\"test\"") && line.starts_with('"'))?;
    line.split(',').nth(1)?.trim_matches('"').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_is_equally_often_at_each_place() {
        for servers in [2, 3] {
            let mut counts = vec![vec![0; servers]; servers];
            for round in 0..12 {
                for (place, server) in order(round, servers).into_iter().enumerate() {
                    counts[place][server] += 1;
                }
            }
            assert!(
                counts.iter().flatten().all(|&count| count == 12 / servers),
                "{counts:?}"
            );
        }
        assert_ne!(order(0, 3), order(3, 3));
    }

    #[test]
    fn the_rate_is_read() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\"\n\"SET\",\"961538.44\",\"1.1\"\n";
        assert_eq!(rate(csv), Some(961_538.44));
        assert_eq!(rate("ERROR: failed to fetch CONFIG\n"), None);
    }
}
