//! `cargo xtask overhead counting|watching`: the cost of the metrics, as the ratio of the contest's
//! hot requests with and without them.
//!
//! Two successive runs differ by more than that cost. So for counting, which is compiled in, a pair
//! of runs shares one core: the scheduler alternates between them within milliseconds, both suffer
//! the same disturbances, and their processor times are compared. For watching, neighbouring
//! windows of one run are compared.

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

/// Confidence of an interval.
const CONFIDENCE: f64 = 0.95;
/// Requests of a hot phase, or for each pair of windows.
const HOT_OPS: u64 = 20_000_000;
/// Time limit of an HTTP answer.
const HTTP_TIMEOUT: Duration = Duration::from_secs(1);
/// Length of a window of a watched run.
const WINDOW: Duration = Duration::from_millis(500);
/// Reports read in a watched window: 10 a second, ten times as many as `farcore top` reads.
const READS: u32 = 5;

#[derive(Debug, Subcommand)]
pub(crate) enum Overhead {
    /// Compare with a build without counters and samples; both run at once on the same cores.
    Counting(Setup),
    /// Read the statistics socket and `/metrics`, each ten times a second, and compare with windows
    /// without a reader.
    Watching(Setup),
}

#[derive(Debug, Args)]
pub(crate) struct Setup {
    /// Pairs of runs, or of windows.
    #[arg(long, default_value_t = 15)]
    pairs: usize,
    /// Cores of the engine.
    #[arg(long, default_value = "0")]
    cores: String,
    /// Local memory.
    #[arg(long, default_value = "1GiB")]
    local: String,
    /// Requests of the hot phase [default: 20 million; with `watching`, for each pair of windows]
    #[arg(long)]
    hot_ops: Option<u64>,
}

/// Builds the benchmark into a separate target folder.
fn build(target: &str, flags: &str) -> Result<PathBuf> {
    let mut command = super::cargo(&["build", "--locked", "-p", "farcore-bench"]);
    command
        .args(["--profile", super::PUBLISHED, "--target-dir", target])
        .env("RUSTFLAGS", flags);
    super::run(&mut command)?;
    Ok(Path::new(target)
        .join(super::PUBLISHED)
        .join("farcore-bench"))
}

fn start(
    benchmark: &Path,
    setup: &Setup,
    hot_ops: u64,
    json: &Path,
    more: &[String],
) -> Result<Child> {
    let mut command = Command::new(benchmark);
    command.args(["contest", "--engines", "farcore", "--cores", &setup.cores]);
    command.args([
        "--local",
        &setup.local,
        "--far",
        "512MiB",
        "--keys-per-core",
        "500000",
    ]);
    command.args(["--hot-ops", &hot_ops.to_string(), "--json"]);
    command.arg(json).args(more);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))
}

/// Hot requests for each second of processor time, in millions.
fn hot_per_cpu(json: &Path) -> Result<f64> {
    let text = fs::read_to_string(json).with_context(|| format!("no {}", json.display()))?;
    let report: Value = serde_json::from_str(&text)?;
    let run = &report["runs"][0];
    if run["wrong_values"] != 0 {
        bail!("the run had wrong values: {text}");
    }
    let phases = run["phases"].as_array().context("no phases")?;
    let hot = phases.iter().find(|phase| phase["name"] == "hot");
    let of = |name: &str| hot.and_then(|hot| hot[name].as_f64());
    let rate = of("ops").zip(of("cpu_seconds"));
    let rate = rate.map(|(ops, seconds)| ops / seconds / 1e6);
    rate.filter(|rate| rate.is_finite() && *rate > 0.0)
        .context("no hot phase")
}

/// Waits for the end of a run and reads its rate.
fn finish(mut run: Child, json: &Path) -> Result<f64> {
    let status = run.wait()?;
    if !status.success() {
        bail!("the benchmark ended with {status}");
    }
    hot_per_cpu(json)
}

fn get_metrics(address: SocketAddr) -> std::io::Result<usize> {
    let mut stream = TcpStream::connect_timeout(&address, HTTP_TIMEOUT)?;
    stream.set_read_timeout(Some(HTTP_TIMEOUT))?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)
}

/// A free address of this machine.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port")?;
    Ok(listener.local_addr()?)
}

/// Prints the ratio; fails if it is below `least`.
fn report(what: &str, ratios: &[f64], least: f64) -> Result<()> {
    let estimate = RatioEstimate::of(ratios, CONFIDENCE).context("no pairs")?;
    println!(
        "{what}: {:.4} of the hot requests without, {:.4} to {:.4} with {:.1} % confidence, {} pairs",
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

/// Runs pairs side by side on one core; the one that starts first alternates.
fn paired(counted: &Path, uncounted: &Path, setup: &Setup, folder: &Path) -> Result<Vec<f64>> {
    let hot_ops = setup.hot_ops.unwrap_or(HOT_OPS);
    let json = ["with.json", "without.json"].map(|name| folder.join(name));
    let mut ratios = Vec::with_capacity(setup.pairs);
    for pair in 0..setup.pairs {
        let begin = |place: usize| {
            let benchmark = [counted, uncounted][place];
            start(benchmark, setup, hot_ops, &json[place], &[])
        };
        let first = begin(pair % 2)?;
        let second = begin(1 - pair % 2)?;
        let (with, without) = if pair % 2 == 0 {
            (first, second)
        } else {
            (second, first)
        };
        let (with, without) = (finish(with, &json[0])?, finish(without, &json[1])?);
        println!(
            "pair {:>3}: {with:.3} million a second of processor time with, {without:.3} without, {:.4}",
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
    match overhead {
        Overhead::Counting(setup) => {
            let counted = build("target", "")?;
            let uncounted = build("target/uncounted", "--cfg farcore_uncounted")?;
            let ratios = paired(&counted, &uncounted, &setup, folder)?;
            report("counters and samples", &ratios, 0.98)
        }
        Overhead::Watching(setup) => {
            let benchmark = build("target", "")?;
            let json = folder.join("run.json");
            let ratios = watched(&benchmark, &setup, &folder.join("run.sock"), &json)?;
            report("ten reads a second", &ratios, 0.99)
        }
    }
}

/// Requests that an engine has answered, and the time of its clock.
fn answered(socket: &Path) -> Result<(u64, u64)> {
    let report = read_report(socket)?;
    let total = report.total();
    Ok((total.answered(), report.now_ns))
}

/// Requests a nanosecond in a window with a number of reads.
fn window(socket: &Path, address: SocketAddr, reads: u32) -> Result<f64> {
    let (before, start_ns) = answered(socket)?;
    for _ in 0..reads {
        answered(socket)?;
        get_metrics(address)?;
        thread::sleep(WINDOW / READS);
    }
    thread::sleep(WINDOW.saturating_sub(WINDOW / READS * reads));
    let (after, end_ns) = answered(socket)?;
    Ok((after - before) as f64 / (end_ns - start_ns).max(1) as f64)
}

/// The ratios of neighbouring windows of one run's hot phase.
fn watched(benchmark: &Path, setup: &Setup, socket: &Path, json: &Path) -> Result<Vec<f64>> {
    let address = free_address()?;
    let more = [
        "--stats-socket".to_owned(),
        socket.display().to_string(),
        "--http".to_owned(),
        address.to_string(),
    ];
    let hot_ops = setup.hot_ops.unwrap_or(HOT_OPS * setup.pairs as u64);
    let mut run = start(benchmark, setup, hot_ops, json, &more)?;
    let mut ratios = Vec::with_capacity(setup.pairs);
    let keys = 500_000 * setup.cores.split(',').count() as u64;
    let done = loop {
        if let Some(status) = run.try_wait()? {
            bail!(
                "the run ended with {status} after {} pairs: give it more --hot-ops",
                ratios.len()
            );
        }
        // Before the hot phase each key is requested about ten times.
        let hot = answered(socket).is_ok_and(|(answered, _)| answered > 12 * keys);
        if !hot {
            thread::sleep(WINDOW / READS);
            continue;
        }
        let first = ratios.len() % 2 == 0;
        let one = window(socket, address, if first { READS } else { 0 })?;
        let other = window(socket, address, if first { 0 } else { READS })?;
        let (with, without) = if first { (one, other) } else { (other, one) };
        ratios.push(with / without);
        if ratios.len() == setup.pairs {
            break ratios;
        }
    };
    // The rest of the run is not needed.
    run.kill()?;
    run.wait()?;
    Ok(done)
}
