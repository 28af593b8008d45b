//! `cargo xtask overhead counting|watching`: what figures cost, as the ratio of the contest's hot throughput with and without
//! them, from interleaved pairs of runs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use farcore_tuning::{RatioEstimate, read_report};
use serde_json::Value;

/// How sure an interval is.
const CONFIDENCE: f64 = 0.95;
/// How often somebody looks at a watched engine: as often as `farcore top` does.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is seen whether a run has ended.
const TICK: Duration = Duration::from_millis(50);

#[derive(Debug, Subcommand)]
pub(crate) enum Overhead {
    /// Counters and samples, against a build that has none.
    Counting(Setup),
    /// A reader of the statistics socket and of `/metrics`, each once a second, against nobody.
    Watching(Setup),
}

#[derive(Debug, Args)]
pub(crate) struct Setup {
    /// Pairs of runs.
    #[arg(long, default_value_t = 15)]
    pairs: usize,
    /// Cores of the engine.
    #[arg(long, default_value = "0")]
    cores: String,
    /// Local memory.
    #[arg(long, default_value = "1GiB")]
    local: String,
    /// Requests of the hot phase.
    #[arg(long, default_value_t = 20_000_000)]
    hot_ops: u64,
}

/// Builds the benchmark into a folder of its own.
fn build(target: &str, flags: &str) -> Result<PathBuf> {
    let mut command = super::cargo(&["build", "--release", "--locked", "-p", "farcore-bench"]);
    command
        .args(["--target-dir", target])
        .env("RUSTFLAGS", flags);
    super::run(&mut command)?;
    Ok(Path::new(target).join("release/farcore-bench"))
}

fn start(benchmark: &Path, setup: &Setup, json: &Path, more: &[String]) -> Result<Child> {
    let mut command = Command::new(benchmark);
    command.args(["contest", "--engines", "farcore", "--cores", &setup.cores]);
    command.args([
        "--local",
        "1GiB",
        "--far",
        "512MiB",
        "--keys-per-core",
        "500000",
    ]);
    command.args(["--hot-ops", &setup.hot_ops.to_string(), "--json"]);
    command.arg(json).args(more);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))
}

/// The hot phase's throughput, in million requests a second.
fn hot_mops(json: &Path) -> Result<f64> {
    let text = fs::read_to_string(json).with_context(|| format!("no {}", json.display()))?;
    let report: Value = serde_json::from_str(&text)?;
    let run = &report["runs"][0];
    if run["wrong_values"] != 0 {
        bail!("the run had wrong values: {text}");
    }
    let phases = run["phases"].as_array().context("no phases")?;
    let hot = phases.iter().find(|phase| phase["name"] == "hot");
    let mops = hot.and_then(|hot| hot["mops"].as_f64());
    mops.filter(|&mops| mops > 0.0).context("no hot phase")
}

/// Waits for a run; `look` is called now and then.
fn finish(mut run: Child, json: &Path, mut look: impl FnMut()) -> Result<f64> {
    let mut waited = LOOK;
    loop {
        if let Some(status) = run.try_wait()? {
            if !status.success() {
                bail!("the benchmark ended with {status}");
            }
            return hot_mops(json);
        }
        if waited >= LOOK {
            waited = Duration::ZERO;
            look();
        }
        thread::sleep(TICK);
        waited += TICK;
    }
}

fn get_metrics(address: SocketAddr) -> std::io::Result<usize> {
    let mut stream = TcpStream::connect_timeout(&address, LOOK)?;
    stream.set_read_timeout(Some(LOOK))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)
}

/// An address of this machine that nobody listens at.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port")?;
    Ok(listener.local_addr()?)
}

/// Tells the ratio; fails where it is below what it may be.
fn tell(what: &str, ratios: &[f64], least: f64) -> Result<()> {
    let estimate = RatioEstimate::of(ratios, CONFIDENCE).context("no pairs")?;
    println!(
        "{what}: hot throughput {:.4} of that without, {:.4} to {:.4} with {:.1} % confidence, {} pairs",
        estimate.median,
        estimate.low,
        estimate.high,
        estimate.confidence * 100.0,
        estimate.pairs
    );
    if estimate.median < least {
        bail!("{what} may cost {:.0} % at most", (1.0 - least) * 100.0);
    }
    Ok(())
}

/// Runs the pairs: which of a pair comes first changes each time.
fn paired(pairs: usize, mut run: impl FnMut(bool) -> Result<f64>) -> Result<Vec<f64>> {
    let mut ratios = Vec::with_capacity(pairs);
    for pair in 0..pairs {
        let first = run(pair % 2 == 0)?;
        let second = run(pair % 2 != 0)?;
        let (with, without) = if pair % 2 == 0 {
            (first, second)
        } else {
            (second, first)
        };
        println!(
            "pair {:>3}: {with:.3} Mops/s with, {without:.3} without, {:.4}",
            pair + 1,
            with / without
        );
        ratios.push(with / without);
    }
    Ok(ratios)
}

pub(crate) fn perform(overhead: Overhead) -> Result<()> {
    let folder = Path::new("target/overhead");
    fs::create_dir_all(folder)?;
    let json = folder.join("run.json");
    match overhead {
        Overhead::Counting(setup) => {
            let counted = build("target", "")?;
            let uncounted = build("target/uncounted", "--cfg farcore_uncounted")?;
            let ratios = paired(setup.pairs, |with| {
                let benchmark = if with { &counted } else { &uncounted };
                finish(start(benchmark, &setup, &json, &[])?, &json, || {})
            })?;
            tell("counters and samples", &ratios, 0.98)
        }
        Overhead::Watching(setup) => {
            let benchmark = build("target", "")?;
            let socket = folder.join("run.sock");
            let (mut reports, mut scrapes) = (0, 0);
            let ratios = paired(setup.pairs, |with| {
                let address = free_address()?;
                // Both runs offer their figures; one is looked at.
                let more = [
                    "--stats-socket".to_owned(),
                    socket.display().to_string(),
                    "--http".to_owned(),
                    address.to_string(),
                ];
                let run = start(&benchmark, &setup, &json, &more)?;
                finish(run, &json, || {
                    if with {
                        reports += usize::from(read_report(&socket).is_ok());
                        scrapes += usize::from(get_metrics(address).is_ok_and(|bytes| bytes > 0));
                    }
                })
            })?;
            if reports < setup.pairs || scrapes < setup.pairs {
                bail!("the runs were looked at {reports} and {scrapes} times only");
            }
            println!("looked at by socket {reports} times, by HTTP {scrapes} times");
            tell("a reader of the socket and of /metrics", &ratios, 0.99)
        }
    }
}
