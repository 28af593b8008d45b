//! `cargo xtask redis saving`: what a snapshot and a log cost beside a full load, in Farcore and in
//! Debian's Redis, each on core 0 with all that it starts, the client on core 1.
//!
//! ```text
//! snapshot: fill -> load | load beside snapshots, one after the other -> rates, p99, memory
//! log:      for none, each second, always: SET by 16 clients, one at a time and 32 at once
//! ```

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustix::fs::OFlags;
use std::os::unix::fs::OpenOptionsExt;

use super::ci;
use super::place::Place;
use super::process::Process;
use super::server::Server;
use super::speed::CLIENT_CORE;
use crate::lab::output_of;

/// How often a snapshot's end and memory are looked for.
const LOOK: Duration = Duration::from_millis(50);
/// Bytes that the disk's own rate is measured with.
const DISK_BYTES: usize = 1 << 30;
/// Clients of a log's load.
const LOG_CLIENTS: u32 = 16;

#[derive(Debug, Args)]
pub(crate) struct Saving {
    /// The program `farcore`, built for release [default: it is built, for debugging]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// What is measured
    #[arg(long, value_delimiter = ',', default_value = "snapshot,log")]
    parts: Vec<Part>,
    /// Servers
    #[arg(long, value_delimiter = ',', default_value = "farcore,redis")]
    servers: Vec<Kind>,
    /// Rounds of each measurement
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Keys that are stored before a snapshot
    #[arg(long, default_value_t = 1_000_000)]
    keys: u32,
    /// Bytes of a value
    #[arg(long, default_value_t = 500)]
    value_bytes: u32,
    /// The log while snapshots are made
    #[arg(long, default_value = "every-second")]
    log: Log,
    /// Requests of a load beside snapshots
    #[arg(long, default_value_t = 1_500_000)]
    requests: u32,
    /// Farcore's --local
    #[arg(long, default_value = "2GiB")]
    local: String,
    /// Farcore's --far
    #[arg(long, default_value = "2GiB")]
    far: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    Snapshot,
    Log,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    Farcore,
    Redis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Log {
    Off,
    EverySecond,
    Always,
}

/// What redis-benchmark has seen.
#[derive(Clone, Copy, Debug)]
struct Load {
    requests_per_second: f64,
    p99_ms: f64,
}

/// What was seen beside a load.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    snapshots: u32,
    took: Duration,
    resident_bytes: u64,
}

struct Bench<'a> {
    place: &'a Place,
    saving: &'a Saving,
    binary: PathBuf,
    dir: PathBuf,
}

pub(super) fn perform(place: &Place, saving: &Saving) -> Result<()> {
    let bench = Bench {
        place,
        saving,
        binary: ci::binary(saving.binary.as_deref())?,
        dir: place.at(&format!("saving-{}", std::process::id())),
    };
    fs::create_dir_all(&bench.dir)?;
    let outcome = bench.run();
    fs::remove_dir_all(&bench.dir)?;
    outcome
}

impl Bench<'_> {
    fn run(&self) -> Result<()> {
        let rate = disk_rate(&self.dir)?;
        println!(
            "disk: {} MiB were written and synced at {:.0} MiB/s",
            DISK_BYTES >> 20,
            mebi(rate)
        );
        if self.saving.parts.contains(&Part::Snapshot) {
            for &kind in &self.saving.servers {
                self.snapshot(kind)
                    .with_context(|| format!("cannot measure a snapshot of {kind:?}"))?;
            }
        }
        if self.saving.parts.contains(&Part::Log) {
            for round in 0..self.saving.rounds {
                for log in [Log::Off, Log::EverySecond, Log::Always] {
                    for &kind in &self.saving.servers {
                        self.log(round, kind, log)
                            .with_context(|| format!("cannot measure the log of {kind:?}"))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn start(&self, kind: Kind, log: Log) -> Result<Process> {
        let dir = self.dir.join("data");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir)?;
        let dir = dir.display();
        let line = match kind {
            Kind::Farcore => {
                let log = match log {
                    Log::Off => "no",
                    Log::EverySecond => "everysec",
                    Log::Always => "always",
                };
                let Saving { local, far, .. } = self.saving;
                format!(
                    "{} serve --resp 127.0.0.1:{{port}} --cores 0 --local {local} --far {far} \
                     --data {dir} --log {log} --save ''",
                    self.binary.display()
                )
            }
            Kind::Redis => {
                let log = match log {
                    Log::Off => "--appendonly no",
                    Log::EverySecond => "--appendonly yes --appendfsync everysec",
                    Log::Always => "--appendonly yes --appendfsync always",
                };
                format!(
                    "redis-server --port {{port}} --bind 127.0.0.1 --dir {dir} --save '' {log} \
                     --auto-aof-rewrite-percentage 0 --daemonize no"
                )
            }
        };
        let log = self.place.log(&format!("saving-{kind:?}"))?;
        Process::start(&line, Some("0"), &log)
    }

    fn load(
        &self,
        process: &Process,
        (requests, clients, pipeline): (u32, u32, u32),
    ) -> Result<Load> {
        let mut command = Command::new("taskset");
        command
            .args(["-c", &CLIENT_CORE.to_string()])
            .args(["redis-benchmark", "-h", "127.0.0.1", "-t", "set", "--csv"])
            .args(["-p", &process.port().to_string()])
            .args(["-P", &pipeline.to_string(), "-c", &clients.to_string()])
            .args(["-d", &self.saving.value_bytes.to_string()])
            .args(["-n", &requests.to_string()])
            .args(["-r", &self.saving.keys.to_string()]);
        let output = output_of(&mut command)?;
        let output = String::from_utf8_lossy(&output);
        load_of(&output).with_context(|| format!("redis-benchmark printed no figures: {output}"))
    }

    fn snapshot(&self, kind: Kind) -> Result<()> {
        let process = self.start(kind, self.saving.log)?;
        // Drawn evenly, three times as many leave one key in twenty out.
        self.load(&process, (self.saving.keys.saturating_mul(3), 50, 64))?;
        let mut asked = Asked::connect(process.server())?;
        let alone = once(&process, &mut asked)?;
        let bytes = newest_bytes(&self.dir.join("data"))?;
        println!(
            "{kind:?}: a snapshot without load: {:.2} s, {:.0} MiB, {:.0} MiB/s, {:.0} MiB resident at most",
            alone.took.as_secs_f64(),
            mebi(bytes as f64),
            mebi(bytes as f64 / alone.took.as_secs_f64()),
            mebi(alone.resident_bytes as f64)
        );
        for round in 0..self.saving.rounds {
            let of = (self.saving.requests, 50, 16);
            let without = self.load(&process, of)?;
            let resident_bytes = resident_of(process.id())?;
            let ends = AtomicBool::new(false);
            let (with, seen) = thread::scope(|scope| -> Result<_> {
                let saver = scope.spawn(|| -> Result<Seen> {
                    let mut all = Seen::default();
                    while !ends.load(Ordering::Relaxed) {
                        let one = once(&process, &mut asked)?;
                        all.snapshots += 1;
                        all.took += one.took;
                        all.resident_bytes = all.resident_bytes.max(one.resident_bytes);
                    }
                    Ok(all)
                });
                let with = self.load(&process, of);
                ends.store(true, Ordering::Relaxed);
                let seen = saver.join().unwrap_or_else(|_| Ok(Seen::default()))?;
                Ok((with?, seen))
            })?;
            ensure!(seen.snapshots > 0, "no snapshot was made");
            println!(
                "{kind:?} round {round}: {:.0} a second, p99 {:.2} ms, {:.0} MiB | beside {} snapshots \
                 of {:.2} s: {:.0} a second ({:.2}), p99 {:.2} ms ({:.2}), {:.0} MiB",
                without.requests_per_second,
                without.p99_ms,
                mebi(resident_bytes as f64),
                seen.snapshots,
                seen.took.as_secs_f64() / f64::from(seen.snapshots),
                with.requests_per_second,
                with.requests_per_second / without.requests_per_second,
                with.p99_ms,
                with.p99_ms / without.p99_ms,
                mebi(seen.resident_bytes as f64)
            );
        }
        Ok(())
    }

    fn log(&self, round: u32, kind: Kind, log: Log) -> Result<()> {
        let process = self.start(kind, log)?;
        for (pipeline, requests) in [(1, self.saving.requests / 20), (32, self.saving.requests)] {
            let is_slow = log == Log::Always;
            let requests = requests / if is_slow { 10 } else { 1 };
            let load = self.load(&process, (requests, LOG_CLIENTS, pipeline))?;
            println!(
                "{kind:?} round {round}, log {log:?}, -c {LOG_CLIENTS} -P {pipeline}: {:.0} a second, p99 {:.2} ms",
                load.requests_per_second, load.p99_ms
            );
        }
        Ok(())
    }
}

/// A connection by which snapshots are made.
struct Asked(BufReader<TcpStream>);

impl Asked {
    fn connect(server: &Server) -> Result<Self> {
        let stream = server.connect()?;
        stream.set_read_timeout(None)?;
        Ok(Self(BufReader::new(stream)))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    /// True while a snapshot is being written.
    fn is_saving(&mut self) -> Result<bool> {
        self.0.get_mut().write_all(b"INFO persistence\r\n")?;
        let head = self.line()?;
        ensure!(head.starts_with('$'), "INFO is answered by {head}");
        let mut is_saving = false;
        loop {
            let line = self.line()?;
            is_saving |= line == "rdb_bgsave_in_progress:1";
            ensure!(
                line != "rdb_last_bgsave_status:err",
                "a snapshot has failed"
            );
            // Its fields end with an empty line, behind the last one or as the end of the bulk.
            if line.is_empty() {
                return Ok(is_saving);
            }
        }
    }
}

/// Has one snapshot made, and waits for its end.
fn once(process: &Process, asked: &mut Asked) -> Result<Seen> {
    let began = Instant::now();
    asked.0.get_mut().write_all(b"BGSAVE\r\n")?;
    let answer = asked.line()?;
    ensure!(answer.starts_with('+'), "BGSAVE is answered by {answer}");
    let mut resident_bytes = 0;
    loop {
        thread::sleep(LOOK);
        resident_bytes = resident_bytes.max(resident_of(process.id())?);
        if !asked.is_saving()? {
            break;
        }
    }
    Ok(Seen {
        snapshots: 1,
        took: began.elapsed(),
        resident_bytes,
    })
}

/// Memory of a process and its children, shared pages counted once.
fn resident_of(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(path).unwrap_or_default();
    let mut bytes = proportional(process)?;
    for child in children.split_whitespace() {
        // It may have ended meanwhile.
        bytes += proportional(child.parse()?).unwrap_or(0);
    }
    Ok(bytes)
}

fn proportional(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kibibytes.with_context(|| format!("no Pss in {path}"))? << 10)
}

/// Bytes of the last snapshot in a directory.
fn newest_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("base-") || name == "dump.rdb" {
            bytes += entry.metadata()?.len();
        }
    }
    Ok(bytes)
}

/// Bytes a second that a file in a directory takes, past the page cache.
fn disk_rate(dir: &Path) -> Result<f64> {
    /// A page's boundary, as such writes need.
    #[repr(align(4096))]
    struct Block([u8; 1 << 20]);
    let block: Box<Block> = Box::new(Block([7; 1 << 20]));
    let path = dir.join("rate");
    let began = Instant::now();
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(OFlags::DIRECT.bits().cast_signed())
        .open(&path)?;
    for _ in 0..DISK_BYTES / block.0.len() {
        file.write_all(&block.0)?;
    }
    file.sync_all()?;
    let took = began.elapsed().as_secs_f64();
    fs::remove_file(&path)?;
    Ok(DISK_BYTES as f64 / took)
}

fn mebi(bytes: f64) -> f64 {
    bytes / f64::from(1 << 20)
}

/// The figures of the only test of `redis-benchmark --csv`.
fn load_of(csv: &str) -> Option<Load> {
    let mut lines = csv.lines().filter(|line| line.starts_with('"'));
    let names = lines.next()?;
    let figures = lines.next()?;
    let of = |name: &str| {
        let at = names
            .split(',')
            .position(|one| one.trim_matches('"') == name)?;
        let figure = figures.split(',').nth(at)?;
        figure.trim_matches('"').parse().ok()
    };
    Some(Load {
        requests_per_second: of("rps")?,
        p99_ms: of("p99_latency_ms")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_names() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\",\"p99_latency_ms\"\n\"SET\",\"9.5\",\"1\",\"2.25\"\n";
        let load = load_of(csv).unwrap();
        assert!((load.requests_per_second - 9.5).abs() < 1e-9);
        assert!((load.p99_ms - 2.25).abs() < 1e-9);
        assert!(load_of("ERROR\n").is_none());
    }
}
