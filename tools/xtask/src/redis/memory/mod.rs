//! `cargo xtask redis memory`: the cap of `--local` holds with clients in it.
//!
//! Starts a memory node and `farcore serve` on it, so that far memory is not in the server's
//! process, and samples the server's resident memory each second: alone, with idle connections, and
//! under load. `load` has the connections.
//!
//! - I1: the run fails if the resident memory exceeds `--local` by more than the server says it
//!   takes beside, if that is 32 MiB or more, or if an idle connection takes more than 8 KiB.

mod load;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use self::load::{Idle, Load};
use super::place::Place;
use super::process::Process;

/// How often resident memory is read.
const SAMPLE: Duration = Duration::from_secs(1);
/// How often the run says where it is.
const SAMPLES_A_LINE: usize = 30;
/// What a server may take beside `--local`, at most.
const BESIDE_MAX: u64 = 32 << 20;
/// What an idle connection may take, at most.
const IDLE_BYTES_MAX: u64 = 8 << 10;
/// Local memory of the server, in MiB.
const LOCAL_MIB: u64 = 256;
/// Where the server's log says what it takes beside `--local`.
const BESIDE: &str = "beside_bytes=";

#[derive(Debug, Args)]
pub(crate) struct Memory {
    /// The program `farcore`, a release build
    #[arg(long, value_name = "FILE")]
    binary: PathBuf,
    /// How long the load lasts
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Connections that say nothing
    #[arg(long, default_value_t = 1000)]
    idle: usize,
    /// Connections with a pipeline without end
    #[arg(long, default_value_t = 200)]
    active: usize,
    /// Connections that send and never read
    #[arg(long, default_value_t = 100)]
    deaf: usize,
    /// Bytes that the server may take beside --local [default: what it says]
    #[arg(long, value_name = "BYTES")]
    beside: Option<u64>,
}

/// A memory node in a process of its own; it ends with this value.
struct Lender {
    child: Child,
    address: String,
}

impl Lender {
    fn start(memory: &Memory, place: &Place) -> Result<Self> {
        let log = fs::File::create(place.log("memory-node")?)?;
        let mut child = Command::new(&memory.binary)
            .args(["memnode", "--listen", "tcp://127.0.0.1:0"])
            .args(["--memory", "2GiB", "--no-huge-pages"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", memory.binary.display()))?;
        let out = child.stdout.take().context("a pipe")?;
        let mut lines = BufReader::new(out).lines().map_while(Result::ok);
        let ready = lines.find_map(|line| line.strip_prefix("ready: ").map(str::to_owned));
        let mut lender = Self {
            child,
            address: String::new(),
        };
        let ready = ready.context("the memory node did not start")?;
        ready
            .split(' ')
            .next()
            .unwrap_or_default()
            .clone_into(&mut lender.address);
        Ok(lender)
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Resident memory of a process in bytes: `VmRSS` of proc(5).
fn resident_bytes(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    resident_of(&text).with_context(|| format!("no VmRSS in {path}"))
}

fn resident_of(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// What the log says that the server takes beside `--local`.
fn beside_of(log: &str) -> Option<u64> {
    let (_, after) = log.split_once(BESIDE)?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn mebibytes(bytes: u64) -> f64 {
    // Shown with one digit.
    #[allow(clippy::cast_precision_loss, reason = "shown with one digit")]
    let bytes = bytes as f64;
    bytes / f64::from(1 << 20)
}

/// Samples until some time has passed; returns the greatest sample.
fn watch(process: &Process, time: Duration, mut say: impl FnMut(u64, u64)) -> Result<u64> {
    let start = Instant::now();
    let mut peak = 0;
    let mut samples = 0;
    while start.elapsed() < time {
        thread::sleep(SAMPLE.min(time));
        let now = resident_bytes(process.id())?;
        peak = peak.max(now);
        samples += 1;
        if samples % SAMPLES_A_LINE == 0 {
            say(now, peak);
        }
    }
    Ok(peak)
}

fn start_server(memory: &Memory, place: &Place, lender: &Lender) -> Result<(Process, u64)> {
    let log = place.log("memory-server")?;
    let command = format!(
        "{} serve --resp 127.0.0.1:{{port}} --local {LOCAL_MIB}MiB --far 1GiB --fabric {}",
        memory.binary.display(),
        lender.address
    );
    let process = Process::start(&command, None, &log)?;
    let said = fs::read_to_string(&log)?;
    let beside = memory
        .beside
        .or_else(|| beside_of(&said))
        .with_context(|| {
            format!("the server does not say what it takes beside --local (`{BESIDE}`)")
        })?;
    Ok((process, beside))
}

/// Connects the idle connections; returns what one of them takes, by the growth of the process.
fn idle_bytes(memory: &Memory, process: &Process) -> Result<(Idle, u64)> {
    // A first connection pays for what all share.
    let first = Idle::connect(process.server(), 1)?;
    thread::sleep(SAMPLE);
    let before = resident_bytes(process.id())?;
    let mut idle = Idle::connect(process.server(), memory.idle)?;
    thread::sleep(SAMPLE);
    let grown = resident_bytes(process.id())?.saturating_sub(before);
    idle.add(first);
    Ok((idle, grown / (memory.idle as u64).max(1)))
}

pub(super) fn perform(place: &Place, memory: &Memory) -> Result<()> {
    ensure!(
        memory.binary.exists(),
        "no {}: build it with cargo build --release -p farcore-tools",
        memory.binary.display()
    );
    let lender = Lender::start(memory, place)?;
    let (process, beside) = start_server(memory, place, &lender)?;
    let local = LOCAL_MIB << 20;
    let at_start = resident_bytes(process.id())?;
    let (idle, each) = idle_bytes(memory, &process)?;
    let with_idle = resident_bytes(process.id())?;
    println!(
        "at start {:.1} MiB; {} idle connections: {:.1} MiB, {each} bytes each",
        mebibytes(at_start),
        idle.count(),
        mebibytes(with_idle)
    );
    let load = Load::start(process.server(), memory.active, memory.deaf)?;
    let time = Duration::from_secs(memory.seconds);
    let peak = watch(&process, time, |now, peak| {
        let (now, peak) = (mebibytes(now), mebibytes(peak));
        println!("now {now:.1} MiB, peak {peak:.1} MiB; {}", load.figures());
    })?;
    println!("{}", load.figures());
    println!("{}", load::figures_of(process.server())?);
    let over = peak.saturating_sub(local);
    println!(
        "peak {:.1} MiB: --local {LOCAL_MIB} MiB and {:.1} MiB; the server says at most {:.1} MiB",
        mebibytes(peak),
        mebibytes(over),
        mebibytes(beside)
    );
    load.end();
    drop(idle);
    ensure!(
        beside < BESIDE_MAX,
        "the server takes {beside} bytes beside --local: too many"
    );
    if over > beside {
        bail!("the server exceeds --local by {over} bytes, and says at most {beside}");
    }
    ensure!(
        each <= IDLE_BYTES_MAX,
        "an idle connection takes {each} bytes: too many"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_in_bytes() {
        let status = "Name:\tx\nVmHWM:\t  999 kB\nVmRSS:\t  243388 kB\nRssAnon:\t 1 kB\n";
        assert_eq!(resident_of(status), Some(243_388 << 10));
        assert_eq!(resident_of("Name:\tx\n"), None);
    }

    #[test]
    fn the_server_says_what_it_takes_beside() {
        let log = "INFO x: opening the engine local=256 MiB beside_bytes=29360128 far=1\n";
        assert_eq!(beside_of(log), Some(28 << 20));
        assert_eq!(beside_of("nothing"), None);
    }
}
